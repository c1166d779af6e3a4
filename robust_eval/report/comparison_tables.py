"""Tables of a comparison, for people and for programs."""

import math
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import pyarrow as pa

from robust_eval.metric.frs_tables import PAPER_N, cut_size
from robust_eval.metric.metric_spec import ComparisonView, MetricSpec, at_words, point
from robust_eval.metric.presentation import Cell, Table
from robust_eval.metric.variance_metric import SPECS, AnswerVariance
from robust_eval.report.comparison_summary import SHARED_LETTER, letters
from robust_eval.report.run_summary import type_name
from robust_eval.runs.comparison import Comparison, Pair
from robust_eval.runs.finished_runs import FinishedRun
from robust_eval.runs.shared_questions import SharedQuestions
from robust_eval.runtime.text import counted, number, signed
from robust_eval.stats.estimate import UNDEFINED, Estimate, bounds, interval
from robust_eval.stats.significance import Difference, LogRank
from robust_eval.tracking.run_folder import QUESTIONS

MAX_QUESTIONS = 25
"""Maximum number of questions in each table of the largest differences."""
MAX_RUNS, MAX_METRICS = 6, 4
"""Maximum numbers of runs and of metrics in the opening table."""
MAX_CHARACTERS = 300
"""Maximum characters of a question or an answer."""


SIGNS = {"right": "✓ right", "wrong": "✗ wrong"}
"""Signs of verdicts; others are shown unchanged."""
_QUOTED = "In quotation marks: the greedy answers, with the verdicts on them."


def comparison_tables(compared: Comparison) -> Iterator[Table]:
    """Yield all tables of a comparison, in the order of the page."""
    yield opening_table(compared)
    yield runs_table(compared)
    for spec, view in compared.views:
        if spec.numbered and any(run.by_number(spec) for run in compared.measurements):
            yield _table_by_dataset(compared, spec, view)
    if compared.types:
        yield _type_table(compared)
    yield _scenario_table(compared)
    if compared.pairs:
        yield pair_table(compared)
    yield from (_variance_table(pair.variance) for pair in compared.pairs if pair.variance is not None)
    for shared in compared.shared:
        yield from _question_tables(shared)
    if any(run.metrics.get(name, _ZERO).value for name in _COST_ROWS for run in compared.runs):
        yield _cost_table(compared)
    for pair in compared.pairs:
        yield _difference_table(compared, pair)


def opening_table(
    compared: Comparison, max_metrics: int | None = MAX_METRICS, max_runs: int | None = MAX_RUNS
) -> Table:
    """Return the table with which a comparison opens: the main metrics of the runs, of more than ``max_runs`` the best,
    and the letters of their significance groups.
    """
    headings = dict(islice(_short_headings(compared).items(), max_metrics))
    groups = letters(compared) if len(compared.runs) == len(compared.measurements) else {}
    rows = []
    for index in best_runs(compared, compared.runs, next(iter(headings), ""), max_runs):
        run, group = compared.runs[index], [Cell(groups[index])] if groups else []
        metrics = (metric_cell(run, name) if name in run.metrics else Cell("") for name in headings)
        kept = Cell(f"{int(run.kept().sum())} of {run.asked}")
        rows.append([Cell(compared.labels[index], page=run.page), *group, *metrics, kept])
    notes = [SHARED_LETTER] if groups else []
    if len(rows) < len(compared.runs):
        notes.append(f"The best {len(rows)} of {len(compared.runs)}; all follow below.")
    title = counted(len(compared.runs), "run")
    header = ["run", *(["group"] if groups else []), *headings.values(), "kept"]
    return Table(title, header, rows, 2 if groups else 1, " ".join(notes))


def best_runs(
    compared: Comparison, runs: Sequence[FinishedRun], metric: str, max_runs: int | None = MAX_RUNS
) -> list[int]:
    """Return the indices of a comparison's runs in their order; of more than ``max_runs`` only the best by a metric,
    those without it last.
    """
    spec = compared.spec(metric)
    sign = 1 if spec is not None and spec.more_is_better is False else -1
    values = sign * np.array([run.metrics.get(metric, UNDEFINED).value for run in runs])
    return sorted(np.argsort(values, kind="stable")[:max_runs].tolist())  # NaN is last


