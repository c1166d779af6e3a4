from dataclasses import dataclass, field, make_dataclass
from pathlib import Path

import pytest

from robust_eval.config import documented
from robust_eval.config.documented import choices, description, groups, names, sentence, settings
from robust_eval.config.overrides import options
from robust_eval.config.schema import SCHEMAS, register
from robust_eval.error import UserError
from robust_eval.tracking.flat_settings import SEVERAL


@pytest.fixture(autouse=True)
def _schemas() -> None:
    register()


EVERY = [(group, option) for group in groups() for option in options(group)]


def test_a_group_says_what_it_decides_and_what_is_chosen_by_itself():
    found = groups()
    assert found["sampler"] == ("which answers to ask for", ["temperature_sweep"])
    assert found["metric"] == ("how scored", ["frs"])
    assert found["experiment"] == ("presets that set several of the above", [])
    assert all(group.says for group in found.values())


@pytest.mark.parametrize(("group", "option"), EVERY)
def test_every_option_has_a_sentence_and_every_setting_a_docstring(group: str, option: str):
    assert sentence(description(group, option))
    found = settings(group, option)
    assert [setting.name for setting in found if not setting.says and group in SCHEMAS] == []
    place = f"{group}.{option}." if group in SEVERAL else f"{group}."
    own = [setting.name for setting in found if setting.name.startswith(place)]
    assert group not in SCHEMAS or own == [f"{place}{name}" for name in names(group, option)]


def test_a_setting_has_the_value_of_its_option_and_the_docstring_of_its_class():
    found = {setting.name: setting for setting in settings("model", "gpt4o_mini")}
    assert [found[f"model.{name}"] for name in ("model", "completion_price", "batch_price_share")] == [
        ("model.model", "gpt-4o-mini-2024-07-18", "The name of the model, as the service calls it."),
        ("model.completion_price", "0.6", "Price of a million tokens of completions; null: unknown."),
        ("model.batch_price_share", "0.5", "Price of a batch, as a fraction of the prices."),
    ]


def test_what_an_option_sets_and_chooses_elsewhere_is_told():
    assert settings("experiment", "smoke")[0] == ("dataset.limit", "12", "")
    assert choices("experiment", "multiqa") == {
        "sampler": ["perturbation"],
        "metric": ["agreement"],
        "aggregator": ["clusters"],
    }


@dataclass
class Dice:
    """A model that throws dice. It is
    fair.

    More of it.
    """

    sides: int = 6
    """Of each
    die."""
    names: list[str] = field(default_factory=list)


@dataclass
class Plain:
    sides: int = 6


def test_an_option_without_a_file_is_explained_by_its_class(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(SCHEMAS, "model", {**SCHEMAS["model"], "dice": Dice, "plain": Plain})
    assert sentence(description("model", "dice")) == "A model that throws dice"
    assert (names("model", "dice"), documented._docstrings(Dice)) == (["sides", "names"], {"sides": "Of each die."})
    assert description("model", "plain") == []
    assert choices("model", "dice") == {}


def test_a_class_whose_source_is_nowhere_is_explained_without_comments():
    made = make_dataclass("Typed", [("sides", int, 6)])
    assert documented._docstrings(made) == {}


def test_all_that_is_read_is_among_the_sources():
    found = documented.sources()
    assert {"config.yaml", "sampler", "exact.yaml", "documented.py", "openai.py"} <= {file.name for file in found}
    assert all(Path(file).exists() for file in found)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of data sets of one's own, ``./conf/dataset``."""
    (tmp_path / "conf" / "dataset").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "conf" / "dataset"


def test_an_option_of_ones_own_is_explained_as_ours_are(own: Path):
    (own / "quiz.yaml").write_text(
        "# The quiz of our school.\ndefaults: [local, _self_]\nname: quiz\npath: quiz.csv  # beside this folder\n"
    )
    assert "quiz" in options("dataset")
    assert description("dataset", "quiz") == ["The quiz of our school."]
    found = {setting.name: setting for setting in settings("dataset", "quiz")}
    assert found["dataset.path"] == ("dataset.path", "quiz.csv", "The file, or a folder of files.")
    assert found["dataset.encoding"].value == "utf-8"
    assert names("dataset", "quiz") == names("dataset", "local")
    assert own / "quiz.yaml" in documented.sources()


@pytest.mark.parametrize(
    ("text", "problem"),
    [("a: [", "cannot be read: while parsing a flow node"), ("- a", "holds no settings, NAME: VALUE")],
)
def test_a_file_of_ones_own_that_is_damaged_is_named(own: Path, text: str, problem: str):
    (own / "quiz.yaml").write_text(text)
    with pytest.raises(UserError) as said:
        names("dataset", "quiz")
    assert str(said.value) == f"{own / 'quiz.yaml'} {problem}".replace(str(own), "conf/dataset")
