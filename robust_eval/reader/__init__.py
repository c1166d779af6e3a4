"""Extraction of answers from replies: reasoning, markup and politeness are removed before anything is graded."""
