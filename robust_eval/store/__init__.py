"""Answers that are kept as they arrive, and never asked again."""
