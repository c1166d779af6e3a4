"""Pure functions on arrays, and the classes that apply them to a graded answer table."""

from robust_eval.runtime.announced import announces

announces(__name__)  # the package is the decorator as well
