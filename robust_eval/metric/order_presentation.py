"""The figures of order and form: what they are called, and how a run that measured them is shown."""

import math

from robust_eval.metric.figure import RUN, Figure, at_words, nearest_to_one, point
from robust_eval.metric.interval import SHARE
from robust_eval.metric.presentation import Column, Presentation
from robust_eval.metric.score import Score
from robust_eval.prompt.arrangement import FORMS, GIVEN
from robust_eval.runtime.text import number

ONE_CHOICE = Figure(
    "order.one_choice",
    "share of questions with one choice in every order",
    limits=SHARE,
    more_is_better=True,
    leads=True,
    short="one choice in every order",
    of_question="one choice in every order",
    ahead="keeps to its choice in another order more often than",
    by_number="The more orders are asked, the fewer questions keep one choice in all.",
    apart="choices depend on the order to different degrees",
)
RIGHT = Figure("order.accuracy", "accuracy over all orders", limits=SHARE, more_is_better=True, short="over all orders")
EVERY = Figure("order.every", "share of questions right in every order", limits=SHARE, more_is_better=True)
PLACE = Figure("order.accuracy.place{}", "accuracy, right choice at place {}", limits=SHARE, more_is_better=True)
BIAS = Figure(
    "order.bias.place{}", "accuracy at place {} minus that at the other places", limits=(-1.0, 1.0), shown=RUN
)
FORM = {
    form: Figure(
        f"order.form.{form}",
        "accuracy, choices as the prompt has them" if form == GIVEN else f"accuracy, choices with {form}",
        limits=SHARE,
        more_is_better=True,
        shown=RUN,
    )
    for form in (GIVEN, *FORMS)
}
Q = {
    "statistic": Figure("order.cochran_q", "Cochran's Q over places", shown=RUN, form=".2f", mean=False),
    "freedom": Figure("order.cochran_q.freedom", "degrees of freedom of Cochran's Q", shown=RUN, form="g", mean=False),
    "p_value": Figure("order.cochran_q.p", "p value of Cochran's Q", shown=RUN, form=".2g", mean=False),
}
FIGURES = (ONE_CHOICE, RIGHT, EVERY, PLACE, BIAS, *FORM.values(), *Q.values())


def presentation(score: Score) -> Presentation:
    """Show the accuracy at each place, and how sure it is that they differ, at the temperature nearest 1."""
    t = nearest_to_one(score.curves[ONE_CHOICE.name])
    places = {
        int(place): score.curves[name][t]
        for place, name in PLACE.among(score.curves).items()
        if not math.isnan(score.curves[name][t].value)
    }
    kept = score.formatted(point(ONE_CHOICE.name, t), ".0%")
    said = f"with their choices in other orders {at_words(t)}: of {kept} of them one choice is named in all"
    notes = []
    if places:
        worst, best = (pick(places, key=lambda place: places[place].value) for pick in (min, max))
        low, high = (number(places[place].value, ".0%") for place in (worst, best))
        said += f"; {high} of the answers are right where the right choice stands at place {best}, {low} at {worst}"
        q, freedom, p = (score.curves[figure.name][t].value for figure in Q.values())
        if not math.isnan(q):
            found = f"{number(q, '.2f')}, {freedom:.0f} degrees of freedom, p = {number(p, '.2g')}"
            notes = [f"position bias: Cochran's Q over the places {found}"]
    columns = [
        Column(
            ONE_CHOICE.name,
            "one choice",
            f"1: one choice is named in every order, {at_words(t)}",
            score.by_question[point(ONE_CHOICE.name, t)],
            digits=0,
            levels=(0.0, 1.0),
        )
    ]
    claims = [f"keeps to one choice in every order on {kept} of the questions"]
    return Presentation("Order and form", f"{said}.", columns, claims=claims, notes=notes)