def _short_headings(compared: Comparison) -> dict[str, str]:
    """Return the metrics of a comparison table with their short headings, first the primary one; of a curve at t = 1.
    Without any, the first headline metrics.
    """
    measured = {name for run in compared.runs for name in run.metrics}
    specs = {spec.name: spec for run in compared.runs for spec in run.specs if spec.short}
    firsts = {next(iter(scores)) for run in compared.runs if (scores := run.scores())}
    first_d = f" (d = {firsts.pop():g})" if len(firsts) == 1 else ""
    headings = {
        name: f"{spec.short.replace(' (first d)', first_d)}{at}"
        for spec in specs.values()
        for name, at in ((spec.name, ""), (point(spec.name, 1), ", t = 1"))
        if name in measured
    }
    leading = next((pair.leading for pair in compared.pairs if pair.leading), "")
    if all(leading in run.metrics for run in compared.runs):
        first = {leading: headings.get(leading, compared.words(leading))}
        headings = first | {name: words for name, words in headings.items() if words not in first.values()}
    return headings or {name: compared.words(name) for name in compared.runs[0].headline_means[:3]}


def runs_table(compared: Comparison) -> Table:
    """Return the comparison's table of runs × metrics with intervals."""
    names = list(dict.fromkeys(name for run in compared.runs for name in run.headline_metrics))
    header = ["run", "questions", "kept", *(compared.heading(name) for name in names)]
    rows = []
    for run, label in zip(compared.runs, compared.labels, strict=True):
        metrics = (metric_cell(run, n) if n in run.headline_metrics else Cell("") for n in names)
        rows.append([Cell(label, page=run.page), Cell(f"{run.asked}"), Cell(f"{int(run.kept().sum())}"), *metrics])
    note = "With 95 % intervals. n is the number of questions behind a value. ↑: higher is better, ↓: lower is better."
    return Table("Runs", header, rows, note=note)


def _cost_table(compared: Comparison) -> Table:
    """Return the table of tokens by stage, and missing or invalid answers, for each run (Cho & Watson, §4 and §6.4)."""
    names = [name for name in _COST_ROWS if any(run.metrics.get(name, _ZERO).value for run in compared.runs)]
    rows = [
        [Cell(label), *(Cell(f"{run.metrics.get(name, _ZERO).value:,.0f}") for name in names)]
        for run, label in zip(compared.runs, compared.labels, strict=True)
    ]
    note = "Counted as a service would, with the whole prompt for each answer; local models share most of this work."
    return Table("Tokens and missing answers", ["run", *(_COST_ROWS[name] for name in names)], rows, note=note)


_ZERO = Estimate(0.0)
_COST_ROWS = {
    "tokens.rewriting.prompt": "rewriting: prompt tokens",
    "tokens.rewriting.cached": "rewriting: of which cached",
    "tokens.rewriting.completion": "rewriting: completion tokens",
    "tokens.rewriting.reasoning": "rewriting: of which reasoning",
    "rewriting.outcomes.filtered_prompt": "rewriting: prompts filtered",
    "rewriting.outcomes.filtered_reply": "rewriting: replies filtered",
    "rewriting.outcomes.error": "rewriting: errors",
    "greedy.outcomes.filtered_prompt": "greedy answers: prompts filtered",
    "greedy.outcomes.filtered_reply": "greedy answers: replies filtered",
    "greedy.outcomes.error": "greedy answers: errors",
    "tokens.answering.prompt": "answering: prompt tokens",
    "tokens.answering.cached": "answering: of which cached",
    "tokens.answering.completion": "answering: completion tokens",
    "tokens.answering.reasoning": "answering: of which reasoning",
    "outcomes.filtered_prompt": "answering: prompts filtered",
    "outcomes.filtered_reply": "answering: replies filtered",
    "outcomes.error": "answering: errors",
    "outcomes.refused": "refused",
    "outcomes.abstained": "abstained",
    "outcomes.empty": "empty",
    "outcomes.invalid": "invalid",
}
"""Rows of the table of costs; rows of zeros are left out."""


