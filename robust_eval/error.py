"""The exception whose message is written for users, and the first line of any exception."""


class UserError(ValueError):
    """A mistake that the person who started the run can correct.

    Its text is one sentence: what is wrong, where, and what would be right. The command line prints it without a
    traceback and exits with status 1.
    """


def first_line(problem: BaseException) -> str:
    """Return the first line of an exception's message that is not blank, or the type's name for an empty message.

    A line that ends in a colon is followed by the next line.
    """
    first, *others = [line.strip() for line in str(problem).splitlines() if line.strip()] or [type(problem).__name__]
    return f"{first} {others[0]}" if first.endswith(":") and others else first
