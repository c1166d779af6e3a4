"""Questions from somewhere: the built-in sets, those of the papers, and tables of one's own."""

from robust_eval.runtime.announced import announces

announces(__name__)  # the package is the decorator as well
