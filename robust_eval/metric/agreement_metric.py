"""Metrics of agreement, reliability and robustness over a graded answer table: raters are rewrites, trials, or both.

Cho & Watson, "Measuring Robustness via Automated Crowdsourcing of Question Perturbations and Answers"
(docs/methods.md, §2).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from robust_eval.aggregator.base import ENSEMBLE
from robust_eval.answer import ABSTENTION, NO_ANSWER, NO_REPLY, at_temperature, rows, temperatures_of
from robust_eval.error import UserError
from robust_eval.metric.label_correction import corrected_shares, corrected_spec, units
from robust_eval.metric.metric_spec import DATASETS, DETAIL, ComparisonView, MetricSpec, count_spec, point, share_spec
from robust_eval.metric.score import (
    HUMAN_LABEL_WHOLE,
    Correction,
    Measured,
    Metric,
    Score,
    question_groups,
    refuse_single_answers,
    verdicts,
)
from robust_eval.question import LETTERS, Question
from robust_eval.stats.agreement import (
    Certainty,
    beyond_chance,
    certainty_when_guessing,
    fleiss_kappa,
    free_marginal_kappa,
    question_agreement,
    question_certainty,
    question_m2,
    remapped_kappa,
    squared_shares,
)
from robust_eval.stats.correction import corrected_mean
from robust_eval.stats.entropy import answer_entropy
from robust_eval.stats.estimate import Estimate, share_of
from robust_eval.stats.interval import SHARE, Floats, bootstrap, drop_degenerate, mean_bounds
from robust_eval.stats.reliability import cronbach_interval, guessing, question_robustness

_KAPPA = (-math.inf, 1.0)
"""Range of κ and α: at most 1, without a lower bound."""


def _joint_metric(
    name: str, label: str, excluded: str = "", short: str = "", view: ComparisonView | None = None
) -> MetricSpec:
    """Return the spec of a MultiQ&A metric of all questions together; ``excluded`` counts those that it leaves out."""
    excluded = excluded and f"agreement.count.{excluded}"
    return MetricSpec(
        f"agreement.{name}",
        label,
        limits=_KAPPA,
        more_is_better=True,
        short=short,
        excluded_count=excluded,
        mean=False,
        comparison=view,
    )


SPECS: tuple[MetricSpec, ...] = (
    share_spec("agreement.accuracy", "accuracy of the original question (Base)", short="base accuracy"),
    share_spec("agreement.plurality", "accuracy of the majority vote (Mode)", short="vote accuracy"),
    share_spec(
        "agreement.difficulty",
        "accuracy of all raters (μ_D)",
        of_question="share of raters that are right",
        tie_breaker="agreement.worst",
    ),
    share_spec(
        "agreement.worst",
        "share of questions that every rater gets right (Worst)",
        primary=True,
        short="every rater right",
        of_question="every rater right (1: yes, 0: no)",
        tie_breaker="agreement.difficulty",
    ),
    share_spec("agreement.best", "share of questions that at least one rater gets right (Best)"),
    MetricSpec("agreement.base_minus_difficulty", "Base − μ_D", limits=(-1.0, 1.0)),
    share_spec("agreement.certainty", "normalised certainty H_η"),
    share_spec("agreement.m2", "Gibbs' M2"),
    MetricSpec("agreement.semantic_entropy", "semantic entropy", unit="nats", more_is_better=False),
    _joint_metric(
        "kappa",
        "Fleiss' κ, mean over random label mappings",
        excluded="unrated",
        short="κ",
        view=ComparisonView(DATASETS, "Fleiss' κ by data set", file="kappa_by_dataset"),
    ),
    _joint_metric("kappa_free", "free-marginal κ"),
    _joint_metric("kappa_as_labelled", "Fleiss' κ of the letters"),
    _joint_metric(
        "alpha", "Cronbach's α", excluded="incomplete", view=ComparisonView(DATASETS, file="alpha_by_dataset")
    ),
    _joint_metric("alpha_of_raters", "Cronbach's α, raters as items"),
    count_spec("agreement.count.unrated", "questions with fewer than two raters", shown=DETAIL),
    count_spec("agreement.count.incomplete", "questions on which at least one rater has no verdict", shown=DETAIL),
    *(
        MetricSpec(f"agreement.guessing.{name}", label, limits=SHARE, mean=False)
        for name, label in (
            ("accuracy", "accuracy of the raters, if all guess"),
            ("worst", "share of questions that every rater gets right, if all guess"),
            ("best", "share of questions that at least one rater gets right, if all guess"),
            ("certainty", "normalised certainty H_η, if all guess"),
            ("m2", "Gibbs' M2, if all guess"),
        )
    ),
)


CORRECTED = ("accuracy", "plurality", "difficulty", "worst", "best")
DECLARED = tuple(
    corrected_spec(spec, f"agreement.corrected.{name}")
    for spec in SPECS
    for name in CORRECTED
    if spec.name == f"agreement.{name}"
)
COMPLETE_ONLY = ("plurality", "worst", "best")
"""Metrics of a question that need labels of all of its raters."""
MIN_QUESTIONS = 2
"""Minimum number of completely labelled questions, for the standard error of these metrics."""
NOT_COMPLETE = "needs questions with a label for every answer (label --by question)"


_NUMBERS = {label: number for number, label in enumerate((*LETTERS, ABSTENTION))}
"""Numbers of labels that mean the same in all questions with choices."""


class Raters(NamedTuple):
    """Answers of r raters (rewrites, trials) to n questions at one temperature.

    ``labels`` (n, r) are numbers, −1 for none, and ``counts`` (n, K) says how many raters gave each; a label means
    something in its question alone, unless all choose letters. ``categories`` (n,) says how many labels a question
    could have had. ``correct`` (n, r) is 1, 0, or NaN without a verdict; the first rater answered the question itself.
    ``ensemble`` (n,) is the verdict on the answer that was voted for.
    """

    labels: NDArray[np.int64]
    counts: NDArray[np.int64]
    categories: NDArray[np.int64]
    correct: Floats
    ensemble: Floats


def _variants(graded: pa.Table) -> str:
    """Return the differences between raters: wordings, arrangements (orders and forms), both, or trials."""
    forms = graded["form"].filter(pc.greater(graded["rewrite"], 0))
    if not len(forms):
        return "trials"
    if forms.null_count == len(forms):
        return "wordings"
    return "both" if forms.null_count else "arrangements"


@dataclass
class AnswerAgreement(Metric):
    """Metrics of MultiQ&A: agreement, certainty and accuracy of the raters of each question, at each temperature."""

    categories: Any = "raters"
    """Number of possible labels of a free-text question: raters, observed or a number; for choices, always their
    number."""
    missing: str = "pairwise"
    """pairwise: a question is scored by its available raters; drop_question: a question without all of them is
    dropped."""

    axis = "rewrite"
    specs = curves = SPECS
    needs_clusters = True

    def __post_init__(self) -> None:
        number = isinstance(self.categories, int) and not isinstance(self.categories, bool) and self.categories >= 1
        if self.categories not in ("raters", "observed") and not number:
            raise ValueError(f"categories must be raters, observed or a whole number above 0, not {self.categories}")
        if self.missing not in ("pairwise", "drop_question"):
            raise ValueError(f"missing must be pairwise or drop_question, not {self.missing}")

    def check(self, temperatures: Sequence[float], repetitions: float) -> None:
        """Raise UserError unless each question has at least two raters, and a finite number."""
        refuse_single_answers("agreement", repetitions, "sampler=perturbation, or sampler.trials of 2 or more")

    def score(self, questions: Sequence[Question], measured: Measured, seed: int) -> Score:
        """Return all MultiQ&A metrics by temperature. Metrics of all questions together (κ, α) are there for each
        scenario as well, if questions are of several (:func:`of_scenario`).

        Tables: ``agreement`` has the metrics that a question has alone, ``agreement_matrix`` how often two raters
        agree, ``adversarial_rewrites`` the rewrites that turned a right answer wrong. The values ``agreement.guessing``
        are those of raters who guess among the choices; certainty and M2 have them for free text as well.
        """
        ids = [question.id for question in questions]
        groups = question_groups(questions)
        result = Score(question_ids=ids, settings={"variants": _variants(measured.graded)}, specs=self.specs)
        temperatures = temperatures_of(measured.graded)
        by_temperature = [self.raters(questions, measured.graded, t) for t in temperatures]
        by_question: dict[str, list[Floats]] = {}
        for raters in by_temperature:
            for name, values in self.by_question(raters).items():
                by_question.setdefault(name, []).append(values)
        max_raters = max((raters.correct.shape[1] for raters in by_temperature), default=0)
        for name, columns in by_question.items():
            limits = (0.0, math.log(max_raters)) if name == "semantic_entropy" else None
            result.add_curve(f"agreement.{name}", np.column_stack(columns), temperatures, groups, limits)
        parts = {"": (questions, by_temperature)}
        for scenario, in_scenario in _by_scenario(questions).items():
            answers = measured.graded.filter(
                pc.is_in(measured.graded["question_id"], pa.array([q.id for q in in_scenario]))
            )
            parts[scenario] = in_scenario, [self.raters(in_scenario, answers, t) for t in temperatures]
        for scenario, (members, of_members) in parts.items():
            for t, raters in zip(temperatures, of_members, strict=True):
                for name, (estimate, n) in self._of_all(members, raters, seed).items():
                    metric = of_scenario(f"agreement.{name}", scenario)
                    result.curves.setdefault(metric, {})[t] = estimate
                    if n is not None:
                        result.of_questions[point(metric, t)] = n
        numbers, guessed = {len(question.choices) for question in questions}, dict[str, float]()
        if len(numbers) == 1 and 0 not in numbers:
            guessed |= guessing(max(numbers), max_raters)._asdict()
        if all(numbers) or self.categories != "observed":  # what was observed is no number of labels to guess among
            guessed |= _certainty_when_guessing(by_temperature)._asdict()
        result.values |= {f"agreement.guessing.{name}": Estimate(value) for name, value in guessed.items()}
        result.tables["agreement"] = pa.table(
            {
                "question_id": ids * len(temperatures),  # numpy would cut them off at a NUL
                "temperature": np.repeat(temperatures, len(ids)),
                "raters": np.concatenate([raters.counts.sum(axis=1) for raters in by_temperature]),
                "labels": np.concatenate([np.count_nonzero(raters.counts, axis=1) for raters in by_temperature]),
                **{name: np.concatenate(columns) for name, columns in by_question.items()},
            }
        )
        result.tables["adversarial_rewrites"] = adversarial_rewrites(questions, measured.graded)
        matrices = [same_labels(raters.labels) for raters in by_temperature]
        result.tables["agreement_matrix"] = pa.table(
            {
                "temperature": np.repeat(temperatures, [matrix.size for matrix in matrices]),
                "first": np.concatenate([np.repeat(np.arange(len(matrix)), len(matrix)) for matrix in matrices]),
                "second": np.concatenate([np.tile(np.arange(len(matrix)), len(matrix)) for matrix in matrices]),
                "share": np.concatenate([matrix.ravel() for matrix in matrices]),
            }
        )
        return result

    def corrected(self, questions: Sequence[Question], measured: Measured, seed: int) -> Correction:
        """Return the corrected accuracy and difficulty and, from completely labelled questions, the corrected metrics
        of all of a question's raters.
        """
        graded, correction = measured.graded, Correction(specs=DECLARED)
        is_original = (graded["rewrite"].to_numpy() == 0) & (graded["trial"].to_numpy() == 0)
        original = np.where(is_original, verdicts(graded), np.nan)
        for name, judged in (("accuracy", original), ("difficulty", None)):
            shares = corrected_shares(questions, graded, judged=judged)
            correction.add_curve(f"agreement.corrected.{name}", f"agreement.{name}", shares)
        whole = [None if each in (None, -1) else bool(each) for each in graded[HUMAN_LABEL_WHOLE].to_pylist()]
        labelled = graded.set_column(graded.schema.get_field_index("correct"), "correct", pa.array(whole, pa.bool_()))
        robustness = {
            t: [
                question_robustness(raters.correct, raters.ensemble)
                for raters in (self.raters(questions, each, t) for each in (graded, labelled))
            ]
            for t in temperatures_of(graded)
        }
        for name in COMPLETE_ONLY:
            for t, of_both in robustness.items():
                judged, people = (getattr(each, name) for each in of_both)
                people = np.where(np.isnan(judged), np.nan, people)
                number, of = int(np.count_nonzero(~np.isnan(people))), f"agreement.{name}"
                if number < MIN_QUESTIONS:
                    correction.uncorrected[point(of, t)] = NOT_COMPLETE
                    continue
                mean = corrected_mean(judged, people, questions=units(questions))
                correction.add_curve(f"agreement.corrected.{name}", of, {t: (mean, number)})
        return correction

    def raters(self, questions: Sequence[Question], graded: pa.Table, temperature: float) -> Raters:
        """Return the raters' answers (to rewrites, in trials) at one temperature."""
        place = {question.id: row for row, question in enumerate(questions)}
        columns = ("question_id", "temperature", "rewrite", "trial", "label", "correct", "outcome", ENSEMBLE)
        answers = list(rows(at_temperature(graded, temperature), *columns))
        identities = sorted({(0, 0), *((rewrite, trial) for _, _, rewrite, trial, *_ in answers)})
        judged = {question_id for question_id, *_, right, _, _ in answers if right is not None}
        rater = {name: column for column, name in enumerate(identities)}
        correct = np.full((len(questions), len(rater)), np.nan)
        ensemble = np.full(len(questions), np.nan)
        letters = all(question.choices for question in questions)
        numbers: list[dict[str, int]] = [{} for _ in questions]
        labels = np.full(correct.shape, -1, dtype=np.int64)
        replied = np.zeros(correct.shape, dtype=bool)
        abstained = np.zeros(len(questions), dtype=bool)
        for question_id, _, rewrite, trial, label, right, outcome, elected in answers:
            row = place[question_id]
            if outcome not in NO_REPLY:
                replied[row, rater[rewrite, trial]] = True
                if right is not None or (outcome in NO_ANSWER and question_id in judged):
                    correct[row, rater[rewrite, trial]] = float(bool(right))
            if elected and right is not None:
                ensemble[row] = float(right)
            if label is not None and outcome not in NO_REPLY and outcome not in NO_ANSWER:
                number = _NUMBERS[label] if letters else numbers[row].setdefault(label, len(numbers[row]))
                abstained[row] |= label == ABSTENTION
                labels[row, rater[rewrite, trial]] = number
        # replies without an answer elect none, and count as wrong in the vote as elsewhere
        ensemble[(labels < 0).all(axis=1) & (np.where(np.isnan(correct), -1, correct).max(axis=1) == 0)] = 0
        if self.missing == "drop_question":
            incomplete = ~replied.all(axis=1)
            labels[incomplete], correct[incomplete], ensemble[incomplete] = -1, np.nan, np.nan
        counts = (labels[:, :, None] == np.arange(max(1, labels.max(initial=0) + 1))).sum(axis=1)
        return Raters(labels, counts, self._categories(questions, counts, abstained), correct, ensemble)

    def _categories(
        self, questions: Sequence[Question], counts: NDArray[np.int64], abstained: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """Return (n,) the number of labels that each question could have had: one more where a rater abstained, unless
        it follows from the answers.
        """
        free = np.count_nonzero(counts, axis=1) if self.categories == "observed" else counts.sum(axis=1)
        choices = np.array([len(question.choices) for question in questions])
        fixed = np.where(choices > 0, choices, self.categories if isinstance(self.categories, int) else 0)
        categories = np.where(fixed > 0, fixed + abstained, np.maximum(free, 1)).astype(np.int64)
        for question, labels, maximum in zip(questions, np.count_nonzero(counts, axis=1), categories, strict=True):
            if labels > maximum:
                raise UserError(
                    f"metric.agreement.categories={self.categories} is too few: the answers to question {question.id} "
                    f"have {labels} different labels"
                )
        return categories

    def by_question(self, raters: Raters) -> dict[str, Floats]:
        """Return the agreement metrics of each question that are averaged; NaN for a question without one."""
        right = question_robustness(raters.correct, raters.ensemble)
        return {
            **right._asdict(),
            "base_minus_difficulty": right.accuracy - right.difficulty,
            "certainty": question_certainty(raters.counts, raters.categories),
            "m2": question_m2(raters.counts, raters.categories),
            "semantic_entropy": answer_entropy(raters.counts),
        }

    def _of_all(
        self, questions: Sequence[Question], raters: Raters, seed: int
    ) -> dict[str, tuple[Estimate, int | None]]:
        """Return the agreement metrics (κ, α) of all questions together, each with the number of questions behind it,
        and the numbers of questions excluded from some of them: κ needs two raters or more, α a verdict on every rater.
        """
        groups = question_groups(questions)
        counts, categories = raters.counts, raters.categories
        rated = counts.sum(axis=1) >= 2
        agreeing, same = (values[rated] for values in (question_agreement(counts), squared_shares(counts)))
        sizes, size = np.unique(categories[rated], return_inverse=True)
        labels = None if groups is None else np.asarray(groups)[rated]

        def bounds(statistic: Callable[..., Any], chance: Floats, *arrays: NDArray[Any]) -> tuple[float, float]:
            """Return the bootstrap bounds of a κ; if all questions are equal, the exact bounds of their agreement, with
            chance as it is.
            """
            low, high = drop_degenerate(*bootstrap(statistic, *arrays, groups=labels, seed=seed))
            if math.isnan(low):
                low, high = beyond_chance(mean_bounds(agreeing, SHARE, labels), chance).tolist()
            return low, high

        def even(size: NDArray[np.intp]) -> Floats:
            shares: Floats = np.bincount(size, minlength=len(sizes)) / len(size) @ (1 / sizes)
            return shares

        def free(agreeing: Floats, size: NDArray[np.intp]) -> Floats:
            return beyond_chance(agreeing.mean(), even(size))

        def mapped(same: Floats, size: NDArray[np.intp]) -> Floats:
            """Return mean chance agreement over mappings; their variance is no uncertainty (docs/methods.md, §2)."""
            number = np.bincount(size, minlength=len(sizes)).astype(float)
            pairs = np.einsum("a,ab,b->", number, 1 / np.maximum.outer(sizes, sizes), number)
            chance: Floats = (same.sum() + pairs - number @ (1 / sizes)) / len(same) ** 2
            return chance

        def expected(agreeing: Floats, same: Floats, size: NDArray[np.intp]) -> Floats:
            return beyond_chance(agreeing.mean(), mapped(same, size))

        incomplete = np.isnan(raters.correct).any(axis=1)
        kappas = {name: Estimate(math.nan) for name in ("kappa", "kappa_free")}
        if rated.any():
            kappa = remapped_kappa(counts, categories, seed=seed)
            off = kappa - float(expected(agreeing, same, size))  # by the mappings drawn
            low, high = bounds(expected, mapped(same, size), agreeing, same, size)
            kappas["kappa"] = Estimate(kappa, low + off, min(high + off, 1.0))
            free_bounds = bounds(free, even(size), agreeing, size)
            kappas["kappa_free"] = Estimate(free_marginal_kappa(counts, categories), *free_bounds)
        estimates: dict[str, tuple[Estimate, int | None]] = {
            **{name: (kappa, int(rated.sum())) for name, kappa in kappas.items()},
            "alpha": (cronbach_interval(raters.correct), int((~incomplete).sum())),
            "alpha_of_raters": (cronbach_interval(raters.correct[~incomplete].T), int((~incomplete).sum())),
            "count.unrated": (Estimate(float((~rated).sum())), None),
            "count.incomplete": (Estimate(float(incomplete.sum())), None),
        }
        if all(question.choices for question in questions):
            low, high = bootstrap(fleiss_kappa, counts, groups=groups, seed=seed)
            as_labelled = Estimate(fleiss_kappa(counts), *drop_degenerate(low, high))
            estimates["kappa_as_labelled"] = as_labelled, int(rated.sum())
        return estimates


def of_scenario(metric: str, scenario: str) -> str:
    """Return the name of a joint agreement metric of one scenario's questions, in a run that has other scenarios as
    well; without a scenario that of the whole run.
    """
    return f"{metric}.{scenario}" if scenario else metric


def _by_scenario(questions: Sequence[Question]) -> dict[str, list[Question]]:
    """Return the questions of each scenario, whose agreement has metrics of its own; empty for a single one."""
    scenarios = sorted({str(question.scenario) for question in questions})
    if len(scenarios) < 2:
        return {}
    return {name: [question for question in questions if question.scenario == name] for name in scenarios}


def _certainty_when_guessing(by_temperature: Sequence[Raters]) -> Certainty:
    """Return the expected certainties of MultiQ&A if each question's labels were chosen evenly among its possible ones.

    The mean over all questions and temperatures with two raters or more. Nobody guesses free text so, but it is what
    chance alone gives the certainties: with K_j = r_j = 6, H_η is 0.28.
    """
    pairs = [
        (k, r)
        for raters in by_temperature
        for k, r in zip(raters.categories.tolist(), raters.counts.sum(axis=1).tolist(), strict=True)
        if r >= 2
    ]
    if not pairs:
        return Certainty(math.nan, math.nan)
    expected = {pair: certainty_when_guessing(*pair) for pair in set(pairs)}
    return Certainty(*np.mean([expected[pair] for pair in pairs], axis=0).tolist())


def adversarial_rewrites(questions: Sequence[Question], graded: pa.Table) -> pa.Table:
    """Return the adversarial rewrites: wrong answers to rewrites of questions that were right in their original
    wording, in the same trial.

    In place of the wording stands how the choices were shown, where that was in another order or form; it is null where
    a question does not bring the rewrite. Cho & Watson, §6; docs/methods.md, §2.
    """
    by_id = {question.id: question for question in questions}
    columns = ("question_id", "temperature", "trial", "rewrite", "form", "text", "correct")
    answers = list(rows(graded, *columns))
    right = {tuple(place): text for *place, rewrite, _, text, ok in answers if ok and not rewrite}
    records: list[tuple[Any, ...]] = []
    for *place, rewrite, form, text, ok in answers:
        if rewrite and ok is False and tuple(place) in right:
            question = by_id[place[0]]
            wording = form or (question.rewrites[rewrite - 1] if rewrite <= len(question.rewrites) else None)
            records.append((*place, rewrite, question.text, right[tuple(place)], wording, text))
    names = ("question_id", "temperature", "trial", "rewrite", "question", "answer", "rewritten", "answer_to_rewrite")
    types = (pa.string(), pa.float64(), pa.int32(), pa.int32(), *[pa.string()] * 4)
    table = [dict(zip(names, row, strict=True)) for row in records]
    return pa.Table.from_pylist(table, pa.schema(list(zip(names, types, strict=True))))


def same_labels(labels: NDArray[np.int64]) -> Floats:
    """Return (r, r) the share of questions with the same label from two raters, of those labelled by both.

    >>> same_labels(np.array([[0, 0], [0, 1], [2, -1]])).tolist()
    [[1.0, 0.5], [0.5, 1.0]]
    """
    is_labelled = labels >= 0
    both = is_labelled.astype(float).T @ is_labelled
    numbers = np.arange(labels.max(initial=0) + 1)
    same = sum(((labels == number).astype(float).T @ (labels == number) for number in numbers), np.zeros(both.shape))
    return share_of(same, both)
