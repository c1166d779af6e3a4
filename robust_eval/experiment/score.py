"""The scores of a run: those of its metrics, the profile of each fact, and the accuracy of the greedy answers."""

import logging
from collections.abc import Mapping

import pyarrow as pa

from robust_eval.answer import GREEDY, EarlyStopping
from robust_eval.config.config import Config
from robust_eval.experiment.answered import Answered
from robust_eval.experiment.corrected import Scored
from robust_eval.metric.greedy import greedy_accuracy
from robust_eval.metric.label_correction import NAME as CORRECTED
from robust_eval.metric.profile import METHODS, OTHERS, profile
from robust_eval.metric.score import Measured, Score
from robust_eval.sampler.base import Conditions

log = logging.getLogger(__name__)


def score(
    config: Config,
    answered: Answered,
    read: Mapping[str, str],
    conditions: Mapping[str, Conditions],
    undecided: Mapping[str, EarlyStopping],
    labels: pa.Table | None = None,
) -> dict[str, Score]:
    """Score what was ``answered`` with each metric.

    ``undecided`` holds those samplers that asked no more than breaking temperatures need. ``read`` names the sampler
    whose answers a metric reads; one that asked nothing, because no question has choices, has none. The greedy accuracy
    is that of all questions; the metrics score those that were kept, and nothing where none was. With ``labels`` of
    people there is one more score, of the figures that these correct.
    """
    kept, baseline = answered.kept, answered.baseline

    def measured(sampler: str) -> Measured:
        sampled, graded = answered.answers[sampler], answered.graded[sampler]
        return Measured(baseline, graded, sampled.curves, conditions[sampler].estimator, undecided.get(sampler))

    read = {name: sampler for name, sampler in read.items() if kept and sampler in answered.answers}
    scores = {name: config.metric[name].score(kept, measured(sampler), config.seed) for name, sampler in read.items()}
    if len({read[metric] for metric in METHODS if metric in read}) == len(METHODS):  # each has answers of its own
        scores = {"profile": profile(kept, scores, config.seed), **scores}
        joined = [name for name in (*METHODS, *OTHERS) if name in read]
        if len(joined) < len(METHODS) + len(OTHERS):
            log.info("the profile is of %d methods: %s", len(joined), ", ".join(joined))
    elif read.keys() >= {*METHODS} and len(answered.graded) > 1:
        log.info("no profile: %s", ", ".join(f"metric={metric} reads {part}" for metric, part in read.items()))
    if baseline.num_rows:  # recorded answers need not have any
        scores[GREEDY] = greedy_accuracy(answered.questions, baseline)
    if labels is not None and kept:
        graded = {GREEDY: baseline, **answered.graded}
        figures = {name: estimate for each in scores.values() for name, estimate in each.figures().items()}
        scored = Scored(config.metric, answered.questions, kept, graded, read, undecided, figures, config.seed)
        if (found := scored.corrected(labels)) is not None:
            scores[CORRECTED] = found
    return scores
