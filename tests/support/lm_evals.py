"""All logs of lm-eval, made in a process of its own: ``python tests/support/lm_evals.py FOLDER < wanted.json``.

lm-eval sets up the logging of its process, and leaves warnings that end tests. The input is the families of its own
tasks, the code of a page and the page's commands, which are run in FOLDER/tasks/page.
"""

import contextlib
import json
import logging
import os
import subprocess
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
    """Evaluate our tasks: leave samples and results of each run in a folder of its name, and in ``said.json`` what was
    logged, sent, and printed by the code.
    """
    (folder / "page").mkdir(parents=True)
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
    from lm_eval_families import evaluate as evaluate_tasks

    (path,) = robust_eval.interop.lm_eval_tasks.__path__
    model_args = {**arguments, "tokenizer_backend": None}
    evaluate_tasks(
        Path(name), [task], path, metadata={"robust_eval": options}, model=model, model_args=model_args, **settings
    )


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
    """Run the commands as the shell does, and then the code; return what the code printed.

    The model is one that always says "lol", which needs no file.
    """
    from lm_eval.__main__ import cli_evaluate
    from lm_eval.tasks._index import TaskIndex

    build = TaskIndex.build
    TaskIndex.build = staticmethod(lambda paths: build(paths[-1:]))  # reading all of its own takes seconds
    instead = {"$TASKS": _tasks(), "hf": "dummy", "logs/gpt2": "logs"}
    for words in commands:
        words = [instead.get(word, word) for word in words]
        sys.argv = words if "--limit" in words else [*words, "--limit", "3"]
        cli_evaluate()
    with contextlib.redirect_stdout(Path("printed.txt").open("w")) as printed:
        exec(code.replace('"hf"', '"dummy"'), {})
        printed.close()
    return Path("printed.txt").read_text()


def _tasks() -> str:
    """What the page's command prints for the variable TASKS."""
    words = [sys.executable, "-m", "robust_eval.interop.lm_eval_tasks"]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    import harness_logs
    import lm_eval.evaluator
    import lm_eval_families

    lm_eval.evaluator.add_env_info = lambda results: None  # it asks pip and the graphics card, for a second each time
    place = Path(sys.argv[1])
    families, code, commands = json.load(sys.stdin)
    harness_logs.make_lm_eval(place / "logs")
    (place / "families").mkdir()
    for number, family in enumerate(families):
        lm_eval_families.make(family, place / "families" / str(number))
    evaluate(place / "tasks", code, commands)
