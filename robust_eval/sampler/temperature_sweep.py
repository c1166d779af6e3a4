"""Temperature sweep: independent trials of each known fact at every temperature of a grid.

Fastowski, Prenkaj, Kasneci, "From Confidence to Collapse in LLM Factual Robustness", §3 (docs/methods.md, §1).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from robust_eval.answer import SCHEMA, Answers
from robust_eval.error import UserError
from robust_eval.model.base import Request, TrialKey
from robust_eval.question import Question
from robust_eval.sampler.base import PrefixGrader, prefix_grader_settings
from robust_eval.sampler.known_facts import KnownFacts
from robust_eval.sampler.steps import NOTHING, Step, Steps
from robust_eval.stats.frs import settled
from robust_eval.store.keys_and_rows import rows_at

VerdictRule = Callable[[int, int, int], str | None]
"""Verdict by numbers of right, wrong and outstanding answers (:func:`robust_eval.stats.frs.settled`)."""


@dataclass
class TemperatureSweep(KnownFacts):
    """Temperature sweep: sampling of the Factual Robustness Score."""

    trials: int = 10
    """Number of independent answers at each temperature."""
    stop_on_match: bool = False
    """End an answer as soon as it contains an accepted answer and the boundary of its last word; saves time if only
    correctness matters. Answers to multiple choice are not shortened."""
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

    def early_stopping_steps(
        self, questions: Sequence[Question], grader: PrefixGrader, seed: int, threshold: float
    ) -> list[Steps]:
        rule = cache(partial(settled, threshold=threshold))
        return [wave_steps(request, rule) for request in self.requests(questions, grader, seed)]


def wave_steps(request: Request, rule: VerdictRule) -> Steps:
    """Sweep in waves: request no more than the breaking temperature needs; return the answers on which it rests."""
    verdicts: Mapping[TrialKey, bool | None] = {}
    table = SCHEMA.empty_table()
    while (wave := next_wave(verdicts, request.temperatures, request.trials, rule))[1]:
        missing_answers = wave[1]
        (temperature, first), (_, last) = missing_answers[0], missing_answers[-1]
        cached = frozenset((temperature, trial) for trial in range(first, last)) - set(missing_answers)
        part = replace(request, temperatures=(temperature,), first_trial=first, trials=last + 1 - first, cached=cached)
        passed = {(t, trial) for t in request.temperatures if t < temperature for trial in range(request.trials)}
        left = replace(request, cached=frozenset(passed | verdicts.keys()))
        reply = yield Step([part], may_follow=lambda missing, left=left: [left], adaptive=request)  # type: ignore[misc]
        if reply is None:
            return NOTHING
        verdicts, table = reply.verdicts, reply.answers.table
    return Answers(rows_at(table, wave[0], request))


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
