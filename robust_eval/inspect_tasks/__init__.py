"""Tasks, scorer, metrics and reducers for inspect_ai: ``inspect eval robust_eval/frs`` (docs/inspect.md)."""
