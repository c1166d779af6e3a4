"""Questions from somewhere: the built-in sets, those of the papers, and tables of one's own."""
