"""The environment of a run: versions, machine, and the commit of the code."""

import os
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

import robust_eval

PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "scipy", "pyarrow", "hydra-core", "omegaconf", "mlflow")


def environment() -> dict[str, str]:
    """Return the versions of Python and of packages that matter, the machine, the visible GPUs, and the git commit."""
    return {
        "version.robust_eval": robust_eval.__version__,
        "version.python": platform.python_version(),
        **_versions(),
        "machine": f"{platform.system()} {platform.machine()}",
        "devices": os.environ.get("CUDA_VISIBLE_DEVICES", "all"),
        "git.commit": _own_commit(),
    }


@cache
def _versions() -> dict[str, str]:
    """Return the versions of :data:`PACKAGES`, read once: of a package that changes later, this process has the old."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[f"version.{package}"] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[f"version.{package}"] = "not installed"
    return versions


@cache
def _own_commit() -> str:
    """Return the commit of this code, asked for once: what is edited later, this process has not loaded."""
    return git_commit(Path(__file__).parent)


def git_commit(folder: Path) -> str:
    """Return the commit of the checkout that a folder belongs to, with "+changes" where tracked files differ.

    "none" where there is no checkout, or only one that somebody keeps around an installed package.
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
