import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from comparison_by_hand import CERTAINTY, LARGE, NAN, SMALL, Page, frs_runs, ids_of_whole, measured, with_answers
from golden import Golden
from markdown_it import MarkdownIt

from robust_eval.metric.metric_spec import LONGEST, ComparisonView, MetricSpec
from robust_eval.report import comparison_gallery
from robust_eval.report.comparison_gallery import save_comparison_figures
from robust_eval.report.comparison_page import write_comparison
from robust_eval.report.comparison_summary import opening, sentences
from robust_eval.report.comparison_tables import pair_table
from robust_eval.report.terminal import print_comparison
from robust_eval.runs.comparison import compare
from robust_eval.runs.finished_runs import KNOWN_SPECS, FinishedRun, GreedyAnswer
from robust_eval.runtime.text import printable_lines
from robust_eval.stats.estimate import Estimate
from robust_eval.stats.interval import SHARE, degenerate_interval, paired_share_bounds


def rendered(markdown):
    """The page that a reader of the Markdown sees."""
    return Page(MarkdownIt("commonmark").enable("table").render(markdown))


def written(runs, folder):
    """The comparison as its texts: page, Markdown."""
    write_comparison(compare(runs), folder)
    return (folder / "comparison.html").read_text("utf-8"), (folder / "comparison.md").read_text("utf-8")


def saved_empty(_, path):
    path.with_suffix(".png").touch()
    path.with_suffix(".svg").write_text("<svg></svg>")
    return path.with_suffix(".svg")


@pytest.fixture(autouse=True)
def _unrendered(monkeypatch):
    """Figures are drawn and not rendered, but for those of the comparisons that are made once for several tests."""
    monkeypatch.setattr(comparison_gallery, "save", saved_empty)


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    folder = tmp_path_factory.mktemp("comparison")
    return folder, *written(frs_runs(), folder)


def test_a_comparison_is_a_page_markdown_figures_and_tables(comparison):
    folder, _, _ = comparison
    names = ("accuracy_by_fact", "accuracy_by_temperature", "differences", "frs_by_d", "headline", "survival")
    assert sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()) == [
        "comparison.html",
        "comparison.md",
        *(f"figures/{name}.{ending}" for name in names for ending in ("png", "svg")),
        "pairs.parquet",
        "questions.parquet",
        "runs.parquet",
    ]


def test_the_page_is_whole_and_loads_nothing(comparison):
    _, html, _ = comparison
    page = Page(html)
    ids_of_whole(page)
    assert page.tags.count("figure") == 6
    assert labels(page)[:7] == [
        "3 runs",
        "Mean FRS (d = 1), by run",
        "Accuracy of every fact, data set facts: small (n = 3), large (n = 3)",
        "Mean FRS for each d, facts",
        "Accuracy against temperature, facts",
        "Unbroken facts, facts",
        "Paired differences: mean FRS (d = 1)",
    ]


def labels(page):
    return [value for name, value in page.attributes if name == "aria-label"]


def with_types():
    runs = [measured(SMALL), measured(LARGE, dataset__name="physics")]
    for each, kinds in zip(runs, (["HUM", "LOC", "HUM", ""], ["LOC"] * 4), strict=True):
        place = each.questions.schema.get_field_index("type")
        object.__setattr__(each, "questions", each.questions.set_column(place, "type", pa.array(kinds)))
    return runs


def with_a_metric_of_ones_own(*others):
    mine = {"specs": [*KNOWN_SPECS, MetricSpec("mine.k{}", "mine, k = {}", setting="metric.mine.k")]}
    runs = [measured({**SMALL, f"mine.k{k}": SMALL["frs.d1"]}, metric__mine__k=k) for k in (1, 2)]
    return [replace(each, **mine) for each in [*runs, *others]]


def two_weights():
    small, other, _ = frs_runs()
    other.settings["model.name"] = "large"
    return [small, other]


