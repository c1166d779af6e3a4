"""Every figure of a run: what it is called, how to read it, where it comes from, and the lines that draw it.

Reports, galleries and the documentation take these words from here. The docstring of each function says in one sentence
what its figure shows; the gallery shows its lines as they stand, to be used in a notebook where ``run`` is what
:func:`robust_eval.runs.findings.read_findings` returns, and ``axes`` (or ``drawn``, a whole figure) are new ones.
"""

from __future__ import annotations  # matplotlib takes half a second: its types are names alone here

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from robust_eval import plot
from robust_eval.metric.frs_presentation import FRS
from robust_eval.metric.metric_spec import nearest_to_one
from robust_eval.metric.type_shares import share_estimates, taken
from robust_eval.runs.findings import Findings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Entry:
    """A figure.

    ``tells`` is one sentence on how to read it, ``source`` the paper's figure that it stands for. A run has the figure
    where it is ``allowed``; figures without ``allowed`` belong to the method, not to a run.
    """

    draw: Callable[[Any, Findings], object]
    caption: str
    tells: str
    source: str
    allowed: Callable[[Findings], bool] | None

    @property
    def name(self) -> str:
        """Of its files."""
        return self.draw.__name__

    @property
    def whole(self) -> bool:
        """Whether it takes a figure, because it has several panels, and not axes."""
        return next(iter(inspect.signature(self.draw).parameters)) == "drawn"

    @property
    def shows(self) -> str:
        """One sentence on what is drawn."""
        return " ".join((self.draw.__doc__ or "").split())

    @property
    def reading(self) -> str:
        """What is drawn, and how to read it."""
        return f"{self.shows} {self.tells}"

    @property
    def alternative(self) -> str:
        """For those who cannot see it."""
        return f"{self.caption}. {self.shows}"


CATALOGUE: list[Entry] = []
"""All figures, in the order in which they are shown."""


def _entry(
    caption: str, tells: str, source: str, allowed: Callable[[Findings], bool] | None
) -> Callable[[Callable[[Any, Findings], object]], Callable[[Any, Findings], object]]:
    """Put a function into the catalogue."""

    def enter(draw: Callable[[Any, Findings], object]) -> Callable[[Any, Findings], object]:
        CATALOGUE.append(Entry(draw, caption, tells, source, allowed))
        return draw

    return enter


@_entry(
    "Every fact under three kinds of pressure",
    "Facts in the upper left are held firmly by all three methods; a diamond is a fact that is right in every wording.",
    "of our own: the three papers ask about different questions",
    lambda run: "profile" in run.tables,
)
def frs_by_entropy_and_rewording(axes: Axes, run: Findings) -> None:
    """Each fact by the entropy of its repeated answers and its Factual Robustness Score, coloured by the share of its
    wordings that is answered right.
    """
    table = run.tables["profile"]
    columns = [table[name].to_numpy() for name in ("frs", "entropy", "right_share")]
    plot.profile_figures.frs_by_entropy_and_rewording(axes, *columns)


@_entry(
    "Accuracy against temperature",
    "The earlier and the steeper it falls, the less firmly the model holds what it knows.",
    "Fastowski et al., Fig. 1",
    lambda run: "frs_accuracy" in run.tables,
)
def accuracy_by_temperature(axes: Axes, run: Findings) -> None:
    """The share of right replies to the kept questions at each temperature, with its 95 % interval."""
    plot.frs_figures.accuracy_by_temperature(axes, run.curves["accuracy"])


@_entry(
    "Facts that hold",
    "Where the curve crosses one half, half of the facts are broken; what is left at the last temperature is unbroken.",
    "survival curve (Kaplan & Meier), beyond the paper",
    lambda run: bool(run.curves.get("frs.survival")),
)
def survival(axes: Axes, run: Findings) -> None:
    """The share of facts that are not broken at each temperature or before it, with its 95 % interval."""
    plot.frs_figures.survival(axes, run.curves["frs.survival"])


@_entry(
    "Certainty of right and wrong replies",
    "Certainty is of use where wrong replies (hatched) lie on the left and right ones on the right; wrong replies on "
    "the right are errors of which the model is sure.",
    "Fastowski et al., Fig. 2, 6 and 7",
    lambda run: "frs_certainty" in run.tables and run.tables["frs_certainty"].num_rows > 0,
)
def reply_certainty_by_temperature(drawn: Figure, run: Findings) -> None:
    """For each temperature, right and wrong replies by the mean probability of their tokens, in ten bins."""
    table = run.tables["frs_certainty"]
    columns = [table[name].to_numpy() for name in ("temperature", "certainty_from", "right", "wrong")]
    plot.reply_certainty.certainty_by_temperature(drawn, *columns)


