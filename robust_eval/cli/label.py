"""Label answers of a finished run as right or wrong: ``robust-eval label RUN``, in the terminal or with ``--page``."""

import argparse
import getpass
import logging
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from robust_eval.answer import ABSTAINED
from robust_eval.cli.arguments import add_tracker, command_parser
from robust_eval.error import UserError, first_line
from robust_eval.experiment.scoring import LabelledRun
from robust_eval.labels.human_labels import agreements, count_labelled
from robust_eval.labels.label_records import LABELS, RIGHT, UNCLEAR, WRONG, read_labels
from robust_eval.labels.labelling import ANSWER, QUESTION, Labelling, sample
from robust_eval.metric.score import Score
from robust_eval.report.label_server import label_server, references
from robust_eval.report.page import write_corrected
from robust_eval.report.terminal import print_tables, terminal
from robust_eval.runtime.console import configure_logging
from robust_eval.runtime.parquet_files import write_parquet
from robust_eval.runtime.process import Terminated, command, process_lock
from robust_eval.runtime.text import number
from robust_eval.tracking.mlflow_run import MlflowRun
from robust_eval.tracking.mlflow_tracker import mlflow_library, store_at
from robust_eval.tracking.run_folder import LABELS_FILE, TRACKED

log = logging.getLogger(__name__)

SIZES = {ANSWER: 200, QUESTION: 20}
"""Default sample sizes of answers and of questions."""
KEYS = {"r": RIGHT, "w": WRONG, "a": ABSTAINED, "u": UNCLEAR}


def main() -> None:
    """Label answers of a run, or import labels; then correct the metrics of the run."""
    parser = command_parser(
        "label",
        "Label answers of a run as right or wrong; its metrics are then corrected for the grader's errors. Each label "
        "is saved at once: stop at any time and resume later.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a finished run (mlruns/runs/DATE/TIME)")
    parser.add_argument(
        "--by", choices=list(SIZES), default=ANSWER, help="draw answers, or whole questions (for Mode, Worst, Best)"
    )
    parser.add_argument("--sample", type=int, metavar="N", help="number of answers (200) or questions (20) to draw")
    parser.add_argument(
        "--labeller",
        metavar="NAME",
        help="name of the annotator; the agreement between two annotators is shown",
    )
    parser.add_argument("--page", action="store_true", help="label in a browser on this machine")
    parser.add_argument("--read", type=Path, metavar="FILE", help="import labels from a file")
    add_tracker(parser)
    arguments = parser.parse_args()
    configure_logging()
    with command():
        labelled = LabelledRun.read(arguments.run)
        file = arguments.run / LABELS_FILE
        if arguments.read is not None:
            _import(arguments.read, labelled, file)
        else:
            _label(arguments, labelled, file)
        if file.is_file():
            _correct(labelled, read_labels(file), arguments)


def _label(arguments: argparse.Namespace, labelled: LabelledRun, file: Path) -> None:
    size = SIZES[arguments.by] if arguments.sample is None else arguments.sample
    if size < 1:
        raise UserError(f"--sample must be at least 1, not {size}")
    items = sample(labelled.graded, arguments.by, size, int(labelled.run.settings["seed"]))
    if not items:
        raise UserError(f"{arguments.run} has no verdicts for labels to correct")
    if arguments.by == ANSWER and pc.any(labelled.graded["uncertain"]).as_py():
        terminal().print("at first, every other reply is an uncertain one; stopping early does not bias the metrics")
    try:
        user = arguments.labeller or getpass.getuser()
    except (OSError, KeyError):  # a container may have no user
        user = "me"
    labelling = Labelling(file, items, labelled.questions, user)
    name = f"{labelled.run.settings['model.name']} on {labelled.run.settings['dataset.name']}"
    try:
        if not arguments.page:
            _in_terminal(labelling, name)
        else:
            with label_server(labelling, name) as (address, ended):
                terminal().print(f"label in a browser: {address} (stop with Ctrl-C)")
                while not ended.is_set():  # Event.wait could turn Ctrl-C into an error of its own
                    time.sleep(0.2)
    except Terminated:
        raise
    except KeyboardInterrupt:  # the usual end: all labels are saved
        terminal().print()
    terminal().print(f"{labelling.done:,} of {len(labelling):,} replies labelled: {file}")


