"""Metric specs: name, label, unit and range of each number, and where people see it.

The terminal, the report, the comparison and MLflow read these declarations, so that they need not know any metric.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from typing import Any

import pyarrow as pa

from robust_eval.answer import DEFAULT_TEMPERATURE
from robust_eval.runtime.text import enumerated
from robust_eval.stats.interval import SHARE, UNKNOWN, Limits

_KEY = b"limits"


def with_limits(table: pa.Table, limits: Mapping[str, Limits]) -> pa.Table:
    """Return the table with the metric limits of its columns, by their names, as metadata.

    >>> table = with_limits(pa.table({"accuracy": [0.5], "length": [3]}), {"accuracy": (0.0, 1.0)})
    >>> limits_of(table, "accuracy"), limits_of(table, "length")
    ((0.0, 1.0), (-inf, inf))
    """
    fields = [
        field.with_metadata({_KEY: " ".join(map(repr, limits[field.name]))}) if field.name in limits else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


def limits_of(table: pa.Table, column: str) -> Limits:
    """Return the limits of a column from :func:`with_limits`; infinite without any."""
    metadata = (table.schema.field(column).metadata or {}).get(_KEY)
    if metadata is None:
        return UNKNOWN
    lowest, highest = map(float, metadata.split())
    return lowest, highest


LONGEST = 120
"""Maximum number of characters of a text of a spec: it stands along an axis and at the head of a column."""
LINE, STEPS, DATASETS = "line", "steps", "datasets"
DRAWING_KINDS = (LINE, STEPS, DATASETS)
"""Kinds of drawing in comparisons: a line through the points; a survival curve, in steps that begin at 1; a point
for each data set. Lines and steps go along the temperature or, for a metric with a number in its name, along that
number.
"""


@dataclass(frozen=True)
class ComparisonView:
    """Display of a metric in comparisons: drawn and, with a number in its name, in a table by data set.

    ValueError for a field that is not as described below.

    >>> ComparisonView(vertical="share of right answers").kind
    'line'
    """

    kind: str = LINE
    """One of :data:`DRAWING_KINDS`."""
    caption: str = ""
    """Caption of the drawing, before the data set; by default the label and the horizontal axis."""
    vertical: str = ""
    """Label of the vertical axis; by default the label with the unit."""
    number: str = ""
    """Meaning of the number in its name; by default the letters before it ("mine.k{}": k)."""
    file: str = ""
    """Name of the files of the drawing; by default its own."""
    table: str = ""
    """Title of the table, before "by data set"; by default the heading."""
    heading: str = ""
    """Heading of the columns, before the data set; by default the label."""
    companion: str = ""
    """Name of the metric in the next column of the table, to be read together with it."""
    note: str = ""
    """Note below the table: a sentence or two."""

    def __post_init__(self) -> None:
        if self.kind not in DRAWING_KINDS:
            raise ValueError(f"kind must be {enumerated(DRAWING_KINDS)}, not {self.kind}")
        if not re.fullmatch(r"[a-z0-9_]*", self.file):
            raise ValueError(f"file must consist of lowercase letters, digits and _, not {self.file}")
        check_fields(self)


def check_fields(spec: Any) -> None:
    """Raise ValueError for a spec's text of several lines or too many characters, and for a flag that is no boolean."""
    for each in fields(spec):
        value, maximum = getattr(spec, each.name), LONGEST if each.name != "note" else 2 * LONGEST
        is_line = isinstance(value, str) and len(value) <= maximum and len(value.splitlines()) <= 1
        if each.type is str and not is_line:
            raise ValueError(f"{each.name} must be one line of at most {maximum} characters")
        if each.type in (bool, bool | None) and value not in (True, False, None):
            raise ValueError(f"{each.name} must be true or false")


