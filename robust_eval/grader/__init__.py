"""Right or wrong, and which label: what turns the answer table into the graded table."""
