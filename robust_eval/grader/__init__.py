"""Graders: right or wrong, and which label; they turn the answer table into the graded table."""
