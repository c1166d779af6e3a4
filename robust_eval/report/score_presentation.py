"""Sentences, columns and tables with which a report presents the score of each metric."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd

from robust_eval.answer import at_temperature, temperature_name
from robust_eval.metric import challenge_metric as challenge
from robust_eval.metric import reliability_metric as repeated
from robust_eval.metric import thinking_metric as thinking
from robust_eval.metric import uncertainty_metric as errors_by
from robust_eval.metric import variance_metric as varied
from robust_eval.metric.certainty_metric import CERTAIN_WRONG, ENTROPY, ERROR_RATE
from robust_eval.metric.frs_specs import FRS, SURVIVAL, UNBROKEN
from robust_eval.metric.greedy import CONSTANT, GUESSING, MOST_FREQUENT, gradable_rows
from robust_eval.metric.greedy import SPEC as GREEDY
from robust_eval.metric.label_correction import ABSTENTION_RATES
from robust_eval.metric.metric_spec import MetricSpec, at_words, curve_and_temperature, nearest_to_one, point
from robust_eval.metric.order_metric import ONE_CHOICE, PLACE, Q
from robust_eval.metric.presentation import Cell, Column, Presentation, Scale, Table
from robust_eval.metric.profile_metric import (
    ANSWERS_UNANSWERABLE,
    FIRST,
    ROBUST,
    ROBUST_AT_OWN,
    ROBUST_TO_ALL,
    ROBUST_TO_ORDER,
    ROBUST_TO_PUSHBACK,
)
from robust_eval.metric.score import Correction, Score, question_groups
from robust_eval.question import LETTERS, QUESTION_TYPES, Question
from robust_eval.runtime.text import counted, number
from robust_eval.stats.correction import labels_to_halve
from robust_eval.stats.entropy import guessed_entropy
from robust_eval.stats.estimate import UNDEFINED, Estimate, bounds, interval, with_interval
from robust_eval.stats.frs import factual_robustness_score
from robust_eval.stats.interval import Floats
from robust_eval.stats.significance import LEVEL, holm, welch_p_value
from robust_eval.stats.variance import VarianceComponents

EARLY_STOPPING_NOTE = (
    "Accuracy at each temperature and certainty of replies are unknown: sampler.early_stop=true requested only what "
    "breaking temperatures need."
)
"""Reason for the metrics that early stopping leaves out."""
MIN_OF_TYPE = 5
"""Minimum number of facts of a type for a claim on types."""
_TARGETS = {"baseline": "greedy answers", "majority": "majority answers"}
_TABLE_4 = {
    "Base": "agreement.accuracy",
    "Mode": "agreement.plurality",
    "Worst": "agreement.worst",
    "Best": "agreement.best",
    "μ_D": "agreement.difficulty",
    "H_η": "agreement.certainty",
    "M2": "agreement.m2",
    "κ": "agreement.kappa",
    "α": "agreement.alpha",
}
"""Columns of the paper's table."""
_VARIANTS = {
    "wordings": ("Rewording", "in the original wording", "in every wording"),
    "arrangements": (
        "Agreement across orders and forms",
        "in the original order and form",
        "in every order and form of the choices",
    ),
    "both": (
        "Rewording, order and form",
        "in the original wording, order and form",
        "in every wording, order and form",
    ),
    "trials": ("Agreement of trials", "in the first trial", "in every trial"),
}
"""Heading, and words for the original and for all variants of a question, by the differences between its raters."""


