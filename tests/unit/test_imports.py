"""The rooms of the package: who imports whom."""

from importlinter.cli import lint_imports

from robust_eval.config.schema import PROJECT


def test_a_room_imports_only_rooms_below_it_and_nothing_goes_in_circles(monkeypatch, capsys):
    """The order of the rooms is written in pyproject.toml; lazy imports count as well."""
    monkeypatch.chdir(PROJECT)
    assert lint_imports(no_cache=True) == 0, capsys.readouterr().out


def test_no_module_lies_beside_the_rooms_but_the_nouns_that_everybody_knows():
    beside = {file.stem for file in (PROJECT / "robust_eval").glob("*.py")}
    assert beside == {"__init__", "__main__", "question", "answer", "error", "normalization", "api"}
