"""Exceptions with a message for users, and the first line of any exception."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class UserError(ValueError):
    """Mistake that the person who started the run can correct.

    Its text is one sentence: the setting or place, the value, and the fix. The command line prints it without a
    traceback and exits with status 1.

    >>> from robust_eval import grade_reply
    >>> grade_reply("B", choices=["3 m/s"])
    Traceback (most recent call last):
        ...
    robust_eval.error.UserError: choices must contain 2 to 13 strings, not 1
    """


class OtherRunError(UserError):
    """Refusal of a folder that belongs to another run: one in progress, or one with other settings."""


class OutageError(UserError):
    """Outage of an external resource: a server, an API key, credit, a judge model. It is no result of the model."""


@contextmanager
def writing(content: str, path: Path) -> Iterator[None]:
    """Raise UserError for an OSError of the context: the ``content`` cannot be written to ``path``."""
    try:
        yield
    except OSError as problem:
        reason = problem.strerror or first_line(problem)
        raise UserError(f"{content} cannot be written to {path}: {reason}; choose another path") from problem


def first_line(problem: BaseException) -> str:
    """Return the first line of an exception's message that is not blank, or the type's name for an empty message.

    A line that ends in a colon is followed by the next line.
    """
    first, *rest = [line.strip() for line in str(problem).splitlines() if line.strip()] or [type(problem).__name__]
    return f"{first} {rest[0]}" if first.endswith(":") and rest else first
