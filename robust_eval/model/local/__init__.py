"""Models that are loaded here: everything that computes with torch."""
