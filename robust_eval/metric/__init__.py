"""Metrics of a graded answer table: classes and specs."""