def _table_by_dataset(compared: Comparison, spec: MetricSpec, view: ComparisonView) -> Table:
    """Return the table, by measurement and data set, of a metric with a number in its name and of its companion: for
    FRS the share of unbroken facts (Fastowski et al., Table 1).
    """
    datasets = list(dict.fromkeys(compared.measurement_labels.datasets))
    companion = compared.spec(view.companion)
    companions = [] if companion is None else [companion.name]
    heads = [companion.short or companion.words] if companion else []
    header = ["run", spec.number, *(title for on in datasets for title in (f"{spec.heading}, {on}", *heads))]
    rows = []
    for subject in dict.fromkeys(compared.measurement_labels.subjects):
        runs = {dataset: run for dataset in datasets for _, run in compared.on(dataset, subject)}
        names = {dataset: run.by_number(spec) for dataset, run in runs.items()}
        for each in sorted({each for by_number in names.values() for each in by_number}):
            cells = [Cell(subject), Cell(f"{each:g}")]
            for dataset in datasets:
                name = names.get(dataset, {}).get(each, "")
                metrics = runs[dataset].metrics if name else {}
                of_dataset = [n if n in metrics else "" for n in (name, *companions)]
                cells += [metric_cell(runs[dataset], n) if n else Cell("") for n in of_dataset]
            rows.append(cells)
    return Table(f"{view.table or spec.title} by data set", header, rows, 2, view.note)


def _type_table(compared: Comparison) -> Table:
    """Return a comparison's table of the question types among the most robust facts, over all data sets of a subject
    (Fastowski et al., Fig. 5).
    """
    header = ["run", "data sets", "type", "facts", "facts at each end", "among the most robust"]
    header += ["among the least robust", "share among the most robust"]
    rows = []
    for subject, datasets, _, shares in compared.types:
        for row in shares.to_pylist():
            words = [subject, ", ".join(datasets), type_name(row["type"]), f"{row['questions']}", f"{cut_size(shares)}"]
            words += [number(row[end], ".1f") for end in ("most_robust", "least_robust")]
            share = Estimate(row["share_most_robust"], row["low"], row["high"])
            rows.append([*map(Cell, words), _cell(share)])
    score, spec = compared.types[0].score, compared.spec(compared.types[0].score)
    by = (spec.of_question or spec.words) if spec else score
    note = (
        f"Facts are ranked by {by}. Share: a type's facts in the most robust group, divided by its facts in either "
        f"group. Each group has {PAPER_N:,} facts, or half of all if that is fewer; ties count fractionally."
    )
    return Table("Question types among the most and the least robust facts", header, rows, 3, note)


def _scenario_table(compared: Comparison) -> Table:
    """Return a comparison's table of metrics by scenario, with means over data sets (Cho & Watson, Table 5)."""
    frame = compared.scenarios
    names = [name for name in frame["metric"].unique() if name]
    header = ["run", "scenario", "data set", "questions", *map(compared.words, names)]
    rows = []
    for (subject, scenario, dataset, kind, questions), metrics in frame.groupby(
        ["subject", "scenario", "dataset", "kind", "questions"], sort=False
    ):
        estimates = ((row.metric, Estimate(row.value, row.low, row.high), row.n) for row in metrics.itertuples())
        cells = {name: _cell(estimate, n) for name, estimate, n in estimates}
        words = subject, scenario.replace("_", " "), dataset or kind, f"{questions}"
        rows.append([*map(Cell, words), *(cells.get(name, Cell("")) for name in names)])
    note = (
        "AVG weights the rows above equally, WAVG by the number of questions with a value. Rows in which a "
        "metric is undefined are left out of its means."
    )
    return Table("By scenario", header, rows, 3, note if frame["kind"].any() else "")


