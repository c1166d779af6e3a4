"""Graders and human verdicts: how far they agree, and what is read of a file of verdicts."""

import json
import math
import sys

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from json_lines import cases
from sklearn.metrics import cohen_kappa_score, f1_score
from statsmodels.stats import inter_rater

from robust_eval.cli import graders as command
from robust_eval.cli.graders import BARE, FIRST_LINE, agreement_row, compared, disagreements
from robust_eval.config.groups import PROJECT
from robust_eval.error import UserError
from robust_eval.labels.label_records import Record, read_records_of_people, record_of
from robust_eval.metric.grader_agreement import Agreement
from robust_eval.question import Question

FREE = {"question": "Who wrote Emma?", "answers": ["Jane Austen"], "reply": "Austen", "correct": True}
CHOICE = {"question": "Which?", "choices": ["this", "that"], "correct_choice": 1, "reply": "B", "correct": True}

EVOUNA = {
    "set": "NQ",
    "question": "Who wrote Emma?",
    "accepted": ["Jane Austen"],
    "model": "fid",
    "reply": "Austen",
    "human": True,
}


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_kappa_and_f1_are_those_of_other_libraries(pairs):
    assume(len({verdict for pair in pairs for verdict in pair}) == 2)
    people, grader = zip(*pairs, strict=True)
    found = Agreement.of(people, grader)
    table = [[pairs.count((one, other)) for other in (True, False)] for one in (True, False)]
    by_statsmodels = inter_rater.cohens_kappa(table, return_results=False)
    assert found.kappa == pytest.approx(by_statsmodels, abs=1e-12)
    assert found.kappa == pytest.approx(cohen_kappa_score(people, grader), abs=1e-12)
    assert found.f1 == pytest.approx(f1_score(people, grader), abs=1e-12)


def test_kappa_is_undefined_where_both_raters_say_the_same_of_all_and_f1_where_that_is_wrong():
    right, wrong = (Agreement.of([verdict] * 3, [verdict] * 3) for verdict in (True, False))
    assert (math.isnan(right.kappa), math.isnan(wrong.kappa)) == (True, True)
    assert (right.f1, math.isnan(wrong.f1)) == (1.0, True)


def test_the_figures_of_a_grader_are_counts_shares_and_an_interval():
    people = [True, True, True, False, False, False, False, False]
    found = [True, True, False, True, False, False, False, False]
    agreement = Agreement.of(people, found)
    row = ["8", "75.0 %", "40.9 % to 92.9 %", "0.667", "0.467", "33.3 % (1 of 3)", "20.0 % (1 of 5)"]
    assert agreement_row(agreement) == row
    interval = {"accuracy_low": 0.40927, "accuracy_high": 0.92852}
    assert agreement.metrics() == pytest.approx(
        interval
        | {
            "replies": 8,
            "verdicts that differ": 2,
            "accuracy": 3 / 4,
            "F1": 2 / 3,  # precision and recall are both two thirds
            "kappa": 7 / 15,  # 6/8 agree, 34/64 would by chance
            "called right": 3,
            "called right but wrong": 1,
            "share of replies called right that are wrong": 1 / 3,
            "called wrong": 5,
            "called wrong but right": 1,
            "share of replies called wrong that are right": 1 / 5,
        },
        abs=1e-5,
    )


def test_replies_that_were_drawn_less_often_weigh_more():
    people, grader = [True, False, True, False], [True, True, True, False]
    found = Agreement.of(people, grader, [3, 1, 1, 1])
    assert found.replies == 4
    assert found.total == pytest.approx(36 / 12)  # (Σw)² / Σw²
    assert found.metrics()["accuracy"] == pytest.approx(5 / 6)
    assert found.f1 == pytest.approx(2 * 4 / (2 * 4 + 1))
    assert found.kappa == pytest.approx(Agreement.of([True] * 4 + [False] * 2, [True] * 5 + [False]).kappa)


def records(*entries):
    return [record_of(entry, str(line)) for line, entry in enumerate(entries, start=1)]


def test_a_record_is_a_question_a_reply_and_a_verdict():
    assert records(FREE | {"incorrect": ["Anne Brontë"], "correct_choice": 1}, CHOICE) == [
        Record(Question("1", "Who wrote Emma?", ("Jane Austen",), incorrect=("Anne Brontë",)), "Austen", True),
        Record(Question("2", "Which?", choices=("this", "that"), correct=1), "B", True),
    ]


def test_a_record_of_evouna_has_its_set_and_model_as_the_slice():
    assert records(EVOUNA) == records(FREE | {"slice": "NQ, fid"})


