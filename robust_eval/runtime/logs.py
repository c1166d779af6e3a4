"""The format of the log."""

import copy
import logging
from typing import Any

from robust_eval.runtime.printable import printable, printable_lines


class Formatter(logging.Formatter):
    """Writes each message on one line, whatever it quotes, and indents the lines of a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        record = copy.copy(record)
        record.exc_text = None  # as another formatter may have left it
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return _set_in(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802
        return _set_in(super().formatStack(stack_info))


def log_plainly(level: int = logging.WARNING) -> None:
    """Log messages from this level on to standard error, without time or logger name."""
    handler = logging.StreamHandler()
    handler.setFormatter(Formatter("%(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


def _set_in(text: str) -> str:
    return "\n".join(f"  {line}" for line in printable_lines(text).split("\n"))
