"""Which answers to ask for."""

from robust_eval.runtime.announced import announces

announces(__name__)  # the package is the decorator as well
