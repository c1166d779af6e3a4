"""The uncertain replies of a run, and the settings that help."""

from collections.abc import Mapping

from robust_eval.answer import NO_REPLY, OUTCOMES, rows
from robust_eval.tracking.result import Result


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
