"""Graders, which turn the answer table into the graded table: right or wrong, and which label."""
