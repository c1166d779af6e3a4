"""Details of an opened question: its curve, its answers, the top of its answer tree."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from robust_eval.answer import rows, temperature_name, temperatures_of
from robust_eval.metric.score import proportion, reply_weights
from robust_eval.normalization import normalize
from robust_eval.prompt.challenge import form_of_all
from robust_eval.prompt.prompt import prompt_for
from robust_eval.question import LETTERS, Question
from robust_eval.report.branches import Path, top_branches
from robust_eval.runs.question_status import VERDICTS, verdict
from robust_eval.runtime.text import number, printable_lines
from robust_eval.tracking.result import Result

ANSWERS = 12
"""Different answers to one wording that are shown; the others are counted."""
_Key = tuple[int, str, str | None, str, str]
"""Of an answer: rewrite, text, label, verdict, outcome."""
_READING = ("text", "answer", "rule", "uncertain")
"""Columns that say what was extracted of a reply, and how."""


def details(
    result: Result, questions: Sequence[Question], longest: int, decode: Callable[[list[int]], str] | None
) -> list[dict[str, Any]]:
    """Return what there is to see of each question, as data for a page.

    ``longest`` is how many characters of a text are shown; ``decode`` gives the text of tokens, where that is known.
    """
    ids = [question.id for question in questions]
    greedy = _of(result.baseline, ids)
    verdicts = {
        question_id: ([cut(text, longest), verdict(correct, outcome), outcome], _reading(reading, longest))
        for question_id, text, correct, outcome, *reading in rows(
            greedy, "question_id", "text", "correct", "outcome", *_READING
        )
    }
    answers = {sampler: _answers(_of(table, ids), longest) for sampler, table in result.graded.items()}
    curves = _curves(result, ids)
    trees = {} if decode is None else _trees(result, ids, longest, decode)
    found = []
    for question in questions:
        shown: dict[str, Any] = {
            "id": printable_lines(question.id),
            "answers": [cut(answer, longest) for answer in question.answers],
        }
        if question.choices:
            letters = zip(LETTERS, question.choices, strict=False)
            shown["choices"] = [f"{letter}) {cut(choice, longest)}" for letter, choice in letters]
            shown["correct"] = question.correct
        if question.context:
            shown["context"] = cut(question.context, 2 * longest)
        if question.id in verdicts:
            shown["greedy"], reading = verdicts[question.id]
            if reading:
                shown["greedy_read"] = reading
        if prompt := _prompt(result, question):
            shown["prompt"] = cut(prompt, 8 * longest)
        shown["wordings"] = [cut(wording, longest) for wording in question.rewrites]
        shown["samplers"] = {name: of[question.id] for name, of in answers.items() if question.id in of}
        if question.id in curves:
            shown["curve"] = curves[question.id]
        if question.id in trees:
            shown["tree"] = trees[question.id]
        found.append(shown)
    return found


def _prompt(result: Result, question: Question) -> str:
    """Return what a model was shown of a question as it stands; empty where no model was asked."""
    found = (value for name, value in result.description.items() if re.fullmatch(r"sampler\.[^.]+\.prompts", name))
    prompts = next(found, None)
    if not isinstance(prompts, str) or not question.text or not result.description.get("model.prompt_style"):
        return ""
    prompt = prompt_for(question, prompts=prompts)
    if result.description["model.prompt_style"] == "plain":
        return prompt.text()
    return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in prompt.messages())


def cut(text: str, longest: int) -> str:
    """Return what is shown of a text: all of it, or of one that is too long the beginning and its length."""
    text = printable_lines(text)
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters)"


def _of(table: pa.Table, ids: Collection[str]) -> pa.Table:
    return table.filter(pc.is_in(table["question_id"], pa.array(ids, pa.string())))


def _reading(columns: Sequence[Any], longest: int) -> list[Any]:
    """Return the rule by which an answer was extracted, the answer, and 1 where it is uncertain; nothing where no rule
    is recorded. An answer that is the text of the reply is left out.
    """
    text, answer, rule, uncertain = columns
    if not rule:
        return []
    found = cut(answer or "", longest)
    return [rule, "" if found == cut(text.strip(), longest) else found, int(bool(uncertain))]


def _answers(table: pa.Table, longest: int) -> dict[str, dict[str, Any]]:
    """Return the different answers to each question: how often each came at which temperature (its probability, where
    they are enumerated), those that came most first; and how it was put to raters (``shown``), where not as it stands:
    the order and form of its choices, or the turn of a conversation.
    """
    temperatures = temperatures_of(table)
    column = {t: place for place, t in enumerate(temperatures)}
    counts: dict[str, dict[_Key, list[float]]] = defaultdict(dict)
    elected: set[tuple[str, _Key]] = set()
    ended: dict[tuple[str, _Key], float] = defaultdict(float)
    came: dict[tuple[str, _Key], Sequence[Any]] = {}
    doubtful: dict[str, float] = defaultdict(float)
    names = ["question_id", "rewrite", "text", "label", "correct", "outcome", "reason", "finish_reason", "temperature"]
    shown: dict[str, dict[int, str]] = defaultdict(dict)
    for question_id, rewrite, form in rows(table, "question_id", "rewrite", "form"):
        if form is not None:
            shown[question_id][rewrite] = form_of_all(form)
    voted = table["ensemble"].to_pylist() if "ensemble" in table.column_names else [False] * table.num_rows
    for (question_id, *key, temperature), reading, weight, won in zip(
        rows(table, *names), rows(table, *_READING), reply_weights(table).tolist(), voted, strict=True
    ):
        rewrite, text, label, correct, outcome, reason, finish = key
        fate = f"{outcome}: {reason}" if reason and outcome == "invalid" else outcome
        answer = (rewrite, text.strip(), label, verdict(correct, outcome), fate)
        came.setdefault((question_id, answer), reading)
        of_answer = counts[question_id].setdefault(answer, [0.0] * len(temperatures))
        of_answer[column[temperature]] += weight
        if finish == "length":
            ended[question_id, answer] += weight
        if reading[-1]:
            doubtful[question_id] += weight
        if won:
            elected.add((question_id, answer))
    return {
        question_id: {
            "temperatures": [temperature_name(t) if math.isnan(t) else t for t in temperatures],
            **({"shown": shown[question_id]} if question_id in shown else {}),
            **({"uncertain": _times(doubtful[question_id])} if question_id in doubtful else {}),
            **_most_frequent(question_id, found, elected, ended, came, longest),
        }
        for question_id, found in counts.items()
    }


def _most_frequent(
    question_id: str,
    found: Mapping[_Key, list[float]],
    elected: Collection[tuple[str, _Key]],
    ended: Mapping[tuple[str, _Key], float],
    came: Mapping[tuple[str, _Key], Sequence[Any]],
    longest: int,
) -> dict[str, Any]:
    """Return the answers that are shown, by wording, with how often the length limit ``ended`` one that it did and how
    the first of its replies ``came`` where more of it than is shown can be, and how each was read; the others, all of
    them, and those that the limit ended parted by their verdict.
    """
    shown, readings, seen = [], [], Counter[int]()
    others: dict[str, list[Sequence[float]]] = defaultdict(list)
    whole: dict[str, list[Sequence[float]]] = defaultdict(list)
    limited: dict[str, float] = defaultdict(float)
    for answer, counts in sorted(found.items(), key=lambda item: (item[0][0], -sum(item[1]))):
        rewrite, text, label, said, outcome = answer
        whole[said].append(counts)
        limited[said] += ended.get((question_id, answer), 0.0)
        seen[rewrite] += 1
        if seen[rewrite] > ANSWERS:
            others[said].append(counts)
            continue
        won, ends = (question_id, answer) in elected, _times(ended.get((question_id, answer), 0.0))
        line = [rewrite, cut(text, longest), cut(label or "", 40), said, outcome, won, _summed([counts])]
        reply = cut(came[question_id, answer][0], max(longest, longest**2 // 50))
        readings.append(_reading(came[question_id, answer], longest))
        shown.append([*line, ends, reply] if reply != line[1] else [*line, ends] if ends else line)
    labels = any(label and label != normalize(text) for _, text, label, *_ in islice(found, ANSWERS))
    ends_by_verdict = [[said, _times(limited[said])] for said in VERDICTS if limited[said]]
    return {
        **({"cut": ends_by_verdict} if ends_by_verdict else {}),
        "rows": shown,
        **({"read": readings} if any(readings) else {}),
        "labels": labels,
        "others": [[said, len(others[said]), _summed(others[said])] for said in VERDICTS if said in others],
        "whole": [[said, _summed(whole[said])] for said in VERDICTS if said in whole],
    }


def _summed(counts: Sequence[Sequence[float]]) -> list[str]:
    """Return counts of several answers by temperature as those of all of them, as they are shown; empty where it is
    none.
    """
    return [_times(math.fsum(at)) for at in zip(*counts, strict=True)]


def _times(count: float) -> str:
    """Return how often an answer came; where answers are enumerated, its probability."""
    return "" if count == 0 else number(count, ".0f" if count == round(count) else ".3f")


def _curves(result: Result, ids: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return the accuracy of each question against temperature, by counting (with Wilson's 95 % interval) and as the
    model's probabilities tell it (with 1.96 standard errors, and bounds that are certain).
    """
    metric = result.metric_of("frs_accuracy")
    if metric is None:
        return {}
    found: dict[str, dict[str, Any]] = {}
    counted = result.scores[metric].settings["estimator"] != "exact"
    table = _of(result.tables["frs_accuracy"], ids)
    if counted:
        for question_id, t, correct, replies in rows(table, "question_id", "temperature", "correct", "replies"):
            if replies:
                point = [t, *(round(value, 4) for value in proportion(round(correct), round(replies)))]
                found.setdefault(question_id, {}).setdefault("counted", []).append(point)
    told = result.curves.get(result.sources[metric])
    if told is not None:
        columns = ("question_id", "rewrite", "temperature", "accuracy", "standard_error", "lower", "upper")
        for question_id, rewrite, t, accuracy, error, lower, upper in rows(_of(told, ids), *columns):
            if rewrite == 0:
                ends = np.clip([accuracy, accuracy - 1.96 * error, accuracy + 1.96 * error], 0, 1).tolist()
                point = [t, *(round(float(value), 4) for value in (*ends, lower, upper))]
                found.setdefault(question_id, {}).setdefault("told", []).append(point)
    return found


def _trees(
    result: Result, ids: Collection[str], longest: int, decode: Callable[[list[int]], str]
) -> dict[str, list[Any]]:
    """Return the top branches of each question's answers, of all samplers, to the question as it stands."""
    paths: dict[str, dict[Path, None]] = defaultdict(dict)
    columns = ("question_id", "rewrite", "token_ids", "token_logprobs", "answer_tokens", "correct")
    for table in (result.baseline, *result.graded.values()):
        for question_id, rewrite, tokens, logprobs, answer_tokens, correct in rows(_of(table, ids), *columns):
            if rewrite == 0 and tokens and logprobs and answer_tokens:
                paths[question_id][Path(tuple(tokens), tuple(logprobs), answer_tokens, correct)] = None

    def text(tokens: list[int]) -> str:
        return cut(decode(tokens), longest)

    trees = {question_id: top_branches(own, text) for question_id, own in paths.items()}
    return {question_id: tree.as_data() for question_id, tree in trees.items() if tree.branches}
