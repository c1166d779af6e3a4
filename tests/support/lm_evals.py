"""Our tasks evaluated by lm-eval in a process of its own: ``python tests/support/lm_evals.py FOLDER < page.json``.

lm-eval sets up the logging of its process, and leaves warnings that end tests. The input is the code of a page and its
commands, which are run in FOLDER/page.
"""

import contextlib
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from api_server import api_server
from capitals_server import RIGHT, capitals_server

import robust_eval.interop.lm_eval_tasks

LEVELS = [0.8, 1.4]
TRIALS = 10
QUIZ = [
    {"id": each, "question": f"What is the capital of {each}?", "answers": [key], "group": "south" * (each != "Norway")}
    for each, key in RIGHT.items()
]
UNKNOWN = {"id": "none", "question": "Which country has its capital in Italy?", "answers": ["Lisbon"]}
WHOLE = {"max_gen_toks": 5, "top_k": 0, "top_p": 1, "min_p": 0}
"""Short replies, drawn from all tokens."""
OPTIONS = {"dataset": "quiz.jsonl", "temperatures": LEVELS, "trials": TRIALS}


def evaluate(folder: Path, code: str, commands: Sequence[Sequence[str]]) -> None:
    """Leave samples and results of each run in a folder of its name, and in ``said.json`` what was logged, sent, and
    printed by the code.
    """
    import lm_eval.evaluator

    lm_eval.evaluator.add_env_info = lambda results: None  # it asks pip and the graphics card, for a second each time
    (folder / "page").mkdir()
    for place in (folder, folder / "page"):
        (place / "quiz.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in [*QUIZ, UNKNOWN]))
    os.chdir(folder)
    said: dict[str, Any] = {}
    with capitals_server() as server:
        arguments = {"base_url": f"{server.url}/chat/completions", "model": "m", "max_retries": 1}
        _run("chat", "local-chat-completions", arguments, OPTIONS, apply_chat_template=True, fewshot_as_multiturn=True)
        said["chat"] = server.bodies
    with api_server(slots=2) as url:
        arguments = {"base_url": f"{url}/completions", "model": "m", "tokenized_requests": False, "max_retries": 1}
        few = OPTIONS | {"trials": 3}
        settings = {"gen_kwargs": WHOLE}
        with _logged() as said["seeds"]:
            _run("seeds", "local-completions", arguments, few | {"seeds": True}, **settings)
        with _logged() as said["same"]:
            _run("same", "local-completions", arguments, few, "robust_eval_certainty", limit=1, **settings)
    os.chdir("page")
    said["printed"] = _page(code, commands)
    (folder / "said.json").write_text(json.dumps(said))


def _run(
    name: str,
    model: str,
    arguments: dict[str, Any],
    options: dict[str, Any],
    task: str = "robust_eval",
    **settings: Any,
) -> None:
    import lm_eval
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    (path,) = robust_eval.interop.lm_eval_tasks.__path__
    tracker = EvaluationTracker(output_path=name)
    manager = TaskManager(include_path=path, include_defaults=False, metadata={"robust_eval": options})
    found = lm_eval.simple_evaluate(
        model=model,
        model_args={**arguments, "tokenizer_backend": None},
        tasks=[task],
        task_manager=manager,
        log_samples=True,
        evaluation_tracker=tracker,
        **settings,
    )
    samples = found.pop("samples")
    tracker.save_results_aggregated(results=found, samples=samples)
    for asked, own in samples.items():
        tracker.save_results_samples(task_name=asked, samples=own)


@contextlib.contextmanager
def _logged() -> Any:
    """The warnings of our tasks."""
    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    ours = logging.getLogger("robust_eval.interop.lm_eval_tasks")
    ours.addHandler(handler)
    yield lines
    ours.removeHandler(handler)


def _page(code: str, commands: Sequence[Sequence[str]]) -> str:
    """Run the commands as the shell does, and then the code; return what the code printed."""
    from lm_eval.__main__ import cli_evaluate
    from lm_eval.tasks._index import TaskIndex

    build = TaskIndex.build
    TaskIndex.build = staticmethod(lambda paths: build(paths[-1:]))  # reading all of its own takes seconds
    for words in commands:
        sys.argv = list(words)
        cli_evaluate()
    with contextlib.redirect_stdout(Path("printed.txt").open("w")) as printed:
        exec(code, {})
        printed.close()
    return Path("printed.txt").read_text()


if __name__ == "__main__":
    evaluate(Path(sys.argv[1]), *json.load(sys.stdin))
