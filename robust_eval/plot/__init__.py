"""Figures: each is one function that draws into the axes, or the figure, that it is given."""
