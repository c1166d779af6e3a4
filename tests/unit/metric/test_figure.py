"""What a metric declares of its figures, and where such a declaration applies."""

import json

import pytest

from robust_eval.metric.agreement_presentation import FIGURES as OF_AGREEMENT
from robust_eval.metric.certainty_presentation import FIGURES as OF_CERTAINTY
from robust_eval.metric.figure import DETAIL, HEADLINE, RUN, Figure, as_json, declared, from_json
from robust_eval.metric.frs_presentation import FIGURES as OF_FRS
from robust_eval.metric.interval import SHARE, UNKNOWN
from robust_eval.metric.known_figures import KNOWN_FIGURES, completed

SCORE = Figure("mine.d{}", "score, d = {}", of_question="score, d = {}")
CURVE = Figure("mine.curve", "curve", unit="nats", more_is_better=False)


def test_a_declaration_with_a_gap_applies_to_every_number():
    found = declared("mine.d0.5", [CURVE, SCORE])
    assert found == Figure("mine.d0.5", "score, d = 0.5", of_question="score, d = 0.5")


def test_a_declaration_of_a_curve_applies_to_its_points():
    found = CURVE.named("mine.curve.t1.5")
    assert found == Figure("mine.curve.t1.5", "curve", unit="nats", more_is_better=False, at=" at t = 1.5")
    assert (found.words, found.direction) == ("curve (nats) at t = 1.5", "↓")


@pytest.mark.parametrize("name", ["mine", "mine.d", "mine.dx", "mine.curves", "mine.curve.x", "mine.curve.scenario.t1"])
def test_a_declaration_applies_to_no_other_name(name: str):
    assert declared(name, [SCORE, CURVE]) is None


def test_the_first_declaration_applies():
    assert declared("mine.curve", [Figure("mine.curve", "first"), CURVE]) == Figure("mine.curve", "first")


def test_names_are_ordered_by_what_stands_for_all():
    names = ["mine.curve.t0.5", "mine.curve.t2", "other", "mine.curve.t1.5", "mine.d5", "mine.d1"]
    assert CURVE.standing(names) == ["mine.curve.t0.5", "mine.curve.t1.5", "mine.curve.t2"]
    assert SCORE.standing(names) == ["mine.d5", "mine.d1"]
    assert SCORE.among(names) == {5.0: "mine.d5", 1.0: "mine.d1"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"shown": "everywhere"}, "shown must be one of headline, run, detail, not everywhere"),
        ({"unit": "m" * 121}, "unit must be one line of at most 120 characters"),
        ({"of_question": "two\nlines"}, "of_question must be one line of at most 120 characters"),
        ({"form": "d"}, "form must be one such as .3f, .0% or g, not d"),
        ({"form": ".12f"}, "form must be one such as .3f, .0% or g, not .12f"),
    ],
)
def test_what_cannot_be_shown_is_refused(wrong: dict[str, str], said: str):
    with pytest.raises(ValueError, match="must be") as problem:
        Figure("mine", "mine", **wrong)
    assert str(problem.value) == said


def test_declarations_are_written_and_read_as_json():
    assert from_json(json.loads(json.dumps(as_json(KNOWN_FIGURES)))) == list(KNOWN_FIGURES)
    assert [each["limits"] for each in as_json([SCORE, Figure("share", "share", limits=SHARE)])] == [None, [0.0, 1.0]]


def test_what_a_later_version_adds_is_left_out():
    assert from_json([{"name": "mine", "label": "mine", "colour": "red"}]) == [Figure("mine", "mine")]


def test_declarations_of_earlier_versions_learn_where_facts_break():
    before = as_json(OF_FRS)
    for each in before:
        del each["holds"], each["breaks"]
    assert completed(from_json(before)) == list(OF_FRS)
    assert completed([CURVE]) == [CURVE]


def test_no_name_is_declared_twice():
    names = [figure.name for figure in KNOWN_FIGURES]
    assert len(names) == len(set(names))


def test_what_decides_ties_says_how_questions_differ_in_it():
    for figures in (OF_FRS, OF_AGREEMENT, OF_CERTAINTY):
        for figure in figures:
            other = declared(figure.ties, figures) if figure.ties else None
            assert (other is not None) == bool(figure.ties)
            assert other is None or other.apart
            assert not figure.lacking or declared(figure.lacking, figures) is not None


def test_every_figure_of_a_question_is_a_headline_and_counts_are_whole_numbers():
    for figure in KNOWN_FIGURES:
        assert not figure.of_question or figure.shown == HEADLINE
        assert (".count." in figure.name) == (figure.form == ".0f")
        assert figure.form != ".0f" or figure.shown in (RUN, DETAIL)
    assert UNKNOWN not in [figure.limits for figure in KNOWN_FIGURES if "share" in figure.label]
