"""How often a judge may be asked whether answers mean the same, told before anything is asked."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pyarrow as pa

from robust_eval.aggregator.base import Aggregator
from robust_eval.config.config import Config
from robust_eval.experiment.grade import compared_by
from robust_eval.grader.judge import Judge
from robust_eval.grader.matching import Matching
from robust_eval.metric.answer_sources import sources
from robust_eval.model.base import Request
from robust_eval.question import Question
from robust_eval.sampler.base import Conditions


def asking_judge(config: Config, conditions: Mapping[str, Conditions]) -> dict[str, Aggregator]:
    """Return the aggregator that asks the judge, by the samplers whose answers it compares."""
    if not config.aggregator.uses_judge:
        return {}
    return compared_by(config, sources(config.metric, conditions))


def most_compared(
    aggregator: Aggregator,
    judge: Judge,
    questions: Sequence[Question],
    requests: Sequence[Request],
    answers: pa.Table | None,
) -> list[tuple[Request, int]]:
    """Return what a closed ``judge`` may be asked of ``answers``, as Aggregator.max_comparisons does.

    Where the answers to these ``requests`` are not there (None), each is taken to be another one.
    """
    by_form = Judge(judge.reader, Matching(), judge.first_line)  # every grader has the same labels
    labelled = _all_different(questions, requests) if answers is None else by_form.grade(questions, answers)
    return aggregator.with_judge(judge.grader).max_comparisons(questions, labelled)


def _all_different(questions: Sequence[Question], requests: Sequence[Request]) -> pa.Table:
    """Return labelled answers to free-text questions, each as long as the longest accepted answer."""
    longest = {each.id: max(each.answers, key=len) for each in questions if each.answers and not each.choices}
    numbers: Counter[str] = Counter()
    for request in requests:
        numbers[request.question_id] += request.answers
    found = [
        (question_id, f"{text} {number}")
        for question_id, text in longest.items()
        for number in range(numbers[question_id])
    ]
    ids, texts = [each[0] for each in found], [each[1] for each in found]
    return pa.table({"question_id": ids, "label": texts, "text": texts, "answer": texts})
