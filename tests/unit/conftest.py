"""Marks the slow tests of this folder, which ``make test-fast`` leaves out."""

from pathlib import Path

import pytest

UNIT = Path(__file__).parent
SLOW = (
    *("aggregator/test_clusters.py", "benchmarks", "cli/test_completion.py", "cli/test_help.py"),
    *("config/test_overrides.py", "config/test_path_as_dataset.py", "dataset/test_fuzzed.py"),
    *("dataset/test_published.py", "engine/test_thread_count.py", "experiment/test_until.py"),
    *("grader/test_answer_matcher.py", "labels/test_label_sample.py", "metric/test_agreement_metric.py"),
    *("metric/test_challenge_metric.py", "model/local", "model/served/exact", "model/served/test_draw_watch.py"),
    *("model/served/test_rate_limiter.py", "plot", "question_type", "reader/test_free_text.py"),
    *("reader/test_letters.py", "report/test_comparison_page.py", "report/test_vega.py"),
    *("rewriter/test_question_list.py", "runtime/test_file_limits.py", "stats/test_agreement.py"),
    *("stats/test_interval.py", "stats/test_position_bias.py", "stats/test_reliability.py", "stats/test_verdicts.py"),
)
"""Files and folders that take more than some ten seconds: models, processes, simulations, settings composed anew."""


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    slow = [UNIT / name for name in SLOW]
    for item in items:
        if any(item.path.is_relative_to(each) for each in slow):
            item.add_marker("slow")