def frs(score: Score, questions: Sequence[Question]) -> Presentation:
    """Present the score of FRS: each question by its score for the smallest d, its initial entropy, and its breaking
    temperature.
    """
    facts = score.tables["frs"]
    entropy, breaking = (facts[name].to_numpy() for name in ("entropy", "breaking_temperature"))
    d, first = next(iter(FRS.among(score.values).items()))
    levels = list(score.curves[SURVIVAL.name])
    tokens = f"the {score.settings['k']} most probable tokens at each position of the greedy answer"
    threshold = "breaking temperature: the lowest at which the answer is wrong more often than the threshold allows"
    digits = max(len(f"{t:g}".partition(".")[2]) for t in levels)
    columns = [
        Column("frs", f"FRS (d = {d:g})", "Factual Robustness Score, 0 to 1", score.by_question[first], of_known=True),
        Column("entropy", "initial entropy H", f"entropy of {tokens}, 0 to 1", entropy, of_known=True),
        Column("breaking", "breaking temperature", threshold, breaking, digits, levels, of_known=True),
    ]
    unknown = score.values.get("frs.count.unknown")
    n_scored = len(score.question_ids) - (0 if unknown is None else int(unknown.value))
    # a fact without a verdict on its greedy answer is not known, but counts
    known, are_known = ("", "count") if facts["known"].null_count else ("known ", "are known")
    frs = score.values[first]
    if n_scored:
        start = ":" if n_scored == len(score.question_ids) else f". {n_scored:,} of them {are_known}:"
        n = "" if score.n(first) == n_scored else f", n = {score.n(first):,}"
        interval_text = "" if math.isnan(frs.low) else f"95 % interval {bounds(frs.low, frs.high)}, "
        sentence = (
            f"at rising temperatures{start} their mean Factual Robustness Score is {number(frs.value)} ({interval_text}"
            f"d = {d:g}{n}), and {score.formatted(UNBROKEN.name, '.0%')} of them "
            "never broke."
        )
    else:
        sentence = "at rising temperatures. None of them is known, so there is no FRS."
    claims = []
    if len(defined := breaking[~np.isnan(breaking)]):
        median = np.quantile(defined, 0.5, method="inverted_cdf")
        more, half = ("more than half of ", "at least half of ") if n_scored > 1 else ("", "")
        facts_text = f"the {n_scored:,} {known}facts" if n_scored > 1 else f"the one {known}fact"
        retained = f"still retains {more}{facts_text} at t = {levels[-1]:g}"
        claims = [retained if np.isinf(median) else f"has lost {half}{facts_text} by t = {median:g}"]
    claims += most_robust_type(score.by_question[first], [each.type for each in questions], question_groups(questions))
    anchors = _anchors(levels, d, score.settings["unbroken"])
    label = f"mean Factual Robustness Score (FRS), d = {d:g}"
    scale = None if first in score.reasons else Scale(label, frs, 0.0, 1.0, anchors)
    left_out = [] if "frs_accuracy" in score.tables else [EARLY_STOPPING_NOTE]
    axes = ["entropy", "breaking", "frs"]
    return Presentation("Temperature", sentence, columns, axes, claims, scale, left_out=left_out)


def most_robust_type(scores: Floats, types: Sequence[str], groups: Sequence[str] | None) -> list[str]:
    """Return a claim on the type of questions with the highest mean score, significant against each other type with
    enough facts: Welch's t test (over groups, if any), Holm's correction for all pairs of types. Otherwise nothing.
    """
    frame = pd.DataFrame({"type": types, "unit": range(len(types)) if groups is None else groups, "score": scores})
    frame = frame[frame["type"].isin(QUESTION_TYPES)].dropna()
    unit_means = frame.groupby(["type", "unit"])["score"].mean().groupby("type").agg(["mean", "std", "count"])
    compared = unit_means[unit_means["count"] >= MIN_OF_TYPE].sort_values("mean", ascending=False, kind="stable")
    if len(compared) < 2:
        return []
    pairs = list(combinations(compared.itertuples(index=False), 2))  # those of the first type come first
    p_value = max(holm([welch_p_value(one, other) for one, other in pairs])[: len(compared) - 1].tolist())
    if not p_value < LEVEL:
        return []
    first = frame[frame["type"] == compared.index[0]]["score"]
    tested = f"p = {number(p_value, '.2g')} after Holm's correction for {len(pairs)} pairs of types"
    values = f"mean FRS {number(float(first.mean()))}, n = {len(first)}; {tested}"
    return [f"is most robust on questions of the type {QUESTION_TYPES[compared.index[0]]} ({values})"]


def _anchors(levels: Sequence[float], d: float, unbroken: str) -> list[tuple[float, str]]:
    """Return the FRS of easily imagined models, by the same formula, as anchors of the scale."""
    entropies = np.linspace(0, 1, 101)
    breaking = np.array([levels[0], np.inf if unbroken == "one" else levels[-1]])
    guessing, certain = factual_robustness_score(np.array([1.0, 0.0]), breaking, d).tolist()
    flat = [factual_robustness_score(entropies, np.full(101, t), d).mean() for t in levels]
    return [
        (
            guessing,
            "a model that guesses: all tokens are equally likely, and each fact breaks at the lowest temperature",
        ),
        (
            float(np.mean(flat)),
            "one in between: the same number of facts breaks at each temperature, whatever the initial entropy",
        ),
        (certain, "one that is certain and never breaks"),
    ]