def pair_table(compared: Comparison) -> Table:
    """Return the table with a row for each compared pair: the headline metric and the log-rank test."""
    header = ["first", "second", "metric", "kept by each", "by both", "first minus second", "p"]
    header += ["break earlier in first", "in second", "log-rank χ²", "p"]
    rows, has_unscored = [], False
    for pair in compared.pairs:
        name = pair.metric
        if name is None:
            continue
        difference, test, labels = pair.differences[name], pair.log_rank, compared.measurement_labels.full
        words = [labels[pair.first], labels[pair.second], compared.words(name)]
        words += [" and ".join(map(str, pair.kept)), f"{pair.shared}"]
        tested = [number(pair.p_value, ".2g"), *[""] * 4]
        if test is not None:
            tested[1:] = f"{test.first}", f"{test.second}", number(test.statistic, ".2f"), number(test.p_value, ".2g")
            has_unscored |= difference.n < pair.shared
        rows.append([*map(Cell, words), _difference(difference, difference.n), *map(Cell, tested)])
    note = (
        "On the questions that have a value in both runs: the mean difference with its 95 % interval and the p "
        "value of a paired t test over questions or groups of them; then the log-rank test of the breaking "
        "temperatures (or turns of pushback), stratified by question, which uses the facts that break earlier in one "
        "run than in the other."
    )
    if has_unscored:
        note += (
            " The difference excludes facts that lack a score in at least one run: those that the run does not know, "
            "and those without a reply at a temperature before the break; n is the number that remain. The log-rank "
            "test uses facts with missing replies up to their last temperature with a reply."
        )
    if len(rows) > 1:
        note += " If nothing differs, about one interval in twenty excludes 0 by chance."
    return Table("Pairs", header, rows, 3, note)


def _variance_table(variance: AnswerVariance) -> Table:
    """Return the table of the variance components of the difference between two runs."""
    rows = [
        [Cell(spec.label), _cell(component, form=".4f")]
        for spec, component in zip(SPECS, variance.components, strict=False)
        if not math.isnan(component.value)
    ]
    note = (
        f"Differences between the answers (right 1, wrong 0) to the same question, rewrite and trial "
        f"{at_words(variance.temperature)}. Questions: {variance.questions:,}; wordings of each: "
        f"{variance.rewrites:.3g}; trials of each wording: {variance.trials:.3g}. A component that the answers cannot "
        "separate is included in the one above it."
    )
    return Table("Variance components of the difference", ["component", "variance"], rows, note=note)


def _difference_table(compared: Comparison, pair: Pair) -> Table:
    first, second = (compared.measurement_labels.full[index] for index in pair[:2])
    rows = []
    for name, difference in pair.differences.items():
        spec = compared.spec(name)
        values = (number(value, spec.form if spec else ".3f") for value in (difference.first, difference.second))
        words = compared.words(name), f"{difference.n}", *values
        rows.append([*map(Cell, words), _difference(difference)])
    header = ["metric", "shared questions", "first", "second", "first minus second"]
    note = "Each metric is computed on the questions that have a value in both runs."
    return Table(f"{first} vs. {second}", header, rows, note=note, folded=True)


def _question_tables(shared: SharedQuestions) -> Iterator[Table]:
    """Yield tables of the questions with the largest differences: those that only some runs kept, and those by each
    main metric.
    """
    file_text = f"all {len(shared.ids):,} shared questions with their values are in {QUESTIONS}."
    divided_rows = shared.disputed(MAX_QUESTIONS)
    if len(divided_rows):
        rows = [[*_kept_row(shared, row)] for row in divided_rows]
        note = (
            f"{counted(int(shared.divided.sum()), 'question')}, sorted by the first metric in the runs that kept them, "
            "best first. A question is kept if the sampler's selection selects it (by default, if its greedy answer "
            "equals an accepted answer), unless a limit on the number of questions excludes it. "
            f"{_QUOTED} Shown: {len(rows)}; {file_text}"
        )
        title = f"Questions that only some runs kept, {shared.dataset}"
        yield Table(title, ["question", *shared.measured], rows, 1, note)
    for name in shared.metrics:
        rows = [[*_difference_row(shared, name, row)] for row in shared.differing(name, MAX_QUESTIONS)]
        if rows:
            spec, count = shared.spec(name), int(shared.differs(name).sum())
            tie_breaker = "the question asked first"
            if spec.tie_breaker:
                wider = f"the question with the larger range of {shared.spec(spec.tie_breaker).label}"
                tie_breaker = f"{wider}, then to {tie_breaker}"
            note = (
                f"{counted(count, 'question')} {'differs' if count == 1 else 'differ'}. The range is the largest of "
                f"the values minus the smallest; ties go to {tie_breaker}. {_QUOTED} Shown: {len(rows)}; {file_text}"
            )
            title = f"Questions with the largest differences: {spec.of_question}{spec.at_temperature}, {shared.dataset}"
            yield Table(title, ["question", "range", *shared.measured], rows, 1, note)


