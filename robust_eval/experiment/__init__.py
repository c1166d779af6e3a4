"""Experiment: one run, from its questions to its record."""