OTHER = CERTAINTY | {"certainty.entropy.t1": ([0.5, 1.0], (0.75, 0.5, 1.0))}
NOTHING = {name: ([1, NAN] if name == "accuracy.greedy" else [NAN] * 2, (NAN,)) for name in SMALL}
SOME = {name: ([1, 0], (0.5, 0.0, 1.0)) for name in SMALL}
RUNS = {
    "two models, one with two weights": frs_runs,
    "no score": lambda: [measured(CERTAINTY), measured(OTHER, model__name="large")],
    "one run": lambda: frs_runs()[:1],
    "one run without a score": lambda: [measured(CERTAINTY)],
    "a run with a score and one without": lambda: [*frs_runs()[2:], measured(CERTAINTY)],
    "undefined figures": lambda: [measured(NOTHING), measured(SOME, model__name="large")],
    "an undefined figure alone": lambda: [measured({"certainty.entropy.t1": ([0.25, NAN], (NAN,))})],
    "two data sets": lambda: [measured(CERTAINTY), measured(CERTAINTY, dataset__name="physics")],
    "question types": with_types,
    "repetitions": lambda: [measured(CERTAINTY) for _ in range(4)] + [measured(CERTAINTY, model__name="large")],
    "other weights": two_weights,
    "answers by question, rewrite and trial": lambda: [measured(SMALL), measured(LARGE, model__name="large")],
    "the same answers": with_a_metric_of_ones_own,
    "the same answers and others": lambda: with_a_metric_of_ones_own(
        measured(LARGE, model__name="large", metric__frs__d=5)
    ),
}
NOTES = (
    "AVG weights the rows above equally, WAVG by the number of questions",
    "Each end has 1,000 facts, or half of all",
)
COMPARISONS = Golden(Path(__file__).with_name("comparisons.jsonl"))


@pytest.mark.parametrize("case", COMPARISONS.cases, ids=lambda case: case["runs"])
def test_page_markdown_and_terminal_show_every_figure_in_sentences_and_tables(case, tmp_path, capsys, monkeypatch):
    runs = RUNS[case["runs"]]()
    if case["runs"].startswith("answers"):
        all_right = np.random.default_rng(28).random((2, 4, 3, 2)) < [[[[0.8]]], [[[0.4]]]]
        drawn = zip(runs, "ab", all_right, strict=True)
        runs = [with_answers(each, tmp_path / name, right) for each, name, right in drawn]
    html, markdown = written(runs, tmp_path)
    page, shown = Page(html), rendered(markdown)
    assert (shown.headings, shown.tables) == (page.headings, page.tables)
    drawings = [value for name, value in shown.attributes if name == "src"]
    assert all((tmp_path / drawing).is_file() for drawing in drawings)
    said = sentences(compare(runs))
    assert "\n\n" + "\n\n".join(said) + "\n\n" in markdown
    assert all(each in html for each in said)
    COMPARISONS.check(
        case,
        sentences=said,
        headings=page.headings,
        tables=page.tables,
        drawings=drawings,
        notes=[note for note in NOTES if note in html and note in markdown],
        terminal=printed(runs, tmp_path, capsys, monkeypatch),
    )


def printed(runs, folder, capsys, monkeypatch):
    """The lines in the terminal: cells of a table's row, or the line itself, but for the last, which names the page."""
    monkeypatch.setenv("COLUMNS", "120")
    print_comparison(compare(runs), folder)
    *lines, last = capsys.readouterr().out.splitlines()
    assert last == f"comparison: {folder / 'comparison.html'}"
    rows = [[cell.strip() for cell in re.split("[│┃]", line)[1:-1]] or line.strip() for line in lines]
    return [row for row in rows if row and not (isinstance(row, str) and row[0] in "┏┡└├")]


TITLES, TABLES = (COMPARISONS.cases[0][name] for name in ("headings", "tables"))


@pytest.mark.parametrize("name", ["llama[chat]", "['[/INST]']", "a<b>|&:smile:"])
def test_the_terminal_shows_names_as_they_are(name, tmp_path, capsys, monkeypatch):
    rows = printed([measured(CERTAINTY, model__name=name)], tmp_path / "runs[old]", capsys, monkeypatch)
    assert rows[2][0] == name


def test_one_run_alone_has_no_pairs_for_programs(tmp_path):
    written(frs_runs()[:1], tmp_path)
    pairs = pq.read_table(tmp_path / "pairs.parquet")
    assert (pairs.num_rows, pairs.num_columns) == (0, 16)


