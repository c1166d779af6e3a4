"""Numbers as people read them, rounded in one way wherever they are shown."""

import math
from decimal import ROUND_HALF_UP, Decimal, localcontext


def number(value: float, form: str = ".3f") -> str:
    """A figure in words where it has no number: a breaking temperature beyond the grid is "unbroken".

    A number is rounded once, from all the digits that it has, and exactly half of the last digit away from zero, as
    ``toFixed`` does in a page: Python's own ``format`` has 0.0625 as 0.062. What rounds to zero has no sign.

    >>> number(0.654527), number(0.0625), number(-0.0001), number(0.125, ".0%"), number(float("inf"))
    ('0.655', '0.063', '0.000', '13%', 'unbroken')
    """
    if math.isnan(value):
        return "undefined"
    if math.isinf(value):
        return "unbroken"
    if form.endswith("g"):  # so many digits that count: nothing rounds to zero, and no page has such a form
        return format(value, form)
    with localcontext(rounding=ROUND_HALF_UP):
        return format(Decimal(float(value)), form.replace(".", "z.", 1))


def signed(value: float) -> str:
    """A difference: with its sign, but for one that rounds to zero.

    >>> signed(0.25), signed(-0.25), signed(-0.0001)
    ('+0.250', '-0.250', '0.000')
    """
    shown = number(value)
    return f"+{shown}" if float(shown) > 0 else shown
