"""The console that everything is printed to."""

import os
import signal
import sys
from typing import Any, NoReturn

from rich import console
from rich.text import Text

from robust_eval.runtime.printable import printable_lines


class Console(console.Console):
    """A rich console without markup, in which characters that cannot be seen are printed as escapes."""

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, soft_wrap=True, markup=False, emoji=False)

    def render_str(self, text: str, **settings: Any) -> Text:
        """Make a text printable. All texts pass here before they are laid out, those in cells of tables as well."""
        return super().render_str(printable_lines(text), **settings)

    def on_broken_pipe(self) -> NoReturn:
        """Exit silently where the reader has gone (``| head``), with the status of a command that SIGPIPE ended."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())  # so that nothing more is said when the process ends
        os.close(nowhere)
        sys.exit(128 + signal.SIGPIPE)
