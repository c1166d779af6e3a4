"""Logs and tables of verdicts as runs of a gate."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from json_lines import cases

from robust_eval.error import UserError
from robust_eval.gate.decision import Decision, GateSettings, decide, differences
from robust_eval.gate.measured_run import refuse_incomparable
from robust_eval.interop.log_as_run import is_log, logs_as_runs


def gated(one: Path, other: Path) -> tuple[Decision, list[str]]:
    baseline, candidate, sentences = logs_as_runs(str(one), str(other))
    shared = refuse_incomparable(baseline, candidate)
    settings = GateSettings()
    return decide(baseline, candidate, differences(baseline, candidate, shared, settings), settings), sentences


def documents(
    folder: Path,
    replies: Callable[[int], Sequence[str]],
    score: str = "exact_match",
    target: str = "Item {}",
    temperature: float = 0.7,
) -> Path:
    """Write 40 documents as lm-eval does, of which the first reply is scored."""
    folder.mkdir()
    file = folder / "samples_numbers_2026-01-01T00-00-00.000000.jsonl"
    lines = []
    for number in range(40):
        said, right = replies(number), target.format(number)
        settings = {"until": ["\n"], "do_sample": temperature > 0, "temperature": temperature}
        line: Mapping[str, Any] = {
            "doc_id": number, "doc": {"id": f"q{number}", "question": f"What is number {number}?"}, "target": right,
            "arguments": {"gen_args_0": {"arg_0": "Q?", "arg_1": settings}}, "resps": [said], "filter": "none",
            "metrics": [score], score: float(said[0] == right),
        }  # fmt: skip
        lines.append(json.dumps(line) + "\n")
    file.write_text("".join(lines))
    return file


def test_half_a_character_in_a_question_is_printed_as_an_escape(tmp_path: Path):
    file = documents(tmp_path / "one", lambda number: [f"Item {number}"])
    file.write_text(file.read_text().replace("number 7?", "\\ud83d?"))
    baseline, _, _ = logs_as_runs(str(file), str(file))
    assert baseline.run.questions["question"][7].as_py() == "What is \\ud83d?"


def test_a_scorer_of_both_logs_gives_the_verdicts(tmp_path: Path):
    one = documents(tmp_path / "one", lambda number: [f"Item {number}"], temperature=0)
    other = documents(tmp_path / "other", lambda number: [f"Item {number}" if number > 9 else "no"], temperature=0)
    found, sentences = gated(one, other)
    assert sentences == ['The verdicts are those of the scorer "exact_match,none" in the logs.']
    assert [(each.label, each.n, each.difference) for each in found.metrics] == [
        ("knowledge (accuracy of all greedy answers)", 40, -0.25)
    ]
    assert (found.outcome, found.reasons[-1][:27]) == ("FAIL", "Firmness is not judged: no ")


def test_epochs_of_which_only_the_first_is_scored_are_graded_here_and_are_repetitions(tmp_path: Path):
    one = documents(tmp_path / "one", lambda number: [f"Item {number}"] * 3)
    other = documents(tmp_path / "other", lambda number: ["no"] + [f"Item {number}"] * (2 if number > 3 else 0))
    found, sentences = gated(one, other)
    assert sentences == [
        "The replies were graded by robust_eval (grader=matching): no shared scorer marks them all 0 or 1."
    ]
    knowledge, firmness = found.metrics
    assert (knowledge.label, knowledge.candidate) == ("knowledge (accuracy of the most frequent answers)", 0.9)
    assert (firmness.label, firmness.candidate) == ("firmness (right in all 3 repetitions)", 0)


def test_without_right_answers_and_a_common_scorer_there_is_nothing_to_gate_by(tmp_path: Path):
    one = documents(tmp_path / "one", lambda number: ["yes"], target="", score="likes")
    other = documents(tmp_path / "other", lambda number: ["yes"], target="", score="loves")
    with pytest.raises(UserError) as said:
        gated(one, other)
    assert str(said.value) == (
        f"{other} cannot be compared with {one}: the two share no scorers with 0/1 verdicts (they have likes,none, and "
        f"loves,none), and {one} has no right answers"
    )


def test_other_questions_and_other_right_answers_of_the_same_are_refused(tmp_path: Path):
    one = documents(tmp_path / "one", lambda number: ["no"] * 2)
    other = documents(tmp_path / "other", lambda number: ["no"] * 2, target="Thing {}")
    with pytest.raises(
        UserError, match="the accepted answer to question q0 is Thing 0, but was Item 0 in the baseline"
    ):
        gated(one, other)
    files = [tmp_path / f"{name}.csv" for name in ("one", "other")]
    for file in files:
        file.write_text(f"question_id,correct\n{file.stem}-1,1\n")
    with pytest.raises(UserError, match="they share no questions"):
        gated(*files)


def test_tables_of_verdicts_have_trials_in_the_order_of_their_rows(tmp_path: Path):
    one, other = tmp_path / "one.csv", tmp_path / "other.jsonl"
    one.write_text("id,correct,reply\n" + "".join(f"q{k},{t},Item {k}\n" for k in range(40) for t in ("1", "true")))
    rows = [{"id": f"q{k}", "correct": k > 9 or not trial} for k in range(40) for trial in range(2)]
    other.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found, _ = gated(one, other)
    knowledge, firmness = found.metrics
    assert (knowledge.difference, firmness.difference) == (0, -0.25)
    assert (firmness.label, found.outcome) == ("firmness (right in all 2 repetitions)", "FAIL")
    assert is_log(str(one))
    assert not is_log(str(tmp_path))


def test_equal_verdicts_without_texts_are_no_identical_answers(tmp_path: Path):
    files = [tmp_path / f"{name}.csv" for name in ("one", "other")]
    for file in files:
        file.write_text("id,correct\nq1,1\nq2,1\n")
    found, _ = gated(*files)
    assert (found.outcome, found.identical) == ("INCONCLUSIVE", False)


def test_repetitions_at_temperature_0_are_left_out_in_a_sentence(tmp_path: Path):
    file = tmp_path / "one.csv"
    file.write_text("id,correct,temperature\nq1,1,0\nq1,0,0\nq2,1,0\n")
    _, sentences = gated(file, file)
    left_out = "left out, because each question needs only one greedy answer: 1 repeated answer at temperature 0."
    assert sentences[1] == f"{file}: {left_out}"


def test_a_reply_of_any_length_is_gated(tmp_path: Path):
    found, _ = gated(*(documents(tmp_path / name, lambda number: ["loop " * 20_001]) for name in ("one", "other")))
    assert found.identical


@pytest.mark.parametrize(("rows", "said"), cases(__file__, "a_table_without_verdicts_is_refused_with_what_is_missing"))
def test_a_table_without_verdicts_is_refused_with_what_is_missing(tmp_path: Path, rows: str, said: str):
    file, good = tmp_path / "table.csv", tmp_path / "good.csv"
    file.write_text(rows)
    good.write_text("question_id,correct\nq1,1\n")
    with pytest.raises(UserError) as problem:
        gated(good, file)
    assert said in str(problem.value)


def test_a_log_is_gated_by_a_log_of_one_model_and_task(tmp_path: Path):
    one = documents(tmp_path / "one", lambda number: ["no"])
    with pytest.raises(
        UserError, match=r"a log can be compared only with another log, but mlruns/runs/today is neither a log nor"
    ):
        logs_as_runs(str(one), "mlruns/runs/today")
    (tmp_path / "one" / "samples_words_2026-01-01T00-00-00.000000.jsonl").write_text(one.read_text())
    with pytest.raises(UserError, match=r"contains several runs \(one on numbers; one on words\): a gate compares one"):
        logs_as_runs(str(tmp_path / "one"), str(one))