HEADLINE, RUN, DETAIL = "headline", "run", "detail"
DISPLAY_LEVELS = (HEADLINE, RUN, DETAIL)
"""Places of a metric, besides the files, which hold all: tables of a run and of a comparison (``headline``), tables of
a run alone (``run``), or none (``detail``).
"""


@dataclass(frozen=True)
class MetricSpec:
    """Spec of a metric: name, label, unit and range.

    The name of a curve covers its points at all temperatures. ValueError for a field that is not as described below.

    >>> score = MetricSpec("frs.d{}", "mean FRS (d = {})")
    >>> score.for_name("frs.d0.5").label, score.for_name("frs.survival")
    ('mean FRS (d = 0.5)', None)
    >>> MetricSpec("certainty.entropy", "answer entropy", unit="nats").for_name("certainty.entropy.t1").words
    'answer entropy (nats) at t = 1'
    >>> MetricSpec("mine.right", "share right", limits=SHARE, shown=DETAIL).shown == HEADLINE
    False
    """

    name: str
    """Name in MLflow and ``summary.json``; ``{}`` is a placeholder for a number, for a family of metrics."""
    label: str
    """Label for people; ``{}`` is the number in its name."""
    unit: str = ""
    """Empty for shares and numbers without a unit."""
    limits: Limits = UNKNOWN
    """The lowest and the highest value that it can have of one question."""
    more_is_better: bool | None = None
    """None where neither is better."""
    shown: str = HEADLINE
    """One of :data:`DISPLAY_LEVELS`."""
    form: str = ".3f"
    """The format of its value."""
    primary: bool = False
    """True for the metric that represents a run where there is room for one only."""
    short: str = ""
    """Its heading where runs are compared in the terminal; it is left out there without one."""
    of_question: str = ""
    """Label of the value of one question; with it, runs are compared question by question."""
    tie_breaker: str = ""
    """The name of the metric that orders questions which differ equally in this one."""
    left_out: str = ""
    """For a count of what was left out: the sentence that follows the number."""
    explained: str = ""
    """Definition in a sentence, where the label needs one."""
    excluded_count: str = ""
    """The count of questions that it does not rest on, where it is no mean over questions."""
    mean: bool = True
    """True if it is the mean of a value of every question (a curve: at each temperature)."""
    is_survival: bool = False
    """True if it is 1 for a question whose fact still holds and 0 for one that has broken, at a temperature or at the
    number in its name: comparisons see from it where facts break."""
    is_threshold: bool = False
    """True if it is the place where the fact of a question breaks."""
    construct: str = ""
    """The measured quantity in a word ("firmness"), which precedes its label in a gate's verdict."""
    setting: str = ""
    """The setting that the number in its name is of ("metric.mine.k"): runs that differ in it alone score the same
    answers, and comparisons take them together."""
    comparison: ComparisonView | None = None
    """Display in comparisons; None for the common tables only."""
    at_temperature: str = ""
    """The temperature in words, where it is the point of a curve."""

    def __post_init__(self) -> None:
        if self.shown not in DISPLAY_LEVELS:
            raise ValueError(f"shown must be {enumerated(DISPLAY_LEVELS)}, not {self.shown}")
        check_fields(self)
        if not re.fullmatch(r"\.\d[f%]|(?:\.\d)?g", self.form):
            raise ValueError(f"form must be a format such as .3f, .0% or g, not {self.form}")
        if self.setting and not re.fullmatch(r"metric(\.\w+)+", self.setting):
            raise ValueError(f"setting must be a setting of a metric, such as metric.mine.k, not {self.setting}")

    def for_name(self, name: str) -> "MetricSpec | None":
        """Return the metric spec for one name of this metric, or None for a name that is not its own."""
        if name == self.name:
            return self
        curve, temperature = curve_and_temperature(name) or (name, None)
        match = _pattern(self.name).fullmatch(curve)
        if match is None:
            return None
        number = match[1] if match.groups() else ""
        label, of_question = (text.replace("{}", number) for text in (self.label, self.of_question))
        at = "" if temperature is None else f" {at_words(temperature)}"
        return replace(self, name=name, label=label, of_question=of_question, at_temperature=at)

    def among(self, names: Iterable[str]) -> dict[float, str]:
        """Return the metric names that a spec with a ``{}`` covers, by their number, in the given order.

        >>> MetricSpec("frs.d{}", "").among(["frs.d1", "frs.d0.5", "frs.unbroken_share"])
        {1.0: 'frs.d1', 0.5: 'frs.d0.5'}
        """
        return {float(match[1]): name for name in names if (match := _pattern(self.name).fullmatch(name))}

    def covered_names(self, names: Iterable[str]) -> list[str]:
        """Return the metric names that the spec covers, those of a curve by the distance of their temperature from 1.

        >>> MetricSpec("mine.entropy", "").covered_names(["mine.entropy.t0.5", "mine.entropy.t1", "frs.d1"])
        ['mine.entropy.t1', 'mine.entropy.t0.5']
        """
        points = {name: curve_and_temperature(name) or (name, 1.0) for name in names if self.for_name(name)}
        return sorted(points, key=lambda name: (abs(points[name][1] - 1), points[name][1]))

    @property
    def direction(self) -> str:
        """Arrow of a metric spec: up if more is better, down if less is, empty if neither is."""
        return {True: "↑", False: "↓", None: ""}[self.more_is_better]

    @property
    def words(self) -> str:
        """Label of the metric with unit and temperature."""
        return f"{self.label}{f' ({self.unit})' if self.unit else ''}{self.at_temperature}"

    @property
    def numbered(self) -> bool:
        """True if the metric occurs several times, with a number in its name."""
        return "{}" in self.name

    @property
    def number(self) -> str:
        """Letters before the number in a metric's name ("frs.d{}": d)."""
        match = re.search(r"(\w+)\{\}", self.name)
        return match[1] if match else "number"

    @property
    def heading(self) -> str:
        """Heading of the columns of a metric, of which there is one for each number in its name."""
        return (self.comparison and self.comparison.heading) or self.label.replace("{}", "…")

    @property
    def title(self) -> str:
        """Title of a metric's figure and of its table."""
        return f"{self.heading[:1].upper()}{self.heading[1:]}"

    @property
    def horizontal(self) -> str:
        """Label of the horizontal axis of a metric's figure in comparisons."""
        return ((self.comparison and self.comparison.number) or self.number) if self.numbered else "temperature t"

    @property
    def vertical(self) -> str:
        """Label of the axis of a metric's values."""
        return (self.comparison and self.comparison.vertical) or self.words.replace("{}", "…")


