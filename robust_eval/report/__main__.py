"""``python -m robust_eval.report`` is :mod:`robust_eval.cli.compare`."""

from robust_eval.cli.compare import main

if __name__ == "__main__":
    main()