def _columns(score: Score, t: float, columns: Mapping[str, tuple[str, str]]) -> list[Column]:
    """Return a report's columns of curves at a temperature; ``columns`` has their labels and descriptions by name."""
    return [
        Column(name, label, f"{about}, {at_words(t)}", score.by_question[point(name, t)])
        for name, (label, about) in columns.items()
    ]


def agreement(score: Score, questions: Sequence[Question]) -> Presentation:
    """Present the score of MultiQ&A: each question by the certainty of its raters and the share of them that are right,
    at the temperature nearest to 1.
    """
    t = nearest_to_one(score.curves["agreement.accuracy"])
    base, vote, worst, kappa = (
        score.formatted(point(f"agreement.{name}", t), form)
        for name, form in (("accuracy", ".0%"), ("plurality", ".0%"), ("worst", ".0%"), ("kappa", ".2f"))
    )
    variants = score.settings.get("variants", "wordings")
    title, original, every_variant = _VARIANTS[variants]
    sentence = (
        f"{'repeatedly' if variants == 'trials' else 'in several ways'} {at_words(t)} (95 % intervals in brackets): "
        f"{base} of them are answered correctly {original}, {vote} by the majority vote, and "
        f"{worst} by every rater; the raters' agreement beyond chance is κ = {kappa}."
    )
    columns = {
        "agreement.certainty": ("agreement of raters", "normalised certainty H_η of all raters"),
        "agreement.difficulty": ("correct raters", "share of the raters that answer correctly"),
    }
    claims = [f"gets {worst} of its questions right {every_variant}"]
    guessed = score.values.get("agreement.guessing.worst", UNDEFINED).value
    anchors = [] if math.isnan(guessed) else [(guessed, "a model that guesses among the choices")]
    anchors.append((1.0, f"one that is right {every_variant}"))
    every = score.curves["agreement.worst"][t]
    scale = Scale("share of questions that every rater answers correctly", every, 0.0, 1.0, anchors)
    tables = [_table_4(score)]
    return Presentation(title, sentence, _columns(score, t, columns), (), claims, scale, tables)


def _table_4(score: Score) -> Table:
    """Return the metrics as rows of the paper's table, in percent, one for each temperature (Cho & Watson, Table 4).

    ``n`` is the number of questions of the metrics, or its minimum and maximum.
    """
    rows = []
    for t in score.curves["agreement.accuracy"]:
        n = sorted({score.n(point(name, t)) or 0 for name in _TABLE_4.values()})
        values = (score.curves[name][t].value for name in _TABLE_4.values())
        metrics = (number(value, ".1%").removesuffix(" %") for value in values)
        counts = " to ".join(f"{each:,}" for each in dict.fromkeys([n[0], n[-1]]))
        rows.append([*map(Cell, (temperature_name(t), counts, *metrics))])
    return Table("In percent, as in table 4 of MultiQ&A", ["t", "n", *_TABLE_4], rows, 0)


def certainty(score: Score, questions: Sequence[Question]) -> Presentation:
    """Present the score of answer certainty: each question by its entropy and its error rate, at the temperature
    nearest 1.
    """
    choices, trials = [len(question.choices) for question in questions], score.settings["trials"]
    t = nearest_to_one(score.curves[ENTROPY.name])
    entropy, error_rate = (score.formatted(point(spec.name, t)) for spec in (ENTROPY, ERROR_RATE))
    wrong = number(score.curves[CERTAIN_WRONG.name][t].value, ".0f")
    sentence = (
        f"repeatedly {at_words(t)} (95 % intervals in brackets): the mean entropy of their answers is "
        f"{entropy} nats, their mean error rate {error_rate}; on {wrong} of them the model is certain and wrong."
    )
    columns = {
        ENTROPY.name: ("entropy", "entropy of the repeated answers, in nats"),
        ERROR_RATE.name: ("error rate", "share of wrong answers among the repeated ones"),
    }
    claim = (
        f"answers the same question with a mean entropy of {entropy} nats (0: always the same), and "
        f"{score.formatted(point(ERROR_RATE.name, t), '.0%')} of these answers are wrong"
    )
    if choices and all(choices):
        guessed = float(np.mean([guessed_entropy(each, trials) for each in choices]))
        highest, anchor = max(*choices, 2), (guessed, f"a model that guesses {trials} times")
    else:
        highest, anchor = max(trials, 2), (math.log(max(trials, 1)), "one that never repeats an answer")
    anchors = [(0.0, "one that always gives the same answer"), anchor]
    scale = Scale("answer entropy (nats)", score.curves[ENTROPY.name][t], 0.0, math.log(highest), anchors)
    return Presentation("Repetition", sentence, _columns(score, t, columns), claims=[claim], scale=scale)


