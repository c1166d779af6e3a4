"""Rewrites of a question: recorded ones."""
