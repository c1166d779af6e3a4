"""A server, a data set and names that hold every character that a terminal would act on: none of them gets anywhere."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted_server import Body, ScriptedServer, scripted_server
from shell import Shell
from unseen import HOSTILE, SEQUENCES, unseen, unseen_in

NAME = f"mine {SEQUENCES}{HOSTILE}"
RUN = """
import runpy, sys
from robust_eval.plot.figure_registry import registered
from robust_eval.plot import figure_files
from robust_eval.report import comparison_gallery
figure_files.registered = lambda: registered()[:1]  # to draw all would take most of the time
comparison_gallery.save_comparison_figures = lambda *_: []  # those of robust-eval compare are the same
runpy.run_path("run.py", run_name="__main__")
"""
ASK = """
import runpy, torch
torch.set_num_threads(1)  # those of the process that this is a fork of are not here
runpy.run_module("robust_eval", run_name="__main__", alter_sys=True)
"""


def hostile(body: Body) -> tuple[int, dict[str, str], Body]:
    """Answers and refusals, all of them full of control characters."""
    asked = body["messages"][-1]["content"]
    if "refused" in asked:
        return (
            400,
            {},
            {"error": {"message": f"no {SEQUENCES}{HOSTILE}\nforged: line", "type": "invalid", "code": NAME}},
        )
    seed = body.get("seed", 0)
    text = (
        f"1. Which city {SEQUENCES}{HOSTILE}is it?\n2. What {HOSTILE}city?" if "ways" in asked else f"Paris {HOSTILE}"
    )
    choices = [
        {
            "index": place,
            "finish_reason": f"stop{HOSTILE}",
            "message": {"content": f"{text} {(seed + place) % 3}", "refusal": None},
        }
        for place in range(body.get("n", 1))
    ]
    return 200, {}, {"choices": choices, "usage": {"prompt_tokens": 5, "completion_tokens": 5}}


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with scripted_server(hostile) as started:
        yield started


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with questions whose ids, categories and texts are hostile, and one that is refused."""
    folder = tmp_path_factory.mktemp("hostile")
    questions = [
        {
            "id": f"{number} {HOSTILE}",
            "question": f"Which city {'is refused' if number == 11 else ''}{number} {HOSTILE}?",
            "answers": [f"Paris {HOSTILE} 1"],
            "category": f"cities {number % 2} {SEQUENCES}{HOSTILE}",
            "type": f"LOC{HOSTILE}",
            "rewrites": [f"Name {HOSTILE}city {number}."],
        }
        for number in range(12)
    ]
    lines = "".join(f"{json.dumps(question)}\n" for question in questions)
    (folder / f"data{SEQUENCES.replace('/', '')}.jsonl").write_text(lines)
    return folder


@pytest.fixture(scope="module")
def settings(server: ScriptedServer, place: Path) -> list[str]:
    (data,) = place.glob("*.jsonl")
    quoted = NAME.replace("\\", "\\\\").replace("'", "\\'")
    return [
        *("model=openai_compatible", f"model.base_url={server.url}", "model.model=m", f"model.name='{quoted}'"),
        *(
            "dataset=jsonl",
            f"dataset.path='{data}'",
            f"dataset.name='set {quoted}'",
            f"paths.mlruns={place / 'mlruns'}",
        ),
        *("model.max_error_rate=0.5", "aggregator=text", "tracking=none"),
    ]


def test_nothing_that_it_sends_reaches_the_terminal_a_log_a_page_or_markdown(
    shell: Shell, settings: list[str], place: Path
):
    home = {"XDG_CACHE_HOME": str(place / "cache"), "HOME": str(place)}
    perturbed = [*settings, "sampler=perturbation", "sampler.rewrites=1", "metric=[agreement,certainty]"]
    swept = ["sampler.trials=2", "sampler.temperatures=[0.5,1.0]", "sampler.selection=none", "metric=certainty"]
    swept += ["seed=0,1"]
    ran = [
        shell.python(["-c", RUN, *perturbed, f"hydra.run.dir={place / 'run'}"], **home),
        shell.python(["-c", RUN, "-m", *settings, *swept, f"hydra.sweep.dir={place / 'sweep'}"], **home),
        shell.python(["-m", "robust_eval", "compare", str(place / "run"), str(place / "sweep")], place, **home),
        shell.python(["-c", ASK, "ask", "Which city?", *settings, "rewriter.rewrites=2"], **home),
        shell.python(["run.py", *settings, "metric.frs.k='\x1b[2J'"], **home),
    ]
    for each, status in zip(ran, (0, 0, 0, 0, 1), strict=True):
        assert each.returncode == status, each.stderr
    assert [unseen(each.stdout + each.stderr) for each in ran] == [set()] * 5
    assert "no \\x1b[2J\\x1b]0;owned\\x07\\x9b31m\\x00" in ran[0].stderr  # it is told what they were
    assert "Paris \\x00\\x01" in ran[3].stdout
    assert not any(line.startswith("forged") for each in ran for line in each.stderr.splitlines())
    assert unseen_in(place, ".log", ".md", ".html", ".svg") == {}
    (compared,) = place.glob("mlruns/comparisons/*/*/comparison.md")  # where the command is given
    assert "3 runs of mine \\\\x1b" in compared.read_text()
