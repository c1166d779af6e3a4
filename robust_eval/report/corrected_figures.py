"""The corrected figures of a run, in the files that it left: its report and its summary."""

import json
import math
from collections.abc import Mapping
from pathlib import Path

from robust_eval.answer import write_text
from robust_eval.error import UserError
from robust_eval.metric.figure import as_json, declared, from_json
from robust_eval.metric.score import Score
from robust_eval.report.page import CORRECTED_PART, corrected_part
from robust_eval.runtime.files import OF_RUN, read_json
from robust_eval.tracking.run_folder import FIGURES, REPORT, SUMMARY


def write_corrected(folder: Path, score: Score) -> None:
    """Write the corrected figures into the summary, the declarations and the report of a finished run, in place of
    those that were there.

    UserError where a file is damaged.
    """
    try:
        summary = dict(read_json(folder / SUMMARY, OF_RUN))
        known = from_json(read_json(folder / FIGURES, OF_RUN))
    except (OSError, ValueError, TypeError, KeyError) as problem:
        raise UserError(f"{folder} cannot be read: its {SUMMARY} or {FIGURES} is damaged") from problem
    kept = {name: value for name, value in summary.items() if not _corrected(name, score)}
    found: Mapping[str, float | None] = {
        name: value if math.isfinite(value) else None for name, value in score.flat().items()
    }
    names = {figure.name for figure in score.declared}
    declarations = [figure for figure in known if figure.name not in names]
    write_text(
        json.dumps(as_json([*declarations, *score.declared]), indent=2, ensure_ascii=False) + "\n", folder / FIGURES
    )
    write_text(json.dumps({**kept, **found}, indent=2, ensure_ascii=False) + "\n", folder / SUMMARY)
    page = folder / REPORT
    if page.is_file():
        before, start, rest = page.read_text(encoding="utf-8").partition(CORRECTED_PART[0])
        _, end, after = rest.partition(CORRECTED_PART[1])
        if start and end:
            write_text(f"{before}{corrected_part(score)}{after}", page)


def _corrected(name: str, score: Score) -> bool:
    """Tell whether a number of a summary is of a corrected figure: its value, or an end of its interval."""
    figure = name.removesuffix(".low").removesuffix(".high")
    return declared(figure, score.declared) is not None
