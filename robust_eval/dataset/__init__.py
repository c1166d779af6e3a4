"""Questions from somewhere: the built-in sets, and files in the same layout."""
