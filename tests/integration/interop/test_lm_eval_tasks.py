"""Results of our tasks in lm-eval, and those of our own run on the same answers; docs/inside_harnesses.md."""

import json
import math
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from capitals_server import RIGHT, WRONG_OF_TEN, breaking
from lm_evals import LEVELS, QUIZ, TRIALS, UNKNOWN

import robust_eval
from robust_eval.cli.import_logs import main as import_logs
from robust_eval.config.groups import PROJECT
from robust_eval.interop.lm_eval_tasks.tasks import BOUNDS

PAGE = (PROJECT / "docs" / "inside_harnesses.md").read_text(encoding="utf-8").partition("\n## lm-eval\n")[2]
COMMANDS = [shlex.split(line) for line in re.findall(r"^((?:lm_eval|robust-eval) .+)$", PAGE, re.M)]
Figures = dict[str, list[float]]


@pytest.fixture(scope="module")
def evaluated(lm_eval_folder: Path) -> Path:
    return lm_eval_folder / "tasks"


@pytest.fixture(scope="module")
def said(evaluated: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((evaluated / "said.json").read_text())
    return found


def results(folder: Path, task: str) -> Figures:
    """Value and ends of the figures of a task."""
    (file,) = folder.rglob("results_*.json")
    own = json.loads(file.read_text())["results"][task]
    found = {name.removesuffix(",none"): value for name, value in own.items() if isinstance(value, float)}
    names = [name for name in found if not name.endswith(BOUNDS[1:])]
    return {name: [found[f"{name}{end}"] for end in BOUNDS] for name in names}


def imported(folder: Path, task: str) -> robust_eval.LoadedAnswers:
    (loaded,) = robust_eval.load_answers(*folder.rglob(f"samples_{task}_*.jsonl"))
    return loaded


def scored(answers: Any, metric: str, **settings: Any) -> Figures:
    """Value and ends of the figures that a run of ours makes of answers."""
    run = robust_eval.score(answers, [*QUIZ, UNKNOWN], [metric], tracking="none", aggregator="text", **settings)
    table = run.metrics.set_index("name")[["value", "low", "high"]]
    return {str(name): list(row) for name, row in zip(table.index, table.values, strict=True)}


def same(found: list[float], ours: list[float]) -> bool:
    return found == pytest.approx(ours, abs=0, rel=0, nan_ok=True)


def with_logprobs(loaded: robust_eval.LoadedAnswers) -> Any:
    """The answers with log-probabilities of greedy ones, without which a run of ours takes none for FRS."""
    rows = loaded.answers.to_dict("records")
    return [row | ({"top_logprobs": [[-0.5] + [-9.0] * 9]} if row["temperature"] == 0 else {}) for row in rows]


def test_breaking_temperatures_are_those_by_hand_and_of_a_run_of_ours(evaluated: Path, said: dict[str, Any]):
    found = results(evaluated / "chat", "robust_eval_frs")
    at = [breaking(name, LEVELS) for name in RIGHT]
    assert at == [1.4, math.inf, 0.8]
    assert {name: each[0] for name, each in found.items()} == {
        "known": 3 / 4,
        "breaking_temperature": pytest.approx((1.4 + 0.8) / 2),
        "unbroken_share": pytest.approx(1 / 3),
        "survival_t0.8": pytest.approx(2 / 3),
    }
    loaded = imported(evaluated / "chat", "robust_eval_frs")
    assert "top_logprobs" in loaded.lacking()["frs"]
    assert len(loaded.answers) == 4 * (1 + len(LEVELS) * TRIALS)
    settings = {"model.prompt_style": "chat", "sampler.recorded.selection": "contains"}
    known = scored(with_logprobs(loaded), "frs", **settings)
    assert same(found["breaking_temperature"], known["frs.breaking_temperature.mean_broken"])
    assert same(found["unbroken_share"], known["frs.unbroken_share"])
    assert same(found["survival_t0.8"], known["frs.survival.t0.8"])
    assert {body["temperature"] for body in said["chat"]} == {0, 1.0, *LEVELS}
    assert all(body["messages"][0]["role"] == "system" and body["stop"] == [] for body in said["chat"])


def test_certainty_is_that_by_hand_and_of_the_import(evaluated: Path):
    found = results(evaluated / "chat", "robust_eval_certainty")
    shares = [wrong / TRIALS for wrong in WRONG_OF_TEN.values()]
    # the server counts replies to "Italy", of which two questions ask: each of them has ten in a row
    whole = [*shares, shares[0]]
    entropy = -sum(p * math.log(p) + (1 - p) * math.log(1 - p) for p in whole) / 4
    assert found["answer_entropy"][0] == pytest.approx(entropy, abs=1e-12)
    assert found["error_rate"][0] == pytest.approx((sum(shares) + 1) / 4, abs=1e-12)
    loaded = imported(evaluated / "chat", "robust_eval_certainty")
    wanted = ["certainty", "reliability", "uncertainty"]
    ours = loaded.score(wanted, tracking="none", aggregator="text").metrics.set_index("name")
    for name, figure in {
        "answer_entropy": "certainty.entropy.t1",
        "error_rate": "certainty.error_rate.t1",
        "pass_hat_k1": "reliability.pass_hat.k1",
        f"pass_hat_k{TRIALS}": f"reliability.pass_hat.k{TRIALS}",
        "auroc_answer_entropy": "uncertainty.auroc.answer_entropy",
    }.items():
        assert same(found[name], list(ours.loc[figure, ["value", "low", "high"]]))


def test_a_model_behind_llama_cpp_gives_the_figures_of_its_import(evaluated: Path, said: dict[str, Any]):
    loaded = imported(evaluated / "seeds", "robust_eval_frs")
    found, ours = results(evaluated / "seeds", "robust_eval_frs"), scored(with_logprobs(loaded), "frs")
    assert loaded.answers.groupby("temperature")["trial"].nunique().to_dict() == {0: 1, **dict.fromkeys(LEVELS, 3)}
    assert loaded.answers["text"].nunique() > 4
    for name, figure in {
        "breaking_temperature": "frs.breaking_temperature.mean_broken",
        "known": "accuracy.greedy",
    }.items():
        assert same(found[name], ours[figure])
    assert same(found["survival_t0.8"], ours["frs.survival.t0.8"])
    assert results(evaluated / "seeds", "robust_eval_certainty")["answer_entropy"][0] > 0
    assert said["seeds"] == []


def test_the_same_seed_with_every_request_is_warned_of(evaluated: Path, said: dict[str, Any]):
    assert results(evaluated / "same", "robust_eval_certainty")["answer_entropy"][0] == 0
    assert [line.split(":")[0] for line in said["same"]] == ["robust_eval_certainty"]
    assert all('{"seeds": true}' in line for line in said["same"])


def test_every_command_and_the_code_of_the_page_run(
    evaluated: Path, said: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert [words[0] for words in COMMANDS] == ["lm_eval", "lm_eval", "robust-eval"]
    assert said["printed"] == "nan\n"  # "lol" is right for none
    (file,) = (evaluated / "page").rglob("results_*.json")
    (folder,) = {each.parent for each in file.parent.glob("samples_*.jsonl")}
    monkeypatch.setattr("sys.argv", ["import", str(folder), *COMMANDS[2][3:], "tracking=none", "aggregator=text"])
    import_logs()
    assert "questions kept" in capsys.readouterr().out
