"""Base class of graders, and the steps that all graders share."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from robust_eval.answer import ABSTAINED, ABSTENTION, NO_ANSWER, NO_REPLY, rows, with_columns
from robust_eval.error import UserError
from robust_eval.grader.accepted_forms import accepted_answers, comparable, holds
from robust_eval.model.base import LetterChoices, Matcher, Request
from robust_eval.model.model_config import ModelConfig
from robust_eval.normalization import forms, normalize
from robust_eval.question import LETTERS, Question
from robust_eval.reader.abstention import abstains
from robust_eval.reader.base import FIRST_LINE, NO_LETTER, WHOLE_REPLY
from robust_eval.reader.clauses import is_denial, without_pronoun
from robust_eval.reader.free_text import FreeText
from robust_eval.reader.letters import anchored_letter
from robust_eval.reader.markup import without_footnotes
from robust_eval.reader.reasoning import without_reasoning
from robust_eval.reader.reply import free_text_of
from robust_eval.runtime.text import first_line
from robust_eval.store.stored_model import StoredModel

NO_VERDICT = "no verdict"
"""Reason of an error in a reply with an answer: the judge gave no verdict."""
_OPPOSITE = {"yes": "no", "no": "yes", "true": "false", "false": "true"}
_LEADING_YES_NO = re.compile(r"\W*(yes|no|true|false)\s*(?:[,.;:!]|[–—]|\s-\s)", re.I)
NO_JUDGE = "aggregator.model=judge needs a judge: set grader=judge"


@dataclass(frozen=True)
class Verdict:
    """Verdict of a grader on one reply: its label; ``exact`` is True if it equals an accepted answer."""

    label: str | None
    correct: bool | None
    exact: bool | None
    missing: bool = False
    """No verdict is available, although the question has accepted answers."""
    uncertain: bool = False
    """The scopes of the reply disagree on right or wrong."""
    identical: bool = False
    """The whole reply is an accepted answer."""
    abstained: bool = False
    """The reply says that it does not know."""


class _ToGrade(NamedTuple):
    """Answer that a grader compares; ``by_scopes`` if a reader of whole replies extracted it from ``reply``."""

    reply: str
    answer: str
    by_scopes: bool = False


class FreeReply(NamedTuple):
    """Free-text reply to a question with accepted answers.

    >>> question = Question("1", "What is the capital of Italy?", ("Rome",))
    >>> FreeReply(question, "It is Rome.", "it is rome", ("rome",), ["it is rome"]).exact
    False
    """

    question: Question
    """The question."""
    text: str
    """Extracted answer."""
    form: str
    """Normal form, never empty."""
    accepted: tuple[str, ...]
    """The distinct normalised forms of the accepted answers, at least one."""
    searched: Sequence[str]
    """The normalised forms in which accepted answers are searched: those of the answer without its asides."""
    identical: bool = False
    """The whole reply, as it stands or in normalised form, is an accepted answer."""
    uncertain: bool = False
    """The narrow and the wide scope of the reply disagree on right or wrong, by comparison with the accepted answers:
    such a reply is the first to be judged or labelled."""

    @property
    def exact(self) -> bool:
        """True if the free-text reply equals an accepted answer."""
        return self.identical or self.form in self.accepted

    @property
    def line(self) -> str:
        """First line of the free-text reply, as natural text."""
        return first_line(self.text)

    @property
    def references(self) -> list[str]:
        """Accepted answers to the question as natural text, without those that normalise to nothing."""
        return comparable(self.question.answers)


@dataclass
class Grader(ABC):
    """Base class of graders; a dataclass whose fields are its configuration.

    The label of a free-text answer is its normalised form, and ``exact`` is true if that equals the normalised form of
    an accepted answer. Multiple choice is graded by its letter, whatever the grader. A subclass implements ``right``.
    ValueError for an invalid setting.

    >>> from robust_eval import grade_reply
    >>> class Exact(Grader):
    ...     def right(self, replies):
    ...         return [reply.exact for reply in replies]
    >>> grade_reply("It is in Rome.", ["Rome"], grader=Exact()).correct
    False
    """

    letter: str = field(default="anchored", kw_only=True)
    """Replies that choose a letter: anchored, a reply that is a letter, begins with one ("B) …") or states that the
    answer is one; strict, only a bare letter."""

    abstention: str = field(default="patterns", kw_only=True)
    """Detection of replies such as "I don't know" (docs/judges.md): patterns, by phrases; judge, by the judge of
    grader=judge; none: they count as ordinary answers."""

    accents: str = field(default="fold", kw_only=True)
    """fold: São Paulo equals Sao Paulo; keep: accents of Latin and Greek letters distinguish answers."""

    uses_judge = False
    """True if a model judges."""
    first_line = True
    """Without a reader: an answer is the first line of a reply."""

    def __post_init__(self) -> None:
        if self.letter not in ("anchored", "strict"):
            raise ValueError(f"letter must be anchored or strict, not {self.letter}")
        if self.abstention not in ("patterns", "none") and not (self.abstention == "judge" and self.uses_judge):
            raise ValueError(
                f"abstention must be patterns or none, with grader=judge also judge, not {self.abstention}"
            )
        if self.accents not in ("fold", "keep"):
            raise ValueError(f"accents must be fold or keep, not {self.accents}")

    @abstractmethod
    def right(self, replies: Sequence[FreeReply]) -> Sequence[bool | None]:
        """Return True for each right reply, None without a verdict. UserError if a question lacks a field."""

    def abstained(self, replies: Sequence[FreeReply]) -> Sequence[bool]:
        """Return True for each abstention, a reply that only says that it does not know."""
        return [abstains(reply.text) for reply in replies]

    @property
    def judge_config(self) -> ModelConfig | None:
        """Configuration of the grader's judge; None without one."""
        return None

    def with_judge(self, model: StoredModel, seed: int) -> "Grader":
        """Return the grader with this ``model`` as its judge."""
        return self

    def cached_only(self) -> "Grader":
        """Return a cache-only copy of the grader, which raises NotStoredError for a verdict that the store lacks."""
        return self

    @property
    def judge(self) -> StoredModel | None:
        """Judge of the grader; None without one."""
        return None

    def expected_requests(self, question: Question, answers: int) -> list[Request]:
        """Return the grader's requests for verdicts on at most ``answers`` answers to a question, for the plan."""
        return []

    def are_equivalent(self, pairs: Sequence[tuple[Question, str, str]]) -> list[bool | None]:
        """Return True for each pair of equivalent answers, None without a verdict; UserError without a judge."""
        raise UserError(NO_JUDGE)

    def comparison_requests(self, pairs: Sequence[tuple[Question, str, str]]) -> list[Request]:
        """Return the requests of :meth:`are_equivalent`, for the plan; UserError without a judge."""
        raise UserError(NO_JUDGE)

    def verdict_table(self) -> pa.Table:
        """Return the verdicts of the grader's judge; without columns if there is none."""
        return pa.table({})

    def description(self) -> Mapping[str, Any]:
        """Return the metadata of the grader's verdicts for the record of the run."""
        return {}

    @property
    def _strict(self) -> bool:
        return self.letter == "strict"

    def matcher(self, question: Question) -> Matcher | None:
        """Return the grader's matcher of unfinished free-text answers; None if the rule needs the whole reply."""
        return None

    def choices(self, question: Question) -> LetterChoices | None:
        """Return the letters of a multiple-choice question; None for other questions."""
        return LetterChoices(len(question.choices), question.correct, self._strict) if question.choices else None

    def unusable_aliases(self, questions: Sequence[Question]) -> Mapping[str, int]:
        """Return, by question, the number of accepted answers that normalise to nothing, which the grader excludes.

        Called before all other methods: UserError if a question lacks a required field.
        """
        counts = {question.id: accepted_answers(question, self.accents)[1] for question in questions}
        return {question_id: count for question_id, count in counts.items() if count}

    def grade(self, questions: Sequence[Question], answers: pa.Table) -> pa.Table:
        """Return the graded table: the answer table with ``label``, ``correct`` and ``exact``, and the outcome
        ``abstained`` for an abstention, else ``invalid`` without a letter.
        """
        by_id = {question.id: question for question in questions}
        replies = [
            (question_id, self._to_grade(by_id[question_id], *reply))
            for question_id, *reply in rows(answers, "question_id", "text", "answer", "rule", "reason")
        ]
        verdicts = self._verdicts(by_id, dict.fromkeys(replies))
        if self.abstention != "none":
            verdicts |= self._with_abstentions(by_id, verdicts)
        names = ("outcome", "answer", "rule", "reason", "uncertain")
        columns: dict[str, list[object]] = {name: [] for name in (*names, "label", "correct", "exact")}
        for key, outcome, answer, rule, reason, uncertain in zip(
            replies, *(answers[name].to_pylist() for name in names), strict=True
        ):
            question_id, verdict = key[0], verdicts[key]
            outcome = "ok" if outcome == ABSTAINED else outcome  # as another grader read it
            if outcome in NO_REPLY:
                verdict = Verdict(None, None, None)
            elif outcome == "invalid" and verdict.identical:  # the text that looks like a mark is the answer
                outcome, answer, rule, reason = "ok", " ".join(key[1].reply.split()), WHOLE_REPLY, None
            elif verdict.abstained and (outcome == "ok" or reason == NO_LETTER):
                outcome, reason = ABSTAINED, None
            elif outcome in NO_ANSWER and verdict.correct is not None:
                verdict = Verdict(None, False, False, uncertain=verdict.uncertain)
            if by_id[question_id].choices:
                verdict = replace(verdict, uncertain=bool(uncertain))
            invalid = outcome == "ok" and verdict.label is None and bool(by_id[question_id].choices)
            unjudged = outcome == "ok" and verdict.missing
            columns["outcome"].append("invalid" if invalid else "error" if unjudged else outcome)
            columns["reason"].append(NO_LETTER if invalid else NO_VERDICT if unjudged else reason)
            columns["answer"].append(answer)
            columns["rule"].append(rule)
            for name in ("label", "correct", "exact", "uncertain"):
                columns[name].append(getattr(verdict, name))
        return with_columns(answers, columns)

    def _to_grade(
        self, question: Question, text: str, answer: str | None, rule: str | None, reason: str | None
    ) -> _ToGrade:
        """Return the part of a reply to compare: the extracted answer; all, without a reader or for strict letters."""
        if question.choices and self._strict:
            return _ToGrade(text, without_reasoning(text) or "")
        if not rule and not reason:
            return _ToGrade(text, text)
        return _ToGrade(text, answer or "", bool(rule) and rule != FIRST_LINE)

    def _verdicts(
        self, questions: Mapping[str, Question], replies: Iterable[tuple[str, _ToGrade]]
    ) -> dict[tuple[str, _ToGrade], Verdict]:
        """Return the grader's verdict for each distinct (question, reply); all free text is judged in one call."""
        accepted = {name: accepted_answers(question, self.accents)[0] for name, question in questions.items()}
        verdicts: dict[tuple[str, _ToGrade], Verdict] = {}
        free: dict[tuple[str, _ToGrade], FreeReply] = {}
        for key in replies:
            question_id, graded = key
            question, answers = questions[question_id], accepted[question_id]
            if question.choices:
                letter = anchored_letter(graded.answer, len(question.choices), self._strict)
                right = None if question.correct is None else letter == LETTERS[question.correct]
                verdicts[key] = Verdict(letter, right, right)
            elif not answers:
                verdicts[key] = Verdict(normalize(graded.answer, self.accents) or None, None, None)
            else:
                reply = self._free_reply(question, graded, answers)
                if reply.form:
                    free[key] = reply
                else:
                    verdicts[key] = Verdict(None, False, False)
        for (key, reply), right in zip(free.items(), self._checked(self.right(list(free.values())), free), strict=True):
            right = True if reply.identical else right
            verdicts[key] = Verdict(reply.form, right, reply.exact, right is None, reply.uncertain, reply.identical)
        return verdicts

    def _checked(self, verdicts: Any, replies: Sized) -> list[bool | None]:
        """Return the verdicts of :meth:`right` as a list; UserError unless there is one for each reply."""
        name = f"{type(self).__qualname__}.right()"
        if not isinstance(verdicts, Iterable) or isinstance(verdicts, str | Mapping):
            raise UserError(f"{name} must return a list of verdicts, not a {type(verdicts).__name__}")
        checked = list(verdicts)
        if other := [verdict for verdict in checked if not isinstance(verdict, bool | np.bool_ | None)]:
            raise UserError(f"{name} must return True, False or None for each reply, not {other[0]!r:.60}")
        if len(checked) != len(replies):
            raise UserError(f"{name} must return {len(replies)} verdicts, one for each reply, not {len(checked)}")
        return checked

    def _with_abstentions(
        self, questions: Mapping[str, Question], verdicts: Mapping[tuple[str, _ToGrade], Verdict]
    ) -> dict[tuple[str, _ToGrade], Verdict]:
        """Return the new verdicts on abstentions, and on all replies to questions without an answer: right if they
        abstain. A reply with a right answer or a letter does not abstain.
        """
        candidates: dict[tuple[str, _ToGrade], FreeReply] = {}
        for (question_id, graded), verdict in verdicts.items():
            question = questions[question_id]
            answers = verdict.label if question.choices else verdict.correct or verdict.missing
            if question.is_unanswerable or not answers:
                text = graded.reply if graded.by_scopes else graded.answer or graded.reply
                candidates[question_id, graded] = FreeReply(question, text, "", (), ())
        found: dict[tuple[str, _ToGrade], Verdict] = {}
        for (key, reply), abstained in zip(candidates.items(), self.abstained(list(candidates.values())), strict=True):
            right = None if verdicts[key].correct is None else reply.question.is_unanswerable
            if abstained:
                found[key] = Verdict(ABSTENTION, right, right, uncertain=verdicts[key].uncertain, abstained=True)
            elif right:
                found[key] = Verdict(verdicts[key].label, False, False)
        return found

    def _free_reply(self, question: Question, graded: _ToGrade, accepted: tuple[str, ...]) -> FreeReply:
        """Return a free-text reply with the scopes of the search for accepted answers."""
        whole = " ".join(graded.reply.split())
        identical = whole in (" ".join(text.split()) for text in question.answers if text.strip()) or (
            normalize(whole, self.accents) in accepted
        )
        if identical or not graded.by_scopes:
            answer = whole if identical else graded.answer
            form = normalize(answer, self.accents)
            return FreeReply(question, answer, form, accepted, forms(answer, self.accents), identical)
        scopes = free_text_of(graded.reply)
        if "i" in accepted:
            scopes = FreeText(*map(without_pronoun, scopes))
        form = normalize(graded.answer, self.accents)
        affirmed = tuple(each for each in accepted if not is_denial(each))
        denied = self._contains(scopes.answer, tuple(each for each in accepted if is_denial(each)))
        certain, everything = (denied or self._contains(text, affirmed) for text in (scopes.certain, scopes.whole))
        searched = self._forms(scopes.answer if denied else scopes.graded)
        first = _LEADING_YES_NO.match(scopes.graded if scopes.rule == WHOLE_REPLY else "")
        if first is not None and _OPPOSITE[first[1].lower()] in accepted and first[1].lower() not in accepted:
            searched, certain = [first[1].lower()], False  # "Yes, no doubt" is not the answer "no"
        return FreeReply(question, graded.answer, form, accepted, searched, False, certain is not everything)

    def _contains(self, text: str, accepted: tuple[str, ...]) -> bool:
        return bool(accepted) and any(self._holds(form, accepted) for form in self._forms(text))

    def _holds(self, form: str, accepted: tuple[str, ...]) -> bool:
        """Return True if a normalised form contains an accepted one by the rule of this grader."""
        return holds(form, accepted)

    def _forms(self, text: str) -> list[str]:
        """Return the normalised forms of a text to grade, with and without footnotes."""
        return [form for each in dict.fromkeys((text, without_footnotes(text))) for form in forms(each, self.accents)]