def order(score: Score, questions: Sequence[Question]) -> Presentation:
    """Present the score of choice order: the accuracy at each position of the right choice, and the significance of the
    differences, at the temperature nearest to 1.
    """
    t = nearest_to_one(score.curves[ONE_CHOICE.name])
    positions = {int(position): score.curves[name][t].value for position, name in PLACE.among(score.curves).items()}
    positions = {position: accuracy for position, accuracy in positions.items() if not math.isnan(accuracy)}
    consistent = score.formatted(point(ONE_CHOICE.name, t), ".0%")
    sentence = (
        f"with their choices in other orders {at_words(t)}: {consistent} of them get the same choice in every order"
    )
    notes = []
    if positions:
        worst, best = (pick(positions, key=lambda position: positions[position]) for pick in (min, max))
        low, high = (number(positions[position], ".0%") for position in (worst, best))
        sentence += (
            f"; {high} of the answers are right with the right choice at position {best}, {low} at position {worst}"
        )
        q, freedom, p = (score.curves[spec.name][t].value for spec in Q.values())
        if not math.isnan(q):
            test = f"{number(q, '.2f')} ({counted(int(freedom), 'degree')} of freedom, p = {number(p, '.2g')})"
            notes = [f"position bias: Cochran's Q over positions = {test}"]
    (column,) = _columns(score, t, {ONE_CHOICE.name: ("one choice", "1: the same choice in every order")})
    claims = [f"picks the same choice in every order for {consistent} of the questions"]
    columns = [replace(column, digits=0, levels=(0.0, 1.0))]
    return Presentation("Order and form", f"{sentence}.", columns, claims=claims, notes=notes)


def pushback(score: Score, questions: Sequence[Question]) -> Presentation:
    """Present the score of pushback: the share of right answers that withstand it, and of wrong ones that it corrects,
    at the temperature nearest to 1.
    """
    t = nearest_to_one(score.curves[challenge.UNBROKEN.name])
    turns = max(score.tables["challenge_turns"]["turn"].to_pylist())
    breaking = at_temperature(score.tables["challenge"], t)["breaking_turn"].to_numpy()
    known_count, wrong_count = (int(score.values[challenge.COUNTS[name].name].value) for name in ("known", "wrong"))
    sentence = f"in conversations, with {counted(turns, 'turn')} of pushback {at_words(t)}"
    claims = []
    if known_count:
        unbroken = score.formatted(point(challenge.UNBROKEN.name, t), ".0%")
        withstood = f"{unbroken} of the {known_count} that were right at first withstand it"
        if known_count == 1 and not np.isnan(breaking).all():
            withstands = "withstands" if np.isinf(breaking).any() else "does not withstand"
            withstood = f"the one answer that was right at first {withstands} it"
        sentence += f": {withstood} to the end"
        claims = [f"keeps {unbroken} of its right answers through {counted(turns, 'turn')} of pushback"]
    if wrong_count:
        mended = score.formatted(point(challenge.MENDED.name, t), ".0%")
        sentence += (
            f"; {mended} of the {wrong_count} that were wrong at first are right at the end"
            if wrong_count > 1
            else f"; the one answer that was wrong at first is right at the end in {mended} of its conversations"
        )
    about = f"first turn of pushback after which too few conversations are right, {at_words(t)}"
    levels = [*range(1, turns + 1), math.inf] if np.isinf(breaking).any() else range(1, turns + 1)
    columns = [Column(challenge.BREAKING.name, "breaking turn", about, breaking, 0, levels)]
    prefix = challenge.GIVES_IN.format("")
    given_up = {name: curve[t].value for name, curve in score.curves.items() if name.startswith(prefix)}
    shares = [
        f"{name.removeprefix(prefix).replace('_', ' ')} {number(share, '.0%')}"
        for name, share in sorted(given_up.items(), key=lambda item: -item[1])
        if not math.isnan(share)
    ]
    notes = [f"right answers given up, by kind of pushback: {', '.join(shares)}"] if len(shares) > 1 else []
    return Presentation("Under pushback", f"{sentence}.", columns, claims=claims, notes=notes)


