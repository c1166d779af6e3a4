"""Gate: PASS or FAIL of a candidate. ``robust-eval gate BASELINE CANDIDATE``, or ``gate BASELINE model=…``."""

import argparse
import logging
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from omegaconf import OmegaConf

from robust_eval.cli.arguments import add_output, add_tracker, command_parser
from robust_eval.cli.repeat import candidate_overrides
from robust_eval.cli.run import write_error
from robust_eval.config.groups import option_folders
from robust_eval.config.overrides import as_meant, composed_in
from robust_eval.config.schema import register
from robust_eval.error import OtherRunError, OutageError, UserError, first_line, writing
from robust_eval.experiment.run import run as run_experiment
from robust_eval.experiment.schedule import GateScheduler
from robust_eval.gate.baselines import baseline_named, baselines, folder_of, set_baseline
from robust_eval.gate.changed_facts import single_facts
from robust_eval.gate.decision import (
    STATUS,
    Decision,
    GateSettings,
    decide,
    differences,
    gate_settings,
    gate_spec,
    resolved,
)
from robust_eval.gate.knowledge_and_firmness import FIRMNESS, KNOWLEDGE
from robust_eval.gate.measured_run import MeasuredRun, read_measured, refuse_incomparable, refuse_other_settings
from robust_eval.gate.verdict_files import PAGE, Report, tables, write_verdict
from robust_eval.interop.log_as_run import is_log, logs_as_runs
from robust_eval.question import Question
from robust_eval.report.terminal import terminal, titled
from robust_eval.runs.differing_settings import differing, listed
from robust_eval.runs.finished_runs import kept_nothing
from robust_eval.runs.mlflow_runs import TrackedRuns
from robust_eval.runtime.console import configure_logging
from robust_eval.runtime.process import command, timestamp
from robust_eval.sampler.base import NothingKeptError
from robust_eval.tracking.flat_settings import flat
from robust_eval.tracking.mlflow_run import MlflowRun
from robust_eval.tracking.mlflow_tracker import mlflow_library, store_at
from robust_eval.tracking.run_folder import CONFIG

log = logging.getLogger(__name__)

DECIDED = "early_stop=true"
MISTAKE = 2
"""The exit status of a mistake in the call; those of the outcomes are in :data:`robust_eval.gate.decision.STATUS`."""


class Called(NamedTuple):
    """Parsed arguments of the command gate: the settings of the gate, a finished candidate or overrides of one."""

    settings: GateSettings
    candidate: str | None
    overrides: list[str]
    early: bool


def main() -> None:
    """Gate a candidate, write the verdict, and exit with 0 (PASS), 1 (FAIL), 3 (INCONCLUSIVE), or 2 after a mistake."""
    arguments = _parser().parse_intermixed_args()
    configure_logging()
    with command(mistake=MISTAKE, failure=STATUS["INCONCLUSIVE"]):
        register()
        call = _called(arguments.words)
        now = timestamp()
        folder = arguments.output or arguments.mlruns / "gates" / now
        with tempfile.TemporaryDirectory() as scratch:
            tracked = TrackedRuns(arguments.uri, arguments.mlruns, Path(scratch))
            report, candidate, uri = _report(arguments, call, tracked, arguments.mlruns.resolve() / "runs" / now)
        with writing("the verdict", folder):
            write_verdict(report, folder, arguments.facts)
        if candidate is not None and candidate.run_id is not None:
            _record(report, candidate.run_id, store_at(uri, arguments.mlruns))
        _print(report, folder)
    sys.exit(STATUS[report.decision.outcome])


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "gate",
        "Decide whether a candidate may replace its baseline.",
        epilog="Exit status: 0 PASS, 1 FAIL, 3 INCONCLUSIVE, 2 usage error.",
    )
    parser.add_argument(
        "baseline",
        metavar="BASELINE",
        help="folder of a run, name of a baseline, or id in MLflow; or the first of two logs from another harness",
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="CANDIDATE",
        help="a run or log, named in the same way; or settings (KEY=VALUE) of a candidate to run on the baseline's "
        "questions. early_stop=true "
        "ends the run as soon as the verdict is decided; gate.metrics, gate.level and gate.no_reply configure the gate",
    )
    add_tracker(parser)
    add_output(parser, "folder for the verdict")
    parser.add_argument("--facts", action="store_true", help="add a JUnit test case for each fact that changed")
    return parser


