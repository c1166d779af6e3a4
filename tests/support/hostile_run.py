"""A finished run with answers of all kinds and texts that mean harm, which other harnesses are then given."""

import math
from pathlib import Path

import robust_eval

HOSTILE = [
    '=HYPERLINK("http://example.org")',
    " @SUM(A1:A9)",
    "+1-1",
    "-5",
    "'quoted",
    "\t=1",
    "\x1b[31mred\x1b[0m",
    "\x00nul\x00",
    'a\nb\r\nc,d;"e"',
    "\u202egnp.exe",
    "<script>alert(1)</script>",
    "</script><!--",
    "[1, 2]",
    "['Rome']",
    "{{ 7 * 7 }} {0} %s ${x}",
    "../../etc/passwd",
    "null",
    "\ufeffbyte order",
    "𝕳 \U0001f600",
    "x" * 5000,
]
IDS = ["q0", "q0 t=0.2", "../../etc/passwd", "q\n3", "=4", 'a,b"c', "ü/é", "<b>", "_epoch_1", "9"]
SWEEP = [0.2, 0.6, 1.0]


def questions() -> list[dict]:
    found = []
    for number, name in enumerate(IDS):
        record = {
            "id": name,
            "question": f"What is fact {number}? {HOSTILE[number]}",
            "group": f"group {number // 2}",
            "category": HOSTILE[number + 5],
            "type": "LOC",
        }
        if number == 5:
            record |= {"choices": ["Rome", "=Paris", "['x']"], "correct": 1}
        else:
            record |= {"answers": [f"answer {number}", HOSTILE[number]], "incorrect": ["nothing"]}
        found.append(record)
    return found


def answers() -> list[dict]:
    found = []
    for number, question in enumerate(questions()):
        right = "B" if "choices" in question else f"answer {number}"
        tops = [[math.log(share) for share in (0.5 - number / 50, *[0.04] * 9)]] * 2
        greedy = {"token_logprobs": [tops[0][0]] * 2, "top_logprobs": tops, "token_ids": [3, 2], "answer_tokens": 1}
        place = {"question_id": question["id"], "rewrite": 0}
        found.append(place | {"temperature": 0.0, "trial": 0, "text": right, "outcome": "ok", **greedy})
        for level, t in enumerate(SWEEP):
            for trial in range(6):
                text = right if trial + number > 3 * level else HOSTILE[(number + trial + level) % len(HOSTILE)]
                outcome = {1: "error", 2: "filtered_reply", 3: "refused", 4: "empty"}.get(
                    (number + 5 * trial) % 12, "ok"
                )
                text = "" if outcome in ("error", "empty") else text
                row = place | {"temperature": t, "trial": trial, "text": text, "outcome": outcome}
                tokens = {
                    "prompt_tokens": 9,
                    "completion_tokens": trial,
                    "finish_reason": "length" if trial else "stop",
                }
                found.append(row | tokens | {"reasoning": HOSTILE[trial], "sampler": "temperature_sweep"})
        for rewrite in range(3):
            text = right if rewrite < number % 4 else HOSTILE[rewrite + number]
            row = {"question_id": question["id"], "rewrite": rewrite, "temperature": 1.0, "trial": 0, "text": text}
            found.append(row | {"outcome": "ok", "sampler": "perturbation"})
    return found


def hostile_run(folder: Path) -> robust_eval.Evaluation:
    """Score them; the run lies in ``folder/mlruns/runs``."""
    return robust_eval.score(
        answers(),
        questions(),
        ["frs", "certainty", "agreement"],
        "org/made up: =1",
        tracking="none",
        **{"model.prompt_style": "chat", "dataset.name": "facts & figures", "paths.mlruns": str(folder / "mlruns")},
    )
