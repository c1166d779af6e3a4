"""Versions of Python, packages and this program, and the origin of a result."""

import os
import platform
import subprocess
from datetime import datetime
from functools import cache
from importlib import metadata
from pathlib import Path

import robust_eval
from robust_eval.runtime.process import typed_command

PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "scipy", "pyarrow", "hydra-core", "omegaconf", "mlflow")


def environment() -> dict[str, str]:
    """Return the versions of Python and of :data:`PACKAGES`, the machine, the visible GPUs, and the git commit."""
    return {
        "version.robust_eval": robust_eval.__version__,
        "version.python": platform.python_version(),
        **_versions(),
        "machine": f"{platform.system()} {platform.machine()}",
        "visible_gpus": os.environ.get("CUDA_VISIBLE_DEVICES", "all"),
        "git.commit": git_commit(Path(__file__).parent),
    }


@cache
def _versions() -> dict[str, str]:
    """Return the versions of :data:`PACKAGES`, read once: this process keeps the version that it imported."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[f"version.{package}"] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[f"version.{package}"] = "not installed"
    return versions


@cache
def git_commit(folder: Path) -> str:
    """Return the git commit of the checkout of a folder, read once, with "+changes" if tracked files differ.

    "none" without a checkout, or in one that does not track the folder.
    """
    try:
        if not _git(folder, "ls-files", "."):
            return "none"
        commit = _git(folder, "rev-parse", "HEAD")
        return commit + ("+changes" if _git(folder, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "none"


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def origin(run_id: str | None) -> dict[str, str]:
    """Return a result's origin: the command of this process, the time, the id of the run, and the known versions."""
    versions = {name: value for name, value in environment().items() if value not in ("none", "not installed")}
    entries = {"command": typed_command(), "time": f"{datetime.now().astimezone():%d %B %Y, %H:%M %Z}"}
    return entries | ({} if run_id is None else {"run id": run_id}) | versions
