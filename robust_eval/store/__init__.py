"""The store: answers are kept as they arrive and never asked for again."""
