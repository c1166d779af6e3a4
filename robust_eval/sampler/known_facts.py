"""Known facts: questions that a model answers right with greedy decoding.

Fastowski, Prenkaj, Kasneci, "From Confidence to Collapse in LLM Factual Robustness", §3 (docs/methods.md, §1).
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from robust_eval.answer import rows
from robust_eval.prompt.templates import FEW_SHOT
from robust_eval.question import Question
from robust_eval.runtime.text import enumerated
from robust_eval.sampler.base import NothingKeptError, Sampler, checked_temperatures

log = logging.getLogger(__name__)

SELECTIONS = ("exact_match", "contains", "none")
GRID = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0)
"""Temperatures of the paper; a provider may not support those above 1."""


@dataclass
class KnownFacts(Sampler):
    """Base of samplers that ask known facts again at rising temperature: the grid and the selection."""

    temperatures: list[float] = field(default_factory=lambda: list(GRID))
    """Grid of temperatures, all above 0."""
    max_new_tokens: int = 5
    """Length limit of an answer, in tokens."""
    selection: str = "exact_match"
    """Selection of questions. exact_match: the greedy answer equals an accepted answer; contains: the grader
    finds it right; none: all questions are kept (those answered incorrectly have no FRS)."""
    max_questions: int = 1000
    """Maximum number of selected questions, in seeded order."""
    min_confidence: float = 0.0
    """Minimum mean token probability of the greedy answer to a selected question."""
    prompts: str = FEW_SHOT
    """Templates and exemplars: builtin:few_shot.yaml, builtin:zero_shot.yaml, or your own file."""
    structured: bool = False
    """Restrict the replies of a server to the letters of the choices, unlike the papers."""

    axis = "temperature"

    def __post_init__(self) -> None:
        self.temperatures = checked_temperatures(self.temperatures)
        for name in ("max_new_tokens", "max_questions"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.selection not in SELECTIONS:
            raise ValueError(f"selection must be {enumerated(SELECTIONS)}, not {self.selection}")
        if not 0 <= self.min_confidence <= 1:
            raise ValueError(f"min_confidence must be between 0 and 1, not {self.min_confidence}")

    def candidates(self, questions: Sequence[Question]) -> list[Question]:
        """Return the questions with a right answer, or all with ``selection=none``; NothingKeptError without any."""
        if self.selection == "none":
            return list(questions)
        chosen = [question for question in questions if question.answers or question.correct is not None]
        if not chosen:
            raise NothingKeptError(
                f"none of the questions has an accepted answer, which selection={self.selection} "
                "needs; sampler.selection=none selects all"
            )
        return chosen

    def select(self, questions: Sequence[Question], baseline: pa.Table, seed: int) -> list[Question]:
        """Return the known facts, in their order: questions whose greedy answer passes ``selection`` and
        ``min_confidence``; without a selection, all questions, also if ``baseline`` is empty.

        Of more than ``max_questions``, a seeded sample is taken.
        """
        if not self.selects_by_baseline:
            return self.seeded_sample(list(questions), seed)
        texts = {question.id: question.text for question in questions}
        known_ids: set[str] = set()
        wrong: list[tuple[str, str]] = []
        longer = 0
        columns = ["question_id", "text", "exact", "correct", "token_logprobs", "answer_tokens"]
        for question_id, text, exact, correct, logprobs, length in rows(baseline, *columns):
            if question_id not in texts:
                continue
            right = {"exact_match": exact, "contains": correct, "none": True}[self.selection]
            confidence = float(np.exp(logprobs[:length]).mean()) if logprobs and length else 0.0
            if right and confidence >= self.min_confidence:
                known_ids.add(question_id)
            elif not right:
                wrong.append((question_id, text))
                longer += bool(correct)
        if not known_ids:
            cases = "; ".join(f"{texts[question_id]!r} → {text!r}" for question_id, text in wrong[:3])
            reason = (
                f"for example {cases}"
                if wrong
                else f"all have a confidence below min_confidence={self.min_confidence:g}"
            )
            wider = "contains" if self.selection == "exact_match" else "none"
            advice = f"a larger model, easier questions, or sampler.selection={wider}"
            raise NothingKeptError(
                f"none of the questions passes sampler.selection={self.selection}: {reason}; "
                f"try {advice if wrong else 'a lower sampler.min_confidence'}"
            )
        if longer >= len(known_ids) > 0:
            log.warning(
                "%d right %s more than an accepted answer; sampler.selection=%s keeps only the other %d. "
                "For a model that answers in sentences, set sampler.selection=contains, which keeps all",
                *(longer, "answer contains" if longer == 1 else "answers contain", self.selection, len(known_ids)),
            )
        return self.seeded_sample([question for question in questions if question.id in known_ids], seed)

    def seeded_sample(self, chosen: list[Question], seed: int) -> list[Question]:
        """Return a seeded sample of at most ``max_questions`` known facts, in their order."""
        if len(chosen) > self.max_questions:
            indices = np.random.default_rng(seed).permutation(len(chosen))[: self.max_questions]
            chosen = [chosen[index] for index in sorted(indices)]
        return chosen

    @property
    def selects_by_baseline(self) -> bool:
        """True if a greedy answer can show that a question is no known fact."""
        return self.selection != "none" or self.min_confidence > 0
