"""The one exception that a user, not a developer, is meant to read."""


class UserError(Exception):
    """Something that the person who started the run can mend.

    Its text is one sentence: what is wrong, where, and what would be right. The command line prints it without a
    traceback and exits with status 1.
    """


def first_line(problem: BaseException) -> str:
    """The first line of an exception's message that says anything, with the next where it ends in a colon; its type's
    name where none does.
    """
    first, *others = [line.strip() for line in str(problem).splitlines() if line.strip()] or [type(problem).__name__]
    return f"{first} {others[0]}" if first.endswith(":") and others else first
