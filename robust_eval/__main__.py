"""``python -m robust_eval`` is the command ``robust-eval``."""

from robust_eval.cli.main import main

if __name__ == "__main__":
    main()
