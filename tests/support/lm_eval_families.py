"""Logs of lm-eval, and of its own tasks.

Each family is the task's real YAML on documents of ours, answered by a model that follows a script. A family leaves
``samples_*.jsonl`` and ``results_*.json`` in the folder ``scripted`` of its own.
"""

import json
from pathlib import Path
from typing import Any

import lm_eval
import yaml
from lm_eval.api.model import LM
from lm_eval.loggers import EvaluationTracker
from lm_eval.models.api_models import JsonChatStr
from lm_eval.tasks import TaskManager

TEMPERATURE = 0.7
REPEATS = 2
TASKS = Path(lm_eval.__file__).parent / "tasks"


class Scripted(LM):  # type: ignore[misc]  # lm-eval is not typed
    """A model that gives the replies, or the log-likelihoods, of a family by the number of the document."""

    tokenizer_name = "scripted"

    def __init__(self, family: dict[str, Any]) -> None:
        super().__init__()
        self.family = family

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """See LM."""
        return [self.family["replies"][request.doc_id] for request in requests]

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """See LM."""
        return [(self.family["likelihoods"][request.doc_id][request.idx], False) for request in requests]

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        """See LM."""
        raise NotImplementedError

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> Any:
        """Return messages as a model behind an API gets them."""
        return JsonChatStr(json.dumps(chat_history))

    def chat_template(self, chat_template: bool | str = False) -> str:
        """Return a template for the record."""
        return "{{ messages }}"


def evaluate(folder: Path, tasks: list[str], include_path: Path | str, **settings: Any) -> None:
    """Evaluate tasks of a folder; leave lm-eval's results and samples in another."""
    tracker = EvaluationTracker(output_path=str(folder))
    manager = TaskManager(
        include_path=str(include_path), include_defaults=False, metadata=settings.pop("metadata", None)
    )
    found = lm_eval.simple_evaluate(
        tasks=tasks,
        task_manager=manager,
        log_samples=True,
        evaluation_tracker=tracker,
        bootstrap_iters=0,
        **settings,
    )
    samples = found.pop("samples")
    tracker.save_results_aggregated(results=found, samples=samples)
    for task, of_task in samples.items():
        tracker.save_results_samples(task_name=task, samples=of_task)


def make(family: dict[str, Any], folder: Path) -> None:
    """Evaluate a family; leave its log in a folder."""
    folder.mkdir()
    real = TASKS / family["yaml"]
    name = yaml.load(real.read_text(), _Loader)["task"]
    data = folder / "docs.json"
    data.write_text(json.dumps(family["docs"]))
    files = dict.fromkeys(("train", "validation", "test", "dev"), str(data))
    changed: dict[str, Any] = {"dataset_path": "json", "dataset_name": None, "dataset_kwargs": {"data_files": files}}
    if "replies" in family:
        changed["repeats"] = REPEATS
    (folder / "own").mkdir()
    (folder / "own" / "task.yaml").write_text(yaml.safe_dump({"include": str(real), "task": name, **changed}))
    evaluate(
        folder,
        [name],
        folder / "own",
        model=Scripted(family),
        model_args={"model": "scripted"},
        num_fewshot=0,
        gen_kwargs={"do_sample": True, "temperature": TEMPERATURE} if "replies" in family else None,
        apply_chat_template=bool(family.get("chat")),
        fewshot_as_multiturn=bool(family.get("chat")),
    )


class _Loader(yaml.SafeLoader):
    """A reader of YAML that leaves lm-eval's functions out."""


_Loader.add_constructor("!function", lambda loader, node: None)
