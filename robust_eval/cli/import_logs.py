"""Score the logs of other harnesses: ``robust-eval import FILE… [KEY=VALUE…]``.

Logs of one model and task are one run, those of several become several runs and a comparison. With ``--output FOLDER``
nothing is scored: the tables of answers and questions are written there. With ``--questions`` the file holds lists of
letters (robust_eval/cli/answer_lists.py).
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from robust_eval.api import LoadedAnswers, compare, load_answers
from robust_eval.cli import answer_lists
from robust_eval.cli.arguments import split_arguments
from robust_eval.error import UserError, first_line
from robust_eval.runtime.console import Console
from robust_eval.runtime.process import command


def main() -> None:
    """Run the command; where a log is broken, exit with status 1 and one sentence, before anything is scored."""
    if any(argument.split("=")[0] == "--questions" for argument in sys.argv[1:]):
        answer_lists.main()
        return
    arguments = _parser().parse_args()
    with command():
        files, words = split_arguments(arguments.words)
        settings = dict(map(_setting, words))
        if not files:
            raise UserError("name at least one log; see --help")
        loaded = load_answers(*files)
        console = Console()
        for each in loaded:
            console.print(str(each))
            for sentence in (*each.differences, *each.ungraded):
                console.print(f"  {sentence}")
        if arguments.output is not None:
            for each in loaded:
                console.print(_write(each, arguments.output if len(loaded) == 1 else arguments.output / _named(each)))
            return
        metrics: Any = settings.pop("metric", None)
        wanted = [metrics] if isinstance(metrics, str) else metrics
        for each in loaded:
            if wanted is None:
                for name, why in each.lacking(**settings).items():
                    console.print(f"  no {name}: {why}")
        evaluations = []
        for each in loaded:
            evaluation = each.score(wanted, **settings)
            evaluations.append(evaluation)
            console.print(repr(evaluation))
            for sentence in each.agreement(evaluation):
                console.print(sentence)
        if len(evaluations) > 1:
            console.print(repr(compare(evaluations)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="robust-eval import",
        description="Score logs of inspect_ai (.eval, .json), lm-eval (samples_*.jsonl), OpenAI batches (requests and "
        "outputs, .jsonl), HELM (scenario_state.json) and Every Eval Ever, or folders of them.",
    )
    parser.add_argument(
        "words", nargs="+", metavar="FILE|KEY=VALUE", help="logs, and settings such as metric=certainty"
    )
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="write the tables there, and score nothing")
    return parser


def _setting(word: str) -> tuple[str, object]:
    key, _, value = word.partition("=")
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError as problem:
        raise UserError(f"{word}: {first_line(problem)}") from problem


def _named(loaded: LoadedAnswers) -> str:
    return re.sub(r"[^\w.\-]+", "-", f"{loaded.model}-{loaded.task}")


def _write(loaded: LoadedAnswers, folder: Path) -> str:
    """Write the tables of answers and questions into a folder; return how they are scored."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(loaded.collected.answers, folder / "answers.parquet")
        (folder / "questions.jsonl").write_text(loaded.collected.json_lines(), encoding="utf-8")
    except OSError as problem:
        raise UserError(f"{folder} cannot be written: {problem.strerror}") from problem
    style = "chat" if loaded.collected.request.chat else "plain"
    return (
        f"robust-eval sampler=recorded sampler.file={folder}/answers.parquet dataset={folder}/questions.jsonl "
        f"model.name={json.dumps(loaded.model)} model.prompt_style={style} "
        f"reader={loaded.collected.request.reader}"
    )


if __name__ == "__main__":
    main()