def _in_terminal(labelling: Labelling, name: str) -> None:
    console = terminal()
    console.print(f"{name}: r right, w wrong, a abstained, u unclear, b back, q stop")
    item = labelling.next()
    while item is not None:
        console.print(f"\n[{item.number + 1:,} of {len(labelling):,}] {item.question.title}")
        for text in references(item.question):
            console.print(f"  = {text}")
        console.print(f"  reply: {item.text or '(empty)'}")
        key = _key()
        if key in ("q", ""):
            return
        if key in KEYS:
            labelling.label(item.number, KEYS[key], item.label)
            item = labelling.next()
        elif key == "b":
            item = labelling.back() or item


def _key() -> str:
    """Return the key pressed in a terminal, or the first letter of a line; empty at the end of the input."""
    if not sys.stdin.isatty():
        line = sys.stdin.readline()
        return line.strip()[:1].lower() or "?" if line else ""
    import termios
    import tty

    terminal().print("  > ", end="")
    sys.stdout.flush()
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        key = sys.stdin.read(1).lower()
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
    terminal().print(KEYS.get(key, ""))
    return "" if key == "\x04" else key


def _import(source: Path, labelled: LabelledRun, file: Path) -> None:
    """Add the labels of another file to those of the run."""
    imported = read_labels(source)
    if not (answers := count_labelled(labelled.by_sampler(), imported)):
        raise UserError(f"none of the {imported.num_rows:,} labels in {source} matches an answer of this run")
    with process_lock(file.with_name(f".{file.name}.lock")):
        before = read_labels(file) if file.is_file() else LABELS.empty_table()
        labels = [*before.to_pylist(), *imported.to_pylist()]
        names = [name for name in LABELS.names if name != "label"]
        rows = {tuple(str(row[name]) for name in names): row for row in labels}  # the last label counts
        write_parquet(pa.Table.from_pylist(list(rows.values()), LABELS), file)
    terminal().print(f"{imported.num_rows:,} labels of {answers:,} answers imported: {file}")


def _correct(labelled: LabelledRun, labels: pa.Table, arguments: argparse.Namespace) -> None:
    """Print the agreement of labellers; write, record and print the metrics that the labels correct."""
    console = terminal()
    for each in agreements(labels):
        console.print(
            f"{each.first} and {each.second} agree on {each.same:,} of {each.replies:,} replies: Cohen's κ = "
            f"{number(each.kappa)}"
        )
    if (score := labelled.corrected(labels)) is not None:
        write_corrected(labelled.folder, score)
        _record(labelled, score, arguments.uri, arguments.mlruns)
        print_tables(score, console)


def _record(labelled: LabelledRun, score: Score, uri: str | None, mlruns: Path) -> None:
    """Record the metrics corrected by labels with the run in MLflow; warn if the tracker cannot be reached.

    The command line, not the run, names the tracker: the folder may come from somebody else.
    """
    tracked = labelled.folder / TRACKED
    if not tracked.is_file():
        return
    run_uri, folder = (labelled.run.settings.get(name) for name in ("tracking.uri", "paths.mlruns"))
    if uri is None and store_at(run_uri, Path(str(folder))) != store_at(None, mlruns):
        option = f"--uri {run_uri}" if run_uri else f"--mlruns {folder}"
        log.warning("the corrected metrics are not in MLflow: to record them with the run, add %s", option)
        return
    mlflow = mlflow_library()
    from mlflow.exceptions import MlflowException

    uri = store_at(uri, mlruns)
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).is_file():
        log.warning("the corrected metrics are not in MLflow: there is no %s", uri)
        return
    try:
        MlflowRun(mlflow.MlflowClient(uri), tracked.read_text(encoding="utf-8").strip()).scores([score], {})
    except (MlflowException, OSError) as problem:
        log.warning("the corrected metrics are not in MLflow: %s", first_line(problem))
