"""Tables of the documentation, made from the results of benchmarks: name, header and rows of each."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

Figures = Mapping[str, float | str]
"""The flat object that a benchmark writes with ``--json``."""
Row = Sequence[str]


class ResultTable(NamedTuple):
    """A table of the figures in the file ``results`` (without suffix)."""

    results: str
    header: Row
    rows: Callable[[Figures], Iterator[Row]]


def cell(figures: Figures, name: str, form: str) -> str:
    """A figure as it is shown; nothing where it was not measured."""
    value = figures.get(name, "")
    return f"{value:{form}}".replace("%", " %") if isinstance(value, int | float) else value


def sampling(figures: Figures) -> Iterator[Row]:
    for name, label in figures.items():
        if name.startswith("label_"):
            key = name.removeprefix("label_")
            ratio = "k100_over_k10" if key == "tree_k100" else f"ratio_vs_{key.removeprefix('tree_')}"
            ends = (cell(figures, f"{ratio}_{end}", ".3g") for end in ("least", "largest"))
            times = "1" if key == "tree" else f"{cell(figures, ratio, '.3g')} ({' to '.join(ends)})"
            yield (
                str(label),
                cell(figures, f"seconds_per_question_{key}", ".2f"),
                cell(figures, f"token_forwards_per_question_{key}", ",.0f"),
                times,
            )


def sampling_k100(figures: Figures) -> Iterator[Row]:
    yield from sampling({name.removeprefix("k100_"): value for name, value in figures.items() if "k100_" in name[:5]})


def estimators(figures: Figures) -> Iterator[Row]:
    ways = {
        "10 trials": "sampled_k10",
        "100 trials": "sampled_k100",
        f"exact, {figures['nodes']} nodes": "exact",
        f"exact, {figures['few_nodes']} nodes": "exact_few",
        f"exact, {figures['nodes']} nodes or a standard error of {figures['precision']}": "exact_precise",
    }
    columns = {"rmse": ".3f", "rmse_breaking": ".2f", "wrong_breaking": ".0%", "forwards": ",.0f"}
    for way, key in ways.items():
        if f"rmse_{key}" not in figures:
            continue
        shown = (cell(figures, f"{name}_{key}", form) for name, form in columns.items())
        yield way, *shown, cell(figures, f"coverage_{key}", ".1%")


BOUNDED = {"exact": "exact", "beaver_each": "BEAVER, each", "beaver_one": "BEAVER, one", "beams": "beams"}


def passes(figures: Figures) -> list[str]:
    """The numbers of passes with which exact was measured."""
    return [found[1] for name in figures if (found := re.fullmatch(r"exact_error_(\d+)", name))]


def bounds(figures: Figures) -> Iterator[Row]:
    for way, words in BOUNDED.items():
        for count in passes(figures):
            names = {"passes": ".0f", "error": ".3f", "error_to_1": ".3f", "width_to_1": ".3f"}
            shown = [cell(figures, f"{way}_{name}_{count}", form) for name, form in names.items()]
            yield words, count, *(shown if way != "beams" else [*shown[:-1], "no upper bound"])


def bounds_ratios(figures: Figures) -> Iterator[Row]:
    for count in passes(figures):
        peers = [f"over_{peer}_{count}" for peer in ("beaver_each", "beaver_one")]
        names = ("error", "error_to_1", "width_to_1")
        yield count, *(", ".join(cell(figures, f"exact_{name}_{peer}", ".2f") for peer in peers) for name in names)


def passages(figures: Figures) -> Iterator[Row]:
    asked = {"rewrites": "with their five rewrites", "sweep": "in a sweep over temperatures"}
    for name, words in asked.items():
        tokens = (cell(figures, f"{name}_tokens_{way}", ".1f") for way in ("rows", "tree"))
        yield words, *tokens, cell(figures, f"{name}_tokens_ratio", ".2f"), cell(figures, f"{name}_same", ".1%")


CAUSES = ("linear", "attention", "model", "grading", "around")


def causes(figures: Figures) -> Iterator[Row]:
    for name in figures:
        if found := re.fullmatch(r"seconds_(([a-z0-9_]+)_questions_(\d+)_threads_(\d+))", name):
            case, way, together, threads = found.groups()
            shares = (cell(figures, f"{cause}_{case}", ".0%") for cause in CAUSES)
            yield way.replace("_", ", "), together, threads, cell(figures, name, ".2f"), *shares


GPU = {"busy": ".0%", "products_ms": ".0f", "others_ms": ".0f", "copies_ms": ".0f", "kernels": ",.0f", "waits": ".0f"}


def gpu(figures: Figures) -> Iterator[Row]:
    for name in figures:
        if found := re.fullmatch(r"((\w+)_(\w+))_prefixes", name):
            case, model, way = found.groups()
            times = [key for key in figures if re.fullmatch(rf"{case}_ms_\d+", key)]
            walls = (f"{cell(figures, key, '.0f')} ({key.rpartition('_')[2]})" for key in times)
            shown = (cell(figures, f"{case}_{key}", form) for key, form in GPU.items())
            yield model, way, ", ".join(walls), *shown
        if found := re.fullmatch(r"(\w+)_(generate|static|continuous|graphed)_ms", name):
            yield found[1], found[2], cell(figures, name, ".0f"), *[""] * len(GPU)


def store(figures: Figures) -> Iterator[Row]:
    for asked in ("all of them", "a twentieth of them"):
        yield asked, cell(figures, f"seconds {asked}", ".1f"), cell(figures, f"megabytes {asked}", ".0f")


TABLES = {
    "sampling": ResultTable(
        "sampling", ("method", "seconds", "tokens evaluated", "time relative to the tree"), sampling
    ),
    "sampling_k100": ResultTable(
        "sampling", ("method", "seconds", "tokens evaluated", "time relative to the tree"), sampling_k100
    ),
    "estimators": ResultTable(
        "estimators",
        (
            "estimate",
            "error of an accuracy (root-mean-square)",
            "error of the grid's t_b",
            "grid t_b wrong",
            "tokens evaluated per question",
            "coverage of 95 % intervals",
        ),
        estimators,
    ),
    "bounds": ResultTable(
        "bounds", ("method", "passes", "evaluated", "error", "error, t ≤ 1", "width of the bounds, t ≤ 1"), bounds
    ),
    "bounds_ratios": ResultTable(
        "bounds", ("passes", "error", "error, t ≤ 1", "width of the bounds, t ≤ 1"), bounds_ratios
    ),
    "passages": ResultTable(
        "passages",
        ("questions about passages", "tokens, one row per prompt", "tokens, one tree", "ratio", "same answers"),
        passages,
    ),
    "causes": ResultTable(
        "causes",
        (
            "method",
            "questions per batch",
            "threads",
            "seconds per question",
            "linear layers",
            "attention",
            "rest of the model",
            "grading",
            "other",
        ),
        causes,
    ),
    "gpu": ResultTable(
        "gpu",
        (
            "model",
            "method",
            "ms per question (batch)",
            "GPU busy",
            "matrix products, ms",
            "other kernels, ms",
            "copies, ms",
            "kernels",
            "waits",
        ),
        gpu,
    ),
    "store": ResultTable("store", ("answers requested", "seconds", "peak memory, MB"), store),
}
"""The tables, by the names that their markers have."""

FIGURES = {
    "times_generate": ("sampling", "ratio_vs_generate", ".2g"),
    "times_by_hand": ("sampling", "ratio_vs_by_hand", ".2g"),
    "times_server": ("sampling", "ratio_vs_server", ".2g"),
}
"""Single figures in sentences: the file, the name there, and the form."""
