from itertools import zip_longest
from pathlib import Path

import hydra
import numpy as np
import pytest
from experiments import composed, configuration
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import QuotedString
from json_lines import cases
from omegaconf import OmegaConf

from robust_eval.config.checks import composed_as_run, to_config
from robust_eval.config.groups import CONF
from robust_eval.config.overrides import (
    as_meant,
    as_override,
    checked_overrides,
    composed_run,
    jobs,
    options,
    with_own_options,
)
from robust_eval.config.schema import SCHEMAS, register, repeatable
from robust_eval.error import UserError
from robust_eval.tracking.flat_settings import flat


@pytest.fixture(autouse=True)
def _schemas() -> None:
    register()


def message(*overrides: str) -> str:
    with pytest.raises(UserError) as problem:
        checked_overrides(overrides)
    return str(problem.value)


def test_an_option_without_a_class_says_where_to_register_it(tmp_path: Path):
    (tmp_path / "conf" / "metric").mkdir(parents=True)
    (tmp_path / "conf" / "metric" / "mine.yaml").write_text(
        "# @package metric.mine\ndefaults: [/schema/metric/mine@_here_]\n"
    )
    said = message("metric=mine", f"hydra.searchpath=[file://{tmp_path / 'conf'}]")
    assert said == "no class is registered for metric=mine: add it to robust_eval/config/schema.py"


def test_options_may_stand_in_a_folder_of_ones_own(tmp_path: Path):
    (tmp_path / "conf" / "dataset").mkdir(parents=True)
    for name in ("quiz", "riddles"):
        (tmp_path / "conf" / "dataset" / f"{name}.yaml").write_text(
            f"defaults: [local, _self_]\nname: {name}\npath: {name}.csv\n"
        )
    elsewhere = [f"hydra.searchpath=[file://{tmp_path / 'conf'}]", f"paths.mlruns={tmp_path}"]
    swept = checked_overrides([*elsewhere, "dataset=quiz,riddles,facts"])
    assert (swept.jobs, swept.config.dataset.name) == (3, "facts")
    assert [config.dataset.name for _, config in jobs(swept.overrides)] == ["quiz", "riddles", "facts"]
    assert message(elsewhere[1], "dataset=quiz").startswith("there is no dataset=quiz; options are ")


@pytest.mark.parametrize(
    ("sampler", "others"), cases(__file__, "settings_of_a_preset_for_a_sampler_that_is_not_chosen_are_left_out")
)
def test_settings_of_a_preset_for_a_sampler_that_is_not_chosen_are_left_out(sampler: str, others: list[str]):
    checked = checked_overrides(["experiment=smoke", f"sampler={sampler}", *others])
    assert list(checked.config.sampler) == list(checked.composed.sampler) == [sampler]
    assert list(checked.with_hydra.sampler) == [sampler]
    assert checked.config.dataset.limit == 12


def test_a_preset_keeps_its_settings_for_each_job_of_a_sweep_that_has_the_sampler(tmp_path: Path):
    swept = checked_overrides(["experiment=smoke", "sampler=temperature_sweep,exact", f"paths.mlruns={tmp_path}"])
    (_, first), (_, second) = jobs(swept.overrides)
    assert (first.sampler["temperature_sweep"].trials, list(second.sampler)) == (4, ["exact"])


SIGNS = (
    *(";", "|", "quiz (1).csv", "quiz(1).csv", "quiz (a, b).csv", "a b.csv", "a=b.csv", "ü.csv", "O'Brien.csv", "}"),
    *('5" disk.csv', "C:\\data\\quiz (1).csv", "C:\\;\\", "https://host/q.csv?a=1&b=2", 'mine\'s; "yours"', "~q.csv"),
)


@pytest.mark.parametrize("text", SIGNS)
@pytest.mark.parametrize("sign", ["", "+", "++"])
def test_a_text_needs_no_quotes_whatever_signs_it_has(text: str, sign: str):
    line = as_meant(f"{sign}dataset.path={text}")
    override = OverridesParser.create().parse_override(line)
    value = override.value()
    assert (value.text if isinstance(value, QuotedString) else value) == text
    assert (override.key_or_group, override.is_sweep_override()) == ("dataset.path", False)
    assert (override.is_add(), override.is_force_add()) == (sign == "+", sign == "++")
    assert as_meant(line) == line


def test_a_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/of/me")
    assert as_meant("model.path=~/a,~/b") == "model.path=/of/me/a,/of/me/b"
    assert as_meant("~dataset.path") == "~dataset.path"


