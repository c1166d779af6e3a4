"""Pure functions on arrays: intervals, tests, agreement, reliability, robustness, correction by labels."""
