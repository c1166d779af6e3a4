"""Logs that inspect_ai and lm-eval wrote themselves, imported, scored and compared."""

import json
import math
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import harness_logs
import numpy as np
import pytest

import robust_eval
from robust_eval.cli.import_logs import main
from robust_eval.cli.main import COMMANDS
from robust_eval.config.schema import PROJECT
from robust_eval.error import UserError

MAKER = Path(harness_logs.__file__)


@pytest.fixture(scope="module")
def inspect_logs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("inspect")
    subprocess.run([sys.executable, str(MAKER), "inspect", str(folder)], check=True)
    return folder


@pytest.fixture(scope="module")
def lm_eval_logs(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("lm_eval")
    subprocess.run([sys.executable, str(MAKER), "lm-eval", str(folder)], check=True, capture_output=True)
    return sorted(folder.glob("out/*/samples_*.jsonl"))


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch):
    monkeypatch.setattr("robust_eval.report.figures.CATALOGUE", [])  # most of the time of a small run


@pytest.fixture
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def rows(model: str) -> list[dict]:
    found = []
    for question in harness_logs.QUESTIONS:
        for t in harness_logs.GRID:
            for epoch in range(1, 2 if t == 0 else harness_logs.EPOCHS + 1):
                text = harness_logs.reply(question["question"], t, epoch, model)
                answer = {"question_id": question["id"], "temperature": t, "trial": epoch - 1, "text": text}
                top = {"token_logprobs": [-0.5], "top_logprobs": [[-0.5 - rank for rank in range(10)]]}
                tokens = {"prompt_tokens": 9, "completion_tokens": 1, "finish_reason": "stop"}
                found.append(answer | top | tokens)
    return found


@pytest.mark.usefixtures("_here")
def test_logs_of_inspect_give_the_figures_of_the_same_answers_to_the_last_digit(inspect_logs: Path):
    (loaded,) = robust_eval.load_answers(inspect_logs / "large")
    assert loaded.metrics == ["frs", "certainty", "agreement"]
    temperatures = ", ".join(f"{t:g}" for t in harness_logs.GRID)
    assert repr(loaded) == f"mockllm/large on task: 303 answers to 3 questions at temperature {temperatures}"
    assert loaded.differences == [
        "their prompt is not ours, it is 'user: What is the capital of France?' (fr)",
        "a reply ended at ['\\n\\n'], where with us no string ends one",
    ]
    settings = {"tracking": "none", "aggregator": "text"}
    theirs = loaded.score(**settings)
    ours = robust_eval.score(
        rows("mockllm/large"),
        harness_logs.QUESTIONS,
        ["frs", "certainty", "agreement"],
        "mockllm/large",
        **{"model.prompt_style": "chat"},
        **settings,
    )
    measured = ours.figures[~ours.figures["name"].str.contains("time|seconds")].set_index("name")
    found = theirs.figures.set_index("name").loc[measured.index]
    assert len(measured) > 50
    numbers = ["value", "low", "high"]
    same = (found[numbers] == measured[numbers]) | (found[numbers].isna() & measured[numbers].isna())
    assert same.index[~same.all(axis=1)].tolist() == []
    breaking = theirs.table("frs").set_index("question_id")["breaking_temperature"].to_dict()
    assert breaking["it"] == 1.6  # of 20 epochs the first 7 t are wrong, more than half above 10/7
    assert breaking["fr"] == math.inf  # unbroken
    assert loaded.agreement(theirs) == ["their scorer includes and ours agree on 303 of 303 answers"]


@pytest.mark.usefixtures("_here")
def test_a_log_is_a_file_of_recorded_answers(inspect_logs: Path):
    run = robust_eval.run(
        ["sampler=recorded", f"sampler.file={inspect_logs / 'large'}", "metric=certainty", "tracking=none"]
    )
    assert run.title == "mockllm/large on task: 3 of 3 questions kept"
    shutil.copytree(inspect_logs / "large", "both")
    shutil.copytree(inspect_logs / "small", "both", dirs_exist_ok=True)
    with pytest.raises(UserError, match="holds several runs") as caught:
        robust_eval.run(["sampler=recorded", "sampler.file=both", "metric=certainty", "tracking=none"])
    assert str(caught.value).endswith("robust-eval import both scores each and compares them")