def reasoning(score: Score, questions: Sequence[Question]) -> Presentation:
    """Present the variance and the effect of reasoning, at the temperature nearest 1."""
    t = nearest_to_one(score.curves[thinking.ACCURACY.name])
    budgets, table = score.settings["budgets"], at_temperature(score.tables["thinking"], t)
    breaking, between = (table[name].to_numpy() for name in ("breaking_budget", "between"))
    right = score.formatted(point(thinking.ACCURACY.name, t), ".0%")
    sentence = f"after reasoning, {at_words(t)}: {right} of the answers are right with the largest budget"
    claims = [f"gives right answers after reasoning {right} of the time"]
    if len(budgets) > 1:
        smallest = thinking.budget_spec(thinking.BUDGET_SPECS[0], budgets[0]).name
        sentence += f", {score.formatted(point(smallest, t), '.0%')} with the smallest"
    share = score.curves[thinking.SHARE_BETWEEN.name][t]
    if share.value < 0:
        sentence += "; no variance of correctness between traces was found"
    elif not math.isnan(share.value):
        sentence += (
            f"; {score.formatted(point(thinking.SHARE_BETWEEN.name, t), '.0%')} of the variance of correctness "
            "lies between traces, the rest within traces"
        )
    unknown = "The source of variance is unknown: set at least two traces per question and two answers per trace."
    about = (
        "the smallest budget such that enough answers are right with it and with every larger one"
        f"{thinking.counted(budgets)}, {at_words(t)}; undefined if the largest is too small"
    )
    budget = Column(thinking.BREAKING.name, "breaking budget", about, _finite(breaking), digits=0)
    notes = [unknown] if np.isnan(between).all() else []
    return Presentation("Thinking", f"{sentence}.", [budget], claims=claims, notes=notes)


def _finite(values: Floats) -> Floats:
    return np.where(np.isinf(values), np.nan, values)


def uncertainty(score: Score, questions: Sequence[Question]) -> Presentation:
    """Present the score of uncertainty: the power of the first one to separate right from wrong answers."""
    table, t = score.tables["uncertainty_scores"], score.settings["temperature"]
    names = table["score"].to_pylist() if table.num_rows else []
    if not names:
        return Presentation("Uncertainty", columns=[], left_out=["The answers support no uncertainty score."])
    leading, answers = names[0], _TARGETS[score.settings["target"]]
    about = errors_by.SCORES[leading]
    specs = {key: spec.name for key, spec in errors_by.specs_of(leading).items()}
    values = _finite(score.tables["uncertainty"][leading].to_numpy())
    column = Column(f"uncertainty.{leading}", about.label, about.description, values)
    presentation = Presentation("Uncertainty", columns=[column])
    if reason := score.reasons.get(specs["auroc"]):
        presentation.left_out = [
            f"AUROC and rejection by uncertainty are undefined: {reason}."
            + (
                " Set sampler.selection=none to include questions with wrong answers."
                if reason == errors_by.ALL_RIGHT
                else ""
            )
        ]
        return presentation
    presentation.tables = [_table_of_scores(score, names)]
    caught = score.formatted(specs["caught"], ".0%")
    presentation.sentence = (
        f"{at_words(t)}: judged by {about.label}, wrong {answers} are less certain than right ones with probability "
        f"{score.formatted(specs['auroc'], '.2f')} (AUROC)."
    )
    presentation.claims = [f"The least certain {errors_by.LEAST} of its answers contain {caught} of its errors"]
    anchors = [
        (0.5, "an uncertainty that carries no information"),
        (1.0, "one that is larger for every wrong answer than for any right one"),
    ]
    presentation.scale = Scale(f"AUROC of {about.label}", score.values[specs["auroc"]], 0.0, 1.0, anchors)
    return presentation


