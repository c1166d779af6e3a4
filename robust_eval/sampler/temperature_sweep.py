"""Temperature sweep: independent trials of each known fact at every temperature of a grid.

Fastowski, Prenkaj, Kasneci, "From Confidence to Collapse in LLM Factual Robustness", §3 (docs/methods.md, §1).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import pyarrow as pa

from robust_eval.answer import SCHEMA, Answers, rows
from robust_eval.error import UserError
from robust_eval.model.base import Item, Request, TrialKey
from robust_eval.question import Question
from robust_eval.sampler.base import PrefixGrader, prefix_grader_settings
from robust_eval.sampler.known_facts import KnownFacts
from robust_eval.sampler.steps import VerdictsOf
from robust_eval.stats.frs import settled
from robust_eval.store.keys_and_rows import Tables, rows_at

VerdictRule = Callable[[int, int, int], str | None]
"""Verdict by numbers of right, wrong and outstanding answers (:func:`robust_eval.stats.frs.settled`)."""


@dataclass
class TemperatureSweep(KnownFacts):
    """Temperature sweep: sampling of the Factual Robustness Score."""

    trials: int = 10
    """Number of independent answers at each temperature."""
    stop_on_match: bool = False
    """End an answer as soon as it contains an accepted answer and the boundary of its last word; saves time if only
    correctness matters. Answers to multiple-choice questions are not shortened."""
    early_stop: bool = False
    """Sample temperatures from the lowest, each only until it is certain whether the fact breaks there. The breaking
    temperatures and FRS are the same with about a third of the answers, but the accuracy at each temperature is not
    measured. The paper samples all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trials < 1:
            raise ValueError(f"trials must be at least 1, not {self.trials}")

    @property
    def repetitions(self) -> float:
        return self.trials

    def requests(self, questions: Sequence[Question], grader: PrefixGrader, seed: int) -> list[Request]:
        """Return a request for ``trials`` answers to each known fact at every temperature of the sweep; UserError if
        ``stop_on_match`` can end none of those in free text.
        """
        requests = [self.request(question, grader, seed, self.trials) for question in questions]
        if not self.stop_on_match:
            return requests
        matchers = [grader.matcher(question) for question in questions]
        if not any(matchers) and any(question.answers and not question.choices for question in questions):
            raise UserError(f"sampler.stop_on_match=true needs {prefix_grader_settings(grader)}: remove it")
        return [
            replace(each, matcher=matcher, stop_on_match=True) for each, matcher in zip(requests, matchers, strict=True)
        ]

    def full_sampling_reasons(self) -> list[str]:
        return ["sampler.stop_on_match=true ends answers where they are right"] if self.stop_on_match else []

    def early_stopping_answers(
        self, questions: Sequence[Question], grader: PrefixGrader, seed: int, threshold: float, verdicts: VerdictsOf
    ) -> "Waves":
        rule = cache(partial(settled, threshold=threshold))
        return Waves(self.requests(questions, grader, seed), rule, verdicts)


