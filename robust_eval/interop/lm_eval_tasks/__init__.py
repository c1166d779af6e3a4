"""Tasks for lm-eval: ``lm_eval --include_path "$(python -m robust_eval.interop.lm_eval_tasks)"`` (docs/lm_eval.md)."""
