"""Figures of a finished run: ``robust-eval plot RUN``."""

from pathlib import Path

from robust_eval.cli.arguments import add_output, command_parser
from robust_eval.error import UserError, writing
from robust_eval.plot.figure_files import save_entries, save_for_paper
from robust_eval.plot.figure_registry import registered
from robust_eval.runs.figure_data import read_figure_data
from robust_eval.runs.finished_runs import read_run
from robust_eval.runtime.console import Console
from robust_eval.runtime.process import command


def main() -> None:
    """Draw the figures of a finished run, with those of its methods, and print their folder."""
    parser = command_parser("plot", "Redraw all figures of a finished run.")
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a finished run")
    parser.add_argument(
        "--style",
        choices=("report", "paper"),
        default="report",
        help="paper: no titles, one or two columns wide, PNG at 300 dpi, SVG and PDF with embedded fonts, captions",
    )
    add_output(parser, "folder for the figures; default: RUN/figures, with --style paper RUN/figures/paper")
    arguments = parser.parse_args()
    paper = arguments.style == "paper"
    figures = arguments.run / "figures"
    folder = arguments.output or (figures / "paper" if paper else figures)
    with command():
        if arguments.output is None and any(path.is_symlink() for path in (figures, *figures.rglob("*"))):
            raise UserError(f"{figures} contains a symbolic link, which may point elsewhere: set --output")
        run = read_figure_data(arguments.run)
        entries = [entry for entry in registered() if entry.allowed is None or entry.allowed(run)]
        with writing("the figures", folder):
            if paper:
                save_for_paper(entries, run, folder, read_run(arguments.run).title)
            else:
                save_entries(entries, run, folder)
        Console().print(f"figures: {folder}")
