"""A run whose grader errs, and people who do not: what is right of every answer is known."""

import json
from pathlib import Path

import numpy as np
from experiments import run_experiment

from robust_eval.tracking.result import Result

TEMPERATURES = (0.5, 1.0, 1.5)
TRIALS = 4
TRUE, FALSE = "truly", "falsely"
"""The last word of a reply, by which people tell; the grader looks for the accepted answer."""


def labelled_run(
    folder: Path,
    questions: int = 40,
    *overrides: str,
    metrics: str = "[frs,certainty,agreement]",
    tracking: str = "none",
) -> Result:
    """Run ``folder/run``: its grader calls right what names the town, and every fifth reply errs by that.

    Greedy answers are right by all. At higher temperatures fewer replies are right.
    """
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(7)
    answers, asked = [], []
    for number in range(questions):
        asked.append(
            {"id": f"q{number}", "question": f"Which town is number {number}?", "answers": [f"Alder{number}ton"]}
        )
        answers.append(_answer(number, 0.0, 0, True, True))
        for t in TEMPERATURES:
            for trial in range(TRIALS):
                right = bool(generator.random() < 1 - t / 2.2)
                answers.append(_answer(number, t, trial, right, right ^ bool(generator.random() < 0.2)))
    (folder / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in answers))
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    (folder / "run").mkdir(exist_ok=True)
    settings = [
        "sampler=recorded",
        f"sampler.recorded.file={folder / 'answers.jsonl'}",
        "model.name=somebody",
        "dataset=jsonl",
        f"dataset.path={folder / 'questions.jsonl'}",
        "dataset.name=questions",
        f"metric={metrics}",
        f"tracking={tracking}",
        f"paths.mlruns={folder / 'mlruns'}",
    ]
    return run_experiment(folder / "run", *settings, *overrides)


def _answer(number: int, t: float, trial: int, right: bool, called: bool) -> dict[str, object]:
    said = f"{f'Alder{number}ton' if called else 'Nowhere'} {TRUE if right else FALSE}"
    greedy = {"top_logprobs": [[-0.1, *[-5.0 - k for k in range(9)]]], "answer_tokens": 1} if t == 0 else {}
    return {"question_id": f"q{number}", "text": said, "temperature": t, "trial": trial, **greedy}


def truth(text: str) -> str:
    """What a person says of a reply."""
    return "right" if text.endswith(TRUE) else "wrong"
