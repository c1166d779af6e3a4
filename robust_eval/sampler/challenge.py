"""Challenge sampler: multi-turn pushback on each answer (docs/challenge.md)."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from robust_eval.answer import NO_REPLY, SCHEMA, Answers, rows, with_columns
from robust_eval.error import UserError
from robust_eval.model.base import Request
from robust_eval.prompt.prompt import Prompt, prompt_for
from robust_eval.prompt.pushback import Pushback, PushbackWriter, shown_choice
from robust_eval.prompt.templates import CHALLENGES, CHALLENGING, read_templates
from robust_eval.question import LETTERS, Question
from robust_eval.reader.reasoning import without_reasoning
from robust_eval.sampler.base import CHALLENGED, STEP, TURN, NothingKeptError, PrefixGrader, ordered_answers
from robust_eval.sampler.known_facts import KnownFacts
from robust_eval.sampler.steps import Step, Steps

MAX_TURNS = STEP - CHALLENGED - 1
_NO_WORDS = "(no answer)"
"""Text for an empty reply in a conversation: servers refuse empty messages."""


@dataclass
class Challenge(KnownFacts):
    """Challenge: turn 0 is the greedy answer, the same in all conversations about a question. At each further turn the
    user pushes back, and the model answers again.

    Questions with a wrong answer at turn 0 are included, because pushback may correct them; ``selection=contains``
    leaves them out. Questions without a reply at turn 0 are always left out.
    """

    temperatures: list[float] = field(default_factory=lambda: [0.3])
    """Temperatures of the answers after turn 0, all above 0; each has its own conversations. At a high temperature,
    facts break even without pushback."""
    max_new_tokens: int = 64
    selection: str = "none"
    turns: int = 5
    """Number of pushbacks in a conversation."""
    trials: int = 10
    """Number of conversations about each question at each temperature."""
    pushbacks: list[str] = field(default_factory=lambda: ["doubt", "alternative", "authority", "denial"])
    """Kinds of pushback, in random order; a conversation uses all of them before it repeats one: doubt ("Are you
    sure?"), alternative (the user proposes a wrong answer), authority (an expert or a book gives the wrong answer),
    denial (the user calls the answer wrong); or your own kinds."""
    challenges: str = CHALLENGING
    """The user's pushback sentences: builtin:challenge.yaml, or your own file in the same format."""

    axis = TURN

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.turns <= MAX_TURNS:
            raise ValueError(f"turns must be between 1 and {MAX_TURNS}, not {self.turns}")
        if self.trials < 1:
            raise ValueError(f"trials must be at least 1, not {self.trials}")
        if not self.pushbacks:
            raise ValueError("pushbacks must name at least one kind")

    @property
    def repetitions(self) -> float:
        return self.turns * self.trials

    @property
    def selects_by_baseline(self) -> bool:
        """True: the greedy answer is challenged."""
        return True

    def select(self, questions: Sequence[Question], baseline: pa.Table, seed: int) -> list[Question]:
        """Return the questions to challenge: those that :class:`KnownFacts` selects and that have a reply at turn 0."""
        replies = baseline.filter(pc.invert(pc.is_in(baseline["outcome"], pa.array(NO_REPLY))))
        if not replies.num_rows:
            raise NothingKeptError("none of the questions was answered: there is nothing to challenge")
        return super().select(questions, replies, seed)

    def requests(self, questions: Sequence[Question], grader: PrefixGrader, seed: int) -> list[Request]:
        """Return the requests for all turns of the challenge, as if every answer were right: the maximum that may be
        sent.
        """
        writer = self._pushback_writer(questions, seed)
        planned = []
        for question in questions:
            right_answer = _right(question)
            for conversation in range(self.trials):
                prompt = prompt_for(question, prompts=self.prompts)
                for turn in range(1, self.turns + 1):
                    challenge = writer.challenge(question, right_answer, conversation, turn)
                    if challenge is None:
                        break
                    prompt = prompt.continued(right_answer, challenge.words)
                    planned.append(self._request(question, conversation, challenge, prompt, grader, seed))
        return planned

    def steps(self, questions: Sequence[Question], baseline: pa.Table | None, grader: PrefixGrader, seed: int) -> Steps:
        """Return the steps of the challenge: turn by turn, at one temperature after the other."""
        if baseline is None:
            return super().steps(questions, baseline, grader, seed)
        return self._turns(questions, baseline, grader, seed)

    def _turns(self, questions: Sequence[Question], baseline: pa.Table, grader: PrefixGrader, seed: int) -> Steps:
        """Request each turn of the challenge; return its answers by question, turn, temperature and conversation."""

        def may_follow(turn: int, temperature: float, missing: list[Request]) -> list[Request]:
            later = [each for each in self.requests(questions, grader, seed) if turn_of(each) > turn]
            return [*missing, *(replace(each, temperatures=(temperature,)) for each in later)]

        writer, first = self._pushback_writer(questions, seed), _first_replies(questions, baseline)
        by_id = {question.id: question for question in questions if question.id in first}
        tables, is_stored = [SCHEMA.empty_table()], True
        for temperature in self.temperatures:
            # the last prompt of each conversation, and the reply to it
            conversations = {
                (name, conversation): (prompt_for(question, prompts=self.prompts), first[name][0])
                for name, question in by_id.items()
                for conversation in range(self.trials)
            }
            for turn in range(1, self.turns + 1):
                requests = {}
                for (name, conversation), (prompt, text) in conversations.items():
                    challenge = writer.challenge(by_id[name], first[name][1], conversation, turn)
                    if challenge is not None:
                        continued = prompt.continued(_words(text), challenge.words)
                        request = self._request(by_id[name], conversation, challenge, continued, grader, seed)
                        requests[name, conversation] = replace(request, temperatures=(temperature,))
                if not requests:
                    break
                step = Step(
                    [*requests.values()], f"turn {turn} of {self.turns}", partial(may_follow, turn, temperature)
                )
                reply = yield step
                if reply is None:
                    is_stored = False
                    break
                tables.append(turns_of(reply.table, self.trials))
                conversations = {
                    (name, conversation): (requests[name, conversation].prompt, text)
                    for name, conversation, text, outcome in rows(tables[-1], "question_id", "trial", "text", "outcome")
                    if outcome not in NO_REPLY  # a missing reply ends its conversation
                }
        answers = ordered_answers(questions, pa.concat_tables(tables))
        if is_stored and not answers.num_rows:
            raise UserError(
                "sampler.challenge.challenges has no sentence that fits the answers in this data set: add one"
            )
        return Answers(answers)

    def _request(
        self,
        question: Question,
        conversation: int,
        challenge: Pushback,
        prompt: Prompt,
        grader: PrefixGrader,
        seed: int,
    ) -> Request:
        """Return the request for the answer to the last pushback of a conversation."""
        number = CHALLENGED + challenge.turn + STEP * conversation
        return replace(self.request(question, grader, seed), variant=number, prompt=prompt, form=challenge.tag)

    def _pushback_writer(self, questions: Sequence[Question], seed: int) -> PushbackWriter:
        sentences = read_templates(self.challenges, "sampler.challenges").challenges
        if missing := [kind for kind in self.pushbacks if kind not in sentences]:
            names = ", ".join(sentences) or f"none: {CHALLENGES} is missing"
            raise UserError(f"sampler.challenge.pushbacks: {self.challenges} has no {missing[0]}; it has {names}")
        return PushbackWriter({kind: sentences[kind] for kind in self.pushbacks}, questions, seed)


def _first_replies(questions: Sequence[Question], baseline: pa.Table) -> dict[str, tuple[str, str | None]]:
    """Return by question its reply at turn 0, unless it is missing, and the answer as a pushback quotes it: a choice
    with its letter.
    """
    choices = {question.id: question for question in questions if question.choices}
    replies = {}
    for name, text, answer, label, outcome in rows(baseline, "question_id", "text", "answer", "label", "outcome"):
        quoted = answer or None
        if name in choices:
            is_letter = bool(label) and label in LETTERS[: len(choices[name].choices)]
            quoted = shown_choice(choices[name], LETTERS.index(label)) if is_letter else None
        if outcome not in NO_REPLY:
            replies[name] = text, quoted
    return replies


def turn_of(request: Request) -> int:
    """Return the turn of its conversation to which a request of the challenge sampler belongs."""
    return request.variant % STEP - CHALLENGED


def turns_of(answers: pa.Table, conversations: int) -> pa.Table:
    """Return the answers in conversations with pushback as rows of the answer table: the trial is the conversation, and
    the rewrite depends on the turn alone.
    """
    numbers = answers["rewrite"].to_numpy()
    columns = {
        "rewrite": numbers % STEP,
        "trial": numbers // STEP,
        "weight": np.full(len(numbers), 1 / conversations),
    }
    return with_columns(answers, columns)


def _words(reply: str) -> str:
    """Return a reply as the conversation repeats it: without its reasoning."""
    return without_reasoning(reply) or _NO_WORDS


def _right(question: Question) -> str:
    """Return a right answer to a question, for the plan of its challenge; a placeholder without one."""
    if question.choices:
        return shown_choice(question, question.correct or 0)
    return next(iter(question.answers), _NO_WORDS)
