"""Store of answers, which are written as they arrive and never requested again."""
