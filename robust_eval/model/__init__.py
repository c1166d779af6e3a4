"""Language models: what can be asked of one, and how each kind gets it cheaply."""

from robust_eval.runtime.announced import announces

announces(__name__)  # the package is the decorator as well
