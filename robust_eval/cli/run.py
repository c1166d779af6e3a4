"""Runs and sweeps, after a check of the command line."""

import logging
import os
import re
import shutil
import sys
import traceback
from argparse import ArgumentError, ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig

from robust_eval.cli.help import print_overview
from robust_eval.cli.repeat import repeated_run, repeating_overrides
from robust_eval.config.checks import to_config
from robust_eval.config.config import Config
from robust_eval.config.groups import CONF
from robust_eval.config.overrides import (
    Checked,
    as_meant,
    checked_overrides,
    composed_in,
    several_values,
    with_own_options,
)
from robust_eval.config.schema import register
from robust_eval.error import OtherRunError, UserError, first_line
from robust_eval.interop.log_as_answers import with_log
from robust_eval.runtime.process import command, print_error, timestamp
from robust_eval.runtime.registry import COMBINABLE_GROUPS
from robust_eval.runtime.text import printable, printable_lines
from robust_eval.tracking.base import Run
from robust_eval.tracking.run_folder import COMPARISON, CONFIG, ERROR, FAILED, finished_jobs

log = logging.getLogger(__name__)

_FLAGS = (
    *(("--help", "-h"), ("--hydra-help",), ("--resolve",)),
    *(("--run", "-r"), ("--multirun", "-m"), ("--shell-completion", "-sc")),
)
_VALUES = (
    *(("--cfg", "-c"), ("--package", "-p"), ("--config-path", "-cp"), ("--config-name", "-cn")),
    *(("--config-dir", "-cd"), ("--experimental-rerun",)),
)
_INFO = ("--info", "-i")
"""Hydra's options: without a value, with a value, and with an optional value."""


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def launch(composed: DictConfig) -> None:
    """Run the experiment that Hydra composes from the command line; in a sweep, a job."""
    hydra_config = HydraConfig.get()
    swept = hydra_config.job.override_dirname if hydra_config.mode == RunMode.MULTIRUN else None
    run(composed, hydra_config.runtime.output_dir, swept, repeated_run(hydra_config.runtime.config_sources))


def main() -> None:
    """Check the command line, then launch a run with Hydra, or with ``-m`` the jobs of a sweep."""
    with command():
        register()
        _refuse_options(sys.argv[1:])
        known = _known_options(sys.argv[1:])
    if known.help:
        print_overview()
        return
    if known.hydra_help or known.info:
        with command():
            if known.overrides:
                checked_overrides(known.overrides)
        launch()
        return
    with command():
        if known.shell_completion:
            raise UserError("for Tab completion use robust-eval completion bash (or zsh, fish)")
        dry, cancelling = (_flag(known, name) for name in ("dry_run", "cancel_batches"))
        repeats = [line for line in known.overrides if line.startswith("repeat=")]
        options = list(sys.argv[1:])
        for line in known.overrides:
            options.remove(line)
        if not repeats:
            known.overrides = with_own_options(with_log(known.overrides), known.config_dir and Path(known.config_dir))
        sys.argv[1:] = [*options, *known.overrides]  # Hydra reads consecutive overrides
        conflicts = {"-m": known.multirun, "dry_run=true": dry, "cancel_batches=true": cancelling}
        if repeats and any(conflicts.values()):
            other = next(name for name, is_set in conflicts.items() if is_set)
            raise UserError(f"{repeats[-1]} repeats one run with new requests, so {other} cannot be added: remove one")
        if dry or cancelling:
            from robust_eval.cli.dry_run import cancel_batches, dry_run  # it takes a second

            (cancel_batches if cancelling else dry_run)(checked_overrides(known.overrides), known.multirun)
            return
        if repeats:
            with TemporaryDirectory() as copy:
                lines = repeating_overrides(known.overrides, Path(copy))
                try:
                    composed_in(Path(copy), lines)  # its errors are one sentence, those of Hydra many lines
                except UserError as problem:
                    raise UserError(f"{repeats[-1]}: {problem}") from problem
                of_hydra = ["--config-path", copy, "--config-name", "config", f"hydra.searchpath=[file://{CONF}]"]
                sys.argv[1:] = [*options, *of_hydra, *lines]
                launch()
            return
        checked = checked_overrides(known.overrides)
        expanded = dict(zip(known.overrides, checked.overrides, strict=True))
        sys.argv[1:] = [expanded.get(argument, argument) for argument in sys.argv[1:]]
        if known.cfg and known.multirun:
            raise UserError("--cfg shows one configuration, but a sweep has several: remove -m")
        if known.cfg in ("job", "all"):
            _print_choices(checked)
        elif known.cfg is None:
            _check_writable(Path(checked.config.paths.mlruns))
        if known.multirun:
            _sweep(checked)
            return
        if checked.swept and checked.with_hydra.hydra.mode != RunMode.MULTIRUN:
            raise several_values(checked)
        if known.cfg is None:
            os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra passes exceptions on
        try:
            launch()
        except OSError as problem:  # of the folder; a run reports its own errors
            raise UserError(
                f"hydra.run.dir: {problem.filename} cannot be created ({problem.strerror}); choose another folder"
            ) from problem