def test_such_a_text_is_what_is_composed(tmp_path: Path):
    text = 'mine\'s (a, b); "x" \\'
    checked = checked_overrides(["dataset=local", f"++dataset.path={text}", f"paths.mlruns={tmp_path}"])
    assert (checked.config.dataset.path, checked.jobs) == (text, 1)
    assert configuration(*checked.overrides).dataset.path == text


def test_a_text_that_could_be_read_stays_as_it_was(tmp_path: Path):
    lines = ["dataset=local", "dataset.path='q (1).csv'", r"dataset.name=C:\x", f"paths.mlruns={tmp_path}"]
    assert checked_overrides(lines).overrides == lines


def test_commas_part_the_values_of_a_sweep_whatever_signs_these_have(tmp_path: Path):
    swept = "dataset.path=quiz (1).csv,quiz (b,c).csv, plain.csv"
    checked = checked_overrides(["dataset=local", swept, f"paths.mlruns={tmp_path}"])
    assert checked.jobs == 3
    found = [config.dataset.path for _, config in jobs(checked.overrides)]
    assert found == ["quiz (1).csv", "quiz (b,c).csv", "plain.csv"]


def test_the_only_option_of_a_group_may_be_left_out(tmp_path: Path):
    place = f"paths.mlruns={tmp_path}"
    assert checked_overrides(["sampler.trials=20", "metric.d=3", "seed=1", place]).overrides == [
        "sampler.temperature_sweep.trials=20",
        "metric.frs.d=3",
        "seed=1",
        place,
    ]
    assert checked_overrides(["sampler.temperature_sweep.trials=2,4", "metric.d=1,2", place]).overrides[:2] == [
        "sampler.temperature_sweep.trials=2,4",
        "metric.frs.d=1,2",
    ]
    assert "metric has frs, certainty" in message("metric=[frs,certainty]", "metric.draws=3", place)
    several = [
        "experiment=profile",
        "sampler.rewrites=3",
        "sampler.early_stop=true",
        "metric.invalid=as_label",
        place,
    ]
    assert checked_overrides(several).overrides[1:4] == [
        "sampler.perturbation.rewrites=3",
        "sampler.temperature_sweep.early_stop=true",
        "metric.certainty.invalid=as_label",
    ]


AGREEMENT, RECORDED = "metric=agreement", ["sampler.recorded.temperature=1", "model.name=x", "metric=agreement"]
NEEDED = {
    **dict.fromkeys(("dataset=jsonl", "dataset=local", "dataset=mlphys101"), ("dataset.path=x",)),
    "model=transformers": ["model.path=x"],
    "model=openai_compatible": ["model.model=x", "model.base_url=http://localhost/v1"],
    "model=inspect": ["model.model=anthropic/x"],
    "model=recorded": ["sampler=recorded", *RECORDED],
    "sampler=recorded": RECORDED,
    **dict.fromkeys(("sampler=perturbation", "sampler=repetition", "sampler=order"), (AGREEMENT,)),
    "sampler=challenge": ["metric=challenge", "model.prompt_style=chat"],
    "sampler=thinking": ["metric=thinking", "model.prompt_style=chat"],
    "metric=order": ["sampler=order"],
    "metric=challenge": ["sampler=challenge", "model.prompt_style=chat"],
    "metric=thinking": ["sampler=thinking", "model.prompt_style=chat"],
    "rewriter=llm": ["sampler=perturbation", AGREEMENT],
    "grader=judge": ["model@grader.model=smollm2_135m"],
}
"""What an option cannot do without; frs, the metric of config.yaml, needs several temperatures."""
OPTIONS = {group: sorted(file.stem for file in (CONF / group).glob("*.yaml")) for group in [*SCHEMAS, "experiment"]}
BESIDE = ("dataset", "model", "reader", "aggregator", "store", "tracking")
"""Groups an option of which has any option of the others beside it."""
ALONE = [[f"{group}={name}"] for group in OPTIONS if group not in BESIDE for name in OPTIONS[group]]
TOGETHER = zip_longest(*([f"{group}={name}" for name in OPTIONS[group]] for group in BESIDE))


@pytest.mark.parametrize("chosen", [*ALONE, *([each for each in row if each] for row in TOGETHER)], ids=" ".join)
def test_every_configuration_file_composes_and_says_what_it_is(chosen: list[str], tmp_path: Path):
    extra = [line for each in chosen for line in NEEDED.get(each, ())]
    if any(each.endswith("=recorded") and not each.startswith("rewriter") for each in chosen):
        (tmp_path / "answers.jsonl").write_text('{"question_id": "facts-001", "text": "Paris"}\n' * 2)
        extra.append(f"sampler.recorded.file={tmp_path / 'answers.jsonl'}")
    assert configuration(*chosen, *extra)
    for each in chosen:
        opening = (CONF / f"{each.replace('=', '/')}.yaml").read_text().splitlines()[0:3]
        assert any(line.startswith("# ") and not line.startswith("# @") for line in opening)