def _table_of_scores(score: Score, names: Sequence[str]) -> Table:
    """Return a table with a row for each uncertainty score and its main metrics."""
    forms = {
        "auroc": ("AUROC", ".3f"),
        "prr": ("PRR", ".3f"),
        "caught": (f"share of errors in the least certain {errors_by.LEAST}", ".0%"),
        "coverage_10": ("coverage at 10 % risk", ".0%"),
        "ece_corrected": ("ECE, bias-corrected", ".3f"),
    }
    rows = []
    for name in names:
        specs = {key: spec.name for key, spec in errors_by.specs_of(name).items()}
        cells = [Cell(errors_by.SCORES[name].label)]
        for key, (_, form) in forms.items():
            estimate = score.values.get(specs.get(key, ""), UNDEFINED)
            value = "" if math.isnan(estimate.value) else number(estimate.value, form)
            cells.append(Cell(value, interval(estimate, form)))
        rows.append(cells)
    header = ["score", *(heading for heading, _ in forms.values())]
    wrong, n = (score.tables["uncertainty_scores"][key].to_pylist()[0] for key in ("wrong", "questions"))
    note = f"{wrong:,} of {n:,} {_TARGETS[score.settings['target']]} are wrong. Brackets show 95 % intervals."
    return Table("How well each uncertainty score ranks the errors", header, rows, note=note)


def reliability(score: Score, questions: Sequence[Question]) -> Presentation:
    """Present the score of reliability: the shares of repeated answers that agree and of questions with all trials
    right, or the flips in conversations.
    """
    t = at_words(score.settings["temperature"])
    if repeated.FLIPPED.name in score.values:
        flipped = score.formatted(repeated.FLIPPED.name, ".0%")
        sentence = (
            f"in conversations with pushback {t}: the verdict flips in {flipped} of them; "
            f"on average {score.formatted(repeated.FLIPS.name, '.2f')} times per conversation."
        )
        claims = [f"flips between right and wrong in {flipped} of its conversations under pushback"]
        return Presentation("Reliability", sentence, [], claims=claims)
    name = repeated.CONSISTENCY.name
    sentence = f"repeatedly {t}: {score.formatted(name, '.0%')} of the pairs of answers agree"
    claims = []
    if rates := repeated.PASS_HAT.among(score.values):
        k = max(rates)
        every, single = (score.formatted(rates[each], ".0%") for each in (k, 1.0))
        sentence += (
            f"; {single} of the trials are right, and all {k:g} trials for {every} of the questions (pass^{k:g})"
        )
        claims = [f"gets {every} of its questions right in all {k:g} trials"]
    if score.values.get(repeated.ABSTAINED_SHARE.name, UNDEFINED).value > 0:
        claims.append(f"abstains in {score.formatted(repeated.ABSTAINED_SHARE.name, '.0%')} of its replies")
    if repeated.ANSWERED_UNANSWERABLE.name in score.values:
        answered = score.formatted(repeated.ANSWERED_UNANSWERABLE.name, ".0%")
        claims.append(f"gives an answer in {answered} of its replies to unanswerable questions")
    column = Column(name, "consistency", f"share of pairs of answers that agree, {t}", score.by_question[name])
    sensitivity, noise = (
        score.values.get(spec.name, UNDEFINED).value for spec in (repeated.SENSITIVITY, repeated.SENSITIVITY_NOISE)
    )
    varies = (
        f"prompt sensitivity: the accuracy varies by {number(sensitivity)} (standard deviation) across wordings; "
        f"{number(noise)} is expected without any effect of the wording"
    )
    presentation = Presentation("Reliability", f"{sentence}.", [column], claims=claims)
    presentation.notes = [] if math.isnan(sensitivity) else [varies]
    if rates:
        specs = (repeated.PASS_AT, *repeated.G_PASS.values(), repeated.PASS_HAT)
        rows = []
        for k in rates:
            estimates = [score.values[spec.name.replace("{}", f"{k:g}")] for spec in specs]
            rows.append([Cell(f"{k:g}"), *(Cell(number(each.value), interval(each)) for each in estimates)])
        shares = [f"G-Pass@k, τ = {share / 100:g}" for share in repeated.G_PASS]
        presentation.tables = [Table("Success in k trials", ["k", "pass@k", *shares, "pass^k"], rows, 0)]
    return presentation


