"""Reliability of repeated answers by the names of the literature, over a graded answer table (docs/uncertainty.md)."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from robust_eval.answer import ABSTAINED, NO_REPLY, at_temperature, filtered, has_outcome, rows, temperatures_of
from robust_eval.metric.certainty_metric import INVALID_LABEL, label_weights, labelled_replies
from robust_eval.metric.challenge_metric import conversations
from robust_eval.metric.greedy import greedy_verdicts
from robust_eval.metric.label_correction import corrected_shares, corrected_spec
from robust_eval.metric.metric_spec import RUN, ComparisonView, MetricSpec, nearest_to_one, share_spec
from robust_eval.metric.score import (
    HUMAN_ABSTENTION,
    Correction,
    Measured,
    Metric,
    Score,
    question_groups,
    question_rows,
    refuse_single_answers,
    verdicts,
)
from robust_eval.prompt.pushback import read_pushback
from robust_eval.question import Question
from robust_eval.sampler.base import TURN
from robust_eval.stats.agreement import question_agreement
from robust_eval.stats.estimate import Estimate, masked, share_of
from robust_eval.stats.interval import SHARE, Floats
from robust_eval.stats.pass_rates import SLICK, g_pass_at_k, pass_at_k, pass_hat_k, slick

CONSISTENCY = share_spec(
    "reliability.consistency",
    "consistency rate: share of pairs of answers that agree",
    primary=True,
    short="consistency rate",
    of_question="share of pairs of answers that agree",
)
PASS_AT = share_spec("reliability.pass_at.k{}", "pass@{}: at least one trial right, k = {}", shown=RUN)
PASS_HAT = share_spec(
    "reliability.pass_hat.k{}",
    "pass^{}: all trials right, k = {}",
    comparison=ComparisonView(number="trials k", file="pass_hat_by_k"),
)
G_PASS = {
    share: share_spec(
        f"reliability.g_pass_{share}.k{{}}", f"G-Pass@{{}}: at least {share} % of the trials right, k = {{}}", shown=RUN
    )
    for share in (50, 75)
}
"""Specs of G-Pass@k by τ in percent."""
SAME_TEXT = share_spec("reliability.tar_r", "TARr@N: all trials have the same text", shown=RUN)
SAME_ANSWER = share_spec("reliability.tar_a", "TARa@N: all trials have the same answer", shown=RUN)
SLICK_SHARES = tuple(
    MetricSpec(f"reliability.slick.{name}", f"SliCK: {category}", limits=SHARE, more_is_better=better, shown=RUN)
    for name, category, better in zip(
        SLICK, ("HighlyKnown", "MaybeKnown", "WeaklyKnown", "Unknown"), (True, None, None, False), strict=True
    )
)
SENSITIVITY = MetricSpec(
    "reliability.prompt_sensitivity",
    "prompt sensitivity: standard deviation of accuracy across wordings",
    more_is_better=False,
    shown=RUN,
    mean=False,
)
SENSITIVITY_NOISE = MetricSpec(
    "reliability.prompt_sensitivity_noise",
    "standard deviation across wordings from binomial noise alone",
    shown=RUN,
    mean=False,
)
ABSTAINED_SHARE = share_spec("reliability.abstained", "share of replies that abstain", more_is_better=None)
ATTEMPTED = share_spec("reliability.attempted_accuracy", "accuracy of the replies that do not abstain", shown=RUN)
HALLUCINATED = share_spec(
    "reliability.wrong_if_not_right",
    "share of wrong answers among wrong answers and abstentions",
    more_is_better=False,
    shown=RUN,
)
BALANCE = MetricSpec(
    "reliability.right_minus_wrong",
    "right minus wrong answers (an abstention counts 0)",
    unit="percentage points",
    limits=(-100.0, 100.0),
    more_is_better=True,
    form=".1f",
)
ANSWERED_UNANSWERABLE = share_spec(
    "reliability.answered_unanswerable",
    "share of replies to unanswerable questions that give an answer",
    more_is_better=False,
)
CORRECTED = tuple(
    corrected_spec(spec, f"reliability.corrected.{spec.name.rpartition('.')[2]}")
    for spec in (ABSTAINED_SHARE, ANSWERED_UNANSWERABLE)
)
FLIPPED = share_spec(
    "reliability.flipped_share", "share of conversations in which a verdict flips", more_is_better=False
)
FLIPS = MetricSpec("reliability.flips", "flips between right and wrong in a conversation", more_is_better=False)
FIRST_FLIP = MetricSpec("reliability.first_flip", "mean turn of the first flip", more_is_better=True)
SPECS: tuple[MetricSpec, ...] = (
    CONSISTENCY,
    PASS_HAT,
    PASS_AT,
    *G_PASS.values(),
    SAME_TEXT,
    SAME_ANSWER,
    *SLICK_SHARES,
    SENSITIVITY,
    SENSITIVITY_NOISE,
    ABSTAINED_SHARE,
    ATTEMPTED,
    HALLUCINATED,
    BALANCE,
    ANSWERED_UNANSWERABLE,
    FLIPPED,
    FLIPS,
    FIRST_FLIP,
)


@dataclass
class TrialReliability(Metric):
    """Reliability metric of repeated answers at the temperature nearest to 1 (docs/uncertainty.md)."""

    axis = "trial"
    other_axes = (TURN,)
    specs = SPECS
    needs_clusters = True

    def check(self, temperatures: Sequence[float], repetitions: float) -> None:
        """Raise UserError unless each question has at least two answers, and a finite number."""
        refuse_single_answers(
            "reliability", repetitions, "sampler=repetition, sampler=perturbation or sampler=challenge"
        )

    def score(self, questions: Sequence[Question], measured: Measured, seed: int) -> Score:
        """Return the reliability metrics that the answers allow: pass rates, TAR and SliCK need two trials of the
        question, the sensitivity two wordings, and flips conversations with pushback.

        Table ``reliability`` has a row for each question, with the number of its ``trials``, the ``right`` ones and its
        category of SliCK.
        """
        ids, groups = [question.id for question in questions], question_groups(questions)
        temperature = nearest_to_one(temperatures_of(measured.graded))
        answers = at_temperature(measured.graded, temperature)
        first = greedy_verdicts(ids, measured.baseline)
        result = Score(question_ids=ids, specs=self.specs, settings={"temperature": temperature})
        if _has_pushback(answers):
            _add_flips(result, answers, first, groups)
            return result
        replies = labelled_replies(answers)
        labelled = filtered(replies, pc.not_equal(replies["label"], INVALID_LABEL))
        counts = label_weights(ids, labelled, temperature)
        result.add_mean(CONSISTENCY.name, question_agreement(counts), groups)
        _add_abstentions(result, questions, answers, groups)
        right_by_wording, trials_by_wording = _by_wording(ids, answers)
        right, trials = right_by_wording[:, 0], trials_by_wording[:, 0]
        highest = int(trials.max(initial=0))
        if highest > 1:
            _add_pass_rates(result, right, trials, highest, groups)
        _add_equal(result, answers, groups)
        category = slick(first, right, trials)
        if highest > 1 and np.any(category >= 0):
            for place, spec in enumerate(SLICK_SHARES):
                result.add_mean(spec.name, masked(category >= 0, category == place), groups)
        if trials_by_wording.shape[1] > 1:
            _add_sensitivity(result, right_by_wording, trials_by_wording)
        result.tables["reliability"] = pa.table(
            {
                "question_id": ids,
                "question": [question.text for question in questions],
                "trials": trials,
                "right": right,
                "slick": pa.array([SLICK[place] if place >= 0 else None for place in category], pa.string()),
            }
        )
        return result

    def corrected(self, questions: Sequence[Question], measured: Measured, seed: int) -> Correction:
        """Return the corrected reliability: shares of abstentions, and of answers to questions without an answer."""
        correction = Correction(specs=CORRECTED)
        answers = at_temperature(measured.graded, nearest_to_one(temperatures_of(measured.graded)))
        if not _has_pushback(answers) and not np.isnan(answers[HUMAN_ABSTENTION].to_numpy()).all():
            abstained = masked(~has_outcome(answers, NO_REPLY), has_outcome(answers, (ABSTAINED,)))
            unanswerable = np.array([question.is_unanswerable for question in questions])
            row = question_rows([question.id for question in questions], answers)
            for spec, of, judged in zip(
                CORRECTED,
                (ABSTAINED_SHARE, ANSWERED_UNANSWERABLE),
                (abstained, masked(unanswerable[row], abstained)),
                strict=True,
            ):
                errors = of is ANSWERED_UNANSWERABLE
                shares = corrected_shares(questions, answers, errors, judged, label=HUMAN_ABSTENTION)
                correction.add_mean(spec.name, of.name, shares)
        return correction


def _has_pushback(answers: pa.Table) -> bool:
    return any(read_pushback(form) for form in answers["form"].unique().to_pylist())


def _by_wording(question_ids: Sequence[str], answers: pa.Table) -> tuple[Floats, Floats]:
    """Return (n, w) the numbers of right answers, and of all graded answers, to n questions in w wordings: their own,
    and their rewrites. Choices in another order or form are no other wording.
    """
    answers = filtered(answers, pc.or_(pc.equal(answers["rewrite"], 0), pc.is_null(answers["form"])))
    row = {question_id: place for place, question_id in enumerate(question_ids)}
    column = {rewrite: place for place, rewrite in enumerate(sorted({0, *answers["rewrite"].to_pylist()}))}
    right, trials = np.zeros((2, len(question_ids), len(column)))
    for (question_id, rewrite), verdict in zip(
        rows(answers, "question_id", "rewrite"), verdicts(answers).tolist(), strict=True
    ):
        if not math.isnan(verdict):
            right[row[question_id], column[rewrite]] += verdict
            trials[row[question_id], column[rewrite]] += 1
    return right, trials


def powers(highest: int) -> list[int]:
    """Return 1, 2, 4, … and the highest number of trials: the k of pass@k and pass^k.

    >>> powers(10)
    [1, 2, 4, 8, 10]
    """
    return sorted({*(2**power for power in range(highest.bit_length())), highest})


def _add_pass_rates(result: Score, right: Floats, trials: Floats, highest: int, groups: Sequence[str] | None) -> None:
    """Add pass@k, pass^k and G-Pass@k for k = 1, 2, 4, … and the largest number of trials."""
    for k in powers(highest):
        result.add_mean(PASS_AT.name.format(k), pass_at_k(right, trials, k), groups)
        result.add_mean(PASS_HAT.name.format(k), pass_hat_k(right, trials, k), groups)
        for percent, spec in G_PASS.items():
            result.add_mean(spec.name.format(k), g_pass_at_k(right, trials, k, percent / 100), groups)


def _add_equal(result: Score, answers: pa.Table, groups: Sequence[str] | None) -> None:
    """Add the shares of questions whose trials are all identical: total agreement rates of the raw text (TARr) and of
    the answer (TARa), of questions with all N replies, two or more. Replies without an answer have one label.

    Atil et al., "Non-Determinism of 'Deterministic' LLM Settings" (2024).
    """
    is_reply = pc.invert(pc.is_in(answers["outcome"], pa.array(NO_REPLY)))
    original = filtered(answers, pc.and_(pc.equal(answers["rewrite"], 0), is_reply))
    labels = labelled_replies(original)["label"]
    for spec, values in ((SAME_TEXT, original["text"]), (SAME_ANSWER, labels)):
        by_question = defaultdict[str, list[str]](list)
        for question_id, value in zip(original["question_id"].to_pylist(), values.to_pylist(), strict=True):
            by_question[question_id].append(value)
        of_questions = [by_question[question_id] for question_id in result.question_ids]
        trials = max(map(len, of_questions), default=0)
        equal = [float(len(set(each)) == 1) if len(each) == trials else math.nan for each in of_questions]
        if trials > 1:
            result.add_mean(spec.name, np.array(equal), groups)


def _add_abstentions(
    result: Score, questions: Sequence[Question], answers: pa.Table, groups: Sequence[str] | None
) -> None:
    """Add the share of abstentions in all wordings, and the metrics that set them apart from wrong answers. Refused,
    empty and invalid replies are wrong answers, as everywhere.

    Accuracy of attempted questions: Wei et al., "Measuring short-form factuality in large language models" (2024). The
    other two: Artificial Analysis, "AA-Omniscience" (2025), hallucination rate and index.
    """
    row, right = question_rows(result.question_ids, answers), verdicts(answers)
    abstained = has_outcome(answers, (ABSTAINED,))

    def count(chosen: NDArray[np.bool_]) -> Floats:
        return np.bincount(row, chosen, len(questions)).astype(float)

    judged, wrong = ~np.isnan(right), (right == 0) & ~abstained
    share = share_of(count(abstained), count(~has_outcome(answers, NO_REPLY)))
    values = {
        ABSTAINED_SHARE: share,
        ATTEMPTED: share_of(count((right == 1) & ~abstained), count(judged & ~abstained)),
        HALLUCINATED: share_of(count(wrong), count(right == 0)),
        BALANCE: 100 * share_of(count(right == 1) - count(wrong), count(judged)),
        ANSWERED_UNANSWERABLE: masked(np.array([question.is_unanswerable for question in questions]), 1 - share),
    }
    for spec, of_questions in values.items():
        if not np.isnan(of_questions).all():
            result.add_mean(spec.name, of_questions, groups)


def _add_sensitivity(result: Score, right: Floats, trials: Floats) -> None:
    """Add the sensitivity to wording: the standard deviation of accuracy across wordings, and its expectation if the
    wording had no effect: √Σ_j v_j / n, with v_j the variance of a question's accuracy in one wording by its answers to
    all of them. Questions without an answer to some wording are left out.
    """
    complete = (trials > 0).all(axis=1)
    right, trials = right[complete], trials[complete]
    n, of_all = len(right), trials.sum(axis=1)
    values = (math.nan, math.nan)
    if n:
        share = right.sum(axis=1) / of_all
        variance = share * (1 - share) * of_all / (of_all - 1) * (1 / trials).mean(axis=1)
        values = float(np.std((right / trials).mean(axis=0), ddof=1)), math.sqrt(float(variance.sum())) / n
    for spec, value in zip((SENSITIVITY, SENSITIVITY_NOISE), values, strict=True):
        result.values[spec.name] = Estimate(value)
        result.of_questions[spec.name] = n


def _add_flips(result: Score, answers: pa.Table, first: Floats, groups: Sequence[str] | None) -> None:
    """Add the flips, changes from right to wrong and back between the turns of a conversation: the share of
    conversations with a flip, their mean number in a conversation, and the mean turn of the first; NaN without any.

    Turn 0 is the greedy answer, with the verdicts ``first`` (n,); a turn without a reply is left out. Laban et al.,
    "Are You Sure? Challenging LLMs Leads to Performance Drops in the FlipFlop Experiment" (2023), §3.
    """
    number, flipped, total, first_turn = np.zeros((4, len(first)))
    last = 1.0
    for place, turns in conversations(result.question_ids, answers):
        if math.isnan(first[place]):
            continue
        before = [first[place], *(verdict for *_, verdict in turns)]
        flips = [turn for (turn, _, verdict), previous in zip(turns, before, strict=False) if verdict != previous]
        number[place] += 1
        total[place] += len(flips)
        flipped[place] += bool(flips)
        first_turn[place] += flips[0] if flips else 0
        last = max(last, float(turns[-1][0]))
    share, mean, turn = share_of(flipped, number), share_of(total, number), share_of(first_turn, flipped)
    result.add_mean(FLIPPED.name, share, groups)
    result.add_mean(FLIPS.name, mean, groups, (0.0, last))
    result.add_mean(FIRST_FLIP.name, turn, groups, (1.0, last))
    columns = {"question_id": result.question_ids, "share": share, "number": mean, "first": turn}
    result.tables["reliability"] = pa.table(columns)
