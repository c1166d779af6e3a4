"""``python -m robust_eval.plot`` is :mod:`robust_eval.cli.plot`."""

from robust_eval.cli.plot import main

if __name__ == "__main__":
    main()
