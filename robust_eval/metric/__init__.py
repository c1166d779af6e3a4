"""Metrics of a graded answer table: classes, specs, and presentation."""