@_entry(
    "Initial entropy against breaking temperature",
    "Means that fall to the right say that facts of which the model is unsure break first; r leaves the unbroken facts "
    "out, which weakens it.",
    "Fastowski et al., Fig. 3",
    lambda run: "frs" in run.tables,
)
def entropy_by_breaking_temperature(axes: Axes, run: Findings) -> None:
    """Each fact by the temperature at which it breaks and the entropy of its greedy answer, with the mean of each
    temperature.
    """
    table = run.tables["frs"]
    entropy, breaking = (table[name].to_numpy() for name in ("entropy", "breaking_temperature"))
    pearson = run.values["frs.entropy_vs_breaking.pearson_broken"].value
    levels = sorted(run.curves.get("accuracy") or run.curves["frs.survival"])
    plot.frs_figures.entropy_by_breaking_temperature(axes, entropy, breaking, levels, pearson)


@_entry(
    "Robustness of every fact",
    "Firm facts lie in the upper left; those in a row break at the same temperature, and the score tells them apart by "
    "their entropy. Within a row they are spread to be seen.",
    "Fastowski et al., Fig. 4",
    lambda run: "frs" in run.tables,
)
def frs_by_entropy_and_breaking(axes: Axes, run: Findings) -> None:
    """Each fact by its initial entropy and its breaking temperature, coloured by its score for the smallest d."""
    table, (d, *_) = run.tables["frs"], sorted(run.scores())
    entropy, breaking = (table[name].to_numpy() for name in ("entropy", "breaking_temperature"))
    levels = sorted(run.curves.get("accuracy") or run.curves["frs.survival"])
    plot.frs_figures.frs_by_entropy_and_breaking(axes, entropy, breaking, run.scores()[d], levels, d)


@_entry(
    "Question types among the most and the least robust facts",
    "Above the dashed line a type is found more often among the most robust facts than among the least.",
    "Fastowski et al., Fig. 5",
    lambda run: (
        "frs_types" in run.tables
        and any(run.tables["frs_types"]["type"].to_pylist())
        and taken(run.tables["frs_types"]) > 0
    ),
)
def question_types(axes: Axes, run: Findings) -> None:
    """Of the facts of a type among the most and the least robust, the share among the most robust, with its 95 %
    interval.
    """
    table = run.tables["frs_types"]
    facts = dict(zip(table["type"].to_pylist(), table["questions"].to_pylist(), strict=True))
    plot.frs_figures.most_robust_by_type(axes, share_estimates(table), facts, taken(table))


@_entry(
    "Mean score for each d",
    "The larger d, the more an unsure start costs; unbroken facts score 1 for every d, so read their share beside the "
    "mean.",
    "Fastowski et al., Fig. 10 to 12",
    lambda run: len(run.across(FRS)) > 1,
)
def frs_by_d(axes: Axes, run: Findings) -> None:
    """The mean Factual Robustness Score for each weight d of the entropy, with its 95 % interval."""
    plot.frs_figures.frs_by_d(axes, run.across(FRS), run.values["frs.unbroken_share"].value)


@_entry(
    "Distribution of the score",
    "A narrow peak says that facts are held alike, two peaks that there are firm and weak ones; the area is the share "
    "of broken facts.",
    "Fastowski et al., Fig. 13",
    lambda run: "frs" in run.tables,
)
def frs_density(axes: Axes, run: Findings) -> None:
    """The density of the Factual Robustness Score over the broken facts, for each d."""
    plot.frs_figures.frs_density(axes, run.scores(), run.tables["frs"]["breaking_temperature"].to_numpy())


@_entry(
    "From right with every rater to right with any",
    "The distance from the first to the last is what the wording decides; a vote above the original question says that "
    "asking in several ways pays.",
    "Cho & Watson, Table 4",
    lambda run: "agreement" in run.tables,
)
def accuracy_range(axes: Axes, run: Findings) -> None:
    """Share of questions that some rater has right, the vote, the original question, all raters on average, and every
    rater, with 95 % intervals.
    """
    called = {
        "some rater": "best",
        "vote": "plurality",
        "original question": "accuracy",
        "mean of the raters": "difficulty",
        "every rater": "worst",
    }
    curves = {name: run.curves[f"agreement.{figure}"] for name, figure in called.items()}
    plot.agreement_figures.accuracy_range(axes, {name: curve[nearest_to_one(curve)] for name, curve in curves.items()})


