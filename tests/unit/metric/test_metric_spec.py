"""What a metric declares of its figures, and where such a declaration applies."""

import json
import math
from dataclasses import replace

import pytest

from robust_eval.config.schema import _METRICS
from robust_eval.metric.agreement_metric import SPECS as OF_AGREEMENT
from robust_eval.metric.certainty_metric import SPECS as OF_CERTAINTY
from robust_eval.metric.frs_specs import SPECS as OF_FRS
from robust_eval.metric.metric_spec import (
    DETAIL,
    DRAWING_KINDS,
    HEADLINE,
    RUN,
    ComparisonView,
    MetricSpec,
    as_json,
    from_json,
    spec_of,
)
from robust_eval.metric.score import Metric
from robust_eval.runs.finished_runs import KNOWN_SPECS
from robust_eval.stats.interval import SHARE, UNKNOWN

SCORE = MetricSpec("mine.d{}", "score, d = {}", of_question="score, d = {}")
CURVE = MetricSpec("mine.curve", "curve", unit="nats", more_is_better=False)


def test_a_declaration_with_a_gap_applies_to_every_number():
    found = spec_of("mine.d0.5", [CURVE, SCORE])
    assert found == MetricSpec("mine.d0.5", "score, d = 0.5", of_question="score, d = 0.5")


def test_a_declaration_of_a_curve_applies_to_its_points():
    found = CURVE.for_name("mine.curve.t1.5")
    assert found == MetricSpec(
        "mine.curve.t1.5", "curve", unit="nats", more_is_better=False, at_temperature=" at t = 1.5"
    )
    assert (found.words, found.direction) == ("curve (nats) at t = 1.5", "↓")


@pytest.mark.parametrize("name", ["mine", "mine.d", "mine.dx", "mine.curves", "mine.curve.x", "mine.curve.scenario.t1"])
def test_a_declaration_applies_to_no_other_name(name: str):
    assert spec_of(name, [SCORE, CURVE]) is None


def test_the_first_declaration_applies():
    assert spec_of("mine.curve", [MetricSpec("mine.curve", "first"), CURVE]) == MetricSpec("mine.curve", "first")


def test_names_are_ordered_by_what_stands_for_all():
    names = ["mine.curve.t0.5", "mine.curve.t2", "other", "mine.curve.t1.5", "mine.d5", "mine.d1"]
    assert CURVE.covered_names(names) == ["mine.curve.t0.5", "mine.curve.t1.5", "mine.curve.t2"]
    assert SCORE.covered_names(names) == ["mine.d5", "mine.d1"]
    assert SCORE.among(names) == {5.0: "mine.d5", 1.0: "mine.d1"}


def test_what_is_not_said_of_a_drawing_is_the_label_and_the_name():
    plain, told = SCORE, replace(SCORE, comparison=ComparisonView(vertical="up", number="across", heading="head"))
    assert (plain.number, plain.heading, plain.horizontal, plain.vertical) == ("d", "score, d = …", "d", "score, d = …")
    assert (told.number, told.heading, told.horizontal, told.vertical) == ("d", "head", "across", "up")
    assert (CURVE.heading, CURVE.horizontal, CURVE.vertical) == ("curve", "temperature t", "curve (nats)")
    assert MetricSpec("mine.{}", "mine").number == "number"


@pytest.mark.parametrize("comparison", [[], "line", {"kind": None}, {"caption": 3}, {"kind": "pie"}])
def test_what_is_no_drawing_is_refused(comparison: object):
    with pytest.raises((TypeError, ValueError)):
        from_json([{"name": "mine", "label": "mine", "comparison": comparison}])


def test_declarations_are_written_and_read_as_json():
    half_open = MetricSpec("mine.words", "words", limits=(0.0, math.inf))
    specs = [*KNOWN_SPECS, half_open]
    assert from_json(json.loads(json.dumps(as_json(specs), allow_nan=False))) == specs
    assert [each["limits"] for each in as_json([SCORE, MetricSpec("share", "share", limits=SHARE)])] == [
        None,
        [0.0, 1.0],
    ]


def test_what_a_later_version_adds_is_left_out():
    later = {"name": "mine", "label": "mine", "colour": "red", "comparison": {"kind": "steps", "colour": "red"}}
    assert from_json([later]) == [MetricSpec("mine", "mine", comparison=ComparisonView("steps"))]


def test_no_name_is_declared_twice():
    names = [spec.name for spec in KNOWN_SPECS]
    assert len(names) == len(set(names))


def test_a_tie_breaker_is_a_figure_of_the_same_metric():
    for specs in (OF_FRS, OF_AGREEMENT, OF_CERTAINTY):
        for spec in specs:
            other = spec_of(spec.tie_breaker, specs) if spec.tie_breaker else None
            assert (other is not None) == bool(spec.tie_breaker)
            assert not spec.excluded_count or spec_of(spec.excluded_count, specs) is not None


def test_figures_that_are_drawn_have_files_of_their_own_and_companions_that_are_there():
    shown = [spec.comparison for spec in KNOWN_SPECS if spec.comparison]
    assert {each.kind for each in shown} == set(DRAWING_KINDS)
    files = [each.file for each in shown]
    assert all(files)
    assert len(files) == len(set(files))
    assert all(spec_of(each.companion, KNOWN_SPECS) for each in shown if each.companion)


@pytest.mark.parametrize("metric", _METRICS.values(), ids=_METRICS)
def test_finished_runs_know_the_specs_of_every_metric(metric: type[Metric]):
    assert [spec.name for spec in metric.specs if spec not in KNOWN_SPECS] == []


def test_every_figure_of_a_question_is_a_headline_and_counts_are_whole_numbers():
    for spec in KNOWN_SPECS:
        assert not spec.of_question or spec.shown == HEADLINE
        assert (".count." in spec.name) == (spec.form == ".0f")
        assert spec.form != ".0f" or spec.shown in (RUN, DETAIL)
    assert UNKNOWN not in [spec.limits for spec in KNOWN_SPECS if "share" in spec.label]
