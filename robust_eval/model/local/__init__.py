"""Local language models: everything that computes with torch."""
