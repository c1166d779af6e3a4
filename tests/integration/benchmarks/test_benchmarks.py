"""Benchmarks print a table in their quick form, and give the same figures as one flat JSON object."""

import json
import re
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from shell import Shell
from support.counted_model import GRADER, CountedModel, setting, tiny
from support.graphed import Graphed
from support.ways import generate

from robust_eval.config.groups import PROJECT
from robust_eval.sampler.temperature_sweep import TemperatureSweep

NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?: ?%)?")
NEEDS_CHROMIUM = {"report"}
LONG = {"busy_machine", "estimators", "memory", "ray_engine", "sampling", "served_estimators"}
"""They load the embedded model several times, start servers or Ray, also in their quick form."""
QUICK = sorted(file for file in (PROJECT / "benchmarks").glob("*.py") if file.stem not in {"tables", *LONG})


def shows(printed: str, figures: dict[str, Any]) -> bool:
    """Whether a number of the table is one of the figures, rounded, or stands in the name or text of one."""
    digits = printed.replace(",", "").rstrip("% ")
    decimals = len(digits.partition(".")[2])
    factor = 100 if printed.endswith("%") else 1
    numbers = [value for value in figures.values() if not isinstance(value, str)]
    texts = [*figures, *(value for value in figures.values() if isinstance(value, str))]
    named = NUMBER.findall(" ".join(texts).replace("_", " "))
    return printed in named or any(f"{factor * value:.{decimals}f}" == digits for value in numbers)


@pytest.mark.parametrize("name", sorted(LONG))
def test_a_long_benchmark_is_loaded_and_reads_its_arguments(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        import_module(name).main()
    assert ended.value.code == 0
    assert "--quick" in capsys.readouterr().out


@pytest.mark.parametrize("benchmark", QUICK, ids=lambda file: file.stem)
def test_a_benchmark_runs_quickly_and_gives_what_it_prints(benchmark: Path, shell: Shell, tmp_path: Path):
    if benchmark.stem in NEEDS_CHROMIUM and not shutil.which("chromium"):
        pytest.skip("there is no Chromium")
    file = tmp_path / "metrics.json"
    done = shell.python([str(benchmark), "--quick", "--json", str(file)], figures=False)
    assert done.returncode == 0, done.stderr
    written = json.loads(file.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    figures = {name: value for name, value in written.items() if not name.startswith("origin.")}
    assert {"origin.command", "origin.time", "origin.processor", "origin.version.torch"} < written.keys()
    assert {type(value) for value in figures.values()} <= {int, float, str}
    printed = NUMBER.findall(done.stdout)
    assert printed
    assert [number for number in printed if not shows(number, figures)] == []


def test_the_loop_for_a_gpu_draws_what_generate_draws_at_a_temperature_near_zero(tmp_path: Path):
    settings, questions = setting("float32", "dataset.limit=3")
    model = CountedModel(tiny(settings, str(tmp_path)))
    requests = TemperatureSweep(temperatures=[1e-3, 1e-4], trials=3).requests(questions, GRADER, 0)
    longest = max(len(model.tokenizer(request.prompt.text()).input_ids) for request in requests)
    texts = Graphed(model, len(requests), requests[0], longest + 1)(requests)
    assert texts == [[text.strip() for text in of_question] for of_question in generate(model, 3, requests)]