def _kept_row(shared: SharedQuestions, row: int) -> Iterator[Cell]:
    """Yield the cells of a table row: the question, then for each measurement whether it kept the question, and its
    leading metric.
    """
    yield Cell(shortened(shared.texts[row]))
    for column, is_kept in enumerate(shared.kept[row]):
        value = shared.metrics[shared.leading][row, column] if shared.leading else math.nan
        label = "" if math.isnan(value) else f"{shared.spec(shared.leading or '').of_question}: {number(value)}"
        yield _answer_cell(shared, row, column, "kept" if is_kept else "not kept", label)


def _difference_row(shared: SharedQuestions, name: str, row: int) -> Iterator[Cell]:
    """Yield the cells of a table row: question, range, and for each measurement the value and breaking temperature."""
    yield Cell(shortened(shared.texts[row]))
    yield Cell(number(shared.ranges[name][row]))
    for column, value in enumerate(shared.metrics[name][row]):
        breaking = shared.breaking[row, column] if shared.breaks(name) else math.nan
        break_text = "" if math.isnan(breaking) else "unbroken" if math.isinf(breaking) else f"breaks at {breaking:g}"
        yield _answer_cell(shared, row, column, "" if math.isnan(value) else number(value), break_text)


def _answer_cell(shared: SharedQuestions, row: int, column: int, text: str, detail: str) -> Cell:
    """Return a table cell with a measurement's greedy answer, the verdict on it, and the measurement's report; "not
    asked" if it did not ask the question.
    """
    if math.isnan(shared.kept[row, column]):
        return Cell("not asked")
    answer, verdict = shared.answers[row, column], shared.verdicts[row, column]
    quoted, sign = ("", "") if answer is None else (f"“{shortened(answer)}”", SIGNS.get(verdict, verdict))
    return Cell(text, detail, quoted, sign, shared.pages[column], shared.ids[row])


def shortened(text: str) -> str:
    """Return a text for a table, cut to :data:`MAX_CHARACTERS`."""
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"


def metric_cell(run: FinishedRun, name: str) -> Cell:
    """Return the table cell of a metric of a run, with its number of questions."""
    spec = run.spec(name)
    return _cell(run.metrics[name], run.n(name), spec.form if spec else ".3f")


def _cell(estimate: Estimate, n: int | None = None, form: str = ".3f") -> Cell:
    return Cell(number(estimate.value, form), interval(estimate, form, n))


def _difference(difference: Difference, n: int | None = None) -> Cell:
    if math.isnan(difference.value):
        return Cell("undefined")
    details = [] if n is None else [f"n = {n:,}"]
    if not math.isnan(difference.low):
        low, high = signed(difference.low), signed(difference.high)
        details.insert(0, f"{low} to {high}" if low != high else bounds(difference.low, difference.high, "+.3f"))
    return Cell(signed(difference.value), ", ".join(details))


def runs_as_data(compared: Comparison) -> pa.Table:
    """Return the comparison's table with a row for each run and metric; ``n`` is the metric's number of questions, if
    it has one.
    """
    numbers = dict.fromkeys(Estimate._fields, pa.float64())
    types = {"run": pa.string(), "metric": pa.string(), **numbers, "n": pa.int64()}
    return pa.table(compared.frame[list(types)].to_dict("list"), schema=pa.schema(types))


def pairs_as_data(compared: Comparison) -> pa.Table:
    """Return the comparison's table with a row for each pair and metric. The log-rank test (if any) is in all rows of
    its pair, and the p values of the t test, uncorrected and corrected by Holm, are in the row of its metric.
    """
    names = compared.measurement_labels.full
    columns = [*Difference._fields, *(f"log_rank.{name}" for name in LogRank._fields), "p_value", "p_holm"]
    rows = []
    for pair in compared.pairs:
        test = {} if pair.log_rank is None else {f"log_rank.{k}": v for k, v in pair.log_rank._asdict().items()}
        for name, difference in pair.differences.items():
            measured = {"measured": names[pair.first], "against": names[pair.second], "metric": name}
            tested = {"p_value": pair.p_value, "p_holm": pair.corrected} if name == pair.metric else {}
            rows.append(measured | difference._asdict() | test | tested)
    types = dict.fromkeys(("measured", "against", "metric"), pa.string()) | dict.fromkeys(columns, pa.float64())
    return pa.Table.from_pylist(rows, pa.schema(types))