@_entry(
    "Certainty of each question's raters",
    "1 is agreement of all, 0 an even spread; where wrong votes (hatched) lie on the left, disagreement is a warning "
    "that needs no key.",
    "Cho & Watson, H_η of Table 4, by question",
    lambda run: "agreement" in run.tables,
)
def certainty_of_questions(axes: Axes, run: Findings) -> None:
    """Questions by the normalised certainty H_η of their raters, and whether the vote of these is right."""
    table = run.nearest_to_one("agreement")
    plot.agreement_figures.certainty_of_questions(axes, table["certainty"].to_numpy(), table["plurality"].to_numpy())


@_entry(
    "Agreement between raters",
    "A row that is darker than the others is a rater, such as one rewrite, that goes its own way; 0 is the original "
    "question.",
    "Cho & Watson, what κ of Table 4 sums up",
    lambda run: "agreement_matrix" in run.tables,
)
def agreement_matrix(axes: Axes, run: Findings) -> None:
    """The share of questions to which each two raters gave answers that mean the same."""
    table = run.nearest_to_one("agreement_matrix")
    raters = pc.max(table["first"]).as_py() + 1
    plot.agreement_figures.agreement_matrix(axes, table["share"].to_numpy().reshape(raters, raters))


@_entry(
    "Answers that a question got",
    "1 is agreement of all; the hatched bar counts the questions to which no two raters gave the same answer.",
    "Cho & Watson, what M2 of Table 4 sums up",
    lambda run: "agreement" in run.tables,
)
def labels_per_question(axes: Axes, run: Findings) -> None:
    """How many questions got how many different answers from their raters."""
    table = run.nearest_to_one("agreement")
    plot.agreement_figures.labels_per_question(axes, table["labels"].to_numpy(), pc.max(table["raters"]).as_py())


def _repeated(run: Findings) -> bool:
    """Tell whether any question could have had two different answers."""
    return "certainty" in run.tables and pc.max(run.nearest_to_one("certainty")["most"]).as_py() > 0


def _repeated_and_judged(run: Findings) -> bool:
    return _repeated(run) and not np.isnan(run.nearest_to_one("certainty")["error_rate"].to_numpy()).all()


@_entry(
    "Entropy of the answers",
    "0 is the same answer every time; the right end is an even spread over all answers that were possible.",
    "Reganova & Steinbach, Fig. 1",
    _repeated,
)
def answer_entropy(axes: Axes, run: Findings) -> None:
    """Questions by the entropy of the repeated answers to them, in ten bins."""
    table = run.nearest_to_one("certainty")
    plot.certainty_figures.entropy_histogram(
        axes, {"all questions": table["entropy"].to_numpy()}, pc.max(table["most"]).as_py()
    )


@_entry(
    "Error rate against entropy",
    "The lower left corner is certain and right, the upper left certain and wrong, which no repetition reveals; no "
    "question can lie left of the thick curve, that of two answers.",
    "Reganova & Steinbach, Fig. 2, 4 and 5",
    _repeated_and_judged,
)
def error_rate_by_entropy(axes: Axes, run: Findings) -> None:
    """Questions by the entropy of their repeated answers and by how many of these are wrong, with the curves that
    theory allows for two to five different answers.
    """
    table = run.nearest_to_one("certainty")
    entropy, error_rate = (table[name].to_numpy() for name in ("entropy", "error_rate"))
    plot.certainty_figures.error_against_entropy(axes, entropy, error_rate, pc.max(table["most"]).as_py())


@_entry(
    "Error rate against entropy, by category",
    "Categories whose questions lie in the upper left are those in which the model errs without a sign of doubt.",
    "Reganova & Steinbach, Fig. 3",
    lambda run: _repeated_and_judged(run) and len(pc.unique(run.tables["certainty"]["category"])) > 1,
)
def error_rate_by_category(drawn: Figure, run: Findings) -> None:
    """The same for each category of questions, on one scale of colours."""
    table = run.nearest_to_one("certainty")
    entropy, error_rate = (table[name].to_numpy() for name in ("entropy", "error_rate"))
    most, categories = pc.max(table["most"]).as_py(), table["category"].to_pylist()
    plot.certainty_figures.by_category(drawn, entropy, error_rate, categories, most)


