"""Grader by a judge, a language model; its verdicts are answers, and stored as such."""

import hashlib
import json
import logging
import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from robust_eval.answer import rows
from robust_eval.error import OutageError, UserError
from robust_eval.grader.accepted_forms import accepted_answers, comparable
from robust_eval.grader.base import FreeReply, Grader
from robust_eval.grader.matching import Matching
from robust_eval.model.base import Request
from robust_eval.model.model_config import ModelConfig
from robust_eval.normalization import normalize
from robust_eval.prompt.prompt import verdict_prompt
from robust_eval.prompt.templates import ABSTAINING, EQUIVALENCE, JUDGING, RUBRIC, SUPPORT, read_templates
from robust_eval.question import Question
from robust_eval.reader.verdict import read_verdict
from robust_eval.store.stored_model import NotStoredError, StoredModel

log = logging.getLogger(__name__)

MAX_CHARACTERS = 8000
"""Maximum length of a reply in the judge's prompt; the middle of a longer one is omitted."""
TRIAL_REPLIES = 20
"""Number of first replies of which a judge must give a verdict on half, or the run stops."""
MIN_REPLIES = 10
"""Minimum number of replies for that check."""
PADDING = (
    "This is a question that many people have asked. It helps to look at it with care and from several sides. The "
    "matter has been described at length elsewhere, and much has been said about it over the years."
)
"""Meaningless padding of replies, to test whether a judge prefers long ones."""
VERDICTS = pa.schema(
    [
        pa.field("form", pa.string(), nullable=False),  # the judge's question: grader.form, or abstention
        pa.field("question_id", pa.string(), nullable=False),
        pa.field("reply", pa.string(), nullable=False),
        pa.field("vote", pa.int32(), nullable=False),
        pa.field("right", pa.bool_()),  # null: no verdict, or an unreadable one
        pa.field("why", pa.string()),
        pa.field("outcome", pa.string(), nullable=False),  # of the judge's answer
        pa.field("text", pa.string(), nullable=False),  # of the judge's answer
    ]
)


