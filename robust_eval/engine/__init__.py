"""Engines: local, or on Ray."""
