"""``python -m robust_eval.question_type.train`` is :mod:`robust_eval.cli.train_question_types`."""

from robust_eval.cli.train_question_types import main

if __name__ == "__main__":
    main()
