"""Details of an opened question: its curve, its answers, the top of its answer tree."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from robust_eval.answer import rows, temperature_name, temperatures_of
from robust_eval.normalization import normalize
from robust_eval.prompt.prompt import prompt_for
from robust_eval.prompt.pushback import form_of_all
from robust_eval.question import LETTERS, Question
from robust_eval.runs.question_status import VERDICTS, verdict
from robust_eval.runtime.text import cut, number, printable_lines
from robust_eval.stats.estimate import proportion
from robust_eval.tracking.result import Result

MAX_ANSWERS = 12
"""Different answers to one wording that are listed; the others are counted."""
_Key = tuple[int, str, str | None, str, str]
"""Key of an answer: rewrite, text, label, verdict, outcome."""


@dataclass
class _EqualReplies:
    """Equal replies to one wording: their counts by temperature, the extraction from the first, the number of truncated
    ones, and True for the elected answer.
    """

    counts: list[float]
    reading: Sequence[Any]
    cut: float = 0.0
    elected: bool = False


_READING = ("text", "answer", "rule", "uncertain")
"""Columns of the extraction of an answer from a reply."""


def details(
    result: Result, questions: Sequence[Question], longest: int, decode: Callable[[list[int]], str] | None
) -> list[dict[str, Any]]:
    """Return the details of each question, as data for a page.

    ``longest`` is the maximum number of characters of a text; ``decode`` turns tokens into text, if there is a
    tokenizer.
    """
    ids = [question.id for question in questions]
    columns = ("question_id", "text", "correct", "outcome", *_READING)
    greedy = {
        question_id: ([cut(text, longest), verdict(correct, outcome), outcome], _reading(reading, longest))
        for question_id, text, correct, outcome, *reading in rows(_of_questions(result.graded_baseline, ids), *columns)
    }
    answers = {
        sampler: _answers(_of_questions(result.counted[sampler], ids), longest) for sampler in result.graded_by_sampler
    }
    curves = _curves(result, ids)
    trees = {} if decode is None else _trees(result, ids, longest, decode)
    entries = []
    for question in questions:
        greedy_answer, reading = greedy.get(question.id, ([], []))
        letters = zip(LETTERS, question.choices, strict=False)
        optional = {
            "choices": [f"{letter}) {cut(choice, longest)}" for letter, choice in letters],
            "context": cut(question.context, 2 * longest),
            "greedy": greedy_answer,
            "greedy_read": reading,
            "prompt": cut(_prompt(result, question), 8 * longest),
            "curve": curves.get(question.id),
            "tree": trees.get(question.id),
        }
        entries.append(
            {
                "id": printable_lines(question.id),
                "answers": [cut(answer, longest) for answer in question.answers],
                **{name: value for name, value in optional.items() if value},
                **({"correct": question.correct} if question.choices else {}),
                "wordings": [cut(wording, longest) for wording in question.rewrites],
                "samplers": {name: of[question.id] for name, of in answers.items() if question.id in of},
            }
        )
    return entries


def _prompt(result: Result, question: Question) -> str:
    """Return the prompt of a question in its original wording; empty where no model was sampled."""
    settings = (value for name, value in result.description.items() if re.fullmatch(r"sampler\.[^.]+\.prompts", name))
    prompts = next(settings, None)
    if not isinstance(prompts, str) or not question.text or not result.description.get("model.prompt_style"):
        return ""
    prompt = prompt_for(question, prompts=prompts)
    if result.description["model.prompt_style"] == "plain":
        return prompt.text()
    return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in prompt.messages())


def _of_questions(table: pa.Table, ids: Collection[str]) -> pa.Table:
    return table.filter(pc.is_in(table["question_id"], pa.array(ids, pa.string())))


def _reading(columns: Sequence[Any], longest: int) -> list[Any]:
    """Return the extraction of an answer: the rule, the answer, and 1 if it is uncertain; empty without a rule.

    An answer that equals the reply is left out.
    """
    text, answer, rule, uncertain = columns
    if not rule:
        return []
    answer_text = cut(answer or "", longest)
    return [rule, "" if answer_text == cut(text.strip(), longest) else answer_text, int(bool(uncertain))]


def _answers(table: pa.Table, longest: int) -> dict[str, dict[str, Any]]:
    """Return the different answers to each question, the most frequent first, with their counts by temperature (or
    probabilities, of enumerated answers), and the variants of the question (``shown``): the order and form of its
    choices, or the turn of a conversation.
    """
    temperatures = temperatures_of(table)
    column = {t: index for index, t in enumerate(temperatures)}
    replies: dict[str, dict[_Key, _EqualReplies]] = defaultdict(dict)
    uncertain: dict[str, float] = defaultdict(float)
    names = ["question_id", "rewrite", "text", "label", "correct", "outcome", "reason", "finish_reason", "temperature"]
    forms: dict[str, dict[int, str]] = defaultdict(dict)
    for question_id, rewrite, form in rows(table, "question_id", "rewrite", "form"):
        if form is not None:
            forms[question_id][rewrite] = form_of_all(form)
    voted = table["ensemble"].to_pylist() if "ensemble" in table.column_names else [False] * table.num_rows
    for (question_id, *key, temperature), reading, weight, won in zip(
        rows(table, *names), rows(table, *_READING), table["weight"].to_pylist(), voted, strict=True
    ):
        rewrite, text, label, correct, outcome, reason, finish = key
        fate = f"{outcome}: {reason}" if reason and outcome == "invalid" else outcome
        answer = (rewrite, text.strip(), label, verdict(correct, outcome), fate)
        equal = replies[question_id].setdefault(answer, _EqualReplies([0.0] * len(temperatures), reading))
        equal.counts[column[temperature]] += weight
        equal.elected |= bool(won)
        if finish == "length":
            equal.cut += weight
        if reading[-1]:
            uncertain[question_id] += weight
    return {
        question_id: {
            "temperatures": [temperature_name(t) if math.isnan(t) else t for t in temperatures],
            **({"shown": forms[question_id]} if question_id in forms else {}),
            **({"uncertain": _count_text(uncertain[question_id])} if question_id in uncertain else {}),
            **_most_frequent(answers, longest),
        }
        for question_id, answers in replies.items()
    }


def _most_frequent(answers: Mapping[_Key, _EqualReplies], longest: int) -> dict[str, Any]:
    """Return the listed answers by wording, each with its count of cut replies, its first reply where the text is
    shortened, and its extraction; and by verdict the counts of the other, of all, and of cut answers.
    """
    lines, readings, ranks = [], [], Counter[int]()
    rest: dict[str, list[Sequence[float]]] = defaultdict(list)
    totals: dict[str, list[Sequence[float]]] = defaultdict(list)
    limited: dict[str, float] = defaultdict(float)
    for answer, equal in sorted(answers.items(), key=lambda item: (item[0][0], -sum(item[1].counts))):
        rewrite, text, label, verdict_, outcome = answer
        totals[verdict_].append(equal.counts)
        limited[verdict_] += equal.cut
        ranks[rewrite] += 1
        if ranks[rewrite] > MAX_ANSWERS:
            rest[verdict_].append(equal.counts)
            continue
        ends, counts = _count_text(equal.cut), _summed([equal.counts])
        line = [rewrite, cut(text, longest), cut(label or "", 40), verdict_, outcome, equal.elected, counts]
        reply = cut(equal.reading[0], max(longest, longest**2 // 50))
        readings.append(_reading(equal.reading, longest))
        lines.append([*line, ends, reply] if reply != line[1] else [*line, ends] if ends else line)
    labels = any(label and label != normalize(text) for _, text, label, *_ in islice(answers, MAX_ANSWERS))
    ends_by_verdict = [[verdict_, _count_text(limited[verdict_])] for verdict_ in VERDICTS if limited[verdict_]]
    return {
        **({"cut": ends_by_verdict} if ends_by_verdict else {}),
        "rows": lines,
        **({"read": readings} if any(readings) else {}),
        "labels": labels,
        "others": [
            [verdict_, len(rest[verdict_]), _summed(rest[verdict_])] for verdict_ in VERDICTS if verdict_ in rest
        ],
        "whole": [[verdict_, _summed(totals[verdict_])] for verdict_ in VERDICTS if verdict_ in totals],
    }


def _summed(counts: Sequence[Sequence[float]]) -> list[str]:
    """Return the sums of the counts of several answers by temperature, as text; empty for 0."""
    return [_count_text(math.fsum(at)) for at in zip(*counts, strict=True)]


def _count_text(count: float) -> str:
    """Return the count of an answer, or the probability of an enumerated one, as text; empty for 0."""
    return "" if count == 0 else number(count, ".0f" if count == round(count) else ".3f")


def _curves(result: Result, ids: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return the accuracy of each question against temperature, by counting (with Wilson's 95 % interval) and from the
    model's probabilities (with 1.96 standard errors, and guaranteed bounds).
    """
    metric = result.metric_of("frs_accuracy")
    if metric is None:
        return {}
    curves: dict[str, dict[str, Any]] = {}
    table = _of_questions(result.tables["frs_accuracy"], ids)
    if result.estimator_of.get(result.sampler_of[metric]) != "exact":
        for question_id, t, correct, replies in rows(table, "question_id", "temperature", "correct", "replies"):
            if replies:
                point = [t, *(round(value, 4) for value in proportion(round(correct), round(replies)))]
                curves.setdefault(question_id, {}).setdefault("counted", []).append(point)
    computed = result.exact_curves.get(result.sampler_of[metric])
    if computed is not None:
        columns = ("question_id", "rewrite", "temperature", "accuracy", "standard_error", "lower", "upper")
        for question_id, rewrite, t, accuracy, error, lower, upper in rows(_of_questions(computed, ids), *columns):
            if rewrite == 0:
                ends = np.clip([accuracy, accuracy - 1.96 * error, accuracy + 1.96 * error], 0, 1).tolist()
                point = [t, *(round(float(value), 4) for value in (*ends, lower, upper))]
                curves.setdefault(question_id, {}).setdefault("computed", []).append(point)
    return curves