def _print_choices(checked: Checked) -> None:
    """Print the chosen options as on a command line, in a comment above the YAML of ``--cfg``."""
    if checked.swept:
        raise UserError(f"--cfg shows one configuration: {', '.join(checked.swept)} has several values")
    choices = checked.with_hydra.hydra.runtime.choices.items()
    chosen = {group: [option] for group, option in choices if isinstance(option, str) and group[:6] != "hydra/"}
    chosen |= {group: [str(name) for name in checked.composed[group]] for group in COMBINABLE_GROUPS}
    names = {group: one[0] if len(one) == 1 else f"[{','.join(one)}]" for group, one in sorted(chosen.items())}
    print("#", *(f"{group.rpartition('@')[2]}={name}" for group, name in names.items()))


def _refuse_options(arguments: Sequence[str]) -> None:
    """Raise UserError for a setting with leading dashes: Hydra would take ``--experiment`` for one of its options."""
    known = {name for names in (*_FLAGS, *_VALUES, _INFO) for name in names}
    for index, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        if name in known or not re.match(r"--[a-zA-Z]|-[abd-oq-z][a-zA-Z]", name):  # -cjob is -c job, and so is -p
            continue
        following = next(iter(arguments[index + 1 :]), "")
        if not value and following and "=" not in following and not following.startswith("-"):
            value = following
        raise UserError(
            f"{name} is not an option: settings are written without dashes, {name.lstrip('-')}={value or '…'} "
            "(--help lists groups and commands, --hydra-help the dashed options)"
        )


def _known_options(arguments: Sequence[str]) -> Namespace:
    """Parse Hydra's options. Raises UserError for a broken one, and for one that would skip the checks."""
    parser = ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("overrides", nargs="*")
    for flag in _FLAGS:
        parser.add_argument(*flag, action="store_true")
    for option in _VALUES:
        parser.add_argument(*option, choices=("job", "hydra", "all") if "--cfg" in option else None)
    parser.add_argument(*_INFO, nargs="?", const="all")
    try:
        known, _ = parser.parse_known_intermixed_args(arguments)
    except ArgumentError as problem:
        raise UserError(f"{problem.argument_name}: {problem.message} (--hydra-help explains the options)") from problem
    if known.config_name or known.config_path:
        raise UserError(
            "--config-name and --config-path are not supported: repeat=FOLDER repeats an earlier run, and --config-dir "
            "names a folder with your own options"
        )
    for name, value in (("--package", known.package), ("--resolve", known.resolve)):
        if value and known.cfg is None:
            raise UserError(f"{name} works only with --cfg: add --cfg job, or remove {name}")
    return known


def _flag(known: Namespace, name: str) -> bool:
    """Remove the overrides of this name, unknown to Hydra, from the command line; return the value of the last one."""
    lines = [line for line in known.overrides if line.startswith(f"{name}=")]
    known.overrides = [line for line in known.overrides if line not in lines]
    sys.argv[1:] = [argument for argument in sys.argv[1:] if argument not in lines]
    value = lines[-1].partition("=")[2].lower() if lines else "false"
    if value not in ("true", "false"):
        raise UserError(f"{name} must be true or false, not {value or 'empty'}")
    return value == "true"


def _check_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as problem:
        raise UserError(
            f"paths.mlruns: {folder} is not writable ({problem.strerror}); choose another folder"
        ) from problem


def _sweep(checked: Checked) -> None:
    folder_lines = [line for line in checked.overrides if line.startswith("hydra.sweep.dir=")]
    if not folder_lines:
        folder_lines = [as_meant(f"hydra.sweep.dir={checked.config.paths.mlruns}/sweeps/{timestamp()}")]
        sys.argv += folder_lines
    folder = str(OverridesParser.create().parse_override(folder_lines[-1]).value())
    swept = [line.partition("=")[0] for line in checked.swept]
    fixed = {line.partition("=")[0] for line in checked.overrides} - set(swept) | {"model", "dataset"}
    sys.argv.append(f"hydra.job.config.override_dirname.exclude_keys={sorted(fixed)}")  # the others distinguish jobs
    run_sweep(launch, checked.config, checked.swept, checked.jobs, Path(folder))


