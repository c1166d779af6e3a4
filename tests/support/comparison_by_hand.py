"""Runs with few values, chosen by hand, to be compared, and a reader of the page that compares them."""

import math
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
from answer_rows import answer_row

from robust_eval.answer import answer_table, concat_by_sampler
from robust_eval.metric.metric_spec import with_limits
from robust_eval.runs.finished_runs import FinishedRun, GreedyAnswer
from robust_eval.runtime.parquet_files import write_parquet
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.interval import SHARE, degenerate_interval

NAN = math.nan
IDS = [f"{name}{number or ''}" for number in range(50) for name in "abcdefgh"]
SETTINGS = {"seed": 0, "model.name": "small", "dataset.name": "facts", "metric.frs.d": 1}
VOID = {"meta", "br", "link", "img", "hr", "input"}
STRANGE = "a<b>c</b>|d & \"e\" 'f' $k$"


def questions(figures, ids=None, **described):
    """A table of questions with these values; columns that are not described hold the same for each question."""
    names = list(ids or IDS[: len(next(iter(figures.values())))])
    same = {"scenario": "abstractive", "type": "", "category": "", "group": "", "kept": True}
    columns = {"question_id": names, "question": [f"{name}?" for name in names]}
    columns |= {name: [value] * len(names) for name, value in same.items()}
    columns |= {name: list(values) for name, values in described.items() if values is not None}
    columns["kept"] = list(map(bool, columns["kept"]))
    values = {name: np.asarray(each, dtype=float) for name, each in figures.items()}
    limits = {name: (0, 1.5) if "entropy" in name else SHARE for name in values}
    return with_limits(pa.table(columns | values), limits)


def run(figures, estimates=None, greedy=None, *, ids=None, **changed):
    """A run of these values by question, and of these estimates, or of the means; a double underscore stands for a dot.

    A setting without one that is a column of the questions is that column.
    """
    of_questions = {"question", "scenario", "type", "group", "kept"} & changed.keys()
    table = questions(figures, ids, **{name: changed.pop(name) for name in of_questions})
    if estimates is None:
        estimates = {name: [np.nanmean(table[name].to_numpy())] for name in figures if not np.isnan(table[name]).all()}
    settings = SETTINGS | {name.replace("__", "."): value for name, value in changed.items()}
    return FinishedRun(settings, {name: Estimate(*each) for name, each in estimates.items()}, table, greedy or {})


ALL_OF_4, ALL_OF_3, NONE_OF_3 = (
    (value, *degenerate_interval(value, n, SHARE)) for value, n in ((1.0, 4), (1.0, 3), (0.0, 3))
)
# The other intervals are those of all resamples of three questions: each end of their values comes up in 1 of 27.
SMALL = {
    "accuracy.greedy": ([1, 1, 1, 1], ALL_OF_4),
    "frs.d1": ([0.5, 0.75, 1.0, NAN], (0.75, 0.5, 1.0)),
    "frs.unbroken_share": ([0, 0, 1, NAN], (1 / 3, 0.0, 1.0)),
    "accuracy.t0.5": ([1, 1, 1, NAN], ALL_OF_3),
    "accuracy.t1": ([0.25, 0.25, 1.0, NAN], (0.5, 0.25, 1.0)),
    "frs.survival.t0.5": ([1, 1, 1, NAN], ALL_OF_3),
    "frs.survival.t1": ([0, 0, 1, NAN], (1 / 3, 0.0, 1.0)),
}
LARGE = {
    "accuracy.greedy": ([1, 1, 1, 1], ALL_OF_4),
    "frs.d1": ([0.25, 0.5, NAN, 0.75], (0.5, 0.25, 0.75)),
    "frs.unbroken_share": ([0, 0, NAN, 0], NONE_OF_3),
    "accuracy.t0.5": ([0.5, 0.5, NAN, 0.8], (0.6, 0.5, 0.8)),
    "accuracy.t1": ([0, 0, NAN, 0.75], (0.25, 0.0, 0.75)),
    "frs.survival.t0.5": ([0, 1, NAN, 1], (2 / 3, 0.0, 1.0)),
    "frs.survival.t1": ([0, 0, NAN, 0], NONE_OF_3),
}
CERTAINTY = {
    "accuracy.greedy": ([1, 0], (0.5, 0.0, 1.0)),
    "certainty.entropy.t1": ([0.25, 0.75], (0.5, 0.25, 0.75)),
    "certainty.error_rate.t1": ([0.5, 0.5], (0.5, *degenerate_interval(0.5, 2, SHARE))),
}


