"""Classes of one's own become options: by a decorator, with one sentence where they cannot."""

from dataclasses import dataclass
from typing import Any

import pytest

import robust_eval
from robust_eval.answer import GREEDY
from robust_eval.config.overrides import checked_overrides, options
from robust_eval.config.schema import SCHEMAS, register
from robust_eval.error import UserError
from robust_eval.experiment.scoring import UNANSWERABLE
from robust_eval.metric.frs_metric import FactualRobustness
from robust_eval.metric.label_correction import NAME as CORRECTED
from robust_eval.model.model_config import ModelConfig
from robust_eval.runtime.registry import REGISTRY, REQUIRED, RESERVED
from robust_eval.sampler.temperature_sweep import TemperatureSweep


@pytest.fixture(autouse=True)
def _nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for group in REGISTRY:
        monkeypatch.setitem(REGISTRY, group, {})
        monkeypatch.setitem(SCHEMAS, group, dict(SCHEMAS[group]))


@dataclass
class Dice(ModelConfig):
    name: str = "dice"
    sides: int = 6

    def identity(self) -> dict[str, Any]:
        return {"sides": self.sides}

    def load(self) -> Any:
        raise AssertionError


def test_a_registered_class_is_an_option_with_settings(monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert robust_eval.register("model", "dice")(Dice) is Dice
    register()
    assert "dice" in options("model")
    settings = ["model=dice", "experiment=certainty", f"paths.mlruns={tmp_path}"]
    assert checked_overrides([*settings, "model.sides=8"]).config.model == Dice(sides=8)
    with pytest.raises(UserError, match=r"there is no setting model.side \(did you mean model.sides\?\)"):
        checked_overrides([*settings, "model.side=8"])
    with pytest.raises(UserError, match=r"there is no model=dise \(did you mean dice\?\)"):
        checked_overrides(["model=dise"])


def test_a_metric_stands_under_its_name(tmp_path):
    @robust_eval.register("metric", "held")
    @dataclass
    class Held(robust_eval.Metric):
        tolerated: int = 0
        axis = "trial"

        def check(self, temperatures: Any, repetitions: float) -> None: ...

        def score(self, questions: Any, measured: Any, seed: int) -> Any: ...

    register()
    lines = ["metric=[frs,held]", "metric.held.tolerated=2", f"paths.mlruns={tmp_path}"]
    metrics = checked_overrides(lines).config.metric
    assert list(metrics) == ["frs", "held"]
    assert metrics["held"] == Held(2)


def test_a_class_may_be_registered_again_and_then_is_the_later_one():
    def made() -> type:
        @dataclass
        class Dice(ModelConfig):
            name: str = "dice"

            def identity(self) -> dict[str, Any]:
                return {}

            def load(self) -> Any: ...

        return robust_eval.register("model", "dice")(Dice)

    made()
    later = made()
    assert REGISTRY["model"]["dice"] is later


@dataclass
class Nothing:
    name: str = "nothing"


@dataclass
class Anonymous(ModelConfig):
    name: str = "anonymous"


class Plain(Dice):
    pass


@dataclass
class Forgetful(robust_eval.Grader):
    def right(self) -> Any: ...  # type: ignore[override]


@dataclass
class Bare(robust_eval.Sampler):
    axis = "trial"
    repetitions = 2

    def requests(self, questions: Any, grader: Any, seed: int) -> Any: ...


@pytest.mark.parametrize(
    ("part", "name", "sentence"),
    [
        (Dice, "my dice", "model=my dice: the name of an option must be one word of letters, digits and _"),
        (Nothing, "dice", f"model=dice: {__name__}.Nothing must be a subclass of robust_eval.ModelConfig"),
        (Anonymous, "dice", f"model=dice: {__name__}.Anonymous has no identity, which a model needs"),
        (Dice(), "dice", f"model=dice: {Dice()!r} must be a dataclass, whose fields are its settings"),
        (int, "dice", "model=dice: builtins.int must be a dataclass, whose fields are its settings"),
    ],
)
def test_a_class_that_can_be_no_option_is_refused(part: Any, name: str, sentence: str):
    with pytest.raises(UserError) as raised:
        robust_eval.register("model", name)(part)
    assert str(raised.value) == sentence


def test_a_method_with_other_parameters_and_a_setting_that_is_missing_are_named():
    with pytest.raises(UserError, match=r"^grader=mine: .*Forgetful\.right must take self and replies: too many"):
        robust_eval.register("grader", "mine")(Forgetful)
    with pytest.raises(UserError, match=r"^sampler=mine: .*Bare has no temperatures, which a sampler needs$"):
        robust_eval.register("sampler", "mine")(Bare)


@pytest.mark.parametrize("group", REGISTRY)
def test_a_class_must_have_the_base_class_of_its_group_whose_members_a_run_uses(group: str):
    members = dict.fromkeys(("name", *REQUIRED[group][1]), "")
    part = dataclass(type("Lone", (), members))
    with pytest.raises(UserError, match=rf"Lone must be a subclass of robust_eval\.{REQUIRED[group][0]}$"):
        robust_eval.register(group, "lone")(part)


def test_a_name_that_is_taken_is_refused():
    robust_eval.register("model", "dice")(Dice)
    with pytest.raises(UserError, match=r"model=dice is already .*Dice: register .*Plain under another name"):
        robust_eval.register("model", "dice")(Plain)
    robust_eval.register("model", "recorded")(Dice)
    with pytest.raises(UserError, match="model=recorded is a built-in option: register Dice under another name"):
        register()


def test_the_names_of_results_of_every_run_are_reserved():
    assert {GREEDY, "profile", CORRECTED, UNANSWERABLE} == {*RESERVED["metric"]}
    with pytest.raises(UserError, match=r"^metric=profile: every run reserves the name profile for its own results"):
        robust_eval.register("metric", "profile")(FactualRobustness)
    with pytest.raises(UserError, match=r"^sampler=greedy: every run reserves the name greedy"):
        robust_eval.register("sampler", "greedy")(TemperatureSweep)
    robust_eval.register("model", "greedy")(Dice)


def test_a_group_that_does_not_exist_is_refused():
    with pytest.raises(UserError, match=r"^register\('metrics', 'held'\): the group must be model, dataset, "):
        robust_eval.register("metrics", "held")
