"""Measure how robust a language model's knowledge is.

``python run.py`` measures the default model, ``python run.py experiment=smoke`` tries it in seconds.
"""

from robust_eval.cli.main import main

if __name__ == "__main__":
    main(default="run")
