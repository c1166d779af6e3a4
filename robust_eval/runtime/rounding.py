"""Numbers as text. All figures are rounded here, so that they look the same everywhere."""

import math
from decimal import ROUND_HALF_UP, Decimal, localcontext


def number(value: float, form: str = ".3f") -> str:
    """Format a figure; an infinite one, a breaking temperature beyond the grid, is "unbroken".

    A number is rounded once, from all its digits. Halves are rounded away from zero, as ``toFixed`` does in a page;
    Python's ``format`` would give 0.062 for 0.0625. What rounds to zero has no sign.

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
    """Format a difference, with its sign unless it rounds to zero.

    >>> signed(0.25), signed(-0.25), signed(-0.0001)
    ('+0.250', '-0.250', '0.000')
    """
    shown = number(value)
    return f"+{shown}" if float(shown) > 0 else shown
