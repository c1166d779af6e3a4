"""Marks the slow tests of this folder, which ``make test-fast`` leaves out."""

from functools import cache
from pathlib import Path

import pytest

UNIT = Path(__file__).parent
SLOW = (
    *("benchmarks", "cli/test_completion.py", "cli/test_graders.py", "cli/test_help.py", "config"),
    *(
        "dataset/test_fuzzed.py",
        "dataset/test_published.py",
        "engine/test_thread_count.py",
        "grader/test_answer_matcher.py",
    ),
    *("interop/test_inspect_scoring.py", "interop/test_inspect_tasks.py", "interop/test_lm_eval_tasks.py"),
    *("model/local", "model/served/exact", "model/test_generation.py", "model/test_token_texts.py", "plot"),
    *("question_type", "reader/test_letters.py", "report/test_comparison_page.py", "report/test_vega.py"),
    *("rewriter/test_question_list.py", "stats/test_agreement.py", "stats/test_interval.py"),
    *("stats/test_reliability.py", "stats/test_non_inferiority.py"),
)
"""Files and folders that take more than some seconds, or import what does: models, other harnesses, processes,
simulations, settings composed anew."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave slow files unread where no test of them is asked for: their libraries take long to import."""
    return True if config.option.markexpr == "not slow" and _is_slow(collection_path) else None


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _is_slow(item.path):
            item.add_marker("slow")


@cache
def _is_slow(path: Path) -> bool:
    return any(path.is_relative_to(UNIT / name) for name in SLOW)
