"""What a person reads: the table in the terminal, the figures, the page."""
