"""Aggregators of the answers to a question: clusters of equivalent answers, and the majority vote."""
