"""Logs of inspect_ai, made in a process of its own: ``python tests/support/inspect_evals.py FOLDER < scorers.json``.

inspect_ai sets up the logging of its process, and leaves warnings that end tests.
"""

import json
import os
import sys
from pathlib import Path

from capitals_server import RIGHT, capitals_server

LEVELS = [0.8, 1.4]


def evaluate(folder: Path) -> None:
    """Leave a log of each of our tasks in a folder of its name, and the requests of each in ``requests.json``."""
    import inspect_ai
    from inspect_ai import Epochs, Task
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import get_model
    from inspect_ai.scorer import includes
    from inspect_ai.solver import generate

    from robust_eval.interop.inspect_scoring import answer_entropy, graded
    from robust_eval.interop.inspect_tasks import certainty, frs, multiqa

    samples = [
        Sample(
            f"What is the capital of {each}?", target=key, id=each, metadata={"rewrites": [f"{each}?", f"Of {each}?"]}
        )
        for each, key in RIGHT.items()
    ]
    unknown = Sample("Which country has its capital in Italy?", target="Lisbon", id="none")
    one_by_one = {"max_samples": 1}
    tasks = {
        "whole": (frs(samples, temperatures=LEVELS), {}),
        "early": (frs(samples, temperatures=LEVELS, early_stop=True, scorer=includes()), one_by_one),
        "certainty": (certainty(samples, temperature=1.0, trials=10), {}),
        "multiqa": (multiqa(samples), {}),
        "unknown": (frs([*samples, unknown], temperatures=LEVELS, trials=2), one_by_one),
        "reduced": (
            Task(
                dataset=MemoryDataset(samples),
                solver=generate(),
                scorer=includes(),
                epochs=Epochs(10, answer_entropy()),
            ),
            {},
        ),
        "unmarked": (Task(dataset=MemoryDataset(samples[:1]), solver=generate(), scorer=graded()), {}),
        "without": (frs(samples, temperatures=LEVELS, trials=2), {}),
    }
    requests = {}
    for name, (task, settings) in tasks.items():
        with capitals_server(logprobs=name != "without") as server:
            os.environ |= {"LLAMA_BASE_URL": f"{server.url}/v1", "LLAMA_API_KEY": "sk-planted"}
            where = {"log_dir": str(folder / name), "display": "none"}
            model = get_model("openai-api/llama/m", memoize=False)  # each with the address of its own server
            inspect_ai.eval(task, model=model, **where, **settings)
            requests[name] = server.bodies
    (folder / "requests.json").write_text(json.dumps(requests))


if __name__ == "__main__":
    import harness_logs
    import inspect_scorers

    place = Path(sys.argv[1])
    harness_logs.make_inspect(place / "logs")
    for case in json.load(sys.stdin):
        inspect_scorers.make(case, place / "scorers" / case["name"])
    evaluate(place / "tasks")