def _trees(
    result: Result, ids: Collection[str], longest: int, decode: Callable[[list[int]], str]
) -> dict[str, list[Any]]:
    """Return the top branches of the answers of all samplers to each original question."""
    paths: dict[str, dict[Path, None]] = defaultdict(dict)
    columns = ("question_id", "rewrite", "token_ids", "token_logprobs", "answer_tokens", "correct")
    for table in result.all_graded.values():
        for question_id, rewrite, tokens, logprobs, answer_tokens, correct in rows(_of_questions(table, ids), *columns):
            if rewrite == 0 and tokens and logprobs and answer_tokens:
                paths[question_id][Path(tuple(tokens), tuple(logprobs), answer_tokens, correct)] = None

    def text(tokens: list[int]) -> str:
        return cut(decode(tokens), longest)

    trees = {question_id: top_branches(question_paths, text) for question_id, question_paths in paths.items()}
    return {question_id: tree.as_data() for question_id, tree in trees.items() if tree.branches}


MAX_BRANCHES = 24
"""Maximum number of prefixes of one question."""
MIN_PROBABILITY = 0.002
"""Minimum probability of a prefix."""
MERGE_SHARE = 0.9
"""Share of a prefix's probability from which its only continuation is merged into it."""

Tokens = tuple[int, ...]


