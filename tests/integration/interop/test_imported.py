"""Logs that inspect_ai and lm-eval wrote themselves, imported, scored and compared."""

import json
import math
import re
import shlex
import shutil
import sys
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import harness_logs
import numpy as np
import pytest

import robust_eval
from robust_eval.cli import gate
from robust_eval.cli import run as command_line
from robust_eval.cli.import_logs import main
from robust_eval.cli.main import COMMANDS
from robust_eval.config.groups import PROJECT
from robust_eval.config.overrides import composed_run
from robust_eval.error import UserError
from robust_eval.gate.decision import STATUS


@pytest.fixture(scope="module")
def inspect_logs(inspect_folder: Path) -> Path:
    return inspect_folder / "logs"


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


def test_logs_of_inspect_are_gated_with_their_epochs_as_repetitions(
    inspect_logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    words = ["gate", *(str(inspect_logs / model) for model in ("large", "small")), "gate.level=0.9", "--output", "out"]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as ended:
        gate.main()
    found = json.loads((tmp_path / "out" / "verdict.json").read_text())
    assert (ended.value.code, found["outcome"], found["level"]) == (3, "INCONCLUSIVE", 0.9)
    assert [(each["label"], each["n"]) for each in found["metrics"]] == [
        ("knowledge (accuracy of all greedy answers)", 3),
        ("firmness (right in all 10 repetitions)", 3),
    ]
    # at 0.8, nearest to 1, the large model is right about Paris in every epoch, and the small one about nothing
    assert [found["metrics"][1][name] for name in ("baseline", "candidate")] == [pytest.approx(1 / 3), 0]
    assert 'The verdicts are those of the scorer "includes" in the logs.' in capsys.readouterr().out


def test_logs_of_inspect_give_the_figures_of_the_same_answers_to_the_last_digit(inspect_logs: Path):
    (loaded,) = robust_eval.load_answers(inspect_logs / "large")
    assert loaded.metrics == ["frs", "certainty", "agreement", "uncertainty", "reliability", "variance"]
    temperatures = ", ".join(f"{t:g}" for t in harness_logs.GRID)
    assert repr(loaded) == f"mockllm/large on task: 153 answers to 3 questions at temperature {temperatures}"
    assert loaded.differences == [
        "the prompt differs from that of robust_eval: 'user: What is the capital of France?' (fr)",
        "replies stop at ['\\n\\n']; in robust_eval they stop at the length limit only",
    ]
    settings = {"tracking": "none", "aggregator": "text"}
    theirs = loaded.score(**settings)
    ours = robust_eval.score(
        rows("mockllm/large"),
        harness_logs.QUESTIONS,
        ["frs", "certainty", "agreement", "uncertainty", "reliability", "variance"],
        "mockllm/large",
        **{"model.prompt_style": "chat"},
        **settings,
    )
    measured = ours.metrics[~ours.metrics["name"].str.contains("time|seconds")].set_index("name")
    found = theirs.metrics.set_index("name").loc[measured.index]
    assert len(measured) > 50
    numbers = ["value", "low", "high"]
    same = (found[numbers] == measured[numbers]) | (found[numbers].isna() & measured[numbers].isna())
    assert same.index[~same.all(axis=1)].tolist() == []
    breaking = theirs.table("frs").set_index("question_id")["breaking_temperature"].to_dict()
    assert breaking["it"] == 1.6  # of 10 epochs the first 4 t are wrong, more than half above 5/4 and at 1.4 five alone
    assert breaking["fr"] == math.inf  # unbroken
    assert loaded.agreement(theirs) == ["the log's scorer includes and the run's grader agree on 153 of 153 answers"]


def test_a_log_is_a_file_of_recorded_answers(inspect_logs: Path):
    run = robust_eval.run(
        ["sampler=recorded", f"sampler.file={inspect_logs / 'large'}", "metric=certainty", "tracking=none"]
    )
    assert run.title == "mockllm/large on task: 3 of 3 questions kept"
    shutil.copytree(inspect_logs / "large", "both")
    shutil.copytree(inspect_logs / "small", "both", dirs_exist_ok=True)
    with pytest.raises(UserError, match="contains several runs") as caught:
        robust_eval.run(["sampler=recorded", "sampler.file=both", "metric=certainty", "tracking=none"])
    assert str(caught.value).endswith("robust-eval import both scores each and compares them")


def test_on_the_command_line_the_answers_of_a_log_take_its_place(inspect_logs: Path, monkeypatch):
    monkeypatch.setattr(command_line, "command", nullcontext)  # which heeds signals, for all that follows as well
    monkeypatch.setattr(command_line, "launch", lambda: None)
    monkeypatch.setattr("sys.argv", ["run.py", "sampler=recorded", f"sampler.file={inspect_logs / 'large'}"])
    command_line.main()
    composed = composed_run(sys.argv[1:])[1]
    assert Path(composed.sampler.recorded.file).suffix == ".parquet"


def test_several_models_become_several_runs_and_a_comparison(inspect_logs: Path, monkeypatch, capsys):
    folders = [str(inspect_logs / name) for name in ("large", "small")]
    monkeypatch.setattr("sys.argv", ["import", *folders, "metric=frs", "tracking=none"])
    main()
    said = capsys.readouterr().out
    assert "mockllm/large on task: 3 of 3 questions kept" in said
    assert "mockllm/small on task: 3 of 3 questions kept" in said
    (page,) = Path("mlruns/comparisons").rglob("comparison.html")
    assert "mockllm/small" in page.read_text()


def test_what_is_lacking_is_said_before_anything_is_scored(inspect_logs: Path, monkeypatch, capsys):
    logs = [str(inspect_logs / "large" / "large-0.2.eval")]
    monkeypatch.setattr("sys.argv", ["import", *logs, "metric=frs", "tracking=none"])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().err.replace("\n", " ")
    assert "choose metric=[certainty,agreement,uncertainty,reliability,variance]" in said
    assert not Path("mlruns/runs").exists()


def test_lm_eval_repeats_are_all_kept_and_filters_are_one(lm_eval_folder: Path):
    lm_eval_logs = sorted(lm_eval_folder.glob("logs/out/*/samples_*.jsonl"))
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
    figures = run.metrics.set_index("name")["value"]
    assert figures["certainty.error_rate.t1"] == pytest.approx(error, abs=1e-12)


def test_every_command_of_the_page_runs(inspect_logs: Path, monkeypatch, capsys):
    large, small = (inspect_logs / name / f"{name}-0.2.eval" for name in ("large", "small"))
    for log, name, folder in ((large, "a.eval", "logs/today"), (small, "b.eval", "logs/new")):
        Path(folder).mkdir(parents=True)
        for place in (".", "logs", folder):
            shutil.copy(log, Path(place, name))
    for table in ("today.csv", "new.csv"):
        Path(table).write_text("question_id,correct\nit,1\nfr,0\n")
    Path("quiz.jsonl").write_text(json.dumps({"id": "it", "question": "Capital of Italy?", "answers": ["Rome"]}))
    body = {"model": "m", "temperature": 0.7, "messages": [{"role": "user", "content": "Capital of Italy?"}]}
    keys = ["it-1", "it-2"]
    requests = [{"custom_id": key, "method": "POST", "url": "/v1/chat/completions", "body": body} for key in keys]
    reply = {"choices": [{"message": {"content": "Rome"}, "finish_reason": "stop"}]}
    outputs = [{"custom_id": key, "response": {"status_code": 200, "body": reply}, "error": None} for key in keys]
    for name, records in (("requests", requests), ("outputs", outputs)):
        Path(f"batch_{name}.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in records))
    page = (PROJECT / "docs" / "harnesses.md").read_text(encoding="utf-8")
    (replies,) = re.findall(r"^```csv\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    Path("replies.csv").write_text(replies)
    lines = [shlex.split(line) for line in re.findall(r"^(?:robust-eval|python run.py) (.+)$", page, re.MULTILINE)]
    assert len(lines) >= 10
    for words in lines:
        if words[0] in ("import", "export"):
            untracked = ["tracking=none"] * (words[0] == "import")
            monkeypatch.setattr("sys.argv", [*words, *untracked])
            COMMANDS[words[0]].run()
        elif words[0] == "gate":
            monkeypatch.setattr("sys.argv", words)
            with pytest.raises(SystemExit) as ended:
                gate.main()
            assert ended.value.code in STATUS.values()
        else:
            folders = [word.removeprefix("hydra.run.dir=") for word in words if word.startswith("hydra.run.dir=")]
            few = ["dataset.limit=6"] * ("experiment=smoke" in words)
            settings = [word for word in words if not word.startswith("hydra.run.dir=")]
            robust_eval.run([*settings, *few, "tracking=none"], folder=folders[0] if folders else None)
    assert "2 answers to 1 questions at temperature 0.7" in capsys.readouterr().out


SAMPLE = "samples/it_epoch_1.json"


def members(change: Callable[[dict[str, bytes]], object]) -> Callable[[Path], object]:
    """Change the members of a log."""

    def damage(file: Path) -> None:
        import inspect_ai.log  # noqa: F401 - adds the compression of its logs to zipfile

        with zipfile.ZipFile(file) as parts:
            whole = {name: parts.read(name) for name in parts.namelist()}
        change(whole)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as parts:
            for name, content in whole.items():
                parts.writestr(name, content)

    return damage


def raw(content: bytes) -> Callable[[Path], object]:
    return members(lambda whole: whole.update({SAMPLE: content}))


def sample(**values: object) -> Callable[[Path], object]:
    """Change the values of one sample; those that are ``...`` go."""

    def change(whole: dict[str, bytes]) -> None:
        changed = json.loads(whole[SAMPLE]) | values
        whole[SAMPLE] = json.dumps({name: each for name, each in changed.items() if each is not ...}).encode()

    return members(change)


def cut(share: float) -> Callable[[Path], object]:
    return lambda file: file.write_bytes(file.read_bytes()[: int(file.stat().st_size * share)])


def flipped(file: Path) -> None:
    """Damage the compressed bytes of a sample, which the archive's checksum notices."""
    with zipfile.ZipFile(file) as parts:
        place = parts.getinfo(SAMPLE).header_offset + 30 + len(SAMPLE) + 40
    content = bytearray(file.read_bytes())
    content[place : place + 8] = bytes(255 - byte for byte in content[place : place + 8])
    file.write_bytes(content)


CHANGES = json.loads(Path(__file__).with_name("broken_samples.json").read_text())
"""Values of a sample that are of another kind, or do not fit together."""
BROKEN_WHOLE = {
    "cut at a half": cut(0.5),
    "cut at the end": cut(0.999),
    "empty": cut(0),
    "no header": members(lambda whole: [whole.pop(name, None) for name in ("header.json", "_journal/start.json")]),
}
BROKEN_SAMPLE = {
    "flipped bytes": flipped,
    "cut sample": raw(b'{"id": "it", "epoch'),
    "not UTF-8": raw(b"\xff\xfe\x00"),
    "empty sample": raw(b""),
    "a list": raw(b"[1, 2]"),
    "deep": raw(b"[" * 100_000),
    "no id": sample(id=...),
    "no epoch": sample(epoch=...),
    **{kind: sample(**values) for kind, values in CHANGES.items()},
}


@pytest.mark.parametrize("kind", [*BROKEN_WHOLE, *BROKEN_SAMPLE])
def test_a_broken_log_ends_in_a_sentence_with_the_sample(inspect_logs: Path, tmp_path: Path, kind: str):
    file = tmp_path / "broken.eval"
    shutil.copy(inspect_logs / "large" / "large-0.0.eval", file)
    (BROKEN_WHOLE | BROKEN_SAMPLE)[kind](file)
    with pytest.raises(UserError) as caught:
        robust_eval.load_answers(file)
    said = str(caught.value)
    assert said.startswith(str(file))
    assert "\n" not in said
    assert kind in BROKEN_WHOLE or "sample it epoch 1" in said


def test_a_question_whose_target_is_no_choice_is_ungraded_and_counted(inspect_logs: Path, tmp_path: Path):
    file = tmp_path / "other.eval"
    shutil.copy(inspect_logs / "large" / "large-0.0.eval", file)
    sample(choices=["a", "b"])(file)
    (loaded,) = robust_eval.load_answers(file)
    (said,) = loaded.ungraded
    assert said.endswith("such as 'it') are ungraded: the target is not one of the choices")


def test_the_temperature_of_a_scorers_model_is_not_that_of_the_reply(inspect_logs: Path, tmp_path: Path):
    file = tmp_path / "graded.eval"
    shutil.copy(inspect_logs / "large" / "large-0.2.eval", file)
    calls = [{"event": "model", "config": {"temperature": t}} for t in (0.9, 0.0)]
    sample(events=[calls[0], {"event": "span_begin", "type": "scorers"}, calls[1]])(file)
    (loaded,) = robust_eval.load_answers(file)
    assert sorted(set(loaded.answers["temperature"])) == [0.2, 0.9]  # that of the header, and that of the solver


def test_the_samples_that_the_log_of_a_retry_repeats_count_once(inspect_logs: Path, tmp_path: Path):
    retried = inspect_logs / "large" / "large-0.2.eval"
    shutil.copy(retried, tmp_path / "2.eval")
    shutil.copy(retried, tmp_path / "1.eval")
    sample(error={"message": "broken", "traceback": "", "traceback_ansi": ""})(tmp_path / "1.eval")
    (once,), (both,) = robust_eval.load_answers(retried), robust_eval.load_answers(tmp_path)
    assert both.answers.equals(once.answers)