def _called(words: Sequence[str]) -> Called:
    candidates = [word for word in words if "=" not in word]
    gate_lines = [as_meant(word) for word in words if word.startswith(("gate=", "gate."))]
    for word in words:
        if word.startswith(("until=", "gate.figures=")):
            key = word.partition("=")[0]
            raise UserError(f"{key} is now {DECIDED if key == 'until' else 'gate.metrics'}")
    ends = ("early_stop=", "target_half_width=")
    overrides = [word for word in words if "=" in word and not word.startswith(("gate=", "gate.", *ends))]
    early_stop = [word for word in words if word.startswith(ends)]
    if early_stop and early_stop != [DECIDED]:
        raise UserError(
            f"{early_stop[-1]}: a gate accepts only {DECIDED} here; omit it to ask all of the baseline's questions"
        )
    if len(candidates) > 1:
        raise UserError(f"one candidate at a time: {', '.join(candidates)}")
    if bool(candidates) == bool(overrides):
        raise UserError(
            "name the candidate (folder of a run, id in MLflow or name of a baseline), or give its settings "
            "(model=NAME)" + (", but not both" if candidates else "")
        )
    if candidates and early_stop:
        raise UserError(
            f"{DECIDED} applies only to a candidate that the gate runs itself; {candidates[0]} is a finished run"
        )
    return Called(
        gate_settings(gate_lines, option_folders()), next(iter(candidates), None), overrides, bool(early_stop)
    )


def _report(
    arguments: argparse.Namespace, call: Called, tracked: TrackedRuns, place: Path
) -> tuple[Report, MeasuredRun | None, str | None]:
    """Return the gate's report, the candidate if it was measured, and the URI of the tracker that has it."""
    settings, uri, notes = call.settings, arguments.uri, list[str]()
    name = call.candidate or " ".join(call.overrides)
    of_logs = is_log(arguments.baseline) or (call.candidate is not None and is_log(call.candidate))
    try:
        if of_logs:
            baseline, candidate, notes = logs_as_runs(arguments.baseline, name)
        else:
            baseline = _named(arguments.baseline, arguments.mlruns, tracked)
    except OutageError as problem:
        raise UserError(f"there is no baseline to gate against: {problem}") from problem
    report = Report(Decision("INCONCLUSIVE", [], []), arguments.baseline, name, (baseline.model, ""), settings.level)
    scheduler: GateScheduler | None = None
    try:
        if call.candidate is not None and not of_logs:
            candidate = _named(call.candidate, arguments.mlruns, tracked)
        elif call.candidate is None:
            candidate, scheduler = _measured(call, baseline, arguments.mlruns, place)
            uri = uri or candidate.run.settings.get("tracking.uri")
    except OutageError as problem:
        return replace(report, decision=Decision("INCONCLUSIVE", [], [f"{problem}."])), None, None
    shared = refuse_incomparable(baseline, candidate)
    if scheduler is not None:
        shared = [key for key in scheduler.order if key in candidate.keys]
    metrics = differences(baseline, candidate, shared, settings, looks=call.early)
    decision = decide(baseline, candidate, metrics, settings)
    counts = (len(scheduler.order), len(scheduler.left)) if scheduler is not None and call.early else None
    report = replace(
        report,
        decision=decision._replace(reasons=[*decision.reasons, *notes]),
        models=(baseline.model, candidate.model),
        shared=len(shared),
        facts=single_facts(baseline, candidate, shared),
        question_counts=counts,
        differing=differing([baseline.run, candidate.run]),
    )
    return report, candidate, uri


def _named(name: str, mlruns: Path, tracked: TrackedRuns) -> MeasuredRun:
    """Return the run of this name: that of a baseline, a folder, or an id in MLflow."""
    return read_measured(folder_of(name, mlruns, tracked), name)


def _measured(call: Called, baseline: MeasuredRun, mlruns: Path, folder: Path) -> tuple[MeasuredRun, GateScheduler]:
    """Run a candidate on the questions and with the settings of the baseline."""
    with tempfile.TemporaryDirectory() as copy:
        lines = candidate_overrides(baseline.folder, call.overrides, mlruns, Path(copy))
        config, composed = composed_in(Path(copy), lines)
    gate = resolved(call.settings, baseline)
    by_answers = {KNOWLEDGE, FIRMNESS} & gate.metrics.keys()
    if call.early and by_answers:
        raise UserError(
            f"{DECIDED} needs metrics, but {baseline.name} has none for {' and '.join(sorted(by_answers))}: remove "
            f"{DECIDED}"
        )
    for metric in gate.metrics.keys() - by_answers:
        gate_spec(baseline, metric)
    settings = flat(OmegaConf.to_container(composed, resolve=True))
    refuse_other_settings(baseline, settings, "the candidate")
    taken: list[GateScheduler] = []

    def make_schedule(questions: Sequence[Question]) -> GateScheduler:
        taken.append(GateScheduler(questions, baseline, gate, call.early, config.seed))
        if others := len(questions) - len(taken[-1].left):
            log.warning("questions left out because the baseline did not ask them: %d", others)
        return taken[-1]

    folder.mkdir(parents=True, exist_ok=True)
    try:
        run_experiment(config, composed, folder, make_schedule=make_schedule)
    except NothingKeptError as problem:
        if not kept_nothing(folder):  # no question could be asked
            raise
        write_error(problem, folder)
        log.warning("%s", problem)
    except Exception as problem:
        if (folder / CONFIG).is_file() and not isinstance(problem, OtherRunError):  # it has begun
            write_error(problem, folder)
        raise
    return read_measured(folder, "the candidate"), taken[-1]


