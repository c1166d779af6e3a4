"""Questions by the name of their data set, for tasks of other harnesses."""

from robust_eval.config.overrides import as_override, composed_run
from robust_eval.config.schema import register
from robust_eval.question import Question


def named_questions(dataset: str, limit: int | None = None) -> tuple[str, list[Question]]:
    """Return the name of a data set and its questions, ``limit`` at most.

    ``dataset`` is what a run of ours takes: the name of one of ours, or the path of a file. UserError where it cannot
    be read.
    """
    register()
    lines = [as_override("dataset", dataset), *([] if limit is None else [as_override("dataset.limit", limit)])]
    config, _ = composed_run(lines)
    return config.dataset.name, list(config.dataset.load())
