"""Compose and run an experiment in this process, and print what it found, as the command does."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import hydra
import pytest
from omegaconf import DictConfig
from tiny_model import plain_settings, save_tiny_model

from robust_eval.config.checks import to_config
from robust_eval.config.config import Config
from robust_eval.config.groups import CONF
from robust_eval.config.schema import register
from robust_eval.experiment.run import run
from robust_eval.metric.score import Metric
from robust_eval.report.terminal import print_summary
from robust_eval.tracking.base import Run, Tracking
from robust_eval.tracking.result import Result

RUN_WITHOUT_FIGURES = """
import runpy
from robust_eval.plot import figure_files
figure_files.registered = list
runpy.run_path("run.py", run_name="__main__")
"""
"""What ``run.py`` does in a process of its own (``python -c``), but for the figures of the run."""


def composed(*overrides: str) -> DictConfig:
    """Compose the settings with these overrides."""
    register()
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return hydra.compose("config", list(overrides))


def configuration(*overrides: str) -> Config:
    """Compose the settings and build the objects that they name."""
    return to_config(composed(*overrides))


def run_experiment(
    folder: Path, *overrides: str, figures: bool = False, metrics: Mapping[str, Metric] | None = None
) -> Result:
    """Run an experiment that leaves its files in ``folder``, without figures unless these are asked for.

    ``metrics`` take the place of those that the overrides name.
    """
    settings = composed(*overrides)
    config = to_config(settings)
    if metrics is not None:
        config = replace(config, metric=dict(metrics))
    with nullcontext() if figures else without_figures():
        result, store, _ = run(config, settings, folder)
    print_summary(result, folder, store, config.tracking.command(Path(config.paths.mlruns)))
    return result


Runs = Callable[..., tuple[Result, Path]]
"""Runs an experiment with overrides in a new folder, and returns its result and the folder."""


def runs_of_tiny_model(
    factory: pytest.TempPathFactory, *settings: str, letters: bool = True, shared: bool = True
) -> Runs:
    """Runs of a tiny random model, which share a store unless ``shared`` is False."""
    model, place = save_tiny_model(factory.mktemp("model"), letters=letters), factory.mktemp("runs")
    fixed = [*plain_settings(model), "engine.threads=1", "tracking=none", *settings]

    def run(*overrides: str, figures: bool = False) -> tuple[Result, Path]:
        folder = factory.mktemp("run")
        mlruns = place if shared else folder / "mlruns"
        return run_experiment(folder, *fixed, f"paths.mlruns={mlruns}", *overrides, figures=figures), folder

    return run


def served(url: str) -> list[str]:
    """Settings of a run of a model behind a server, without tracking."""
    return ["model=openai_compatible", f"model.base_url={url}", "model.model=m", "tracking=none"]


def ask(url: str, folder: Path, *overrides: str) -> Result:
    """Run an experiment with a model behind a server in a new folder; runs in one place share a store."""
    folder.mkdir(parents=True)
    return run_experiment(folder, *served(url), f"paths.mlruns={folder.parent}", *overrides)


def tracked_values(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Parameters of the runs that follow with tracking=none, and their name under ``name``."""
    values: dict[str, Any] = {}

    class Tracked(Run):
        def parameters(self, values_of_run: Mapping[str, Any]) -> None:
            values.update(values_of_run)

    def run(_: Tracking, name: str, mlruns: Path) -> AbstractContextManager[Run]:
        values["name"] = name
        return nullcontext(Tracked())

    monkeypatch.setattr(Tracking, "run", run)
    return values


@contextmanager
def without_figures() -> Iterator[None]:
    """Runs draw no figures meanwhile: to draw them takes longer than all the rest of a small run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("robust_eval.plot.figure_files.registered", list)
        yield
