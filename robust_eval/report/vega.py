"""Vega-Lite drawings in the browser: the library, and the two drawings of a page."""

from importlib.metadata import version
from typing import Any

from robust_eval.plot.colours import BLUE, GREY, RED
from robust_eval.runtime.cache import cache_folder, read_cached, write_cached
from robust_eval.runtime.text import compressed

_INK: dict[str, Any] = {
    "labelColor": "currentColor",
    "titleColor": "currentColor",
    "titleFontWeight": "normal",
    "labelFontSize": 12,
    "titleFontSize": 13,
}
_LOOK: dict[str, Any] = {
    "background": None,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": _INK
    | {"domainColor": "currentColor", "tickColor": "currentColor", "gridColor": "currentColor", "gridOpacity": 0.15},
    "legend": _INK,
}
"""Vega-Lite theme: everything but the marks has the colour of the surrounding text, for light and dark pages."""


def vega_script() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script without network access, compressed for a page.

    The bundle takes seconds to make, so it is cached.
    """
    file = cache_folder() / "vega" / f"vl-convert-{version('vl-convert-python')}.js.gz.base64"
    script = read_cached(file)
    if not script:
        import vl_convert

        script = compressed(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
        write_cached(file, script)
    return script


def scatter() -> dict[str, Any]:
    """Return a Vega-Lite scatter plot of the data set ``points``, which the page fills.

    Points have ``x``, ``y`` and ``colour`` (the page chooses the figures), and texts for the tooltip. ``chosen`` is the
    rectangle that a reader draws.
    """
    return {
        "data": {"name": "points"},
        "width": "container",
        "height": 380,
        "params": [{"name": "chosen", "select": "interval"}],
        "mark": {"type": "circle", "size": 70, "opacity": 1, "stroke": GREY, "strokeWidth": 0.8},
        "encoding": {
            "x": {"field": "x", "type": "quantitative", "scale": {"zero": False}, "axis": {"tickCount": 10}},
            "y": {"field": "y", "type": "quantitative", "scale": {"zero": False}, "axis": {"tickCount": 8}},
            "color": {"field": "colour", "type": "quantitative", "scale": {"scheme": "viridis"}},
            "tooltip": [],
        },
        "config": _LOOK,
    }


def accuracy_curve(threshold: float) -> dict[str, Any]:
    """Return a Vega-Lite plot of the accuracy of one question against temperature, of data sets that the page fills.

    ``counted`` has the share of right trials with an interval (``low``, ``high``); ``computed`` the accuracy from the
    model's probabilities, with an interval, and ``bounds`` its guaranteed bounds (``lower``, ``upper``). A fact breaks
    below ``threshold``, at the temperature in the data set ``breaking``.
    """
    temperature = {
        "field": "t",
        "type": "quantitative",
        "title": "temperature t",
        "scale": {"zero": True},
        "axis": {"tickCount": 8, "labelSeparation": 6},
    }
    share = {"type": "quantitative", "title": "accuracy", "scale": {"domain": [0, 1]}, "axis": {"tickCount": 5}}

    def layer(data: str, mark: dict[str, Any], y: str, y2: str = "") -> dict[str, Any]:
        """Return Vega-Lite marks at a column of a data set, or between two."""
        encoding = {"x": temperature, "y": {**share, "field": y}} | ({"y2": {"field": y2}} if y2 else {})
        return {"data": {"name": data}, "mark": mark, "encoding": encoding}

    band = {"type": "area", "color": BLUE, "opacity": 1, "stroke": BLUE, "strokeWidth": 0.7}
    return {
        "width": "container",
        "height": 200,
        "layer": [
            layer("bounds", band | {"fillOpacity": 0.12}, "lower", "upper"),
            layer("computed", band | {"fillOpacity": 0.25}, "low", "high"),
            layer("computed", {"type": "line", "color": BLUE}, "accuracy"),
            layer("counted", {"type": "rule", "color": RED}, "low", "high"),
            layer("counted", {"type": "point", "filled": True, "size": 45, "opacity": 1, "color": RED}, "accuracy"),
            {
                "data": {"values": [{"threshold": threshold}]},
                "mark": {"type": "rule", "strokeDash": [4, 4], "color": "currentColor", "opacity": 0.6},
                "encoding": {"y": {**share, "field": "threshold"}},
            },
            {
                "data": {"name": "breaking"},
                "mark": {"type": "rule", "strokeDash": [2, 3], "color": "currentColor"},
                "encoding": {"x": temperature},
            },
        ],
        "config": _LOOK,
    }
