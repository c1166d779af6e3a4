"""Warnings about a run's results, each with its remedy, and what the run left out, with the reasons."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from robust_eval.answer import NO_REPLY, OUTCOMES, rows
from robust_eval.metric.greedy import dominant_letter
from robust_eval.metric.metric_spec import nearest_to_one, point
from robust_eval.metric.order_metric import ONE_CHOICE
from robust_eval.metric.score import question_groups
from robust_eval.metric.thinking_metric import ADDED
from robust_eval.reader.base import NOT_ENDED
from robust_eval.runs.question_status import WHY_NOT, question_statuses
from robust_eval.runtime.text import abbreviated_list, counted, cut, number
from robust_eval.stats.interval import MIN_UNITS, independent
from robust_eval.tracking.result import Result

MIN_CUT_SHARE = 0.05
"""Minimum share of replies truncated by the length limit for a warning."""
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


class Caution(NamedTuple):
    """Warning about a run's results: a problem, and its remedy."""

    problem: str
    remedy: str


def warnings(result: Result) -> Iterator[Caution]:
    """Yield the warnings about a run's results, the worst first."""
    counts = result.counts()
    if text := few_kept(result):
        yield Caution(text, "Raise dataset.limit, or choose another data set.")
    yield from sampling_warnings(result)
    if text := unanswered(counts):
        yield Caution(f"Without a reply: {text}.", "The same command retries those that failed.")
    if text := unread(counts):
        has_remedy = unread_reasons(counts).keys() == {NOT_ENDED_COUNT}  # the text has the remedy
        remedy_text = "" if has_remedy else "Change the reader, or the templates in sampler.prompts."
        yield Caution(f"No answer was found in {text}.", remedy_text)
    if text := uncertain(counts):
        yield Caution(f"{text}.", f"{remedy(result)}.")
    if text := unasked(result):
        yield Caution(f"{text}.", result.unasked_reason[1])
    if drifted := len(result.drifted()):
        yield Caution(
            f"The meaning of {counted(drifted, 'rewrite')} may have drifted.",
            "Set rewriter.drift=drop to leave them out.",
        )


def sampling_warnings(result: Result) -> Iterator[Caution]:
    """Yield the warnings about letters, servers, reasoning budgets and truncation, which the terminal shows, too."""
    if (match := dominant_letter(result.questions, result.graded_baseline)) is not None:
        varied = any(ONE_CHOICE.name in score.curves for score in result.scores.values())
        yield Caution(
            f"The model answers {match.letter} to {match.times:,} of {match.answers:,} questions with choices, and "
            f"{match.letter} is right in {match.right:,}: it may be choosing a position, not an answer.",
            "" if varied else "Run experiment=order to repeat the questions with their choices in other orders.",
        )
    yield from _server_warnings(result)
    for score in result.scores.values():
        if ADDED.name in score.curves:
            t = nearest_to_one(score.curves[ADDED.name])
            added, budgets = score.curves[ADDED.name][t], score.settings["budgets"]
            if added.value <= 0 or added.low <= 0:
                yield Caution(
                    f"The reasoning budget {budgets[-1]} shows no significant increase in tokens over {budgets[0]}: "
                    f"{score.formatted(point(ADDED.name, t), '+.1f')} per answer.",
                    "A server or router may drop a budget silently; more questions narrow the interval.",
                )
    counts = result.counts()
    total = sum(value for name, value in counts.items() if name.startswith("outcomes."))
    cut = counts["replies.truncated"]
    if not math.isnan(cut) and total and cut / total >= MIN_CUT_SHARE:
        share = number(cut / total, ".0%")
        whole = float(cut).is_integer()  # enumerated answers count with their probabilities
        subject = (
            f"{cut:,.0f} of {total:,.0f} sampled replies ({share})" if whole else f"{share} of the sampled replies"
        )
        yield Caution(
            f"{subject} were truncated by the length limit, and graded without the truncated part.",
            "Raise sampler.max_new_tokens, unless answers come at the start of replies.",
        )


def _server_warnings(result: Result) -> Iterator[Caution]:
    """Yield warnings about servers that changed, or one that ignored or capped the temperature."""
    description = result.description
    for prefix, names in result.served.items():
        models, fingerprints = names["served_model"], names["system_fingerprint"]
        verb, replies, server = _SERVED[prefix]
        if len(models) > 1:
            yield Caution(
                f"{len(models):,} models {verb}: {abbreviated_list(models)}. The metrics mix their {replies}.",
                f"Set {prefix}model.model to a dated model name and store.folder to a new folder, then rerun.",
            )
        elif len(fingerprints) > 1:
            yield Caution(
                f"The system_fingerprint of {server} changed: {abbreviated_list(fingerprints)}.",
                f"{replies.capitalize()} may differ for that reason; set store.folder to a new folder, then rerun.",
            )
    if equal := result.equal_replies_in_a_row:
        yield Caution(
            f"For {equal:,} questions in a row, all replies to a question are identical at the highest temperature: no "
            "fact can break if a server repeats itself.",
            "If the model cannot be that certain, turn off greedy decoding and response caching on the server, "
            "and set store.folder to a new folder.",
        )
    if description.get("loaded.capability.ignores_temperature") is True:
        yield Caution("The server ignores the temperature and uses its own.", "Choose a server that applies it.")
    cap = description.get("loaded.capability.highest_temperature")
    if description.get("loaded.capability.capped") is True and isinstance(cap, float):
        yield Caution(
            f"The server silently caps higher temperatures at {cap:g}.",
            "The run leaves them out, and a fact that is unbroken at the cap is censored.",
        )
    drawn_at = description.get("loaded.drawn_as_at")
    if isinstance(drawn_at, float):
        yield Caution(
            "Log-probabilities show that at the highest temperature, the server sampled as if the temperature were "
            f"about {drawn_at:g}.",
            f"Set model.highest_temperature={drawn_at:g}, or choose a server that neither caps nor truncates.",
        )
    if isinstance(words := description.get("loaded.unknown_finish_reasons"), str):
        yield Caution(f"Replies ended for unknown reasons ({words}) and were treated as complete.", "Check them.")


