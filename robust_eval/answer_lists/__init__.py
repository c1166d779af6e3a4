"""The name that :mod:`robust_eval.cli.answer_lists` had: ``python -m robust_eval.answer_lists`` goes on working."""
