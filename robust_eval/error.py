"""The exceptions whose message is written for users, and the first line of any exception."""


class UserError(ValueError):
    """A mistake that the person who started the run can correct.

    Its text is one sentence: what is wrong, where, and what would be right. The command line prints it without a
    traceback and exits with status 1.
    """


class OutageError(UserError):
    """What a run needs from elsewhere is not there: a server, a key that it takes, money, a model that grades.

    It says nothing about the model that is measured.
    """


def first_line(problem: BaseException) -> str:
    """Return the first line of an exception's message that is not blank, or the type's name for an empty message.

    A line that ends in a colon is followed by the next line.
    """
    first, *others = [line.strip() for line in str(problem).splitlines() if line.strip()] or [type(problem).__name__]
    return f"{first} {others[0]}" if first.endswith(":") and others else first