class Path(NamedTuple):
    """Answer as a path in the answer tree: its tokens, their log-probabilities (natural, at temperature 1), the number
    of tokens of the answer (without an end token), and its correctness.
    """

    tokens: Tokens
    logprobs: Sequence[float]
    answer_tokens: int
    correct: bool | None


@dataclass
class Branch:
    """Branch of the answer tree: a prefix of answers. ``text`` is its continuation of the parent prefix,
    ``probability`` that of all answers with the prefix, at temperature 1. ``verdict`` is that of the answer that ends
    here, or empty; ``counts`` are the different answers with the prefix, by verdict.
    """

    text: str
    probability: float
    verdict: str
    counts: Counter[str]
    branches: list["Branch"] = field(default_factory=list)

    @property
    def hidden(self) -> Counter[str]:
        """Answers in ``counts`` that neither end at this branch nor belong to one of its ``branches``."""
        own_verdict = Counter([self.verdict] if self.verdict else [])
        return self.counts - sum((branch.counts for branch in self.branches), own_verdict)

    def as_data(self) -> list[Any]:
        """Return the branch as [text, probability in percent as text, verdict, counts, hidden counts, branches] for a
        page; counts are lists of [verdict, number].
        """
        counts_by_verdict = [
            [[verdict_, counts[verdict_]] for verdict_ in VERDICTS if counts[verdict_]]
            for counts in (self.counts, self.hidden)
        ]
        branches = [branch.as_data() for branch in self.branches]
        percent = number(self.probability, ".1%" if self.probability < 0.01 else ".0%").removesuffix(" %")
        return [self.text, percent, self.verdict, *counts_by_verdict, branches]


