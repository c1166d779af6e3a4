"""Which figures a run's scores allow, drawn and saved."""

from pathlib import Path

from matplotlib.figure import Figure

from robust_eval.metric.score import Score
from robust_eval.plot import frs as plot
from robust_eval.plot.style import figure
from robust_eval.result import Result


def save_figures(result: Result, folder: Path) -> dict[str, Path]:
    """Draw every figure into ``folder`` as PNG and SVG; caption to the SVG's path."""
    folder.mkdir(parents=True, exist_ok=True)
    return _frs_figures(result.scores["frs"], folder) if "frs" in result.scores else {}


def _frs_figures(score: Score, folder: Path) -> dict[str, Path]:
    table = score.tables["frs"]
    entropy, breaking = (table[name].to_numpy() for name in ("entropy", "breaking_temperature"))
    temperatures = sorted(score.curves["accuracy"])
    scores = {float(name[5:]): table[name].to_numpy() for name in table.column_names if name.startswith("frs_d")}
    smallest = min(scores)
    pearson = score.values["frs.entropy_vs_breaking.pearson_broken"].value
    saved = {}
    with figure() as (drawn, axes):
        plot.accuracy_by_temperature(axes, score.curves["accuracy"], score.settings["threshold"])
        saved["Accuracy against temperature"] = save(drawn, folder / "accuracy_by_temperature")
    with figure() as (drawn, axes):
        plot.entropy_by_breaking_temperature(axes, entropy, breaking, temperatures, pearson)
        saved["Initial entropy against breaking temperature"] = save(drawn, folder / "entropy_by_breaking_temperature")
    with figure() as (drawn, axes):
        plot.frs_by_entropy_and_breaking(axes, entropy, breaking, scores[smallest], temperatures, smallest)
        saved["Robustness of every fact"] = save(drawn, folder / "frs_by_entropy_and_breaking")
    with figure() as (drawn, axes):
        plot.frs_density(axes, scores, breaking)
        saved["Distribution of the score"] = save(drawn, folder / "frs_density")
    return saved


def save(drawn: Figure, path: Path) -> Path:
    """Write a figure as PNG and SVG; the path of the SVG."""
    layout = drawn.get_layout_engine()
    assert layout is not None
    layout.execute(drawn)
    drawn.set_layout_engine(None)  # it is laid out: with an engine, each file would be drawn twice
    drawn.savefig(path.with_suffix(".png"))
    drawn.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    return path.with_suffix(".svg")
