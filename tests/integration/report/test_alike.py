"""Data sets whose questions all behave alike: no interval is without width, wherever it is read."""

import json
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType

import pyarrow.parquet as pq
import pytest
from experiments import without_figures
from recorded_run import recorded_run

from robust_eval.report.comparison_page import write_comparison
from robust_eval.runs.comparison import compare
from robust_eval.runs.finished_runs import FinishedRun, read_run
from robust_eval.stats.interval import bootstrap, bootstrap_draws

SIZES = (5, 29, 30, 2500)
SHOWN = re.compile(r"([+-]?\d[\d.]*%?) to ([+-]?\d[\d.]*%?)")
WARNING = "with fewer than 30 they are rough"


@dataclass
class Alike:
    """A run over facts that all break at the last temperature, what it printed, and its comparison with others."""

    n: int
    folder: Path
    printed: str
    run: FinishedRun


@pytest.fixture(scope="module", params=SIZES)
def alike(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Alike:
    folder = tmp_path_factory.mktemp("alike")
    capture = request.config.pluginmanager.getplugin("capturemanager")
    capture.read_global_capture()
    with pytest.MonkeyPatch.context() as patch, without_figures():
        few_resamples(patch)
        recorded_run(folder, request.param, metrics="[frs,agreement,certainty]", alike=0.2)
    printed = capture.read_global_capture()[0]
    return Alike(request.param, folder / "run", printed, read_run(folder / "run"))


def few_resamples(patch: pytest.MonkeyPatch) -> None:
    """Resamples of questions that are all alike are alike: a few show what all would."""
    for resampling in (bootstrap, bootstrap_draws):
        assert isinstance(resampling, FunctionType)
        assert resampling.__kwdefaults__ is not None
        patch.setitem(resampling.__kwdefaults__, "resamples", 20)


def without_width(text: str) -> list[str]:
    """The intervals of a text, none of which may be missing altogether, that have none."""
    found = SHOWN.findall(text)
    assert len(found) > 5
    return [f"{low} to {high}" for low, high in found if low == high]


def test_the_summary_has_no_interval_without_width(alike: Alike):
    summary = json.loads((alike.folder / "summary.json").read_text())
    bounds = {name[:-4]: (summary[name], summary[name[:-4] + ".high"]) for name in summary if name.endswith(".low")}
    assert len(bounds) > 30
    assert [name for name, (low, high) in bounds.items() if not low < high] == []
    assert [name for name, (low, high) in bounds.items() if not low <= summary[name] <= high] == []
    # all that is a mean over questions has one, whatever its range is
    assert set(alike.run.question_metrics) <= set(bounds)
    share = 1 - 0.025 ** (1 / alike.n)
    assert bounds["accuracy.greedy"] == pytest.approx((1 - share, 1))
    assert bounds["certainty.error_rate.t0.7"] == pytest.approx((0.2 - 0.2 * share, 0.2 + 0.8 * share))
    assert bounds["certainty.entropy.t0.7"][1] == pytest.approx(
        summary["certainty.entropy.t0.7"] * (1 - share) + math.log(5) * share
    )
    assert bounds["frs.breaking_temperature.mean_broken"] == pytest.approx((2 - 2 * share, 2))


def test_the_tables_of_the_run_have_no_interval_without_width(alike: Alike):
    for row in pq.read_table(alike.folder / "frs_types.parquet").to_pylist():
        assert row["share_most_robust"] == 0.5
        assert (math.isnan(row["low"]), math.isnan(row["high"])) == (True, True)


def test_the_report_and_the_terminal_show_no_interval_without_width(alike: Alike):
    page = re.sub(r"<script.*?</script>", "", (alike.folder / "report.html").read_text("utf-8"), flags=re.DOTALL)
    assert without_width(page) == without_width(alike.printed) == []
    assert (WARNING in page) == (WARNING in alike.printed) == (alike.n < 30)


def test_a_comparison_has_no_interval_without_width(alike: Alike, tmp_path: Path):
    """With a run that found the same, on the same questions and on others; and one in which every fact is firmer."""
    others = [
        replace(alike.run, settings={**alike.run.settings, setting: "other"})
        for setting in ("model.name", "dataset.name")
    ]
    if alike.n == 30:
        with without_figures():
            recorded_run(tmp_path, alike.n, "model.name=firm", metrics="[frs,agreement,certainty]", alike=0.9)
        others.append(read_run(tmp_path / "run"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("robust_eval.report.comparison_gallery.save_comparison_figures", lambda compared, folder: [])
        few_resamples(patch)
        compared = compare([alike.run, *others])
        write_comparison(compared, tmp_path)
    for name in ("runs", "pairs"):
        for row in pq.read_table(tmp_path / f"{name}.parquet").to_pylist():
            assert math.isnan(row["low"]) or row["low"] < row["high"]
    assert {*compared.scenarios["kind"]} == {"", "AVG", "WAVG"}
    for _, row in compared.scenarios.groupby(["subject", "scenario", "dataset", "kind"]):
        known = row.dropna(subset="value")
        (alpha,) = known[~(known["low"] < known["high"])].itertuples()
        assert alpha.metric == "agreement.alpha.t1"
        assert alpha.value == pytest.approx(1)
