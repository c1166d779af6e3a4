"""The name that :mod:`robust_eval.cli.ask` had: ``python -m robust_eval.ask`` goes on working."""
