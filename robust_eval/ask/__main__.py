"""``python -m robust_eval.ask`` is :mod:`robust_eval.cli.ask`."""

from robust_eval.cli.ask import main

if __name__ == "__main__":
    main()
