"""Tasks for lm-eval (docs/inside_harnesses.md):
``lm_eval --include_path "$(python -m robust_eval.interop.lm_eval_tasks)"``.
"""
