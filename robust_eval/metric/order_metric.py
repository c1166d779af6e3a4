"""Choice order: accuracy by position of the right choice and by form of the choices, over a graded answer table;
raters are orders and forms (docs/multiqa.md).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from robust_eval.answer import NO_REPLY, rows, temperatures_of
from robust_eval.error import UserError
from robust_eval.metric.metric_spec import RUN, MetricSpec, share_spec
from robust_eval.metric.score import Measured, Metric, Score, question_groups, verdicts
from robust_eval.prompt.arrangement import FORMS, GIVEN, Arrangement, read_arrangement
from robust_eval.question import Question
from robust_eval.sampler.base import ORDER
from robust_eval.stats.estimate import UNDEFINED, Estimate, columns_of, count_defined, mean_estimate, share_of
from robust_eval.stats.interval import SHARE, Floats
from robust_eval.stats.position_bias import cochran_q, place_bias

ONE_CHOICE = share_spec(
    "order.one_choice",
    "share of questions with the same choice in every order",
    primary=True,
    short="same choice in every order",
    of_question="same choice in every order",
)
RIGHT = share_spec("order.accuracy", "accuracy over all orders", short="accuracy, all orders")
EVERY = share_spec("order.every", "share of questions right in every order")
PLACE = share_spec("order.accuracy.place{}", "accuracy, right choice in position {}")
BIAS = MetricSpec(
    "order.bias.place{}", "accuracy in position {} minus that in the other positions", limits=(-1.0, 1.0), shown=RUN
)
FORM = {
    form: share_spec(
        f"order.form.{form}",
        "accuracy, choices in the form of the prompt" if form == GIVEN else f"accuracy, choices with {form}",
        shown=RUN,
    )
    for form in (GIVEN, *FORMS)
}
Q = {
    "statistic": MetricSpec("order.cochran_q", "Cochran's Q over positions", shown=RUN, form=".2f", mean=False),
    "freedom": MetricSpec(
        "order.cochran_q.freedom", "degrees of freedom of Cochran's Q", shown=RUN, form="g", mean=False
    ),
    "p_value": MetricSpec("order.cochran_q.p", "p value of Cochran's Q", shown=RUN, form=".2g", mean=False),
}
SPECS: tuple[MetricSpec, ...] = (ONE_CHOICE, RIGHT, EVERY, PLACE, BIAS, *FORM.values(), *Q.values())


class Places(NamedTuple):
    """Answers to n questions at T temperatures, by the place of the right choice among the others.

    ``accuracy`` and ``first`` are (T, n, places): the share of right answers, and the verdict on the first of them; NaN
    where there is none. ``forms`` holds (T, n) the accuracy in each form. ``one_choice`` (T, n) is 1 for a question
    with one and the same choice in every order, else 0; NaN with replies in fewer than two orders.
    """

    accuracy: Floats
    first: Floats
    forms: dict[str, Floats]
    one_choice: Floats


@dataclass
class ChoiceOrder(Metric):
    """Choice order metric: position bias, and the effect of the form of the choices, at each temperature."""

    axis = ORDER
    specs = curves = SPECS

    def check(self, temperatures: Sequence[float], repetitions: float) -> None:
        """Raise UserError if the sampler enumerates answers, because those in each order are counted."""
        if math.isinf(repetitions):
            raise UserError("metric=order counts answers, but the sampler enumerates them: choose sampler=order")

    def score(self, questions: Sequence[Question], measured: Measured, seed: int) -> Score:
        """Return by temperature the accuracy by place and by form, the bias of each place, and Cochran's Q over places.

        Tables: ``order`` has a row for each question, temperature and place (from 1) at which its right choice stood;
        ``order_places`` what they are together, with intervals.
        """
        ids, groups = [question.id for question in questions], question_groups(questions)
        result = Score(question_ids=ids, specs=self.specs)
        temperatures = temperatures_of(measured.graded)
        answers = by_place(questions, measured.graded)
        accuracy, bias = answers.accuracy, np.stack([place_bias(each) for each in answers.accuracy])
        places = range(accuracy.shape[2])
        biased = [place for place in places if not np.isnan(bias[..., place]).all()]
        curves = {
            ONE_CHOICE.name: answers.one_choice,
            RIGHT.name: _over_places(np.nanmean, accuracy),
            EVERY.name: np.floor(_over_places(np.nanmin, accuracy)),
            **{PLACE.name.format(place + 1): accuracy[..., place] for place in places},
            **{BIAS.name.format(place + 1): bias[..., place] for place in biased},
        }
        forms = {FORM[form].name: shares for form, shares in answers.forms.items() if not np.isnan(shares).all()}
        if forms.keys() != {FORM[GIVEN].name}:
            curves |= forms
        for name, values in curves.items():
            result.add_curve(name, values.T, temperatures, groups)
        for t, first in zip(temperatures, answers.first, strict=True):
            test = cochran_q(first, groups, seed)
            for name, spec in Q.items():
                result.curves.setdefault(spec.name, {})[t] = Estimate(float(getattr(test, name)))
        result.tables["order"] = _of_questions(questions, temperatures, accuracy)
        result.tables["order_places"] = _of_places(result, accuracy, temperatures, groups)
        return result


def by_place(questions: Sequence[Question], graded: pa.Table) -> Places:
    """Return the answers by place of the right choice at each temperature, ascending, without those to rewrites."""
    by_id = {question.id: question for question in questions}
    row = {question.id: number for number, question in enumerate(questions)}
    temperatures = temperatures_of(graded)
    max_choices = max((len(question.choices) for question in questions), default=0)
    shape = (len(temperatures), len(questions), max_choices)
    right, replies, first = np.zeros(shape), np.zeros(shape), np.full(shape, np.nan)
    of_form: dict[str, Floats] = {form: np.zeros((2, *shape[:2])) for form in (GIVEN, *FORMS)}
    labels = [[set[tuple[tuple[int, ...], str | None]]() for _ in questions] for _ in temperatures]
    column = {temperature: number for number, temperature in enumerate(temperatures)}
    columns = rows(graded, "question_id", "rewrite", "temperature", "trial", "form", "label", "outcome")
    for (question_id, rewrite, t, trial, tag, label, outcome), verdict in zip(
        columns, verdicts(graded).tolist(), strict=True
    ):
        question, arrangement = by_id[question_id], read_arrangement(tag)
        if (rewrite and arrangement is None) or outcome in NO_REPLY or len(question.choices) < 2:
            continue
        at = column[t], row[question_id]
        arrangement = arrangement or Arrangement(tuple(range(len(question.choices))))
        if arrangement.form == GIVEN:
            labels[at[0]][at[1]].add((arrangement.order, label if outcome == "ok" else None))
        if math.isnan(verdict) or question.correct is None:
            continue
        if arrangement.form == GIVEN:
            place = (*at, arrangement.order.index(question.correct))
            right[place] += verdict
            replies[place] += 1
            if trial == 0 and math.isnan(first[place]):
                first[place] = verdict
        if arrangement.order == tuple(range(len(question.choices))):
            of_form[arrangement.form][(0, *at)] += verdict
            of_form[arrangement.form][(1, *at)] += 1
    return Places(
        share_of(right, replies),
        first,
        {form: share_of(*sums) for form, sums in of_form.items()},
        np.array([[_one_choice(named) for named in at_temperature] for at_temperature in labels]),
    )


def _over_places(statistic: Callable[..., Floats], accuracy: Floats) -> Floats:
    """Return (T, n) a statistic of the accuracies of each question over the places of its right choice."""
    statistics = np.full(accuracy.shape[:2], np.nan)
    is_defined = ~np.isnan(accuracy).all(axis=2)
    statistics[is_defined] = statistic(accuracy[is_defined], axis=1)
    return statistics


def _one_choice(named: set[tuple[tuple[int, ...], str | None]]) -> float:
    """Return 1 if one and the same choice is named in all of these orders, else 0; NaN for fewer than two orders. None
    stands for a reply that names no choice.
    """
    orders, choices = {order for order, _ in named}, {choice for _, choice in named}
    return float(len(choices) == 1 and None not in choices) if len(orders) > 1 else math.nan


def _of_questions(questions: Sequence[Question], temperatures: Sequence[float], accuracy: Floats) -> pa.Table:
    column, row, place = np.nonzero(~np.isnan(accuracy))
    return pa.table(
        {
            "question_id": pa.array([questions[number].id for number in row.tolist()], pa.string()),
            "temperature": np.take(temperatures, column),
            "place": pa.array(place + 1, pa.int32()),
            "accuracy": accuracy[column, row, place],
        }
    )


def _of_places(score: Score, accuracy: Floats, temperatures: Sequence[float], groups: Sequence[str] | None) -> pa.Table:
    """Return the accuracy at each place of the right choice, with interval and number of questions, and any bias."""
    records = []
    for column, t in enumerate(temperatures):
        for place in range(accuracy.shape[2]):
            values = accuracy[column, :, place]
            estimate = mean_estimate(values, groups, SHARE)
            bias = score.curves.get(BIAS.name.format(place + 1), {}).get(t, UNDEFINED)
            means = {"accuracy": estimate.value, "low": estimate.low, "high": estimate.high}
            questions = count_defined(values)
            records.append(
                {"temperature": t, "place": place + 1, **means, "questions": questions, **columns_of("bias", bias)}
            )
    return pa.Table.from_pylist(records)