def variance(score: Score, questions: Sequence[Question]) -> Presentation:
    """Present the score of variance: the standard error of this run and with twice the questions, rewrites or trials,
    and the shares of the variance components.
    """
    rows = [
        [Cell(f"twice the {row['doubled']}" if row["doubled"] else "this run")]
        + [Cell(number(row[name], ".4g")) for name in ("questions", "rewrites", "trials")]
        + [Cell(number(row["standard_error"], ".4f"))]
        for row in score.tables["variance"].to_pylist()
        if not math.isnan(row["standard_error"])
    ]
    if not rows:
        return Presentation(
            "Variance",
            columns=[],
            left_out=[f"The variance is undefined: {score.reasons[varied.STANDARD_ERROR.name]}."],
        )
    shares = varied.component_shares(VarianceComponents(*(score.values[spec.name] for spec in varied.SPECS[:3])))
    note = f"Variance components of correctness {at_words(score.settings['temperature'])}: {shares}."
    header = ["", "questions", "rewrites, with the original", "trials", "standard error"]
    table = Table("Standard error of the mean accuracy", header, rows)
    return Presentation("Variance", columns=[], tables=[table], notes=[note])


def profile(score: Score, questions: Sequence[Question]) -> Presentation:
    """Present the score of a profile: the share of facts that withstand every perturbation."""
    columns = {*score.tables["profile"].column_names}
    optional = {"orders_right", "turns_held", "thought_right"} & columns
    main = ROBUST if ROBUST.name in score.by_question else ROBUST_AT_OWN
    known_count = int(np.count_nonzero(~np.isnan(score.by_question[main.name])))
    robust_share = score.formatted((ROBUST_TO_ALL if optional else main).name, ".0%")
    claims = [f"retains {robust_share} of the known facts under every perturbation"] if known_count else []
    title = f"All {('two', 'three', 'four', 'five', 'six')[len(optional) + (main is ROBUST)]} methods"
    temperature = "frs" if "frs" in columns else "breaking"
    axes = [ENTROPY.name, temperature, "agreement.difficulty"] if main is ROBUST else []
    sentence = _profile_sentence(score, known_count, main)
    notes = [str(score.settings["chosen"])] if score.settings.get("chosen") else []
    return Presentation(title, sentence, [], axes, claims, notes=notes)


def unanswerable(score: Score, questions: Sequence[Question]) -> Presentation:
    """Present the score of questions without an answer: the share of replies that answer them."""
    answered = score.formatted(ANSWERS_UNANSWERABLE.name, ".0%")
    return Presentation(
        "Questions without an answer",
        claims=[f"gives an answer in {answered} of its replies to unanswerable questions"],
    )


def _profile_sentence(score: Score, known_count: int, main: MetricSpec) -> str:
    """Return sentences on the share of known facts, all values defined, that withstand a profile's main methods."""
    methods = "at rising temperatures, in paraphrases, and repeatedly"
    words = "all three", "unbroken at every temperature, right in every wording and right in every repetition"
    if main is ROBUST_AT_OWN:
        methods, words = "in paraphrases, and repeatedly", ("both", "right in every wording and in every repetition")
    if not known_count:
        return f"{methods}; no question has values from all methods."
    robust = score.values[main.name]
    facts = "them" if known_count == len(score.question_ids) else f"the {known_count} that have all values"
    sentences = [
        (
            f"{methods}: {number(robust.value, '.0%')} of {facts} withstand {words[0]} (95 % interval "
            f"{bounds(robust.low, robust.high, '.0%')}), which means {words[1]}."
        )
    ]
    for name, text in (
        (ROBUST_TO_ORDER.name, "Of the {n} with choices, {share} are also right in every order."),
        (ROBUST_TO_PUSHBACK.name, "{share} of the {n} also withstand all pushback."),
    ):
        if n := score.n(name):
            sentences.append(text.format(n=n, share=score.formatted(name, ".0%")))
    shares = {name: score.values[spec.name].value for name, spec in FIRST.items() if spec.name in score.values}
    ranked = sorted(shares.items(), key=lambda item: -item[1])
    if breaking := ", ".join(f"{name} {number(share, '.0%')}" for name, share in ranked if share > 0):
        sentences.append(f"The perturbation that breaks a fact first (ties count for each): {breaking}.")
    return " ".join(sentences)