HOSTILE = (
    "<script>alert(1)</script> $x$ one|<i>",
    "</script></td></table><h2>gone</h2>",
    "{{ 7 * 7 }} {% raw %} {# #}",
    "a" + "\u0300" * 10_000,
    "\u202egnorw \u2066 \u200f",
    "| a | b |\n|---|---|\n# head\n```\n<!-- ",
    "' onmouseover='alert(1)' \" &quot; &#60;i&#62;",
    "[x](javascript:alert(1)) ![](http://a.org/b.png) https://b.org www.c.org d@e.org",
)


def with_text(each, text):
    """The same run where this is every question, but for its first letter, and every greedy answer."""
    place = each.questions.schema.get_field_index("question")
    texts = [f"{name} {text}" for name in each.questions["question_id"].to_pylist()]
    changed = each.questions.set_column(place, "question", pa.array(texts))
    return replace(
        each,
        questions=changed,
        greedy={name: GreedyAnswer(text, answer.verdict) for name, answer in each.greedy.items()},
    )


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The texts of a comparison in which nothing is hostile, with figures that are not rendered."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison_gallery, "save", saved_empty)
        return written([with_text(each, "plain") for each in frs_runs()], tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize("text", HOSTILE)
def test_questions_and_answers_are_no_more_than_text(text, plain, tmp_path):
    html, markdown = written([with_text(each, text) for each in frs_runs()], tmp_path / "hostile")
    page, harmless = Page(html), Page(plain[0])
    assert page.tags == harmless.tags
    assert [name for name, _ in page.attributes] == [name for name, _ in harmless.attributes]
    assert page.headings == harmless.headings == TITLES
    seen = printable_lines(text)
    shown = seen if len(seen) <= 298 else f"{seen[:298]}…"
    assert [row[0] for row in page.tables[5][1:]] == [f"c {shown}", f"d {shown}"]
    assert [row[2] for row in page.tables[5][1:]] == [
        f"not kept “{seen if len(seen) <= 300 else seen[:300] + '…'}” ✗ wrong",
        f"kept (FRS (d = 1): 0.750) “{seen if len(seen) <= 300 else seen[:300] + '…'}” ✓ right",
    ]
    read = rendered(markdown)
    assert read.tags == rendered(plain[1]).tags
    spaced = [[[" ".join(cell.split()) for cell in row] for row in table] for table in page.tables]
    assert [[[" ".join(cell.split()) for cell in row] for row in table] for table in read.tables] == spaced
    whole = pq.read_table(tmp_path / "hostile" / "questions.parquet").to_pylist()
    assert {(row["question"], row["answer"]) for row in whole} == {(f"{name} {text}", text) for name in "abcd"}


@pytest.mark.parametrize("text", [text for text in HOSTILE if len(text) <= LONGEST and len(text.splitlines()) == 1])
def test_what_a_metric_calls_its_figures_changes_no_structure(text, plain, tmp_path):
    """Somebody else's folder may declare anything of its figures."""
    words = dict.fromkeys(("caption", "number", "table", "heading", "note"), text)
    specs = [
        replace(
            spec,
            label=text,
            unit=text,
            comparison=spec.comparison and replace(spec.comparison, **words),
        )
        for spec in KNOWN_SPECS
    ]
    runs = [replace(with_text(each, "plain"), specs=specs) for each in frs_runs()]
    html, markdown = written(runs, tmp_path / "hostile")
    page, harmless = Page(html), Page(plain[0])
    assert page.tags == harmless.tags
    assert [name for name, _ in page.attributes] == [name for name, _ in harmless.attributes]
    assert rendered(markdown).tags == rendered(plain[1]).tags
    seen = printable_lines(text)
    assert page.tables[1][0][3] == f"{seen} ({seen}) ↑"


@pytest.mark.parametrize(("small", "large"), list(zip(HOSTILE[::2], HOSTILE[1::2], strict=True)))
def test_names_of_models_and_data_sets_change_no_structure(small, large, tmp_path, monkeypatch):
    monkeypatch.undo()  # names stand in figures as well
    runs = frs_runs(small, large)
    for each in runs:
        each.settings["dataset.name"] = small
    html, markdown = written(runs, tmp_path)
    page, shown = Page(html), rendered(markdown)
    assert page.tables[5][0] == ["question", printable_lines(small), printable_lines(large)]
    assert [page.tags.count(tag) for tag in ("table", "h1", "h2", "script")] == [len(TABLES), 1, len(TITLES) - 2, 1]
    assert not {"b", "i"} & {*page.tags}
    assert "$" not in markdown  # GitHub renders mathematics
    assert [len(table) for table in shown.tables] == [len(table) for table in page.tables]
    assert [" ".join(text.split()) for text in shown.headings] == [" ".join(text.split()) for text in page.headings]


def test_of_many_questions_25_are_shown_and_all_are_in_the_table_for_programs(tmp_path):
    def many(values, **changed):
        each = measured(CERTAINTY, **changed)
        ids = [f"q{place}" for place in range(60)]
        filled = {name: ["" for _ in ids] for name in ("scenario", "type", "category", "group")}
        columns = {"question_id": ids, "question": ids, **filled, "kept": [True] * 60, "certainty.entropy.t1": values}
        return FinishedRun(each.settings, {"certainty.entropy.t1": Estimate(0.5)}, pa.table(columns))

    html, _ = written([many(np.zeros(60)), many(np.arange(60.0), model__name="large")], tmp_path)
    table = Page(html).tables[4]
    assert [row[0] for row in table[1:]] == [f"q{place}" for place in range(59, 34, -1)]
    assert "59 questions differ." in html
    assert "Shown: 25; all 60 shared questions with their values are in questions.parquet." in html
    assert pq.read_table(tmp_path / "questions.parquet").num_rows == 120


def test_only_questions_with_a_range_that_is_shown_are_counted_as_different(tmp_path):
    unbroken = {"frs.unbroken_share": ([0] * 4, (0.0, 0.0, 0.6))}
    values = unbroken | {"frs.d1": ([0.5, 0.5, 0.5, 0.25], (0.4375, 0.25, 0.5))}
    others = unbroken | {"frs.d1": ([0.5, 0.5 + 1e-15, 0.50001, 0.654527], (0.53863175, 0.5, 0.654527))}
    html, _ = written([measured(values), measured(others, model__name="large")], tmp_path)
    table = next(table for table in Page(html).tables if table[0][1] == "range")
    assert "1 question differs." in html
    assert [row[:2] for row in table[1:]] == [["d?", "0.405"]]
    assert table[1][3].startswith("0.655 ")


def test_every_estimate_of_every_run_is_in_the_table_for_programs(comparison):
    folder, _, _ = comparison
    table = pq.read_table(folder / "runs.parquet")
    assert {field.name: str(field.type) for field in table.schema} == {
        "run": "string",
        "metric": "string",
        "value": "double",
        "low": "double",
        "high": "double",
        "n": "int64",
    }
    other_d = {name: each for name, each in SMALL.items() if name != "frs.d1"}
    n = {name: 4 if name == "accuracy.greedy" else 3 for name in [*SMALL, "frs.d5"]}
    expected = [("small (d=1)", name, *each, n[name]) for name, (_, each) in SMALL.items()]
    expected += [("small (d=1)", "frs", 0.75, 0.5, 1.0, NAN)]  # nothing says how many these rest on
    expected += [("small (d=5)", name, *each, n[name]) for name, (_, each) in other_d.items()]
    expected += [("small (d=5)", "frs.d5", 0.5, 0.25, 0.75, 3), ("small (d=5)", "frs", 0.5, 0.25, 0.75, NAN)]
    expected += [("large (d=1)", name, *each, n[name]) for name, (_, each) in LARGE.items()]
    expected += [("large (d=1)", "frs", 0.5, 0.25, 0.75, NAN)]
    expected += [("large (d=1)", "frs.breaking_temperature.median", NAN, NAN, NAN, NAN)]
    found = [tuple(NAN if each is None else each for each in row.values()) for row in table.to_pylist()]
    assert [row[:2] for row in found] == [row[:2] for row in expected]
    np.testing.assert_array_equal([row[2:] for row in found], [row[2:] for row in expected])


def test_every_difference_is_in_the_table_for_programs(comparison):
    folder, _, _ = comparison
    table = pq.read_table(folder / "pairs.parquet")
    names = ["n", "first", "second", "value", "low", "high"]
    tested = [f"log_rank.{name}" for name in ("n", "first", "second", "statistic", "p_value")]
    assert table.column_names == ["measured", "against", "metric", *names, *tested, "p_value", "p_holm"]
    p_value = math.erfc(math.sqrt(0.5))
    expected = {
        "accuracy.greedy": (4, 1, 1, 0, *paired_share_bounds(np.zeros(4))),
        "frs.d1": (2, 0.625, 0.375, 0.25, *degenerate_interval(0.25, 2, (-1, 1))),
        "frs.unbroken_share": (2, 0, 0, 0, *paired_share_bounds(np.zeros(2))),
        "accuracy.t0.5": (2, 1, 0.5, 0.5, *degenerate_interval(0.5, 2, (-1, 1))),
        "accuracy.t1": (2, 0.25, 0, 0.25, *degenerate_interval(0.25, 2, (-1, 1))),
    }
    uncorrected = [0.5, pytest.approx(NAN, nan_ok=True)]  # so few questions have no verdict
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        ("small", "large", name, *values, 2, 0, 1, 1, pytest.approx(p_value), *tests)
        for name, values in expected.items()
        for tests in (uncorrected if name == "frs.d1" else [None, None],)
    ]


