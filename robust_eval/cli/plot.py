"""All figures of a finished run on one page: ``robust-eval plot RUN``."""

import argparse
from pathlib import Path

from robust_eval.error import UserError, first_line
from robust_eval.report.gallery import write_gallery
from robust_eval.runtime.console import Console
from robust_eval.runtime.process import command


def main() -> None:
    """Draw the figures of the run that the arguments name, and say where they lie."""
    parser = argparse.ArgumentParser(prog="robust-eval plot", description="All figures of a finished run.")
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a finished run")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="where they are written; by default RUN/gallery")
    arguments = parser.parse_args()
    folder = arguments.output or arguments.run / "gallery"
    with command():
        if arguments.output is None and any(path.is_symlink() for path in (folder, *folder.rglob("*"))):
            raise UserError(f"{folder} holds a link, and no folder is trusted to say where files go: name --output")
        try:
            page = write_gallery(arguments.run, folder)
        except OSError as problem:
            raise UserError(f"the gallery cannot be written to {folder}: {first_line(problem)}") from problem
        Console().print(f"gallery: {page}")


if __name__ == "__main__":
    main()