def run(composed: DictConfig, folder: str, swept: str | None = None, repeated: Path | None = None) -> None:
    """Run one experiment into ``folder``, or repeat the one in the folder ``repeated``.

    A job of a sweep, which differs from the others by the overrides ``swept``, prints an error instead of exiting, so
    that the next job follows.
    """
    with command():
        try:
            config = to_config(composed)
            from robust_eval.experiment.run import run as run_experiment
            from robust_eval.report.terminal import print_job, print_summary

            result, store, same = run_experiment(config, composed, Path(folder), swept, repeated)
            if swept is None:
                print_summary(result, Path(folder), store, config.tracking.command(Path(config.paths.mlruns)))
            else:
                print_job(result, Path(folder))
            if repeated is not None:
                log.info("compared with %s: %s", repeated, same)
        except Exception as problem:
            is_own = swept is not None or (Path(folder) / CONFIG).is_file()  # the run has started
            if is_own and not isinstance(problem, OtherRunError):
                write_error(problem, Path(folder))
            if swept is None:
                raise
            write_error(problem, Path(folder).parent / FAILED, Path(folder).name)
            print_error(problem)


def run_sweep(launch: Callable[[], None], config: Config, swept: Sequence[str], jobs: int, folder: Path) -> None:
    """Run a sweep: the jobs that ``launch`` starts, each in its own folder under ``folder``.

    ``config`` is the configuration of any one job, ``swept`` the overrides that differ between jobs. Raises UserError
    for failed jobs, after all jobs have ended. A sweep without a request leaves no folder and no record in the tracker.
    """
    name = f"sweep over {', '.join(swept)}" if swept else "sweep"
    is_new, before, failures = not folder.exists(), _start_times(folder), folder / FAILED
    shutil.rmtree(failures, ignore_errors=True)
    with config.tracking.sweep(name, Path(config.paths.mlruns), folder) as record:
        try:
            launch()
            reasons = sorted(failures.glob("*"))
            finished = [job for job in finished_jobs(folder) if failures / job.name not in reasons]
            if finished:
                _compare(finished, folder / COMPARISON, record)
            if failed := max(jobs - len(finished), len(reasons)):
                where = f", in {folder}" if _start_times(folder) != before else " before the first request"
                raise UserError(f"{failed} of {jobs} jobs failed{where}: {_in_words(reasons)}")
        finally:
            shutil.rmtree(failures, ignore_errors=True)
            if _start_times(folder) == before:
                record.discard()
                if is_new:
                    shutil.rmtree(folder, ignore_errors=True)


def _start_times(folder: Path) -> dict[Path, int]:
    """Return the configuration files of the started jobs of a sweep, with the times of writing."""
    return {file: file.stat().st_mtime_ns for file in folder.glob(f"*/{CONFIG}")}


def _in_words(reasons: Sequence[Path]) -> str:
    """Format the reasons of a sweep's failed jobs, each after the numbers of these jobs."""
    failed: dict[str, list[str]] = {}
    for file in reasons:
        failed.setdefault(file.read_text(encoding="utf-8").splitlines()[0], []).append(file.name)
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in failed.items()) or "no reason was recorded"


def _compare(jobs: Sequence[Path], folder: Path, record: Run) -> None:
    """Compare a sweep's runs in these folders; write the comparison to ``folder`` and the tracker, and print it."""
    from robust_eval.report.comparison_page import write_comparison
    from robust_eval.report.mlflow_tables import comparison_note, comparison_tables
    from robust_eval.report.terminal import print_comparison
    from robust_eval.runs.comparison import compare
    from robust_eval.runs.finished_runs import read_run

    compared = compare([read_run(job) for job in jobs])
    write_comparison(compared, folder)
    record.folder(folder)
    record.best_of_sweep([spec for run in compared.runs for spec in run.specs])
    record.note(comparison_note(compared))
    record.tables(comparison_tables(compared))
    print_comparison(compared, folder)


def write_error(problem: Exception, folder: Path, name: str = ERROR) -> None:
    """Write the reason and the traceback of a failed job into a file in its folder; a full disk is only logged."""
    lines = "".join(traceback.format_exception(problem))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{printable(first_line(problem))}\n\n{printable_lines(lines)}", encoding="utf-8")
    except OSError as unwritten:
        log.warning("%s cannot be written: %s", folder / name, unwritten.strerror)