@pytest.mark.usefixtures("_here")
def test_several_models_become_several_runs_and_a_comparison(inspect_logs: Path, monkeypatch, capsys):
    folders = [str(inspect_logs / name) for name in ("large", "small")]
    monkeypatch.setattr("sys.argv", ["import", *folders, "metric=frs", "tracking=none"])
    main()
    said = capsys.readouterr().out
    assert "mockllm/large on task: 3 of 3 questions kept" in said
    assert "mockllm/small on task: 3 of 3 questions kept" in said
    (page,) = Path("mlruns/comparisons").rglob("comparison.html")
    assert "mockllm/small" in page.read_text()


@pytest.mark.usefixtures("_here")
def test_what_is_lacking_is_said_before_anything_is_scored(inspect_logs: Path, monkeypatch, capsys):
    logs = [str(inspect_logs / "large" / "large-0.2.eval")]
    monkeypatch.setattr("sys.argv", ["import", *logs, "metric=frs", "tracking=none"])
    with pytest.raises(SystemExit):
        main()
    assert "metric=[certainty,agreement] would work" in capsys.readouterr().err.replace("\n", " ")
    assert not Path("mlruns/runs").exists()


@pytest.mark.usefixtures("_here")
def test_tables_are_written_for_sampler_recorded(inspect_logs: Path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["import", str(inspect_logs / "small"), "--output", "tables"])
    main()
    line = "".join(capsys.readouterr().out.split("robust-eval ")[-1].splitlines()).replace('"', "")
    run = robust_eval.run([*line.split(), "metric=certainty", "tracking=none"])
    assert run.title == "mockllm/small on questions: 3 of 3 questions kept"


@pytest.mark.usefixtures("_here")
def test_lm_eval_repeats_are_all_kept_and_filters_are_one(lm_eval_logs: list[Path]):
    generated, chosen = robust_eval.load_answers(*lm_eval_logs)
    lines = [json.loads(line) for line in lm_eval_logs[0].read_text().splitlines()]
    assert len(lines) == 6  # three documents, two filters
    assert generated.task == "capitals"
    assert generated.answers[["question_id", "temperature", "trial", "text"]].values.tolist() == [
        [each["id"], 0.7, trial, "lol"] for each in harness_logs.QUESTIONS for trial in range(5)
    ]
    likelihoods = [json.loads(line)["resps"] for line in lm_eval_logs[1].read_text().splitlines()]
    of_it = np.exp([float(each[0][0]) for each in likelihoods[1]])
    exact = chosen.answers[(chosen.answers.question_id == "it") & (chosen.answers.temperature == 1)]
    assert exact["text"].tolist() == ["A", "B", "C"]
    np.testing.assert_allclose(exact["weight"], of_it / of_it.sum(), rtol=1e-12)
    assert chosen.questions["correct"].tolist() == [1, 0, 2]
    run = chosen.score(tracking="none")
    right = [np.exp(float(each[key][0][0])) for each, key in zip(likelihoods, [1, 0, 2], strict=True)]
    whole = [sum(np.exp(float(one[0][0])) for one in each) for each in likelihoods]
    error = 1 - np.mean(np.divide(right, whole))
    figures = run.figures.set_index("name")["value"]
    assert figures["certainty.error_rate.t1"] == pytest.approx(error, abs=1e-12)


