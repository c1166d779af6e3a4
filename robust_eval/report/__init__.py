"""Reports for people: the table in the terminal, the figures, the page."""
