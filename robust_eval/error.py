"""Exceptions with a message for users, and the first line of any exception."""


class UserError(ValueError):
    """Mistake that the person who started the run can correct.

    Its text is one sentence: what is wrong, where, and what would be right. The command line prints it without a
    traceback and exits with status 1.
    """


class OutageError(UserError):
    """Outage of an external resource: a server, an API key, credit, a judge model. It is no result of the model."""


def first_line(problem: BaseException) -> str:
    """Return the first line of an exception's message that is not blank, or the type's name for an empty message.

    A line that ends in a colon is followed by the next line.
    """
    first, *rest = [line.strip() for line in str(problem).splitlines() if line.strip()] or [type(problem).__name__]
    return f"{first} {rest[0]}" if first.endswith(":") and rest else first