class Waves:
    """Concurrent sweeps in waves (:class:`~robust_eval.store.stored_model.AdaptiveAnswers`).

    Each sweep requests only the answers that its breaking temperature needs, and sends its next wave as soon as the
    last one is answered.
    """

    def __init__(self, requests: Sequence[Request], rule: VerdictRule, verdicts_of: VerdictsOf) -> None:
        self.requests = requests
        self.tables: dict[Item, pa.Table] = {}
        self.finished = 0
        """Number of finished requests."""
        self._rule, self._verdicts_of = rule, verdicts_of
        self._due = {request.item: request for request in requests}
        self._verdicts: dict[Item, dict[TrialKey, bool | None]] = {item: {} for item in self._due}
        self._awaited: dict[Item, set[TrialKey]] = {item: set() for item in self._due}
        self._ready: dict[Item, None] = dict.fromkeys(self._due)
        self._answers = Tables[Item](SCHEMA)

    def take(self, answers: pa.Table) -> None:
        """Add the verdicts on new or stored answers, whose rows are already in ``tables``."""
        columns = rows(answers, "question_id", "rewrite", "temperature", "trial")
        for (question_id, rewrite, temperature, trial), right in zip(columns, self._verdicts_of(answers), strict=True):
            item = question_id, rewrite
            self._verdicts[item][temperature, trial] = right
            self._awaited[item].discard((temperature, trial))
            self._ready[item] = None

    def next(self) -> list[Request]:
        """Return the next wave of each sweep whose previous wave has been answered since the last call."""
        requests = []
        for item in [item for item in self._ready if not self._awaited[item]]:
            del self._ready[item]
            request, (used, wave) = self._due[item], self._wave(item)
            if not wave:
                self._answers[item] = rows_at(self.tables.pop(item), used, request)
                del self._due[item], self._verdicts[item], self._awaited[item]
                self.finished += 1
                continue
            (temperature, first), (_, last) = wave[0], wave[-1]
            cached = frozenset((temperature, trial) for trial in range(first, last)) - set(wave)
            trials = last + 1 - first
            requests.append(
                replace(request, temperatures=(temperature,), first_trial=first, trials=trials, cached=cached)
            )
            self._awaited[item].update(wave)
        return requests

    def may_follow(self) -> list[Request]:
        """Return all requests that the sweeps may still send: those from the temperature of their wave on."""
        left = []
        for item, request in self._due.items():
            (temperature, _), *_ = self._wave(item)[1]
            passed = {(t, trial) for t in request.temperatures if t < temperature for trial in range(request.trials)}
            left.append(replace(request, cached=frozenset(passed | self._verdicts[item].keys())))
        return left

    def answers(self) -> Answers:
        """Return the answers of all sweeps, once they are finished."""
        return Answers(self._answers.together([request.item for request in self.requests]))

    def _wave(self, item: Item) -> tuple[list[TrialKey], list[TrialKey]]:
        request = self._due[item]
        return next_wave(self._verdicts[item], request.temperatures, request.trials, self._rule)


def next_wave(
    verdicts: Mapping[TrialKey, bool | None], temperatures: Sequence[float], trials: int, rule: VerdictRule
) -> tuple[list[TrialKey], list[TrialKey]]:
    """Return the answers that decide the breaking temperature so far, and the sweep's next wave of requests.

    Temperatures (ascending) are sampled from below, and the trials of each in their order: always the smallest number
    that could decide it, if all were right or all wrong. Sampling ends once a temperature breaks or has no reply, or
    all hold. Further answers in ``verdicts`` do not count.

    Examples
    --------
    >>> from robust_eval.stats.frs import settled
    >>> next_wave({}, [0.2, 0.4], 10, settled)[1]
    [(0.2, 0), (0.2, 1), (0.2, 2), (0.2, 3), (0.2, 4)]
    >>> next_wave({(0.2, trial): trial > 0 for trial in range(5)}, [0.2, 0.4], 10, settled)[1]
    [(0.2, 5)]
    """
    used: list[TrialKey] = []
    for temperature in temperatures:
        drawn_trials = right = wrong = 0
        while (verdict := rule(right, wrong, trials - drawn_trials)) is None:
            number = _min_trials(right, wrong, trials - drawn_trials, rule)
            wave = [(temperature, trial) for trial in range(drawn_trials, drawn_trials + number)]
            if missing_answers := [condition for condition in wave if condition not in verdicts]:
                return used, missing_answers
            outcomes = [verdicts[condition] for condition in wave]
            right, wrong = right + outcomes.count(True), wrong + outcomes.count(False)
            drawn_trials += number
            used += wave
        if verdict != "holds":
            break
    return used, []


def _min_trials(right: int, wrong: int, outstanding: int, rule: VerdictRule) -> int:
    """Return the minimum number of outstanding trials at a temperature that can decide it, all right or all wrong."""
    return next(
        number
        for number in range(1, outstanding + 1)
        if rule(right + number, wrong, outstanding - number) or rule(right, wrong + number, outstanding - number)
    )
