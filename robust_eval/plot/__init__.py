"""Figures: each is one function that draws into given axes, or a given figure."""
