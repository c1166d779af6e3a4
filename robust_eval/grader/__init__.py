"""Right or wrong, and which label: what turns the answer table into the graded table."""

from robust_eval.runtime.announced import announces

announces(__name__)  # the package is the decorator as well
