"""Measure how robust a language model's knowledge is.

``robust_eval.run`` measures a model, ``load`` reads a run, ``compare`` compares runs, ``score`` scores your answers,
``grade_reply`` grades one reply (docs/python.md). The other names are for extensions (docs/extend.md). Names are
imported on first use, because some imports take seconds.
"""

import os
from importlib import import_module
from typing import Any

# OpenMP reads this when torch is imported. Waiting threads that spin occupy processors: on a busy machine a run with
# sleeping threads takes 0.6 of the time (docs/development/benchmarks.md).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.1.0"

_HOMES = {
    "api": ("ComparedRuns", "Evaluation", "LoadedAnswers", "compare", "load", "load_answers", "run", "score"),
    "cli.main": ("main",),
    "dataset.selection": ("Questions", "Selection"),
    "error": ("UserError",),
    "grader.base": ("FreeReply", "Grader"),
    "grader.graded_reply": ("GradedReply", "grade_reply"),
    "metric.metric_spec": ("DETAIL", "HEADLINE", "ComparisonView", "MetricSpec"),
    "stats.interval": ("SHARE",),
    "metric.score": ("Measured", "Metric", "Score", "grid", "question_groups"),
    "model.base": ("Completion", "Item", "LanguageModel", "Reply", "Request"),
    "model.model_config": ("ModelConfig",),
    "model.function_model": ("FunctionModel",),
    "question": ("QUESTION_TYPES", "Question"),
    "runtime.registry": ("register",),
    "sampler.base": ("PrefixGrader", "Sampler"),
    "sampler.repetition": ("Repetition",),
}
"""Module of each public name; ``__init__.pyi`` has the same for type checkers."""
_MODULES = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted([*_MODULES, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
