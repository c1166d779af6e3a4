"""Logs of other harnesses, read as questions and answers of ours: one file a format."""
