"""The part on inspect_ai of docs/inside_harnesses.md does what it says, with a server behind inspect_ai's provider for
any OpenAI-like service.
"""

import json
import math
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from capitals_server import RIGHT, breaking, capitals_server, score
from inspect_ai.log import read_eval_log

from robust_eval.cli.import_logs import main as import_logs
from robust_eval.config.groups import PROJECT

PAGE = (PROJECT / "docs" / "inside_harnesses.md").read_text(encoding="utf-8").partition("\n## lm-eval\n")[0]
COMMANDS = [shlex.split(line) for line in re.findall(r"^((?:inspect|robust-eval) .+)$", PAGE, re.M)]
MODELS = {"openai/gpt-4o-mini": "openai-api/llama/m"}
FEW = {"robust_eval/frs": ["temperatures=1,2"], "robust_eval/certainty": ["dataset=quiz.jsonl", "trials=4"]}
FEWER = "frs(samples, temperatures=[1, 2], "
"""What the code of the page is run with in place of ``frs(samples``: the whole grid takes three hundred requests."""
RUN = """
import json, os, sys
from inspect_ai._cli.main import inspect
code, *commands = json.load(sys.stdin)
os.mkdir("python")
os.chdir("python")
exec(code)
os.chdir("..")
for words in commands:
    inspect(words, standalone_mode=False)
"""
QUIZ = [
    {
        "id": name,
        "question": f"What is the capital of {name}?",
        "answers": [key],
        "rewrites": [f"{name}: capital?", f"Name the capital of {name}."],
    }
    for name, key in RIGHT.items()
]


def code_of_the_page() -> str:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
    return str(code)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder in which code and commands of the page were run, and what they said."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "quiz.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in QUIZ))
    commands = [
        [MODELS.get(word, word) for word in words[1:]] + [part for one in FEW.get(words[2], []) for part in ("-T", one)]
        for words in COMMANDS
        if words[0] == "inspect"
    ]
    code = code_of_the_page().replace("openai/gpt-4o-mini", MODELS["openai/gpt-4o-mini"])
    with capitals_server() as server:
        service = {"LLAMA_BASE_URL": f"{server.url}/v1", "LLAMA_API_KEY": "sk-planted", "INSPECT_DISPLAY": "none"}
        done = subprocess.run(
            [sys.executable, "-c", RUN],
            input=json.dumps([code.replace("frs(samples", FEWER.rstrip(", ")), *commands]),
            env=os.environ | service | {"PYTHONPATH": str(entry_point(folder / "installed"))},
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=240,
        )
    return folder, done.stdout


def entry_point(folder: Path) -> Path:
    """The entry point of the package as it is when this has been installed, of which the tests' own may be older."""
    whole = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["entry-points"]["inspect_ai"]
    place = folder / "entry-0.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: entry\nVersion: 0\n")
    (place / "entry_points.txt").write_text("[inspect_ai]\n" + "".join(f"{k} = {v}\n" for k, v in whole.items()))
    return folder


def test_ten_lines_of_python_give_frs_with_its_interval(ran: tuple[Path, str]):
    assert len([line for line in code_of_the_page().splitlines() if line]) <= 10
    value, low, high = map(float, ran[1].split()[:3])
    assert [breaking(name, [1.0, 2.0]) for name in RIGHT] == [2.0, math.inf, 1.0]
    assert value == pytest.approx(sum(score(name, [1.0, 2.0]) for name in RIGHT) / 3, abs=1e-12)
    assert 0 <= low < value < high <= 1


def test_every_command_of_the_page_runs(ran: tuple[Path, str], monkeypatch: pytest.MonkeyPatch):
    assert [words[0] for words in COMMANDS] == ["inspect", "inspect", "inspect", "robust-eval"]
    monkeypatch.chdir(ran[0])
    logs = [read_eval_log(str(file)) for file in sorted(Path("logs").glob("*.eval"))]
    assert {log.status for log in logs} == {"success"}
    by_task = {
        log.eval.task: {name: one.value for name, one in log.results.scores[0].metrics.items()}
        for log in logs
        if log.results is not None
    }
    frs = by_task["robust_eval/frs"]
    assert frs["frs"] == pytest.approx(sum(score(name, [1.0, 2.0]) for name in RIGHT) / 3, abs=1e-12)
    assert (frs["unbroken_share"], frs["breaking_temperature"]) == (1 / 3, 1.5)
    assert {"answer_entropy", "answer_entropy_low", "error_rate"} <= by_task["robust_eval/certainty"].keys()
    assert {"base", "worst", "kappa", "mean_of_raters_high"} <= by_task["robust_eval/multiqa"].keys()
    monkeypatch.setattr("sys.argv", COMMANDS[3][1:])
    import_logs()
    assert len(list(Path("mlruns/runs").rglob("summary.json"))) == 3
