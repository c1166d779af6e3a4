"""The version of robust_eval and of what its answers depend on: ``robust-eval version``."""

import argparse
import platform
from importlib.metadata import version

from robust_eval.runtime.console import Console


def main() -> None:
    """Print the versions."""
    argparse.ArgumentParser(prog="robust-eval version", description="Print the versions.").parse_args()
    packages = ("robust_eval", "torch", "transformers", "openai")
    for name, number in (*((name, version(name)) for name in packages), ("Python", platform.python_version())):
        Console().print(f"{name} {number}")
