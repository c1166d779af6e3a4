"""What is shown to a person: everything that is printed goes through here."""

import os
import signal
import sys
from typing import Any, NoReturn

from rich import console
from rich.text import Text

from robust_eval.runtime.printable import printable_lines


class Console(console.Console):
    """Text is shown as it is, of whoever it may be, in whole lines; what cannot be seen as an escape."""

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, soft_wrap=True, markup=False, emoji=False)

    def render_str(self, text: str, **settings: Any) -> Text:
        """Every text, those in the cells of tables as well, comes by here before anything is laid out."""
        return super().render_str(printable_lines(text), **settings)

    def on_broken_pipe(self) -> NoReturn:
        """Who reads has gone, as ``head`` does: end without a word, with the status of a command that SIGPIPE ended."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())  # so that nothing more is said when the process ends
        os.close(nowhere)
        sys.exit(128 + signal.SIGPIPE)
