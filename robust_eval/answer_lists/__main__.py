"""``python -m robust_eval.answer_lists`` is :mod:`robust_eval.cli.answer_lists`."""

from robust_eval.cli.answer_lists import main

if __name__ == "__main__":
    main()
