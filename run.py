"""Measure how robustly a language model knows what it gets right: ``python run.py`` or ``python run.py experiment=smoke``."""

from robust_eval.cli.main import main

if __name__ == "__main__":
    main()
