from dataclasses import replace
from pathlib import Path

import pytest
from answer_rows import changed

from robust_eval.metric.score import Score
from robust_eval.report.terminal import print_summary
from robust_eval.report.warnings import left_out, not_known, unanswered, unread
from robust_eval.runs.finished_runs import KNOWN_SPECS
from robust_eval.stats.estimate import Estimate
from robust_eval.tracking.result import Result

DENOMINATOR = "Filtered and failed answers are left out of every share."


def test_questions_that_were_answered_wrong_were_not_asked_again(result: Result):
    assert list(left_out(result)) == ["4 questions not sampled: the greedy answer is wrong."]


def test_every_other_reason_is_told_apart(result: Result):
    baseline = changed(
        result.graded_baseline.slice(0, 27),  # of the last question there is none
        outcome={0: "error", 7: "filtered_reply"},
        correct={0: None, 7: None, 1: True, 2: True},
        exact={1: False, 2: True},
    )
    kept = [question for question in result.kept if question.id not in ("q1", "q2", "q27")]
    assert list(left_out(replace(result, graded_baseline=baseline, kept=kept))) == [
        "2 questions not sampled: no greedy answer was received.",
        "2 questions not sampled: the greedy answer is wrong.",
        "1 question not sampled: the greedy answer is right, but not an exact match of an accepted answer.",
        "1 question not sampled: other questions were selected, or the answer was not certain enough.",
        "1 question not sampled: no greedy answer was requested or recorded.",
        f"Without an answer: greedy answers: 1 replies filtered, 1 failed. {DENOMINATOR}",
    ]


def test_rows_of_the_data_set_and_aliases_that_cannot_be_used_are_counted(result: Result):
    description = {
        "loaded.dataset.unusable.without_an_answer": 3,
        "loaded.dataset.unusable.repeated": 1,
        "loaded.dataset.unusable_aliases": 2,
    }
    assert list(left_out(replace(result, description=description, kept=result.questions))) == [
        "3 rows of the data set: without an answer.",
        "1 row of the data set: repeated.",
        "2 accepted answers whose normalised form is empty.",
    ]


def test_replies_that_were_cut_and_what_is_undefined_is_said(result: Result):
    sampled = changed(result.graded_by_sampler["temperature_sweep"], finish_reason={0: "length", 5: "length"})
    scores = {"certainty": Score(values={"certainty.count.undefined": Estimate(3.0)}, specs=KNOWN_SPECS)}
    run = replace(result, graded_by_sampler={"temperature_sweep": sampled}, scores=scores, kept=result.questions)
    assert list(left_out(run)) == [
        "2 replies truncated by the length limit, and graded without the truncated part.",
        "Questions without answer entropy, because none of their replies contains an answer: 3.",
    ]


def test_what_answers_nothing_has_one_number_of_refused_empty_and_unread_replies(result: Result):
    """Of 15 sampled replies that answer nothing 12 have no letter, 2 are empty, 1 is refused; so is a greedy one."""
    counts = {"invalid.no_letter": 12.0, "outcomes.empty": 2.0, "outcomes.refused": 1.0, "greedy.outcomes.refused": 1.0}
    assert unread(counts) == ("16 replies, none of which counts as right (no letter: 12, refused: 2, empty: 2)")
    assert unanswered(counts) == ""
    assert unanswered({"rewriting.outcomes.refused": 3.0, "outcomes.error": 1.0}) == (
        "rewriting: 3 refused; sampled answers: 1 failed"
    )
    assert unanswered({"unanswerable.outcomes.error": 2.0}) == "answers to unanswerable questions: 2 failed"
    scores = {"certainty": Score(values={"certainty.count.invalid": Estimate(15.0)}, specs=KNOWN_SPECS)}
    assert not any("15" in each for each in left_out(replace(result, scores=scores)))


def test_of_few_questions_those_that_are_not_known_are_listed_with_their_answers(
    result: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    baseline = changed(
        result.graded_baseline, correct={1: True}, exact={1: False}, text={1: "well,\x1b[31m\nanswer 1", 7: ""}
    )
    run = replace(result, graded_baseline=baseline, kept=[question for question in result.kept if question.id != "q1"])
    print_summary(run, tmp_path, "store", None)
    listed = [line for line in capsys.readouterr().out.splitlines() if " → " in line]
    assert listed == [
        "not known: What is fact 0? → wrong 0",
        "no exact match: What is fact 1? → well,\\x1b[31m answer 1",
        "not known: What is fact 7? → ",
        "not known: What is fact 14? → wrong 4",
        "not known: What is fact 21? → wrong 1",
    ]


def test_of_thirty_questions_those_that_are_not_known_are_counted_alone(result: Result):
    assert list(not_known(replace(result, questions=[*result.questions, *result.questions[:2]]))) == []


def test_a_probability_that_rounds_to_no_reply_is_not_mentioned():
    """Enumerated answers count by their probability."""
    assert unread({"invalid.no_letter": 0.2, "outcomes.refused": 0.4}) == ""
    assert unread({"invalid.no_letter": 0.2, "outcomes.empty": 0.9}).startswith("1 reply, which does not")


def test_replies_without_an_answer_are_counted_by_what_they_lack():
    assert unread({"invalid.no_letter": 2.0, "invalid.several_letters": 1.0, "outcomes.ok": 7.0}) == (
        "3 replies, none of which counts as right (no letter: 2, several letters: 1)"
    )
    assert unread({"outcomes.ok": 7.0}) == ""


def test_the_page_says_so_where_nothing_was_left_out(result: Result, tmp_path: Path):
    from robust_eval.report.page import write_page

    frs = {"frs": result.scores["frs"]}
    write_page(replace(result, kept=result.questions, scores=frs), [], tmp_path / "report.html")
    assert "<p>Nothing.</p>" in (tmp_path / "report.html").read_text()
