"""Tasks for lm-eval: ``lm_eval --include_path "$(python -m robust_eval.lm_eval_tasks)"`` (docs/lm_eval.md)."""