def test_graders_stand_beside_people_by_slice(monkeypatch, capsys, tmp_path):
    replies = [
        ("fid", "Jane Austen", True),
        ("fid", "Jane  Austen", True),
        ("gpt4", "Austen", True),
        ("gpt4", "Eliot", False),
    ]
    entries = [EVOUNA | {"model": model, "reply": reply, "human": human} for model, reply, human in replies]
    (tmp_path / "verdicts.jsonl").write_text("\n".join(map(json.dumps, entries)))
    monkeypatch.setenv("COLUMNS", "200")
    words = [str(tmp_path / "verdicts.jsonl"), "--show", "0", "--json", str(tmp_path / "metrics.json")]
    monkeypatch.setattr(sys, "argv", ["graders", *words])
    command.main()
    table = capsys.readouterr().out.partition("Agreement with human verdicts by slice")[2]
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in table.splitlines() if "│" in line]
    by_slice = {row[0]: (row[1], row[2], row[-1]) for row in cells[:2]}
    assert by_slice == {"NQ, fid": ("2", "100.0 %", "50.0 %"), "NQ, gpt4": ("2", "50.0 %", "50.0 %")}
    figures = json.loads((tmp_path / "metrics.json").read_text())
    assert (figures["slice NQ, fid: matching, word"], figures[f"slice NQ, fid: {BARE}"]) == (1.0, 0.5)


def test_every_grader_judges_free_text_and_letters_are_judged_apart():
    entries = records(
        FREE | {"incorrect": ["Anne Brontë"]},
        CHOICE,
        FREE | {"reply": "Jane Austen", "incorrect": ["Anne Brontë"]},
        CHOICE | {"reply": "that"},
    )
    assert compared(entries) == {
        "matching, word": {"1": False, "3": True},
        "matching, substring": {"1": False, "3": True},
        "matching, equal": {"1": False, "3": True},
        "levenshtein": {"1": False, "3": True},
        "cosine": {"1": True, "3": True},
        "references": {"1": True, "3": True},
        "letters": {"2": True, "4": True},
        FIRST_LINE: {"1": False, "3": True},
        BARE: {"1": False, "3": True},
    }


def test_references_are_left_out_where_a_record_has_no_incorrect_ones():
    assert "references" not in compared(records(FREE, FREE | {"incorrect": ["Anne Brontë"]}))
    assert list(compared(records(CHOICE))) == ["letters"]


def test_the_disagreements_of_most_graders_come_first():
    entries = records(FREE, FREE | {"correct": False}, FREE)
    verdicts = {
        "one": {"1": False, "2": True, "3": True},
        "two": {"1": True, "2": True, "3": False},
        "three": {"1": True, "2": False, "3": True},
    }
    assert disagreements(entries, verdicts) == {"one": ["2", "1"], "two": ["2", "3"], "three": []}


@pytest.mark.parametrize(("line", "message"), cases(__file__, "a_broken_record_is_refused_with_its_line"))
def test_a_broken_record_is_refused_with_its_line(tmp_path, line, message):
    file = tmp_path / "verdicts.jsonl"
    file.write_text("\n".join([json.dumps(FREE), "", line if isinstance(line, str) else json.dumps(line)]))
    with pytest.raises(UserError) as caught:
        read_records_of_people(file)
    assert str(caught.value) == f"{file}, line 3: {message}"


def test_a_file_that_cannot_be_read_or_holds_nothing_is_refused(tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n\n")
    for name, message in (
        ("none.jsonl", "cannot be read: No such file or directory"),
        ("empty.jsonl", "contains no records"),
    ):
        with pytest.raises(UserError) as caught:
            read_records_of_people(tmp_path / name)
        assert str(caught.value) == f"{tmp_path / name} {message}"


def test_the_sample_is_read_and_shown_whole(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("COLUMNS", "200")
    sample = PROJECT / "benchmarks" / "grading_sample.jsonl"
    monkeypatch.setattr(sys, "argv", ["graders", str(sample), "--show", "1", "--json", str(tmp_path / "metrics.json")])
    command.main()
    shown = capsys.readouterr().out
    assert shown.startswith("67 replies, 35 of them right\n")
    graders = [*command.FREE_TEXT, "references", "letters", FIRST_LINE, BARE]
    assert [line.split(":")[0] for line in shown.splitlines() if line.endswith("differ")] == graders
    assert shown.count(": human ") == len(graders)
    figures = json.loads((tmp_path / "metrics.json").read_text())
    assert figures["letters: replies"] + figures["cosine: replies"] == 67