def test_a_group_takes_several_metrics():
    assert list(configuration("metric=[frs,certainty]").metric) == ["frs", "certainty"]


def test_a_file_of_an_option_holds_only_values_that_differ_from_the_defaults_of_its_class():
    repeated = []
    for file in sorted(CONF.glob("*/*.yaml")):
        written = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
        (base,) = [str(each) for each in written.get("defaults", ()) if str(each).startswith("/schema/")] or ("",)
        group, _, name = base.removeprefix("/schema/").partition("@")[0].partition("/")
        if base.endswith("@_here_"):
            defaults = flat(OmegaConf.to_container(OmegaConf.structured(SCHEMAS[group][name]), resolve=False))
            own = flat({key: value for key, value in written.items() if key != "defaults"})
            repeated += [f"{file}: {key}" for key, value in own.items() if key and defaults[key] == value]
    assert repeated == []


def test_the_exact_sampler_asks_for_full_precision_unless_told_otherwise():
    assert checked_overrides(["sampler=exact", "sampler.nodes=7"]).overrides == [
        "sampler=exact",
        "sampler.exact.nodes=7",
    ]
    for more, dtype in (([], "float32"), (["model.dtype=bfloat16"], "bfloat16")):
        settings = configuration("sampler=exact", *more)
        assert settings.model.dtype == dtype
        assert list(settings.sampler) == ["exact"]


WRITES = ["experiment=multiqa", "rewriter=llm"]


def test_a_model_that_rewrites_is_chosen_by_its_name(tmp_path: Path):
    place = f"paths.mlruns={tmp_path}"
    short, long = (
        checked_overrides([*WRITES, f"{key}=smollm2_360m", "rewriter.model.dtype=bfloat16", place])
        for key in ("rewriter.model", "model@rewriter.model")
    )
    assert (short.overrides, short.config, short.composed) == (long.overrides, long.config, long.composed)
    assert short.overrides == [*WRITES, "model@rewriter.model=smollm2_360m", "rewriter.model.dtype=bfloat16", place]
    rewrites, measured = short.config.rewriter.model, short.config.model
    assert rewrites == configuration("model=smollm2_360m", "model.dtype=bfloat16").model
    assert measured == configuration().model
    assert configuration(*WRITES).rewriter.model is None


def test_models_that_rewrite_are_swept(tmp_path: Path):
    models = "rewriter.model=smollm2_360m,qwen25_3b"
    checked = checked_overrides([*WRITES, models, f"paths.mlruns={tmp_path}"])
    assert (checked.swept, checked.jobs) == ([f"model@{models}"], 2)
    assert checked.config.rewriter.model.name == "qwen-2.5-3b"


def test_a_model_that_rewrites_is_an_option_whatever_sign_stands_before_it(tmp_path: Path):
    checked = checked_overrides([*WRITES, "++rewriter.model=smollm2_360m", f"paths.mlruns={tmp_path}"])
    assert checked.config.rewriter.model.name == "smollm2-360m"


def test_null_is_the_model_that_is_measured(tmp_path: Path):
    checked = checked_overrides([*WRITES, "rewriter.model=null", f"paths.mlruns={tmp_path}"])
    assert checked.config.rewriter.model is None


def test_a_model_that_rewrites_has_its_own_path_as_its_name():
    assert (
        configuration(*WRITES, "model@rewriter.model=transformers", "rewriter.model.path=x").rewriter.model.name == "x"
    )


@pytest.mark.parametrize("more", [[], ["model@rewriter.model=smollm2_360m", "rewriter.model.generation.top_k=7"]])
def test_a_configuration_with_a_model_that_rewrites_composes_to_the_same_from_its_file(tmp_path: Path, more: list[str]):
    first = composed(*WRITES, *more, f"paths.mlruns={tmp_path}")
    (tmp_path / "config.yaml").write_text(repeatable(first), encoding="utf-8")
    with hydra.initialize_config_dir(str(tmp_path), version_base="1.3"):
        again = hydra.compose("config", [f"hydra.searchpath=[file://{CONF}]"])
    assert repeatable(again) == repeatable(first)
    assert to_config(again) == to_config(first)
    assert (to_config(again).rewriter.model is not None) == bool(more)


def test_a_check_changes_nothing_and_a_run_records_the_chosen_options_alone():
    preset = composed("experiment=smoke", "sampler=exact", "paths.mlruns=x")
    before = repr(preset)
    config = to_config(preset)
    assert repr(preset) == before
    assert set(preset.sampler) > set(composed_as_run(preset, config).sampler) == config.sampler.keys() == {"exact"}