def _record(report: Report, run_id: str, uri: str) -> None:
    """Record the gate's verdict with the candidate's run; where the tracker lacks it or cannot be reached, warn."""
    mlflow = mlflow_library()
    from mlflow.exceptions import MlflowException

    decision = report.decision
    values = {
        f"gate.{each.name}.{name}": getattr(each, name)
        for each in decision.metrics
        for name in ("difference", "low", "high")
    }
    tags = {"gate.verdict": decision.outcome, "gate.baseline": report.baseline}
    try:
        run = MlflowRun(mlflow.MlflowClient(uri), run_id)
        run.tags(tags | {f"gate.{each.name}": each.outcome for each in decision.metrics})
        run.scores([], values)
    except (MlflowException, OSError) as problem:
        log.warning("the verdict is not in MLflow: %s", first_line(problem))


def _print(report: Report, folder: Path) -> None:
    console = terminal()
    console.print(report.headline)
    for sentence in (*report.decision.reasons, report.saved):
        if sentence:
            console.print_sentence(sentence)
    if report.differing:
        console.print_sentence(f"settings that differ: {listed(report.differing)}")
    for table in tables(report)[:1] if report.decision.metrics else ():
        shown = titled(table.title)
        columns = len(table.header) - 1  # margins are said above, and would be too much for 80 characters
        for place, name in enumerate(table.header[:columns]):
            shown.add_column(name, justify="left" if place < table.names else "right", no_wrap=place > 0)
        shown.columns[0].min_width = 10
        for row in table.rows:
            shown.add_row(*(f"{cell.value}\n{cell.interval}".rstrip() for cell in row[:columns]))
        console.print(shown)
    facts = report.facts
    if report.shared:
        console.print_sentence(
            f"individual facts, not part of the verdict: {len(facts.forgotten):,} forgotten, {len(facts.learned):,} "
            f"learned, {len(facts.less_robust):,} less robust"
        )
    console.print(f"verdict: {folder / PAGE}")


def baseline() -> None:
    """Set or list baselines of gates; exit with 2 and a sentence after a mistake."""
    arguments = _baseline_parser().parse_args()
    mlruns = arguments.mlruns
    with command(mistake=2):
        if arguments.action == "set":
            _refuse_unusable(arguments.run, mlruns, arguments.uri)
            set_baseline(mlruns, arguments.name, arguments.run)
            terminal().print(f"baseline {arguments.name}: {arguments.run}")
        else:
            names = baselines(mlruns)
            for name in names:
                terminal().print(f"{name}: {baseline_named(mlruns, name)}")
            if not names:
                terminal().print(f"there are no baselines in {mlruns}; name one with robust-eval baseline set NAME RUN")


def _refuse_unusable(run: str, mlruns: Path, uri: str | None) -> None:
    """Raise UserError for a run that cannot be the baseline of a gate."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            folder = Path(run) if Path(run).is_dir() else TrackedRuns(uri, mlruns, Path(scratch)).fetched(run)
            read_measured(folder, run)
        except OutageError as problem:
            raise UserError(f"no baseline: {problem}") from problem


def _baseline_parser() -> argparse.ArgumentParser:
    parser = command_parser("baseline", "Name a run as a baseline, or list the baselines.")
    shared = argparse.ArgumentParser(add_help=False)
    add_tracker(shared)
    actions = parser.add_subparsers(dest="action", metavar="{set,list}", required=True)
    setting = actions.add_parser("set", parents=[shared], help="name a run as a baseline")
    setting.add_argument("name", metavar="NAME")
    setting.add_argument("run", metavar="RUN", help="its folder, or its id in MLflow")
    actions.add_parser("list", parents=[shared], help="list all baselines with their runs")
    return parser
