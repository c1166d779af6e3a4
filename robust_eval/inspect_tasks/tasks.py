"""Tasks for ``inspect eval``: FRS, answer certainty and MultiQ&A on any provider that inspect_ai has."""

from collections.abc import Sequence

from inspect_ai import Epochs, Task, task
from inspect_ai.scorer import Scorer

from robust_eval.answer import DEFAULT_TEMPERATURE
from robust_eval.error import UserError
from robust_eval.inspect_tasks import metrics
from robust_eval.inspect_tasks.early_stopping import SettledEarly
from robust_eval.inspect_tasks.marked_samples import Data, marked_samples
from robust_eval.inspect_tasks.scoring import asked, graded
from robust_eval.prompt.templates import FEW_SHOT

GRID = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0)
"""The paper's temperatures; of providers that take none above 1, name those that they take."""


@task
def frs(
    dataset: Data = "facts",
    limit: int | None = None,
    temperatures: Sequence[float] | float = GRID,
    trials: int = 10,
    d: float = 1.0,
    k: int = 10,
    threshold: float = 0.5,
    settle: bool = False,
    prompts: str = FEW_SHOT,
    scorer: Scorer | None = None,
) -> Task:
    """Return the task of the Factual Robustness Score: a greedy answer to each question, and trials over a grid.

    Parameters
    ----------
    dataset
        One of ours by its name, the path of a file, or samples of inspect_ai, which are asked as they are.
    limit
        Questions at most.
    temperatures, trials
        The grid, all above 0, and the answers at each temperature.
    d, k, threshold
        Weight of the entropy, tokens that enter it, and the accuracy below which a fact breaks.
    settle
        Whether trials end as soon as breaking temperatures are settled
        (:class:`~robust_eval.inspect_tasks.early_stopping.SettledEarly`).
    prompts
        Templates for questions of ours.
    scorer
        What says whether a reply is right; by default our grader.
    """
    levels = _levels(temperatures)
    if len(levels) < 2 or min(levels) <= 0:
        raise UserError(f"temperatures must be two or more, all above 0, not {temperatures}")
    return Task(
        dataset=marked_samples(
            dataset, limit, [(0, 0.0), *((0, t) for t in levels)], prompts, threshold if settle else None
        ),
        solver=asked(top_logprobs=k),
        scorer=graded(scorer),
        metrics=[
            metrics.frs(d, k, threshold),
            metrics.breaking_temperature(threshold),
            metrics.firmness(threshold),
        ],
        epochs=Epochs(trials),
        early_stopping=SettledEarly(threshold, settle),
    )


@task
def certainty(
    dataset: Data = "facts",
    limit: int | None = None,
    temperature: float | None = None,
    trials: int = 20,
    prompts: str = FEW_SHOT,
    scorer: Scorer | None = None,
) -> Task:
    """Return the task of answer certainty: each question again and again, at one temperature or the model's own.

    The other parameters are those of :func:`frs`.
    """
    at = DEFAULT_TEMPERATURE if temperature is None else float(temperature)
    if at <= 0:
        raise UserError(f"temperature must be above 0, not {temperature}")
    return Task(
        dataset=marked_samples(dataset, limit, [(0, at)], prompts),
        solver=asked(),
        scorer=graded(scorer),
        metrics=[metrics.answer_entropy()],
        epochs=Epochs(trials),
    )


@task
def multiqa(
    dataset: Data = "facts",
    limit: int | None = None,
    rewrites: int = 5,
    temperature: float = 1.0,
    prompts: str = FEW_SHOT,
    scorer: Scorer | None = None,
) -> Task:
    """Return the task of MultiQ&A: each question and its rewrites, of which there are ``rewrites`` at most, once.

    Questions without rewrites are left out; samples of inspect_ai have them in their metadata, under ``rewrites``. The
    other parameters are those of :func:`certainty`.
    """
    if rewrites < 1:
        raise UserError(f"rewrites must be 1 or more, not {rewrites}")
    samples = marked_samples(dataset, limit, [(number, float(temperature)) for number in range(rewrites + 1)], prompts)
    return Task(dataset=samples, solver=asked(), scorer=graded(scorer), metrics=[metrics.agreement()])


def _levels(temperatures: Sequence[float] | float) -> list[float]:
    """Return the temperatures as numbers, ascending; ``-T temperatures=0.5,1`` gives texts."""
    given = [temperatures] if isinstance(temperatures, int | float) else list(temperatures)
    try:
        return sorted({float(t) for t in given})
    except (TypeError, ValueError) as problem:
        raise UserError(f"temperatures must be numbers, not {temperatures}") from problem