def test_runs_lie_in_the_folder_where_the_command_is_given_or_in_one_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert checked_overrides([]).config.paths.mlruns == str(tmp_path / "mlruns")
    assert checked_overrides(["paths.mlruns=elsewhere"]).config.paths.mlruns == "elsewhere"


def own_options(folder: Path) -> Path:
    """A folder of options: a data set of its own, and files with the names of ours."""
    for name, text in {
        "dataset/mine.yaml": "defaults: [facts, _self_]\nname: mine\n",
        "model/smollm2_135m.yaml": "defaults: [transformers, _self_]\nname: theirs\npath: theirs\n",
        "config.yaml": "seed: 7\n",
        "hydra/job_logging/plain.yaml": "version: 1\nhandlers: {theirs: {class: os.system}}\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_options_of_ones_own_are_found_in_conf_or_in_a_folder_that_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own_options(tmp_path / "conf")
    assert checked_overrides(with_own_options(["dataset=mine"])).config.dataset.name == "mine"
    assert "mine" in options("dataset")
    (tmp_path / "conf").rename(tmp_path / "other")
    with pytest.raises(UserError, match="there is no dataset=mine; options are "):
        checked_overrides(with_own_options(["dataset=mine"]))
    assert checked_overrides(with_own_options(["dataset=mine"], Path("other"))).config.dataset.name == "mine"
    assert with_own_options(["seed=1", "hydra.searchpath=[]"], Path("other")) == ["seed=1", "hydra.searchpath=[]"]
    with pytest.raises(UserError, match=r"^--config-dir: there is no folder conf$"):
        with_own_options([], Path("conf"))


def test_a_folder_called_conf_without_options_is_none_of_ours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf" / "nginx").mkdir(parents=True)
    (tmp_path / "conf" / "nginx" / "site.yaml").write_text("{")
    assert with_own_options(["seed=1"]) == ["seed=1"]
    monkeypatch.chdir(CONF.parent)
    assert with_own_options(["seed=1"]) == ["seed=1"]


def test_options_in_the_folder_where_one_stands_take_the_place_of_none_of_ours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own_options(tmp_path / "conf")
    config, composed = composed_run(with_own_options([]))
    assert (config.seed, config.model.name) == (0, "smollm2-135m")
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        whole = hydra.compose("config", with_own_options([]), return_hydra_config=True)
    assert list(whole.hydra.job_logging.handlers) == ["console", "file"]
    assert composed.seed == 0


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("a, b; c=d", "a, b; c=d"),
        ("it's \\ 'so'", "it's \\ 'so'"),
        ("null", "null"),
        ("1", "1"),
        ("", ""),
        (None, None),
        (True, True),
        (3, 3),
        (0.25, 0.25),
        (Path("a b/c.csv"), "a b/c.csv"),
        (["a,b", 1], ["a,b", 1]),
        (("a",), ["a"]),
        (np.int64(3), 3),
        (np.array([0.5, 1.0]), [0.5, 1.0]),
        ({"question": "a b", "choices": ["x", "y"]}, {"question": "a b", "choices": ["x", "y"]}),
    ],
)
def test_a_value_of_a_program_is_read_as_it_was(value: object, read: object):
    parsed = OverridesParser.create().parse_override(as_override("key", value))
    found = parsed.value()
    assert (found.text if isinstance(found, QuotedString) else found) == read
    assert not parsed.is_sweep_override()


def test_questions_are_taken_until_figures_are_known(tmp_path: Path):
    checked = checked_overrides(["target_half_width={frs.d1: 0.02, accuracy.greedy: 1}"])
    assert checked.config.target_half_width == {"frs.d1": 0.02, "accuracy.greedy": 1}
    (tmp_path / "config.yaml").write_text(repeatable(composed_run(checked.overrides)[1]))
    assert OmegaConf.load(tmp_path / "config.yaml").target_half_width == {"frs.d1": 0.02, "accuracy.greedy": 1}
    assert checked_overrides([as_override("target_half_width", {"frs.d1": 0.02})]).config.target_half_width == {
        "frs.d1": 0.02
    }
    assert checked_overrides(
        ["experiment=profile", "target_half_width={profile.robust: 0.1}"]
    ).config.target_half_width == {"profile.robust": 0.1}
    assert checked_overrides([]).config.target_half_width == {}


@pytest.mark.parametrize("overrides", cases(__file__, "figures_that_a_run_measures_can_end_it"))
def test_figures_that_a_run_measures_can_end_it(overrides: list[str]):
    assert checked_overrides(overrides).config.target_half_width
