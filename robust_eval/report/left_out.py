"""What a run left out, and why."""

from collections import Counter
from collections.abc import Iterator, Mapping

from robust_eval.record.result import Result
from robust_eval.report.question_status import WHY_NOT, standings

_NO_ANSWER = {
    "filtered_prompt": "prompts filtered",
    "filtered_reply": "replies filtered",
    "refused": "refused",
    "error": "failed",
}
_UNDEFINED = {
    "frs.count.undefined": "facts have no FRS: their greedy answer has no entropy, or a temperature no reply",
    "certainty.count.undefined": "questions have no answer entropy: none of their replies answers anything",
    "certainty.count.invalid": "replies answer nothing (of choices: no letter)",
    "profile.count.undefined": "questions lack the value of one of the three methods",
}


def left_out(result: Result) -> Iterator[str]:
    """A sentence for each thing."""
    prefix = "loaded.dataset.unusable."
    for name, number in result.description.items():
        if name.startswith(prefix) and isinstance(number, int):
            yield f"{_counted(number, 'row')} of the data set: {name.removeprefix(prefix).replace('_', ' ')}."
    aliases = result.description.get("loaded.dataset.unusable_aliases")
    if isinstance(aliases, int) and aliases:
        yield f"{_counted(aliases, 'accepted answer')} of which nothing is left when it is normalised."
    yield from _not_asked_again(result)
    counts = result.counts()
    if said := unanswered(counts):
        yield f"No answer came: {said}. What a filter kept back and what failed is in no denominator."
    if (cut := counts["replies.cut"]) > 0:  # NaN where nobody knows
        yield f"{_counted(cut, 'reply', 'replies')} cut by the length limit, and graded as far as they go."
    for score in result.scores.values():
        for name, meaning in _UNDEFINED.items():
            if name in score.values and (number := score.values[name].value):
                yield f"{number:,.0f} {meaning}."


def _not_asked_again(result: Result) -> Iterator[str]:
    """Why questions were not kept."""
    why = Counter(standing for standing in standings(result) if standing in WHY_NOT)
    for standing, number in why.most_common():
        yield f"{_counted(number, 'question')} not asked again: {WHY_NOT[standing]}."


def unanswered(counts: Mapping[str, float]) -> str:
    """What brought no answer, by stage (Cho & Watson, §6.4); empty where everything did."""
    said = []
    for stage, prefix in (("rewriting", "rewriting."), ("greedy answers", "greedy."), ("sampled answers", "")):
        found = {words: counts.get(f"{prefix}outcomes.{outcome}", 0) for outcome, words in _NO_ANSWER.items()}
        if some := ", ".join(f"{count:g} {words}" for words, count in found.items() if count):
            said.append(f"{stage}: {some}")
    return "; ".join(said)


def _counted(number: float, one: str, several: str | None = None) -> str:
    return f"{number:,.0f} {one if number == 1 else several or one + 's'}"
