"""Installed packages register parts by entry points; a broken one stops nobody."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from robust_eval.runtime.registry import REGISTRY, load_plugins

MODULE = """
from dataclasses import dataclass

from robust_eval import ModelConfig


@dataclass
class Dice(ModelConfig):
    name: str = "dice"

    def identity(self):
        return {}

    def load(self):
        raise AssertionError


class NoDataclass:
    pass
"""
ENTRIES = """
[robust_eval.models]
dice = parts_of_mine:Dice
plain = parts_of_mine:NoDataclass
gone = parts_that_are_gone:Dice

[robust_eval.metrics]
typo = parts_of_mine:Metrik
ends = parts_that_end:Metric

[somebody.else]
dice = parts_that_are_gone:Dice
"""


@pytest.fixture
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "parts_of_mine.py").write_text(MODULE)
    (tmp_path / "parts_that_end.py").write_text("import sys\nsys.exit('no licence')\n")
    about = tmp_path / "parts-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: parts\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(tmp_path)
    for group in REGISTRY:
        monkeypatch.setitem(REGISTRY, group, {})
    load_plugins.cache_clear()
    yield
    load_plugins.cache_clear()


@pytest.mark.usefixtures("_installed")
def test_entry_points_are_options_and_what_cannot_be_loaded_is_left_out_with_a_reason(
    caplog: pytest.LogCaptureFixture,
):
    load_plugins()
    assert {group: list(parts) for group, parts in REGISTRY.items() if parts} == {"model": ["dice"]}
    wrong, gone, typo, ends = caplog.messages
    assert wrong.startswith(
        "the package parts is left out: model=plain: parts_of_mine.NoDataclass must be a dataclass, "
    )
    left_out = "{} of the package parts cannot be loaded, and is left out: {}".format
    assert gone == left_out("model=gone", "ModuleNotFoundError: No module named 'parts_that_are_gone'")
    assert typo == left_out("metric=typo", "AttributeError: module 'parts_of_mine' has no attribute 'Metrik'")
    assert ends == left_out("metric=ends", "SystemExit: no licence")
