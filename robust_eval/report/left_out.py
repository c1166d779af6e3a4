"""Questions and answers left out of a run, with their reasons."""

from collections import Counter
from collections.abc import Iterator, Mapping

from robust_eval.answer import rows
from robust_eval.reader.base import NOT_ENDED
from robust_eval.report.question_details import cut
from robust_eval.runs.question_status import WHY_NOT, question_statuses
from robust_eval.stats.interval import MIN_UNITS
from robust_eval.tracking.result import Result

MAX_CHARACTERS = 100
"""Maximum characters of a question and of an answer in the list of unknown facts."""
_NEEDED = {"sampler.perturbation.rewrites": "rewrites", "sampler.order.orders": "choices"}
"""Parts of a question that a sampler needs, by a setting of that sampler; the first applies."""
NOT_ENDED_COUNT = NOT_ENDED.replace(" ", "_")
"""Reason of replies whose reasoning does not end, as a name of a count."""
_STAGES = {
    "rewriting": "rewriting.",
    "greedy answers": "greedy.",
    "sampled answers": "",
    "answers to unanswerable questions": "unanswerable.",
}
"""Prefixes of the counts of outcomes by stage."""
_NO_REPLY = {"filtered_prompt": "prompts filtered", "filtered_reply": "replies filtered", "error": "failed"}


def left_out(result: Result) -> Iterator[str]:
    """Yield a sentence on each exclusion of questions or answers from a run."""
    prefix = "loaded.dataset.unusable."
    for name, number in result.description.items():
        if name.startswith(prefix) and isinstance(number, int):
            yield f"{_counted(number, 'row')} of the data set: {name.removeprefix(prefix).replace('_', ' ')}."
    if text := unasked(result):
        yield f"{text}."
    aliases = result.description.get("loaded.dataset.unusable_aliases")
    if isinstance(aliases, int) and aliases:
        yield f"{_counted(aliases, 'accepted answer')} whose normalised form is empty."
    statuses = Counter(status for status in question_statuses(result) if status in WHY_NOT)
    for status, number in statuses.most_common():
        why = WHY_NOT[status].replace("greedy answer", result.baseline_words)
        lacking = [f"no {name}" for setting, name in _NEEDED.items() if setting in result.description]
        why = lacking[0] if lacking and status == "not kept, not asked" else why
        yield f"{_counted(number, 'question')} not sampled: {why}."
    counts = result.counts()
    if text := unanswered(counts):
        yield f"Without an answer: {text}. Filtered and failed answers are left out of every share."
    if text := unread(counts):
        yield f"No answer was found in {text}."
    if (truncated := counts["replies.truncated"]) >= 0.5:  # NaN if unknown
        replies = _counted(truncated, "reply", "replies")
        yield f"{replies} truncated by the length limit, and graded without the truncated part."
    for score in result.scores.values():
        yield from score.presentation.left_out
    for score in result.scores.values():
        for name, estimate in score.values.items():
            if (spec := score.spec(name)) and spec.left_out and estimate.value:
                yield f"{spec.left_out}: {estimate.value:,.0f}."


def not_known(result: Result) -> Iterator[str]:
    """Yield each question left out because of a wrong greedy answer, and that answer, for a run with few questions."""
    if len(result.questions) >= MIN_UNITS:
        return
    answers = dict(rows(result.graded_baseline, "question_id", "text"))
    for question, status in zip(result.questions, question_statuses(result), strict=True):
        if status.endswith((", wrong", "no exact match")):
            why = "no exact match" if status.endswith("match") else "not known"
            texts = (cut(" ".join(text.split()), MAX_CHARACTERS) for text in (question.title, answers[question.id]))
            yield f"{why}: {' → '.join(texts)}"


def unasked(result: Result) -> str:
    """Return a sentence on the questions that a run left unasked; empty without any."""
    if not result.unasked:
        return ""
    total = len(result.questions) + result.unasked
    return f"{result.unasked_reason[0]} left {result.unasked:,} of {total:,} questions unasked"


def unanswered(counts: Mapping[str, float]) -> str:
    """Return the numbers of outcomes without an answer, by stage (Cho & Watson, §6.4), as text; empty without any."""
    stages = []
    for stage, prefix in _STAGES.items():
        outcomes = _NO_REPLY | ({"refused": "refused"} if stage == "rewriting" else {})  # which :func:`unread` skips
        counts_by_word = {words: counts.get(f"{prefix}outcomes.{outcome}", 0) for outcome, words in outcomes.items()}
        if some := ", ".join(f"{count:g} {words}" for words, count in counts_by_word.items() if count):
            stages.append(f"{stage}: {some}")
    return "; ".join(stages)


def unread(counts: Mapping[str, float]) -> str:
    """Return the number of replies without a readable answer, by reason, as text; empty without any."""
    counts_by_reason = unread_reasons(counts)
    if not counts_by_reason:
        return ""
    reasons = ", ".join(f"{reason.replace('_', ' ')}: {count:,.0f}" for reason, count in counts_by_reason.items())
    remedy = (
        "; raise model.max_completion_tokens (server) or model.thinking_budget (local model; not with sampler=thinking)"
    )
    remedy = remedy if NOT_ENDED_COUNT in counts_by_reason else ""
    number = sum(counts_by_reason.values())
    consequence = "which does not count as right" if round(number) == 1 else "none of which counts as right"
    return f"{_counted(number, 'reply', 'replies')}, {consequence} ({reasons}){remedy}"


def unread_reasons(counts: Mapping[str, float]) -> dict[str, float]:
    """Return the number of replies without a readable answer by reason."""
    reasons = {name.removeprefix("invalid."): count for name, count in counts.items() if name.startswith("invalid.")}
    for outcome in ("refused", "empty"):
        if number := counts.get(f"greedy.outcomes.{outcome}", 0) + counts.get(f"outcomes.{outcome}", 0):
            reasons[outcome] = number
    return {reason: n for reason, n in reasons.items() if n >= 0.5}  # enumerated: probabilities


def _counted(number: float, one: str, several: str | None = None) -> str:
    return f"{number:,.0f} {one if f'{number:.0f}' == '1' else several or one + 's'}"
