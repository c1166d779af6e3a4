"""Models behind a server: everything that speaks HTTP."""
