"""Measure how firmly a language model holds its facts: ``python run.py`` or ``python run.py experiment=smoke``."""

from robust_eval.cli.main import main

if __name__ == "__main__":
    main()