@dataclass
class JudgeModel(Grader):
    """Judge as a grader (grader=judge): a language model says whether a free-text reply is right."""

    model: Any = None
    """The model that judges, an option of the group model; it must be set."""
    form: str = EQUIVALENCE
    """The judge's question. equivalence: does the reply agree with an accepted answer? support: does the question's
    context support it? rubric: does it meet the rubric?"""
    rubric: str = ""
    """Requirements for a right reply, with form=rubric."""
    cascade: str = "exact"
    """exact: a reply that equals an accepted answer is right without the judge; uncertain: only uncertain replies go to
    the judge, and the others keep the verdict of grader=matching; none: all replies go to the judge."""
    votes: int = 1
    """Number of verdicts on each reply, an odd number; the majority counts."""
    temperature: float = 0.0
    """Temperature of the verdicts: 0 with one vote, above 0 with several."""
    max_new_tokens: int = 256
    """Length limit of a verdict with its reason, in tokens."""
    bias: int = 0
    """Number of replies that are judged twice more, once with the reply before the accepted answers and once with
    meaningless words after the reply, to measure the judge's bias."""
    prompts: str = JUDGING
    """Templates: builtin:judge.yaml, or your own file."""

    uses_judge = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.form not in (EQUIVALENCE, SUPPORT, RUBRIC):
            raise ValueError(f"form must be {EQUIVALENCE}, {SUPPORT} or {RUBRIC}, not {self.form}")
        if (self.form == RUBRIC) != bool(self.rubric):
            raise ValueError("rubric must be set with form=rubric, and only then")
        if self.cascade not in ("exact", "uncertain", "none"):
            raise ValueError(f"cascade must be exact, uncertain or none, not {self.cascade}")
        if self.votes < 1 or self.votes % 2 == 0:
            raise ValueError(f"votes must be an odd number of at least 1, not {self.votes}")
        if not (0 <= self.temperature < math.inf and (self.temperature > 0) == (self.votes > 1)):
            raise ValueError(
                "temperature must be 0 with one vote, and finite and above 0 with several, not "
                f"{self.temperature:g} with {self.votes}"
            )
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, not {self.max_new_tokens}")
        if self.bias < 0:
            raise ValueError(f"bias must be 0 or more, not {self.bias}")
        self._model: StoredModel | None = None
        self._seed = 0
        self._verdict_rows: dict[tuple[str, str, str, int], dict[str, Any]] = {}
        self._bias: dict[str, int] = {}
        self._trial_verdicts: list[bool] = []

    @property
    def judge_config(self) -> ModelConfig | None:
        judge: ModelConfig | None = self.model
        return judge

    def with_judge(self, model: StoredModel, seed: int) -> "JudgeModel":
        other = copy(self)
        other._model, other._seed, other._verdict_rows, other._bias, other._trial_verdicts = model, seed, {}, {}, []
        return other

    def unusable_aliases(self, questions: Sequence[Question]) -> Mapping[str, int]:
        """See :class:`Grader`; UserError if the judge's prompts lack a template, or a question a passage."""
        for form in [self.form, *([ABSTAINING] if self.abstention == "judge" else [])]:
            read_templates(self.prompts, "grader.prompts").of(form)
        if self.form == SUPPORT:
            for question in questions:
                if not question.choices and not question.context:
                    raise UserError(
                        f"grader.form=support cannot judge question {question.id}, which has no passage (context)"
                    )
        return super().unusable_aliases(questions)

    def right(self, replies: Sequence[FreeReply]) -> list[bool | None]:
        """Return True for each right reply; the judge gets those that the cascade leaves open, uncertain ones first."""
        compared = self._compared(replies)
        open_ = [reply for reply, right in zip(replies, compared, strict=True) if right is None]
        try:
            verdicts = self._majority_verdicts(sorted(open_, key=lambda reply: not reply.uncertain), "verdicts")
        except NotStoredError as lacking:
            if self._model is not None and self.abstention == "judge":  # each reply that is not right may abstain
                judge, may_abstain = self._judging(ABSTAINING), zip(replies, compared, strict=True)
                different = {_key(reply): reply for reply, right in may_abstain if not right}
                lacking.missing += self._model.missing([judge.request(reply) for reply in different.values()])
            raise
        if self.bias and open_:
            self._measure_bias(open_, verdicts)
        final = [
            verdicts[_key(reply)] if right is None else right for reply, right in zip(replies, compared, strict=True)
        ]
        if missing := sum(verdict is None for verdict in final):
            log.warning(
                "%d of %d replies have no verdict: they are left out of the metrics, and counted under outcomes.error",
                *(missing, len(final)),
            )
        return final

    def _compared(self, replies: Sequence[FreeReply]) -> list[bool | None]:
        """Return the verdict on each reply that needs no judge; None for the others."""
        if self.cascade == "uncertain":
            matched = Matching(accents=self.accents).right(replies)
            return [None if reply.uncertain else right for reply, right in zip(replies, matched, strict=True)]
        return [True if self.cascade == "exact" and reply.exact else None for reply in replies]

    def cached_only(self) -> "JudgeModel":
        if self._model is None:
            return self
        other = self.with_judge(self._model.cached_only(), self._seed)
        other._trial_verdicts = [True] * TRIAL_REPLIES  # all are planned together
        return other

    @property
    def judge(self) -> StoredModel | None:
        return self._model

    def expected_requests(self, question: Question, answers: int) -> list[Request]:
        """See :class:`Grader`: each reply is assumed to be as long as the longest accepted answer."""
        accepted, _ = accepted_answers(question)
        if question.choices or not accepted:
            return []
        text = max(comparable(question.answers), key=len)
        replies = [FreeReply(question, f"{text} {number}", text, accepted, [text]) for number in range(answers)]
        judges = [self, *([self._judging(ABSTAINING)] if self.abstention == "judge" else [])]
        return [judge.request(reply) for judge in judges for reply in replies]

    def abstained(self, replies: Sequence[FreeReply]) -> Sequence[bool]:
        """See :class:`Grader`; a reply without a verdict of the judge does not abstain."""
        if self.abstention != "judge":
            return super().abstained(replies)
        verdicts = self._judging(ABSTAINING)._majority_verdicts(replies, "abstentions")
        return [verdicts[_key(reply)] is True for reply in replies]

    def are_equivalent(self, pairs: Sequence[tuple[Question, str, str]]) -> list[bool | None]:
        """See :class:`Grader`: the judge gets the first answer as the reference, and the second as the reply."""
        replies = [_as_reply(*pair) for pair in pairs]
        verdicts = self._judging(EQUIVALENCE)._majority_verdicts(replies, "answers compared")
        return [verdicts[_key(reply)] for reply in replies]

    def comparison_requests(self, pairs: Sequence[tuple[Question, str, str]]) -> list[Request]:
        judge = self._judging(EQUIVALENCE)
        return [judge.request(_as_reply(*pair)) for pair in pairs]

    def _judging(self, form: str) -> "JudgeModel":
        """Return a view of the judge that compares two answers, or finds abstentions; it shares the verdicts."""
        judge = copy(self)
        judge.form, judge.rubric = form, ""
        return judge

    def description(self) -> Mapping[str, Any]:
        """Return the number of the judge's verdicts that another order and padding changed, if measured."""
        return {f"bias.{name}": number for name, number in self._bias.items()}

    def verdict_table(self) -> pa.Table:
        """Return all verdicts of the judge, new and cached (:data:`VERDICTS`)."""
        return pa.Table.from_pylist(list(self._verdict_rows.values()), VERDICTS)

    def request(self, reply: FreeReply, swap: bool = False, padding: str = "") -> Request:
        """Return the request for the judge's verdicts on one reply, identified by the reply alone."""
        text = _shortened(reply.text.strip())
        if padding:
            text = f"{text} {padding}"
        references = reply.references
        return Request(
            question_id=f"verdict {_key(reply)}",
            variant=int(swap) + 2 * bool(padding),
            prompt=verdict_prompt(reply.question, references, text, self.prompts, self.form, self.rubric, swap),
            temperatures=(self.temperature,),
            trials=self.votes,
            max_new_tokens=self.max_new_tokens,
            seed=self._seed,
            first_line=False,
        )

    def _majority_verdicts(self, replies: Sequence[FreeReply], stage: str, **variant: Any) -> dict[str, bool | None]:
        """Return the judge's majority verdict on each reply, by its key; None without a verdict, or with a tie.

        The first replies of a run are judged separately. Raises OutageError if most of them have no verdict.
        """
        if not replies:
            return {}
        if self._model is None:
            raise UserError("grader=judge works only in a run: it needs a model")
        by_key = {_key(reply): reply for reply in replies}
        log.info("%s: %s judges %d replies", stage, self._model.config.name, len(by_key))
        first = [] if variant else list(by_key.values())[: TRIAL_REPLIES - len(self._trial_verdicts)]
        verdicts = self._verdicts_on(first, stage)
        if verdicts:
            self._trial_verdicts += [verdict is not None for verdict in verdicts.values()]
            self._refuse_silence([reply for reply in first if verdicts[_key(reply)] is None])
        return verdicts | self._verdicts_on(
            [reply for key, reply in by_key.items() if key not in verdicts], stage, **variant
        )

    def _refuse_silence(self, silent: Sequence[FreeReply]) -> None:
        """Raise OutageError if the judge gave most of the first replies no verdict; ``silent`` are the last without."""
        missing, number = self._trial_verdicts.count(False), len(self._trial_verdicts)
        if number < MIN_REPLIES or 2 * missing <= number or self._model is None:
            return
        silent_rows = (self._verdict_rows.get((self.form, reply.question.id, reply.text, 0)) for reply in silent)
        text = next((row["text"] for row in silent_rows if row), "")
        raise OutageError(
            f"the judge {self._model.config.name} gave no verdict on {missing} of the first {number} replies (it wrote "
            f"{text[:80]!r}): set grader.model to a model that judges better, or raise grader.max_new_tokens"
        )

    def _verdicts_on(self, replies: Sequence[FreeReply], stage: str, **variant: Any) -> dict[str, bool | None]:
        """Ask the judge for verdicts on replies; return the majority on each, by its key."""
        if not replies or self._model is None:
            return {}
        by_key = {_key(reply): reply for reply in replies}
        requests = {f"verdict {key}": (key, self.request(reply, **variant)) for key, reply in by_key.items()}
        table = self._model.answers([request for _, request in requests.values()], stage).table
        votes: dict[str, list[bool | None]] = {key: [] for key in by_key}
        for name, trial, text, outcome in rows(table, "question_id", "trial", "text", "outcome"):
            key = requests[name][0]
            read = read_verdict(text) if outcome == "ok" else None
            votes[key].append(None if read is None else read.right)
            if not variant:
                reply = by_key[key]
                self._verdict_rows[self.form, reply.question.id, reply.text, trial] = {
                    "form": self.form,
                    "question_id": reply.question.id,
                    "reply": reply.text,
                    "vote": trial,
                    "right": None if read is None else read.right,
                    "why": None if read is None else read.why,
                    "outcome": outcome,
                    "text": text,
                }
        return {key: _majority(cast) for key, cast in votes.items()}

    def _measure_bias(self, replies: Sequence[FreeReply], verdicts: Mapping[str, bool | None]) -> None:
        """Judge some replies in another order, and padded; log the number of changed verdicts."""
        chosen = sorted({_key(reply): reply for reply in replies}.items())[: self.bias]
        some = [reply for _, reply in chosen]
        for name, variant in (("order swapped", {"swap": True}), ("padded", {"padding": PADDING})):
            other = self._majority_verdicts(some, f"verdicts, {name}", **variant)
            both = [(verdicts[key], other[key]) for key in other if None not in (verdicts[key], other[key])]
            up, down = both.count((False, True)), both.count((True, False))
            log.warning(
                "bias of the judge, %s: of %d verdicts, %d changed to right and %d to wrong", name, len(both), up, down
            )
            counts = {"verdicts": len(both), "become_right": up, "become_wrong": down}
            for count, number in counts.items():
                key = f"{name.replace(' ', '_')}.{count}"
                self._bias[key] = self._bias.get(key, 0) + number


def _key(reply: FreeReply) -> str:
    """Return the key of a reply that is judged, the same in every run."""
    identity = "\0".join((reply.question.id, reply.text))
    return hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _as_reply(question: Question, one: str, other: str) -> FreeReply:
    """Return the second of two answers as a reply to judge, with the first as its reference."""
    compared = replace(question, id=json.dumps([question.id, one]), answers=(one,))
    return FreeReply(compared, other, normalize(other), (normalize(one),), [normalize(other)])


def _majority(votes: Sequence[bool | None]) -> bool | None:
    """Return the majority of the judge's readable votes; None if there is none, or a tie."""
    right, wrong = votes.count(True), votes.count(False)
    return None if right == wrong else right > wrong


def _shortened(text: str) -> str:
    if len(text) <= MAX_CHARACTERS:
        return text
    half = MAX_CHARACTERS // 2
    return f"{text[:half]} […] {text[-half:]}"
