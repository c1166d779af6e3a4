"""Probabilities of the answers of a server, from its log-probabilities."""
