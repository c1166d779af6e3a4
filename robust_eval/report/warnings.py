"""Warnings before a run is quoted, each with the setting that mends it."""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from robust_eval.answer import NO_REPLY, OUTCOMES, in_short, rows
from robust_eval.metric.greedy import dominant_letter
from robust_eval.report.left_out import unanswered, unasked, unread
from robust_eval.report.wording import few_kept
from robust_eval.tracking.result import Result

CUT = 0.05
"""The share of replies that the length limit ended from which on it matters."""


class Warned(NamedTuple):
    """A problem, and its remedy."""

    what: str
    mend: str


def warnings(result: Result) -> Iterator[Warned]:
    """Yield what matters, the worst first."""
    counts = result.counts()
    if said := few_kept(result):
        yield Warned(said, "More questions mend it: dataset.limit, or another data set.")
    yield from of_letters(result)
    yield from of_draws(result)
    came = sum(value for name, value in counts.items() if name.startswith("outcomes."))
    cut = counts["replies.cut"]
    if not math.isnan(cut) and came and cut / came >= CUT:
        yield Warned(
            f"{cut:,.0f} of {came:,.0f} sampled replies were cut by the length limit, and graded as far as they go.",
            "A larger sampler.*.max_new_tokens lets them end; an answer at the start of a reply is whole anyway.",
        )
    if said := unanswered(counts):
        yield Warned(f"Without a reply: {said}.", "The same command asks again for those that failed.")
    if said := unread(counts):
        yield Warned(
            f"No answer was found in {said}.", "The settings reader and sampler.*.prompts decide what is found."
        )
    if said := uncertain(counts):
        yield Warned(f"{said}.", f"{remedy(result)}.")
    if said := unasked(result):
        yield Warned(f"{said}.", "until=null asks all.")
    if drifted := len(result.drifted()):
        yield Warned(f"The meaning of {drifted:,} rewrites may have drifted.", "rewriter.* drops more.")


def of_letters(result: Result) -> Iterator[Warned]:
    """Yield that one letter dominates the greedy answers."""
    if (found := dominant_letter(result.asked, result.baseline)) is not None:
        yield Warned(
            f"The model answers {found.letter} to {found.times:,} of {found.answers:,} questions with choices, and "
            f"{found.letter} is right in {found.right:,}: it may name a place, and not what it knows.",
            "experiment=order puts the choices into other orders.",
        )


def of_draws(result: Result) -> Iterator[Warned]:
    """Yield how a server did not draw as it was asked to, or was not the same all along."""
    described = result.description
    models, fingerprints = result.served.values()
    if len(models) > 1:
        yield Warned(
            f"{len(models):,} models answered: {in_short(models)}. The figures mix their answers.",
            "Set model.model to a dated model name and store.folder to a new folder, then rerun.",
        )
    elif len(fingerprints) > 1:
        yield Warned(
            f"The system_fingerprint of the server changed: {in_short(fingerprints)}.",
            "Answers may differ for that reason; set store.folder to a new folder to ask everything again.",
        )
    if result.repeated:
        yield Warned(
            f"All replies to {result.repeated:,} questions in a row are equal at the highest temperature: no fact can "
            "break where a server repeats itself.",
            "Where the model cannot be that certain, turn off greedy decoding and the cache of replies at the server, "
            "and ask into another store (store.folder).",
        )
    if described.get("loaded.capability.ignores_temperature") is True:
        yield Warned("The server ignores the temperature: replies are those of its own.", "Another server heeds it.")
    cap = described.get("loaded.capability.highest_temperature")
    if described.get("loaded.capability.capped") is True and isinstance(cap, float):
        yield Warned(
            f"The server makes {cap:g} of higher temperatures in silence.",
            "Higher ones are not asked for, and a fact that is unbroken there is censored.",
        )
    drawn_at = described.get("loaded.drawn_as_at")
    if isinstance(drawn_at, float):
        yield Warned(
            f"By its log-probabilities the server drew at the highest temperature as if at about {drawn_at:g}.",
            f"model.highest_temperature={drawn_at:g}, or a server that neither caps the temperature nor truncates.",
        )
    if isinstance(words := described.get("loaded.unknown_finish_reasons"), str):
        yield Warned(
            f"Replies ended for reasons that are not known ({words}), and were taken as whole.", "Look at them."
        )


def uncertain(counts: Mapping[str, float]) -> str:
    """Return how many greedy and sampled replies are uncertain; empty where none is, or where it is unknown."""
    number = counts["replies.uncertain"]
    if not number > 0:
        return ""
    came = sum(
        counts.get(f"{stage}outcomes.{outcome}", 0)
        for stage in ("greedy.", "")
        for outcome in OUTCOMES
        if outcome not in NO_REPLY
    )
    said = f"{number:,.0f} of {came:,.0f}" if number >= 1 else f"{number:.2g} of {came:,.0f}"
    verb = "reply is uncertain: its" if number == came == 1 else "replies are uncertain: their"
    return f"{said} {verb} explicit answer and the whole reply disagree on right or wrong"


def remedy(result: Result, run: str = "RUN") -> str:
    """Return the settings that help with uncertain replies, of a run in the folder ``run``.

    A judge decides free text alone, and has decided where it is the grader already.
    """
    label = f"robust-eval label {run} asks you about them first"
    if "grader.cascade" in result.description or not _any_free_text(result):
        return label
    return f"grader=judge grader.model=NAME grader.cascade=uncertain asks a model about them, {label}"


def _any_free_text(result: Result) -> bool:
    choices = {question.id: bool(question.choices) for question in result.asked}
    found = (rows(table, "question_id", "uncertain") for table in (result.baseline, *result.graded.values()))
    return any(doubt and not choices[question_id] for each in found for question_id, doubt in each)
