"""Logs and tasks of other harnesses: read, written, and run inside inspect_ai, lm-eval and MLflow."""