def share_spec(name: str, label: str, more_is_better: bool | None = True, **fields: Any) -> MetricSpec:
    """Return the metric spec of a share of questions or of answers."""
    return MetricSpec(name, label, limits=SHARE, more_is_better=more_is_better, **fields)


def count_spec(name: str, label: str, shown: str = RUN, **fields: Any) -> MetricSpec:
    """Return the metric spec of a count, a whole number of all questions together."""
    return MetricSpec(name, label, shown=shown, form=".0f", mean=False, **fields)


def break_specs(name: str, label: str) -> tuple[MetricSpec, MetricSpec, MetricSpec]:
    """Return the metric specs of the place where a fact breaks, in one question, of the median, and of the mean over
    broken facts; unbroken facts have no such place, and questions therefore no mean.
    """
    place = MetricSpec(name, label, more_is_better=True, shown=DETAIL, form="g", mean=False, is_threshold=True)
    median = MetricSpec(f"{name}.median", f"median {label}", more_is_better=True, shown=RUN, mean=False)
    return place, median, MetricSpec(f"{name}.mean_broken", f"mean {label}, broken facts", more_is_better=True)


@cache
def _pattern(name: str) -> re.Pattern[str]:
    """Return the pattern of a metric's names, with their number as the only group."""
    return re.compile(re.escape(name).replace(r"\{\}", r"(\d[\d.e+-]*)"))