def measured(found, single=None, **others):
    """A run of such figures, with single figures that are no means."""
    values, estimates = ({name: each[place] for name, each in found.items()} for place in (0, 1))
    scenario = ["multiple_choice"] * len(next(iter(values.values())))
    made = run(values, estimates | (single or {}), scenario=scenario, **others)
    model = made.settings["model.name"]
    answered = zip(*(made.questions[name].to_pylist() for name in ("question_id", "kept")), strict=True)
    made.greedy.update(
        {name: GreedyAnswer(f"{name.upper()} by {model}", "right" if kept else "wrong") for name, kept in answered}
    )
    return made


def frs_runs(small="small", large="large"):
    """Three runs: a model with two values of d, another with one."""
    other_d = {name: each for name, each in SMALL.items() if name != "frs.d1"}
    other_d["frs.d5"] = ([0.25, 0.5, 0.75, NAN], (0.5, 0.25, 0.75))
    median = {"frs.breaking_temperature.median": (NAN,)}
    return [
        measured(SMALL, {"frs": (0.75, 0.5, 1.0)}, kept=(1, 1, 1, 0), model__name=small),
        measured(other_d, {"frs": (0.5, 0.25, 0.75)}, kept=(1, 1, 1, 0), model__name=small, metric__frs__d=5),
        measured(LARGE, {"frs": (0.5, 0.25, 0.75)} | median, kept=(1, 1, 0, 1), model__name=large),
    ]


def with_answers(found, folder, right, **columns):
    """The run with the file of its graded answers: ``right`` holds whether each is, by question, rewrite and trial."""
    rows = [
        answer_row(IDS[place], rewrite=rewrite, trial=trial, correct=bool(correct), **columns)
        for (place, rewrite, trial), correct in np.ndenumerate(right)
    ]
    folder.mkdir(parents=True)
    write_parquet(concat_by_sampler({"perturbation": answer_table(rows)}), folder / "graded.parquet")
    return replace(found, graded=folder / "graded.parquet")


class Page(HTMLParser):
    """The tables of a page, cell by cell, and its headings; it fails on a tag that is not closed where it should be."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tables, self.headings, self.tags = [], [], [], []
        self.attributes = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(name, value) for name, value in attributes]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        elif tag in ("h1", "h2", "summary"):
            self.headings.append("")
        elif tag == "small" and {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += " ("
        elif tag == "div" and "td" in self.open:
            self.tables[-1][-1][-1] += " "

    def handle_startendtag(self, tag, attributes):
        self.attributes += [(name, value) for name, value in attributes]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag == "small" and {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += ")"

    def handle_data(self, data):
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data
        elif {"h1", "h2", "summary"} & set(self.open):
            self.headings[-1] += data


def ids_of_whole(page):
    """Return the ids of a page, which are unique, and which are all that it loads besides its own data."""
    ids = [value for name, value in page.attributes if name == "id"]
    loads = [value for name, value in page.attributes if name in ("src", "href", "xlink:href")]
    assert len(ids) == len(set(ids))
    assert all(address.startswith(("#", "data:")) for address in loads)
    assert {address[1:] for address in loads if address.startswith("#")} <= set(ids)
    return set(ids)
