import base64
import gzip
import warnings
from pathlib import Path

import pytest
import vl_convert

from robust_eval.report.vega import accuracy_curve, scatter, vega_script


def drawn(specification: dict, **datasets: list) -> str:
    """As the page draws it, but by the library in this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = specification | {"datasets": datasets, "width": 300}
        return vl_convert.vegalite_to_svg(whole, allowed_base_urls=[])


def test_the_script_is_made_once_and_then_read_from_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr("robust_eval.report.vega.cache_folder", lambda: tmp_path)
    script = vega_script()
    monkeypatch.delattr(vl_convert, "javascript_bundle")
    assert vega_script() == script
    assert b"window.vegaEmbed=" in gzip.decompress(base64.b64decode(script))
    assert len(script) < 500_000


def test_a_script_of_no_bytes_is_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr("robust_eval.report.vega.cache_folder", lambda: tmp_path)
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda code: f"made for {code}")
    script = vega_script()
    (file,) = (tmp_path / "vega").iterdir()
    file.write_bytes(b"")
    assert vega_script() == script == file.read_text()


def test_a_scatter_plot_has_a_point_for_each_question():
    points = [{"x": x, "y": x / 2, "colour": x} for x in (0.1, 0.5, 0.9)]
    svg = drawn(scatter(), points=points)
    assert svg.count('aria-roledescription="circle"') == 3
    assert "currentColor" in svg


def test_an_accuracy_curve_has_points_with_intervals_a_line_and_bands():
    svg = drawn(
        accuracy_curve(0.5),
        counted=[{"t": t, "accuracy": 1 - t / 2, "low": 0.1, "high": 0.9} for t in (0.5, 1.0)],
        computed=[{"t": t, "accuracy": 1 - t / 2, "low": 0.2, "high": 0.8} for t in (0.5, 1.0)],
        bounds=[{"t": t, "lower": 0.1, "upper": 0.9} for t in (0.5, 1.0)],
        breaking=[{"t": 1.0}],
    )
    assert svg.count('aria-roledescription="point"') == 2
    layers = {kind: svg.count(f'aria-roledescription="{kind} mark container"') for kind in ("area", "line", "rule")}
    assert layers == {"area": 2, "line": 1, "rule": 3}  # of rules: intervals, the threshold, the breaking temperature