def greedy(score: Score, questions: Sequence[Question]) -> Presentation:
    """Present the accuracy of the baseline answers, and that of guessing on questions with choices."""
    title = "Most frequent answers" if MOST_FREQUENT in score.specs else "Greedy answers"
    presentation = Presentation(title, columns=[])
    accuracy = score.by_question[GREEDY.name]
    if np.isnan(score.values[GREEDY.name].value):
        return presentation
    accuracy_text = score.formatted(GREEDY.name, ".0%")
    if GUESSING.name not in score.values:
        presentation.claims = [f"gets {accuracy_text} of the questions right"]
        return presentation
    chosen = gradable_rows(questions, accuracy)
    ((index, _),) = Counter(questions[row].correct for row in chosen).most_common(1)
    comparison = (
        f"guessing gets {number(score.values[GUESSING.name].value, '.0%')}, always answering {LETTERS[index or 0]} "
        f"{number(score.values[CONSTANT.name].value, '.0%')}"
    )
    if len(chosen) == score.n(GREEDY.name):
        presentation.claims = [f"gets {accuracy_text} of the questions right; {comparison}"]
    else:
        share = number(float(accuracy[chosen].mean()), ".0%")
        presentation.claims = [
            f"gets {accuracy_text} of the questions right",
            f"gets {share} of the {len(chosen):,} questions with choices right; {comparison}",
        ]
    return presentation


def corrected(
    score: Score, corrections: Sequence[Correction], metrics: Mapping[str, Estimate], labels: int
) -> Presentation:
    """Present the corrected metrics next to the run's ``metrics``; ``labels`` is the number of labelled answers."""
    of = {name: of for each in corrections for name, of in each.of.items()}
    number_of = {name: count for each in corrections for name, count in each.labels.items()}
    estimates = score.metrics()
    rows = [
        _corrected_row(name, score, estimates[name], metrics.get(of[name], UNDEFINED), number_of[name])
        for name in score.headline().metrics()
        if name in of and not math.isnan(estimates[name].value)
    ]
    reasons: dict[str, list[str]] = {}
    for each in corrections:
        for name, why in each.uncorrected.items():
            reasons.setdefault(why, []).append(name)
    notes = [f"Not corrected: {', '.join(names)} ({why})." for why, names in reasons.items()]
    for spec in ABSTENTION_RATES:
        if spec.name in estimates:
            share = with_interval(estimates[spec.name], ".1%")
            notes.append(f"{spec.label[0].upper()}{spec.label[1:]}: {share}; labels: {number_of[spec.name]:,}.")
    title = f"Corrected for the errors of the grader, based on the labels of {labels:,} answers"
    header = [
        "metric",
        "by the grader",
        "95 % interval",
        "corrected",
        "95 % interval",
        "labels",
        "labels to halve the interval",
    ]
    tables = [Table(title, header, rows)]
    return Presentation("Corrected by labels", columns=[], tables=tables, notes=notes, tables_alone=True)


def _corrected_row(name: str, score: Score, corrected: Estimate, plain: Estimate, labels: int) -> list[Cell]:
    spec = score.spec(name)
    form, label = (spec.form, spec.label.rpartition(",")[0]) if spec else (".3f", name)
    at = curve_and_temperature(name)
    halve = labels_to_halve(labels, corrected.high - corrected.low, plain.high - plain.low)
    words = (
        label + (f" {at_words(at[1])}" if at else ""),
        number(plain.value, form),
        interval(plain, form),
        number(corrected.value, form),
        interval(corrected, form),
        f"{labels:,}",
        "" if math.isnan(halve) else "more questions" if math.isinf(halve) else f"{halve:,}",
    )
    return [*map(Cell, words)]


PRESENTERS: Mapping[str, Callable[[Score, Sequence[Question]], Presentation]] = {
    FRS.name: frs,
    "agreement.worst": agreement,
    ENTROPY.name: certainty,
    ONE_CHOICE.name: order,
    challenge.UNBROKEN.name: pushback,
    thinking.ACCURACY.name: reasoning,
    errors_by.SPECS[0].name: uncertainty,
    repeated.CONSISTENCY.name: reliability,
    varied.QUESTION.name: variance,
    ROBUST.name: profile,
    ANSWERS_UNANSWERABLE.name: unanswerable,
    GREEDY.name: greedy,
}
"""Functions that present a score, by the name of a spec that only its metric declares."""


def present(score: Score, questions: Sequence[Question]) -> Score:
    """Return the score with the presentation of its metric; one of another metric keeps its own.

    ``questions`` include those of the score.
    """
    presenters = (PRESENTERS[spec.name] for spec in score.specs if spec.name in PRESENTERS)
    presenter = next(presenters, None)
    if presenter is None:
        return score
    by_id = {question.id: question for question in questions}
    return replace(score, presentation=presenter(score, [by_id[question_id] for question_id in score.question_ids]))