@pytest.mark.parametrize("is_unknown", [True, False])
def test_the_pairs_say_which_facts_their_difference_leaves_out(is_unknown):
    small, _, large = frs_runs()
    scores = [0.5, NAN if is_unknown else 0.75, 1.0, NAN]
    column = small.questions.column_names.index("frs.d1")
    unknown = replace(small, questions=small.questions.set_column(column, "frs.d1", pa.array(scores)))
    table = pair_table(compare([unknown, large]))
    assert ("without a reply at a temperature before the break" in table.note) == is_unknown


def test_the_opening_speaks_of_each_data_set_that_several_measured():
    physics = measured(SMALL, model__name="small", dataset__name="physics")
    other = measured(LARGE, model__name="large", dataset__name="physics")
    several, pairs = compare([*frs_runs(), other, physics]), 6
    (said, *_), _ = opening(several)
    assert len(several.pairs) == pairs
    assert said == "6 pairs share fewer than 30 independent questions, too few for a verdict on mean FRS (d = 1)."


def test_a_ranking_of_runs_that_cannot_be_told_apart_says_that_its_order_may_be_chance(tmp_path):
    scores = np.linspace(0.2, 0.8, 32)
    moved = [scores + 0.1 * np.resize([1, -1], 32), scores, scores[::-1], scores - 0.1 * np.resize([1, -1], 32)]
    runs = [
        measured({"frs.d1": (each, (0.5, 0.4, 0.6))}, model__name=name)
        for each, name in zip(moved, "abcd", strict=True)
    ]
    write_comparison(compare(runs), tmp_path)
    page = (tmp_path / "comparison.html").read_text()
    assert "which may be chance: all share a letter, and none can be distinguished from any other." in page
    assert "The best first" not in page


