"""Pure functions on arrays, and the classes that apply them to a graded answer table."""
