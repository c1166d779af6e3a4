"""Uncertain replies are counted, and shown with the settings that help."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from answer_rows import changed

from robust_eval.experiment.run_record import COUNTED
from robust_eval.report.page import write_page
from robust_eval.report.terminal import print_summary
from robust_eval.report.warnings import remedy, uncertain, warnings
from robust_eval.tracking.result import Result

SAID = "3 of 294 replies are uncertain: the verdict depends on which part of the reply counts"
JUDGE = "grader=judge grader.model=NAME grader.cascade=uncertain lets a model judge them"


def marked(table: pa.Table, *rows: int) -> pa.Table:
    """The table with these rows uncertain."""
    return changed(table, uncertain={row: row in rows for row in range(table.num_rows)})


@pytest.fixture(scope="module")
def doubted(result: Result) -> Result:
    """The run with one uncertain greedy reply and two uncertain sampled ones."""
    sampled = {name: marked(table) for name, table in result.graded_by_sampler.items()}
    sampled["temperature_sweep"] = marked(sampled["temperature_sweep"], 0, 7)
    return replace(result, graded_baseline=marked(result.graded_baseline, 2), graded_by_sampler=sampled)


def test_greedy_and_sampled_replies_are_counted_under_one_name(result: Result, doubted: Result):
    assert result.summary()["replies.uncertain"] == 0
    assert doubted.summary()["replies.uncertain"] == 3
    assert "replies.uncertain" in COUNTED  # which MLflow records


def test_it_is_undefined_where_the_verdicts_do_not_say_it(result: Result):
    old = replace(result, graded_baseline=changed(result.graded_baseline, uncertain=dict.fromkeys(range(28))))
    assert old.summary()["replies.uncertain"] is None
    assert uncertain(old.counts()) == ""


def test_the_terminal_and_the_page_name_the_settings_that_help(
    result: Result, doubted: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    came = sum(table.num_rows for table in (doubted.graded_baseline, *doubted.graded_by_sampler.values()))
    said = SAID.replace("294", f"{came:,}")
    print_summary(doubted, tmp_path, "store", None)
    line = f"{said}; {JUDGE}, and robust-eval label {tmp_path} shows them first, alternating with other replies\n"
    assert line in capsys.readouterr().out.replace("\n ", " ")
    write_page(doubted, [], tmp_path / "report.html")
    assert f"{said}." in (tmp_path / "report.html").read_text()
    assert (
        f"{said}.",
        f"{JUDGE}, and robust-eval label RUN shows them first, alternating with other replies.",
    ) in list(warnings(doubted))

    print_summary(result, tmp_path, "store", None)
    assert "uncertain" not in capsys.readouterr().out
    assert not any("uncertain" in each.problem for each in warnings(result))


def test_a_judge_is_named_only_where_it_has_something_to_decide(doubted: Result):
    label = "robust-eval label RUN shows them first, alternating with other replies"
    judged = replace(doubted, description={**doubted.description, "grader.cascade": "exact"})
    assert remedy(judged) == label
    choices = [replace(question, answers=(), choices=("a", "b"), correct=0) for question in doubted.questions]
    assert remedy(replace(doubted, questions=choices)) == label


@pytest.mark.parametrize(
    ("number", "came", "said"),
    [
        (1, 1, "1 of 1 reply is uncertain: "),
        (1, 2, "1 of 2 replies is uncertain: "),
        (0.25, 3, "0.25 of 3 replies are uncertain: "),
        (1234, 5000, "1,234 of 5,000 replies are uncertain: "),
    ],
)
def test_enumerated_replies_count_by_their_probability(number: float, came: int, said: str):
    counts = {"replies.uncertain": number, "greedy.outcomes.invalid": 1.0, "outcomes.ok": came - 1, "outcomes.error": 9}
    assert uncertain(counts).startswith(said)