def test_every_command_of_the_page_runs(inspect_logs: Path, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    large, small = (inspect_logs / name / f"{name}-0.2.eval" for name in ("large", "small"))
    Path("logs").mkdir()
    shutil.copy(large, "logs/a.eval")
    shutil.copy(small, "logs/b.eval")
    Path("quiz.jsonl").write_text(json.dumps({"id": "it", "question": "Capital of Italy?", "answers": ["Rome"]}))
    body = {"model": "m", "temperature": 0.7, "messages": [{"role": "user", "content": "Capital of Italy?"}]}
    keys = ["it-1", "it-2"]
    requests = [{"custom_id": key, "method": "POST", "url": "/v1/chat/completions", "body": body} for key in keys]
    reply = {"choices": [{"message": {"content": "Rome"}, "finish_reason": "stop"}]}
    outputs = [{"custom_id": key, "response": {"status_code": 200, "body": reply}, "error": None} for key in keys]
    for name, records in (("requests", requests), ("outputs", outputs)):
        Path(f"batch_{name}.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in records))
    page = (PROJECT / "docs" / "harnesses.md").read_text(encoding="utf-8")
    lines = [shlex.split(line) for line in re.findall(r"^robust-eval (.+)$", page, re.MULTILINE)]
    assert len(lines) >= 5
    for words in lines:
        if words[0] in ("import", "export"):
            untracked = ["tracking=none"] * (words[0] == "import" and "--output" not in words)
            monkeypatch.setattr("sys.argv", [*words, *untracked])
            COMMANDS[words[0]].run()
        else:
            robust_eval.run([*words, "tracking=none"], folder="runs/scored")
    assert "2 answers to 1 questions at temperature 0.7" in capsys.readouterr().out
    assert len(list(Path("tables").rglob("answers.parquet"))) == 2


def changed(change: Callable[[dict], object]) -> Callable[[Path, str], None]:
    """Change the JSON of one sample of an .eval log."""

    def damage(file: Path, member: str) -> None:
        with zipfile.ZipFile(file) as parts:
            whole = {name: parts.read(name) for name in parts.namelist()}
        sample = json.loads(whole[member])
        change(sample)
        whole[member] = json.dumps(sample).encode()
        _rewrite(file, whole)

    return damage


def raw(content: bytes) -> Callable[[Path, str], None]:
    def damage(file: Path, member: str) -> None:
        with zipfile.ZipFile(file) as parts:
            whole = {name: parts.read(name) for name in parts.namelist()}
        _rewrite(file, whole | {member: content})

    return damage


def without(*names: str) -> Callable[[Path, str], None]:
    def damage(file: Path, member: str) -> None:
        with zipfile.ZipFile(file) as parts:
            whole = {name: parts.read(name) for name in parts.namelist() if name not in names}
        _rewrite(file, whole)

    return damage


def _rewrite(file: Path, whole: dict[str, bytes]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as parts:
        for name, content in whole.items():
            parts.writestr(name, content)


def cut(share: float) -> Callable[[Path, str], None]:
    return lambda file, member: file.write_bytes(file.read_bytes()[: int(file.stat().st_size * share)]) and None


def flipped(file: Path, member: str) -> None:
    """Damage the compressed bytes of a sample, which the archive's checksum notices."""
    with zipfile.ZipFile(file) as parts:
        place = parts.getinfo(member).header_offset + 30 + len(member) + 40
    content = bytearray(file.read_bytes())
    content[place : place + 8] = bytes(255 - byte for byte in content[place : place + 8])
    file.write_bytes(content)


BROKEN = {
    "cut at a half": (cut(0.5), ""),
    "cut at the end": (cut(0.999), ""),
    "empty": (cut(0), ""),
    "no header": (without("header.json", "_journal/start.json"), ""),
    "flipped bytes": (flipped, "sample it epoch 1"),
    "cut sample": (raw(b'{"id": "it", "epoch'), "sample it epoch 1"),
    "not UTF-8": (raw(b"\xff\xfe\x00"), "sample it epoch 1"),
    "empty sample": (raw(b""), "sample it epoch 1"),
    "a list": (raw(b"[1, 2]"), "sample it epoch 1"),
    "deep": (raw(b"[" * 100_000), "sample it epoch 1"),
    "no id": (changed(lambda sample: sample.pop("id")), "sample it epoch 1"),
    "no epoch": (changed(lambda sample: sample.pop("epoch")), "sample it epoch 1"),
    "input of another kind": (changed(lambda sample: sample.update(input=7)), "sample it epoch 1"),
    "empty input": (changed(lambda sample: sample.update(input=" ")), "sample it epoch 1"),
    "target of another kind": (changed(lambda sample: sample.update(target={"a": 1})), "sample it epoch 1"),
    "target that is no choice": (changed(lambda sample: sample.update(choices=["a", "b"])), "sample it epoch 1"),
    "one choice": (changed(lambda sample: sample.update(choices=["Rome"])), "sample it epoch 1"),
    "output of another kind": (changed(lambda sample: sample.update(output=[])), "sample it epoch 1"),
    "scores of another kind": (changed(lambda sample: sample.update(scores=["x"])), "sample it epoch 1"),
    "temperature of another kind": (
        changed(lambda sample: sample.update(events=[{"event": "model", "config": {"temperature": "hot"}}])),
        "sample it epoch 1",
    ),
    "negative temperature": (
        changed(lambda sample: sample.update(events=[{"event": "model", "config": {"temperature": -1}}])),
        "sample it epoch 1",
    ),
    "messages of another kind": (changed(lambda sample: sample.update(messages=[{"role": 1}])), "sample it epoch 1"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_log_ends_in_a_sentence_with_the_sample(inspect_logs: Path, tmp_path: Path, kind: str):
    file = tmp_path / "broken.eval"
    shutil.copy(inspect_logs / "large" / "large-0.0.eval", file)
    damage, where = BROKEN[kind]
    damage(file, "samples/it_epoch_1.json")
    with pytest.raises(UserError) as caught:
        robust_eval.load_answers(file)
    said = str(caught.value)
    assert said.startswith(str(file))
    assert where in said
    assert "\n" not in said