_SERVED = {
    "": ("answered", "answers", "the server"),
    "rewriter.": ("rewrote questions", "rewrites", "the rewriter's server"),
    "grader.": ("judged", "verdicts", "the judge's server"),
}


def uncertain(counts: Mapping[str, float]) -> str:
    """Return the number of uncertain greedy and sampled replies, in words; empty without any, or if unknown."""
    n_uncertain = counts["replies.uncertain"]
    if not n_uncertain > 0:
        return ""
    outcomes = [outcome for outcome in OUTCOMES if outcome not in NO_REPLY]
    n_replies = sum(counts.get(f"{stage}outcomes.{each}", 0) for stage in ("greedy.", "") for each in outcomes)
    text = f"{n_uncertain:,.0f} of {n_replies:,.0f}" if n_uncertain >= 1 else f"{n_uncertain:.2g} of {n_replies:,.0f}"
    verb = "is" if f"{n_uncertain:.0f}" == "1" else "are"
    noun = "reply" if n_replies == 1 else "replies"
    return f"{text} {noun} {verb} uncertain: the verdict depends on which part of the reply counts"


def remedy(result: Result, run: str = "RUN") -> str:
    """Return the remedy for uncertain replies: the settings that help, for a run in the folder ``run``.

    A judge decides free text alone, and already has if it is the grader.
    """
    label = f"robust-eval label {run} shows them first, alternating with other replies"
    free_text = {question.id for question in result.questions if not question.choices}
    tables = (rows(table, "question_id", "uncertain") for table in result.all_graded.values())
    is_judged = any(is_uncertain and name in free_text for each in tables for name, is_uncertain in each)
    if "grader.cascade" in result.description or not is_judged:
        return label
    return f"grader=judge grader.model=NAME grader.cascade=uncertain lets a model judge them, and {label}"


def few(questions: int, grouped: bool = False) -> str:
    """Return a warning about intervals over few independent questions, or groups of them; empty for enough.

    >>> few(1)
    'Some intervals rest on only 1 question: with fewer than 30 they are rough.'
    """
    if not 0 < questions < MIN_UNITS:
        return ""
    noun = ("group" if grouped else "question") + ("" if questions == 1 else "s") + (" of questions" if grouped else "")
    return f"Some intervals rest on only {questions} {noun}: with fewer than {MIN_UNITS} they are rough."


def few_kept(result: Result) -> str:
    """Return the warning :func:`few` for the questions that a run kept."""
    groups = question_groups(result.kept)
    return few(independent(len(result.kept), groups), groups is not None)


def left_out(result: Result) -> Iterator[str]:
    """Yield a sentence on each exclusion of questions or answers from a run."""
    prefix = "loaded.dataset.unusable."
    for name, count in result.description.items():
        if name.startswith(prefix) and isinstance(count, int):
            yield f"{_counted(count, 'row')} of the data set: {name.removeprefix(prefix).replace('_', ' ')}."
    if text := unasked(result):
        yield f"{text}."
    aliases = result.description.get("loaded.dataset.unusable_aliases")
    if isinstance(aliases, int) and aliases:
        yield f"{_counted(aliases, 'accepted answer')} whose normalised form is empty."
    statuses = Counter(status for status in question_statuses(result) if status in WHY_NOT)
    for status, count in statuses.most_common():
        why = WHY_NOT[status].replace("greedy answer", result.baseline_words)
        lacking = [f"no {name}" for setting, name in _NEEDED.items() if setting in result.description]
        why = lacking[0] if lacking and status == "not kept, not asked" else why
        yield f"{_counted(count, 'question')} not sampled: {why}."
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
    total = sum(map(round, counts_by_reason.values()))  # of the numbers that are shown
    consequence = "which does not count as right" if total == 1 else "none of which counts as right"
    return f"{_counted(total, 'reply', 'replies')}, {consequence} ({reasons}){remedy}"


def unread_reasons(counts: Mapping[str, float]) -> dict[str, float]:
    """Return the number of replies without a readable answer by reason."""
    reasons = {name.removeprefix("invalid."): count for name, count in counts.items() if name.startswith("invalid.")}
    for outcome in ("refused", "empty"):
        if count := counts.get(f"greedy.outcomes.{outcome}", 0) + counts.get(f"outcomes.{outcome}", 0):
            reasons[outcome] = count
    return {reason: n for reason, n in reasons.items() if round(n) > 0}  # enumerated: probabilities


def _counted(count: float, one: str, several: str | None = None) -> str:
    return f"{count:,.0f} {one if f'{count:.0f}' == '1' else several or one + 's'}"
