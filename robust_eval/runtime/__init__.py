"""What any program needs: terminal, log, cache, locks, progress. Nothing here knows about language models."""
