"""Arguments of a command that takes files and settings in any order."""

from collections.abc import Sequence
from pathlib import Path


def split_arguments(words: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Return the words that name files or folders, and those of the form ``KEY=VALUE``; a file may have such a name."""
    settings = [word for word in words if "=" in word and not Path(word).exists()]
    return [Path(word) for word in words if word not in settings], settings
