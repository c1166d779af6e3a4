"""Finished runs: read, as tidy frames, and compared."""
