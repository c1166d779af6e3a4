"""What inspect_ai finds of this package under ``robust_eval/…`` (the entry point in pyproject.toml)."""

from robust_eval.inspect_tasks import metrics, reducers
from robust_eval.inspect_tasks.scoring import asked, graded
from robust_eval.inspect_tasks.tasks import certainty, frs, multiqa

__all__ = ["asked", "certainty", "frs", "graded", "metrics", "multiqa", "reducers"]
