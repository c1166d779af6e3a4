import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from robust_eval.cli import help as module
from robust_eval.cli.help import catalogue
from robust_eval.config import documented
from robust_eval.config.overrides import options


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setattr(module, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def making(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each time that a catalogue was made."""
    made, make = [], module._made
    monkeypatch.setattr(module, "_made", lambda: (made.append(1), make())[1])
    return made


def test_it_holds_every_option_with_its_settings(cache: Path):
    found = catalogue()
    assert list(found.groups) == [
        *("model", "dataset", "rewriter", "sampler", "metric", "reader", "grader", "aggregator", "store", "engine"),
        *("tracking", "experiment"),
    ]
    assert {name: list(group.options) for name, group in found.groups.items()} == {
        name: options(name) for name in found.groups
    }
    assert [name for name, group in found.groups.items() if group.several] == ["sampler", "metric"]
    assert found.others == ["seed", "paths.mlruns", "target_half_width", "question_types", "labels"]
    assert asdict(found.groups["grader"].options["cosine"]) == {
        "says": "A reply is right if a sentence model puts it near an accepted answer; multiple choice: if it chooses "
        "the letter",
        "settings": ["letter", "accents", "model", "similarity"],
        "chooses": {},
    }
    assert found.groups["engine"].options["ray"].chooses == {"store": ["parquet"]}


def test_it_is_made_once(cache: Path, making: list[int]):
    assert catalogue() == catalogue()
    assert making == [1]


def test_it_is_made_anew_when_something_was_installed_or_a_source_has_changed(
    cache: Path, making: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    packages, source = tmp_path / "site-packages", tmp_path / "source.py"
    packages.mkdir()
    source.write_text("")
    monkeypatch.setattr(sys, "path", [*sys.path, str(packages)])
    monkeypatch.setattr(documented, "sources", lambda: [source])
    catalogue()
    (packages / "plugin").mkdir()
    catalogue()
    source.unlink()
    catalogue()
    catalogue()
    assert making == [1, 1, 1]


def test_a_damaged_one_is_made_anew(cache: Path, monkeypatch: pytest.MonkeyPatch):
    found = catalogue()
    monkeypatch.setattr(module, "_made", lambda: found)
    (file,) = cache.iterdir()
    for damaged in ("", "{", "[]", "{}", '{"sources": {}}', '{"sources": {}, "groups": {"model": 1}}'):
        file.write_text(damaged)
        assert catalogue() == found
        assert json.loads(file.read_text())["others"] == found.others


def test_without_a_cache_it_is_made_each_time(making: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(module, "cache_folder", lambda: tmp_path / "file" / "cache")
    assert catalogue() == catalogue()
    assert making == [1, 1]