def is_name(name: str, declared_name: str) -> bool:
    """Return True if a metric's name is the declared one, in which ``{}`` matches a number; ``own`` may be any
    temperature.

    >>> is_name("order.bias.place2.t1", "order.bias.place{}.t1"), is_name("frs.d9", "frs.d1")
    (True, False)
    """
    curve, *_ = curve_and_temperature(declared_name) or ("",)
    return name == f"{curve}.own" or _pattern(declared_name).fullmatch(name) is not None


def spec_of(name: str, specs: Iterable[MetricSpec]) -> MetricSpec | None:
    """Return the spec of a metric by its name, or None."""
    return next((match for spec in specs if (match := spec.for_name(name))), None)


def point(name: str, temperature: float) -> str:
    """Return the name of a curve's metric at one temperature.

    >>> point("accuracy", 0.2), point("accuracy", DEFAULT_TEMPERATURE)
    ('accuracy.t0.2', 'accuracy.own')
    """
    return f"{name}.{'own' if math.isnan(temperature) else f't{temperature:g}'}"


def at_words(temperature: float) -> str:
    """Return a metric's temperature in words: "at t = 0.2", or "at the model's own temperature"."""
    return "at the model's own temperature" if math.isnan(temperature) else f"at t = {temperature:g}"


@cache
def curve_and_temperature(metric: str) -> tuple[str, float] | None:
    """Return the curve and the temperature of a metric of such a name; None for one outside of any curve.

    >>> curve_and_temperature("accuracy.t0.2"), curve_and_temperature("frs.d1")
    (('accuracy', 0.2), None)
    """
    match = re.fullmatch(r"(.+)\.(?:t(\d[\d.e+-]*)|own)", metric)
    return (match.group(1), float(match.group(2)) if match.group(2) else DEFAULT_TEMPERATURE) if match else None


def nearest_to_one(temperatures: Iterable[float]) -> float:
    """Return the temperature that represents a curve: the one nearest to 1."""
    return min(temperatures, key=lambda temperature: abs(temperature - 1))


def headline_temperatures(curve: Iterable[float]) -> list[float]:
    """Return the few temperatures that represent a metric's curve: its ends, and 0.2, 1 and 2."""
    temperatures = set(curve)
    return sorted({min(temperatures), max(temperatures)} | ({0.2, 1.0, 2.0} & temperatures)) if temperatures else []


def as_json(specs: Sequence[MetricSpec]) -> list[dict[str, Any]]:
    """Return metric specs as JSON; an infinite limit is null, and so is an unknown range."""
    return [
        asdict(spec)
        | {"limits": None if spec.limits == UNKNOWN else [end if math.isfinite(end) else None for end in spec.limits]}
        for spec in specs
    ]


def from_json(entries: Any) -> list[MetricSpec]:
    """Return the metric specs of :func:`as_json`, without unknown keys; ValueError, TypeError or KeyError otherwise."""
    specs = []
    for each in entries:
        values = _values(each, MetricSpec)
        ends = zip(values.pop("limits", None) or UNKNOWN, UNKNOWN, strict=True)
        lowest, highest = (infinite if end is None else float(end) for end, infinite in ends)
        view = values.pop("comparison", None)
        comparison = None if view is None else ComparisonView(**_values(view, ComparisonView))
        specs.append(MetricSpec(**values, limits=(lowest, highest), comparison=comparison))
    return specs


def _values(entry: Any, of: type[MetricSpec] | type[ComparisonView]) -> dict[str, Any]:
    """Return the fields of a spec or of its view from JSON, without unknown keys."""
    if not isinstance(entry, dict):
        raise TypeError(f"a metric spec must be an object, not {type(entry).__name__}")
    return {field.name: entry[field.name] for field in fields(of) if field.name in entry}