@_entry(
    "Accuracy by the place of the right choice",
    "Points that lie apart say that the model prefers a place to what stands there: one that always says A is right at "
    "the first place and at no other.",
    "position bias, beyond the papers",
    lambda run: "order_places" in run.tables and any(run.tables["order_places"]["questions"].to_pylist()),
)
def accuracy_by_place(axes: Axes, run: Findings) -> None:
    """The share of right answers for each place at which the right choice was put, with its 95 % interval."""
    table = run.nearest_to_one("order_places")
    overall = run.curves["order.accuracy"]
    accuracy, low, high = (table[name].to_numpy() for name in ("accuracy", "low", "high"))
    plot.order_figures.accuracy_by_place(axes, accuracy, low, high, overall[nearest_to_one(overall)].value)


@_entry(
    "Facts under doubt",
    "A curve that falls says that right answers are given up when a user doubts them; a dashed one that rises as far "
    "says that the model gives in to doubt, whatever is right.",
    "survival curve (Kaplan & Meier) over turns, beyond the papers",
    lambda run: "challenge_turns" in run.tables,
)
def facts_under_doubt(axes: Axes, run: Findings) -> None:
    """The share of facts, right at first, that are not broken after each turn of doubt, and the share of right answers
    to questions that were answered wrong at first, with 95 % intervals.
    """
    plot.challenge_figures.facts_under_doubt(
        axes, *(run.estimates("challenge_turns", name) for name in ("holding", "mended"))
    )


@_entry(
    "Accuracy and price by the budget of thinking",
    "A curve that rises says that thought helps; where it is flat, more of it is paid for nothing.",
    "budgets of thinking, beyond the papers",
    lambda run: "thinking_budgets" in run.tables,
)
def accuracy_by_budget(axes: Axes, run: Findings) -> None:
    """The share of right answers with each budget, that of the known facts which need no more, and the tokens that an
    answer takes with its thought, with 95 % intervals.
    """
    table = run.nearest_to_one("thinking_budgets")
    accuracy, enough = (run.estimates("thinking_budgets", name) for name in ("accuracy", "enough"))
    plot.thinking_figures.accuracy_by_budget(
        axes, table["budget"].to_pylist(), accuracy, enough, table["tokens"].to_numpy()
    )


@_entry(
    "What varies: the thought, or the answer after it",
    "Points that lie high are questions whose answer depends on what was thought; those far to the right vary after "
    "one and the same thought.",
    "analysis of variance, beyond the papers",
    lambda run: "thinking" in run.tables and not np.isnan(run.tables["thinking"]["between"].to_numpy()).all(),
)
def variance_of_questions(axes: Axes, run: Findings) -> None:
    """The variance of right and wrong between thoughts of each question, against that within the answers after one."""
    table = run.nearest_to_one("thinking")
    plot.thinking_figures.variance_of_questions(axes, table["between"].to_numpy(), table["within"].to_numpy())


@_entry(
    "Figures of other metrics",
    "Lines that come near each other say that the figures move together; where they are of different kinds, only their "
    "course compares.",
    "metrics of your own, beyond the papers",
    lambda run: bool(run.curves_of_others()),
)
def figures_by_temperature(axes: Axes, run: Findings) -> None:
    """The headline figures of metrics that do not come with the package, at each temperature, with 95 % intervals."""
    plot.run_comparison.figures_by_temperature(axes, run.curves_of_others())


@_entry(
    "What the score makes of entropy and breaking temperature",
    "Along a line between two colours facts score alike; the larger d, the sooner entropy outweighs the breaking "
    "temperature.",
    "Fastowski et al., Fig. 9",
    None,
)
def frs_surfaces(drawn: Figure, run: Findings) -> None:
    """The Factual Robustness Score over initial entropy and breaking temperature for five weights d, seen from
    above.
    """
    plot.surface.surfaces(drawn, "frs")


@_entry(
    "The score before it is mapped to [0, 1]",
    "f is (1 − H)^d (t_b + 1) − H / (t_b + 1): between −1 and 3 on the paper's grid; the score is (f + 1) / (f + 2).",
    "Fastowski et al., Fig. 8",
    None,
)
def f_surfaces(drawn: Figure, run: Findings) -> None:
    """f(H, d, t_b) over initial entropy and breaking temperature for five weights d, seen from above."""
    plot.surface.surfaces(drawn, "f")