def top_branches(paths: Iterable[Path], decode: Callable[[list[int]], str]) -> Branch:
    """Return the answer tree of the most probable prefixes; a prefix with one dominant continuation is merged with it.

    ``paths`` are the answers to one prompt, with duplicates; those without log-probabilities are left out. ``decode``
    turns tokens into text. The result is the empty prefix, with its branches, the most probable first. A prefix's
    probability is the product of those of its tokens, so it is exact, however few answers were drawn; the difference to
    1, or to the parent branch, was not sampled. Answers are different if their tokens are.

    >>> right, wrong = Path((1, 2), [-0.5, -0.2], 2, True), Path((1, 3), [-0.5, -3.0], 2, False)
    >>> paths = [right, wrong, Path((4,), [-2.0], 1, False)]
    >>> first, second = top_branches(paths, lambda tokens: "".join("abcde"[token] for token in tokens)).branches
    >>> first.text, round(first.probability, 3), [branch.text for branch in first.branches], second.text
    ('b', 0.607, ['c', 'd'], 'e')
    >>> dict(first.counts)
    {'right': 1, 'wrong': 1}
    """
    probabilities, verdicts = _prefixes(paths)
    counts: dict[Tokens, Counter[str]] = defaultdict(Counter)
    for answer, answer_verdict in verdicts.items():
        for length in range(len(answer) + 1):
            counts[answer[:length]][answer_verdict] += 1
    children: dict[Tokens, list[Tokens]] = defaultdict(list)  # the most probable first
    for prefix in sorted(probabilities, key=lambda prefix: (-probabilities[prefix], prefix))[:MAX_BRANCHES]:
        if probabilities[prefix] >= MIN_PROBABILITY or not children:
            children[prefix[:-1]].append(prefix)

    def branch(parent: Tokens, prefix: Tokens) -> Branch:
        while prefix not in verdicts and len(children[prefix]) == 1:
            (child,) = children[prefix]
            if probabilities[child] < MERGE_SHARE * probabilities[prefix]:
                break
            prefix = child
        return Branch(
            decode(list(prefix)).removeprefix(decode(list(parent)) if parent else ""),
            probabilities[prefix],
            verdicts.get(prefix, ""),
            counts[prefix],
            [branch(prefix, child) for child in children[prefix]],
        )

    return Branch("", 1.0, "", counts[()], [branch((), first) for first in children[()]])


def _prefixes(paths: Iterable[Path]) -> tuple[dict[Tokens, float], dict[Tokens, str]]:
    """Return the probability of each prefix of the answer tree, and the verdicts on complete answers."""
    probabilities: dict[Tokens, float] = {}
    verdicts: dict[Tokens, str] = {}
    for tokens, logprobs, answer_tokens, correct in paths:
        answer = tokens[:answer_tokens]
        if answer in verdicts or not answer or len(logprobs) < len(answer):
            continue
        total = 0.0
        for length, logprob in enumerate(logprobs[: len(answer)], start=1):
            total += logprob  # rounded: without a limit, a prefix could be more probable than its parent
            limit = probabilities.get(answer[: length - 1], 1.0)
            probabilities.setdefault(answer[:length], min(limit, math.exp(total)))
        verdicts[answer] = verdict(correct, "ok")
    return probabilities, verdicts
