"""A path where the name of a data set is expected: ``dataset=quiz.csv`` asks the questions of that file."""

from collections.abc import Sequence
from pathlib import Path

from hydra.core.config_store import ConfigStore

from robust_eval.config.composition_errors import nearest
from robust_eval.dataset.file_formats import KINDS
from robust_eval.dataset.jsonl import is_native
from robust_eval.error import UserError


def offer(value: str, folders: Sequence[Path]) -> None:
    """Make a file, or a folder of files, an option of the group ``dataset``, if ``value`` is the path of one.

    The option is ``dataset=local``, or ``dataset=jsonl`` where the file has our own layout, with the path, and with the
    file's name as its name. An option of the same name in one of the ``folders`` of options has precedence. UserError
    where the value can only be a path, and nothing lies there.
    """
    known = [file.stem for folder in folders for file in Path(folder, "dataset").glob("*.yaml")]
    path = Path(value)
    if value in known:
        return
    if path.exists():
        reader = "jsonl" if path.suffix.lower() == ".jsonl" and path.is_file() and is_native(path) else "local"
        *parents, last = filter(None, f"dataset/{value}".split("/"))
        ConfigStore.instance().store(
            group="/".join(parents),
            name=last,
            node={
                "defaults": [f"/dataset/{reader}@_here_", "_self_"],
                "path": value,
                "name": path.resolve().name if path.is_dir() else path.stem,
            },
        )
    elif path.suffix.lower() in KINDS:
        beside = path.parent.iterdir() if path.parent.is_dir() else ()
        known += [str(file) for file in beside if file.suffix.lower() in KINDS]
        raise UserError(f"there is no file {value}, and no data set of this name{nearest(value, known)}")


def without_slash(line: str) -> str:
    """Return ``dataset=folder/`` without the slash at its end, with which Hydra finds no option."""
    return line.rstrip("/") if line.startswith("dataset=") else line