def test_figures_that_metrics_call_the_same_are_drawn_in_files_of_their_own(tmp_path, monkeypatch):
    monkeypatch.undo()  # rendered
    other = MetricSpec("mine.accuracy", "mine", limits=SHARE, comparison=ComparisonView(file="accuracy_by_temperature"))
    runs = [replace(each, specs=[*KNOWN_SPECS, other]) for each in frs_runs()]
    for each in runs:
        each.metrics["mine.accuracy.t1"] = Estimate(0.125)
    drawn = {each.caption: each.svg.name for each in save_comparison_figures(compare(runs), tmp_path)}
    assert drawn["Accuracy against temperature, facts"] == "accuracy_by_temperature.svg"
    assert drawn["Mine against temperature, facts"] == "accuracy_by_temperature_.svg"
    first, second = ((tmp_path / name).read_text() for name in sorted(drawn.values())[:2])
    assert first != second


def test_data_sets_named_in_other_scripts_have_figures_of_their_own(tmp_path):
    runs = [measured(SMALL, dataset__name=name) for name in ("φυσική", "χημεία")]
    _, markdown = written(runs, tmp_path)
    drawings = [value for name, value in rendered(markdown).attributes if name == "src"]
    assert len(drawings) == 6
    assert len(set(drawings)) == 6
