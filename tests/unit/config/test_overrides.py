from dataclasses import fields
from pathlib import Path

import hydra
import pytest
from experiments import composed, configuration
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import QuotedString
from omegaconf import OmegaConf

from robust_eval.config.objects import to_config
from robust_eval.config.overrides import (
    as_meant,
    as_override,
    checked_overrides,
    composed_run,
    jobs,
    options,
    with_own_options,
)
from robust_eval.config.schema import CONF, SCHEMAS, register, repeatable
from robust_eval.error import UserError
from robust_eval.tracking.settings import flat


@pytest.fixture(autouse=True)
def _schemas() -> None:
    register()


def message(*overrides: str) -> str:
    with pytest.raises(UserError) as problem:
        checked_overrides(overrides)
    return str(problem.value)


SWEEP = (
    "temperatures, max_new_tokens, selection, max_questions, min_confidence, prompts, trials, stop_on_match, early_stop"
)
MODELS = (
    "gpt35_turbo, gpt4o_mini, inspect, llama31_8b, llama32_3b, openai_compatible, qwen25_14b, qwen25_3b, recorded, "
    "smollm2_1.7b, smollm2_135m, smollm2_360m, transformers, vllm_llama31_8b, vllm_mistral_7b, vllm_mixtral_8x7b, "
    "vllm_qwen25_14b"
)
METRICS = "agreement, certainty, challenge, frs, order, thinking"
GRADERS = "cosine, judge, levenshtein, matching, references"
ROOT = (
    "seed, model, dataset, sampler, metric, rewriter, reader, grader, aggregator, engine, store, tracking, paths, "
    "target_half_width, question_types, labels"
)

MISTAKES = {
    "sampler.trails=3": "there is no setting sampler.temperature_sweep.trails (did you mean "
    f"sampler.temperature_sweep.trials?); sampler.temperature_sweep has {SWEEP}",
    "+sampler.temperature_sweep.colour=3": "there is no setting sampler.temperature_sweep.colour; "
    f"sampler.temperature_sweep has {SWEEP}",
    "model.answers_at_once=3": "model.answers_at_once is now model.batch_size",
    "sampler.whole_answers=false": "sampler.temperature_sweep.whole_answers is now "
    "sampler.temperature_sweep.stop_on_match, true where whole_answers was false",
    "until={frs.d1: 0.1}": "until is now target_half_width",
    "modle=smollm2_135m": f"there is no setting modle (did you mean model?); there are {ROOT}",
    "hydra.run.dri=x": "there is no setting hydra.run.dri (did you mean hydra.run.dir?); hydra.run has dir",
    "hydra/launcher=jobib": "there is no hydra/launcher=jobib (did you mean joblib?); there are basic, joblib, "
    "submitit_local, submitit_slurm",
    "+extra=1": f"there is no setting extra; there are {ROOT}",
    "model=smollm2_135": f"there is no model=smollm2_135 (did you mean smollm2_135m?); there are {MODELS}",
    "model=gpt5": f"there is no model=gpt5; there are {MODELS}",
    "metric=[frs,certainy]": f"there is no metric=certainy (did you mean certainty?); there are {METRICS}",
    "metric=[3]": f"there is no metric=3; there are {METRICS}",
    "metric=[]": "metric must name at least one option",
    "experiment=smoek": "there is no experiment=smoek (did you mean smoke?); there are certainty, challenge, frs, "
    "multiqa, order, profile, smoke, thinking",
    "sampler.trials=many": (
        "sampler.temperature_sweep.trials: Value 'many' of type 'str' could not be converted to Integer"
    ),
    "sampler.trials=null": "sampler.temperature_sweep.trials: field 'sampler.temperature_sweep.trials' is not Optional",
    "sampler.trials=true": (
        "sampler.temperature_sweep.trials: Value 'True' of type 'bool' could not be converted to Integer"
    ),
    "sampler.trials=[1,2]": (
        "sampler.temperature_sweep.trials: Value '[1, 2]' of type 'list' could not be converted to Integer"
    ),
    "sampler.stop_on_match=maybe": (
        "sampler.temperature_sweep.stop_on_match: Value 'maybe' is not a valid bool (type str)"
    ),
    "sampler.temperatures=0.5": (
        "sampler.temperature_sweep.temperatures: Invalid value assigned: float is not a ListConfig, list or tuple."
    ),
    "sampler.temperatures={a:1}": "sampler.temperature_sweep.temperatures: Cannot merge DictConfig with ListConfig",
    "sampler.temperatures=[1,hot]": (
        "sampler.temperature_sweep.temperatures[1]: Value 'hot' of type 'str' could not be converted to Float"
    ),
    "sampler.temperatures=[[1]]": "sampler.temperature_sweep: a value has a type that its setting does not take ('<' "
    "not supported between instances of 'int' and 'list')",
    "sampler.trials=interval(1,3)": "sampler.trials=interval(1,3): a sweep takes values that are written out, "
    "sampler.trials=A,B, or range(FIRST,LAST)",
    "model=glob(smol*)": "model=glob(smol*): a sweep takes values that are written out, model=A,B, or "
    "range(FIRST,LAST)",
    "+sampler.trials=3": "sampler.temperature_sweep.trials has a value: write sampler.temperature_sweep.trials=…, "
    "without the +",
    "+sampler=exact": "sampler is chosen already: write sampler=…, without the +",
    "+metric.certainty.invalid=as_label": "there is no setting metric.certainty.invalid; metric has frs",
    "sampler={temperature_sweep:{trails:3}}": "there is no setting sampler.temperature_sweep.trails (did you mean "
    f"sampler.temperature_sweep.trials?); sampler.temperature_sweep has {SWEEP}",
    "dataset.limit=some": "dataset.limit: Value 'some' of type 'str' could not be converted to Integer",
    "model.path=[a]": "model.path: Cannot convert 'list' to string: '['a']'",
    "model.path.revision=3": "model.path: Cannot convert 'dict' to string: '{}'",
    "model.path=${modle.name}": "model.path: Interpolation key 'modle.name' not found",
    "model.path=${env:HOME}": "model.path: Unsupported interpolation type env",
    "model.path=${oc.env:}": (
        "model.path: TypeError raised while resolving interpolation: env() "
        "missing 1 required positional argument: 'key'"
    ),
    "model.generation=greedy": (
        "model.generation: Invalid type assigned: str is not a subclass of Generation. value: greedy"
    ),
    "model=3": f"there is no model=3; there are {MODELS}",
    "paths=runs": "paths: Invalid type assigned: str is not a subclass of Paths. value: runs",
    "hydra=3": f"there is no setting hydra; there are {ROOT}",
    "hydra.mode=SWEEP": "hydra.mode: Invalid value 'SWEEP', expected one of [RUN, MULTIRUN]",
    "hydra.searchpath=conf": "hydra.searchpath must be a list of folders, such as [file:///home/me/conf], not conf",
    "hydra.searchpath=[file:///nowhere]": "hydra.searchpath: there is no folder /nowhere",
    "seed=${seed}": "seed: Recursive interpolation detected",
    "seed=${model.name}": (
        "seed: While dereferencing interpolation '${model.name}': Value "
        "'smollm2-135m' of type 'str' could not be converted to Integer"
    ),
    "seed=???": "seed must be given: add seed=…",
    "~seed": "~seed: a setting is changed, and cannot be left out: write seed=…",
    "~metric.order": "~metric.order: there is nothing of this name to leave out",
    "sampler.trials=0": "sampler.temperature_sweep: trials must be at least 1, not 0",
    "sampler.temperatures=[-0.2,1.0]": "sampler.temperature_sweep: temperatures must all be above 0 (the greedy answer "
    "is always asked), not -0.2",
    "sampler.temperatures=[0.5]": "metric=frs needs answers at several temperatures to find where a fact breaks, and "
    "the sampler asks at one alone, t = 0.5: choose sampler=temperature_sweep with at least two temperatures above 0",
    "sampler.early_stop=some": "sampler.temperature_sweep.early_stop: Value 'some' is not a valid bool (type str)",
    "model.stop=['']": "model: stop must not hold an empty string, which ends every answer",
    "model.batch_size=0": "model: batch_size must be at least 1, not 0",
    "metric.frs.d=0": "metric.frs: d must be a number above 0 or a list of such numbers, not 0",
    "metric.d=[1,-2]": "metric.frs: d must be a number above 0 or a list of such numbers, not [1, -2]",
    "model.generation.top_p=0": "model: top_p must lie above 0 and at most at 1, not 0.0",
    "dataset=jsonl": "dataset.path must be given: add dataset.path=…",
    "tracking.uri=http://me:abc@host": "tracking: uri must not hold a secret, because all settings are written down "
    "with the run: MLflow reads it from the environment (MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or "
    "MLFLOW_TRACKING_TOKEN), the driver of a database from its own variable or file (PGPASSWORD, ~/.pgpass)",
    "seed=-1": "seed must be 0 or more, not -1",
    "question_types=nowhere": "question_types=nowhere: there is no such folder; it must be one where "
    "robust-eval train-question-types saved a classifier",
    "model.path": "'model.path' is no override: write KEY=VALUE",
    "=3;": "'=3;' is no override: write KEY=VALUE",
    "dataset .path=x": "'dataset .path=x' is no override: write KEY=VALUE",
    "grader={": "'grader={' cannot be read: what begins with { must end with }, and a text in it that holds other "
    "signs needs quotes; if all of it is one text, write 'grader=\"{\"'",
    "sampler.temperatures=[0.2,0.4": "'sampler.temperatures=[0.2,0.4' cannot be read: what begins with [ must end with "
    "], and a text in it that holds other signs needs quotes; if all of it is one text, write "
    "'sampler.temperatures=\"[0.2,0.4\"'",
    "model.name='mine": "\"model.name='mine\" cannot be read: what begins with ' must end with '; if all of it is one "
    "text, write 'model.name=\"'\"'\"'mine\"'",
    'model.name="': '\'model.name="\' cannot be read: what begins with " must end with "; if all of it is one text, '
    'write \'model.name="\\""\'',
    "grader=levenshtein;": f"there is no grader=levenshtein; (did you mean levenshtein?); there are {GRADERS}",
    "tracking=null": "tracking must be one of mlflow, none, not null",
    "metric.frs=null": "metric.frs must be one of its options, not null: see conf/metric/",
    "~tracking": "~tracking: a setting is changed, and cannot be left out: write tracking=…",
    "seed=${oc.env:NOWHERE_SET}": (
        "seed: KeyError raised while resolving interpolation: \"Environment variable 'NOWHERE_SET' not found\""
    ),
    "dataset=[facts,physics]": "dataset takes one option, not 'dataset=[facts,physics]'",
    "labels=nowhere.parquet": "labels=nowhere.parquet: there is no such file; it must be labels.parquet of a run",
    "sampler.trials=5,0": "sampler.temperature_sweep: trials must be at least 1, not 0",
    "model=smollm2_135m,gpt5": f"there is no model=gpt5; there are {MODELS}",
    "paths.mlruns=/proc/nowhere": "paths.mlruns: nothing can be written to /proc/nowhere (No such file or directory); "
    "choose another folder",
}


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
    assert message(elsewhere[1], "dataset=quiz").startswith("there is no dataset=quiz; there are ")


@pytest.mark.parametrize("override", MISTAKES)
def test_a_mistake_is_answered_in_one_sentence(override: str):
    assert message(override) == MISTAKES[override]


FILES = {
    "dataset/quiz": {
        "a: [": "{file}, line 1: expected the node content, but found '<stream end>'",
        "defaults: [local, _self_]\npath: a\npath: b": "{file}, line 3: found duplicate key path",
        "path: quiz.csv": "dataset is no option with a schema: a file conf/dataset/NAME.yaml names one in its "
        "defaults, such as /schema/dataset/jsonl@_here_",
        "defaults: [local, _self_]\nlimit: many": (
            "dataset=quiz: dataset.limit: Value 'many' of type 'str' could not be converted to Integer"
        ),
        "defaults: [local, _self_]\nlimt: 3": "dataset=quiz: there is no setting dataset.limt (did you mean "
        "dataset.limit?); dataset has name, limit, shuffle, shuffle_choices, seed, scenario, "
        "max_invalid_fraction, path, "
        "columns, correct, separator, encoding",
    },
    "experiment/own": {
        "# @package _global_\nsampler: {exat: {nodes: 3}}": "sampler.exat is no option with a schema (did you mean "
        "sampler.exact?): a file conf/sampler/exat.yaml names one in its defaults, such as "
        "/schema/sampler/temperature_sweep@_here_",
        "# @package _global_\ndefaults: [{override /samplr: exact}]": "experiment=own: its defaults override samplr, "
        "which is no group of options",
        "# @package _global_\nmodel: 3": "experiment=own: Merge error: int is not a subclass of Transformers. value: 3",
    },
}


@pytest.mark.parametrize(("option", "text"), [(option, text) for option, texts in FILES.items() for text in texts])
def test_a_mistake_in_a_file_of_options_is_answered_in_one_sentence(option: str, text: str, tmp_path: Path):
    file = tmp_path / f"{option}.yaml"
    file.parent.mkdir()
    file.write_text(text)
    search = f"hydra.searchpath=[file://{tmp_path}]"
    assert message(search, option.replace("/", "=")) == FILES[option][text].replace("{file}", str(file))


@pytest.mark.parametrize(
    ("sampler", "others"),
    [
        ("exact", []),
        ("order", ["metric=order", "dataset=physics"]),
        ("perturbation", ["metric=agreement"]),
        ("repetition", ["metric=certainty"]),
        ("challenge", ["metric=challenge", "model.prompt_style=chat"]),
        ("thinking", ["metric=thinking", "model.prompt_style=chat"]),
    ],
)
def test_settings_of_a_preset_for_a_sampler_that_is_not_chosen_are_left_out(sampler: str, others: list[str]):
    checked = checked_overrides(["experiment=smoke", f"sampler={sampler}", *others])
    assert list(checked.config.sampler) == list(checked.composed.sampler) == [sampler]
    assert list(checked.whole.sampler) == [sampler]
    assert checked.config.dataset.limit == 12


def test_a_setting_of_a_sampler_that_is_not_chosen_is_refused_although_a_preset_has_it():
    exact = "there is no setting sampler.exact.trials; sampler.exact has temperatures, "
    assert message("experiment=smoke", "sampler=exact", "sampler.trials=5").startswith(exact)
    for plus in ("", "++"):
        assert message("experiment=smoke", "sampler=exact", f"{plus}sampler.temperature_sweep.trials=5") == (
            "there is no setting sampler.temperature_sweep.trials; sampler has exact"
        )


def test_a_preset_keeps_its_settings_for_each_job_of_a_sweep_that_has_the_sampler(tmp_path: Path):
    swept = checked_overrides(["experiment=smoke", "sampler=temperature_sweep,exact", f"paths.mlruns={tmp_path}"])
    (_, first), (_, second) = jobs(swept.overrides)
    assert (first.sampler["temperature_sweep"].trials, list(second.sampler)) == (4, ["exact"])


SIGNS = (
    *(";", "|", "quiz (1).csv", "quiz(1).csv", "quiz (a, b).csv", "a b.csv", "a=b.csv", "ü.csv", "O'Brien.csv", "}"),
    *('5" disk.csv', "C:\\data\\quiz (1).csv", "C:\\;\\", "https://host/q.csv?a=1&b=2", 'mine\'s; "yours"', "~/q.csv"),
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


@pytest.mark.parametrize(
    "line", ["dataset.path=quiz (a, b).csv", "+dataset.path=C:\\;\\", '++dataset.path=mine\'s; "x"']
)
def test_such_a_text_is_what_is_composed(line: str, tmp_path: Path):
    checked = checked_overrides(["dataset=local", line, f"paths.mlruns={tmp_path}"])
    assert (checked.config.dataset.path, checked.jobs) == (line.partition("=")[2], 1)
    assert configuration(*checked.overrides).dataset.path == line.partition("=")[2]


def test_a_text_that_could_be_read_stays_as_it_was(tmp_path: Path):
    lines = ["dataset=local", "dataset.path='q (1).csv'", r"dataset.name=C:\x", f"paths.mlruns={tmp_path}"]
    assert checked_overrides(lines).overrides == lines


def test_commas_part_the_values_of_a_sweep_whatever_signs_these_have(tmp_path: Path):
    swept = "dataset.path=quiz (1).csv,quiz (b,c).csv, plain.csv"
    checked = checked_overrides(["dataset=local", swept, f"paths.mlruns={tmp_path}"])
    assert checked.jobs == 3
    found = [config.dataset.path for _, config in jobs(checked.overrides)]
    assert found == ["quiz (1).csv", "quiz (b,c).csv", "plain.csv"]


def test_a_metric_that_lacks_its_axis_says_which():
    assert message("metric=certainty", "sampler.trials=1") == (
        "metric=certainty needs repeated answers to the same question, and the sampler asks once: set sampler.trials "
        "to 2 or more"
    )


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


@pytest.mark.parametrize(
    "file",
    sorted(path for group in [*SCHEMAS, "experiment"] for path in (CONF / group).glob("*.yaml")),
    ids=lambda p: p.stem,
)
def test_every_configuration_file_composes_and_says_what_it_is(file: Path, tmp_path: Path):
    needs_path = ("jsonl", "local", "mlphys101", "transformers")
    extra = [f"{file.parent.name}.path=x"] if file.stem in needs_path and file.parent.name != "engine" else []
    extra += ["model.model=x", "model.base_url=http://localhost/v1"] if file.stem == "openai_compatible" else []
    extra += ["model.model=anthropic/x"] if file.stem == "inspect" else []
    # frs, the metric of config.yaml, needs several temperatures
    extra += ["metric=agreement"] if file.stem in ("perturbation", "repetition", "llm") else []
    extra += ["metric=agreement"] if file.parent.name == "sampler" and file.stem == "order" else []
    extra += ["sampler=order"] if file.parent.name == "metric" and file.stem == "order" else []
    doubting = ["sampler=challenge", "metric=challenge", "model.prompt_style=chat"]
    extra += doubting if file.stem == "challenge" and file.parent.name != "experiment" else []
    thinking = ["sampler=thinking", "metric=thinking", "model.prompt_style=chat"]
    extra += thinking if file.stem == "thinking" and file.parent.name != "experiment" else []
    extra += ["sampler=perturbation"] if file.stem == "llm" else []
    extra += ["model@grader.model=smollm2_135m"] if file.stem == "judge" else []
    if file.stem == "recorded" and file.parent.name in ("model", "sampler"):
        answers = tmp_path / "answers.jsonl"
        answers.write_text('{"question_id": "facts-001", "text": "Paris"}\n' * 2)
        recorded = [f"sampler.recorded.file={answers}", "sampler.recorded.temperature=1", "model.name=x"]
        extra += ["sampler=recorded", *recorded, "metric=agreement"]
    assert configuration(f"{file.parent.name}={file.stem}", *extra)
    opening = file.read_text().splitlines()[0:3]
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


def test_the_exact_sampler_refuses_settings_that_make_no_sense():
    for override, reason in (
        ("sampler.nodes=0", "nodes must be at least 1, not 0"),
        ("sampler.max_temperature=1", "max_temperature must be at least the last of the temperatures, 2, not 1"),
        ("sampler.temperatures=[]", "temperatures must hold at least one temperature"),
    ):
        assert message("sampler=exact", override) == f"sampler.exact: {reason}"


WRITES = ["experiment=multiqa", "rewriter=llm"]
MODEL_HAS = (
    "name, path, revision, sha256, prompt_style, dtype, device, trust_remote_code, batch_size, stop, "
    "chat_template, thinking_budget, generation"
)


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


OF_REWRITING = {
    "rewriter=llm rewriter.model=gpt5": f"there is no model=gpt5; there are {MODELS}",
    "rewriter=llm rewriter.model=smollm2_36m": f"there is no model=smollm2_36m (did you mean smollm2_360m?); there are "
    f"{MODELS}",
    "rewriter=llm rewriter.model=smollm2_360m,gpt5": f"there is no model=gpt5; there are {MODELS}",
    "rewriter=llm rewriter.model=smollm2_360m rewriter.model.pth=3": "there is no setting rewriter.model.pth (did you "
    f"mean rewriter.model.path?); rewriter.model has {MODEL_HAS}",
    "rewriter=llm rewriter.model.path=x": "there is no setting rewriter.model.path; rewriter.model has no settings",
    "rewriter.model=smollm2_360m": "there is no rewriter.model to choose: rewriter has an option that asks no model",
    "rewriter.model.path=x": "there is no setting rewriter.model.path; rewriter has "
    + ", ".join(entry.name for entry in fields(SCHEMAS["rewriter"]["recorded"])),
    "rewriter=llm rewriter.drift=warn": "rewriter: drift must be flag or drop, not warn",
    "rewriter=lm": "there is no rewriter=lm (did you mean llm?); there are llm, recorded",
}


@pytest.mark.parametrize("overrides", OF_REWRITING)
def test_a_mistake_about_rewriting_is_answered_in_one_sentence(overrides: str):
    assert message("experiment=multiqa", *overrides.split()) == OF_REWRITING[overrides]


@pytest.mark.parametrize("sampler", ["temperature_sweep", "exact"])
def test_rewrites_are_not_written_for_a_sampler_that_does_not_ask_them(sampler: str):
    assert message("rewriter=llm", f"sampler={sampler}") == (
        f"rewriter=llm writes rewrites, which sampler={sampler} does not ask: choose sampler=perturbation, or "
        "rewriter=recorded"
    )


def test_a_model_that_rewrites_needs_its_path():
    expected = "rewriter.model.path must be given: add rewriter.model.path=…"
    assert message(*WRITES, "rewriter.model=transformers") == expected


@pytest.mark.parametrize("sign", ["", "+", "++"])
def test_a_model_that_rewrites_is_an_option_whatever_sign_stands_before_it(sign: str, tmp_path: Path):
    checked = checked_overrides([*WRITES, f"{sign}rewriter.model=smollm2_360m", f"paths.mlruns={tmp_path}"])
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
    with pytest.raises(UserError, match="there is no dataset=mine; there are "):
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


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (
            ["experiment=multiqa", "target_half_width={agreement.kappa.t1: 0.1}"],
            (
                "target_half_width names agreement.kappa.t1 (Fleiss' κ, labels mapped at random), "
                "which is no mean over questions, "
                "as an interval that ends a run must be; these are: accuracy.greedy, agreement.accuracy.t1, "
                "agreement.plurality.t1, agreement.difficulty.t1, agreement.worst.t1, agreement.best.t1, "
                "agreement.base_minus_difficulty.t1, agreement.certainty.t1, agreement.m2.t1, "
                "agreement.semantic_entropy.t1"
            ),
        ),
        (
            ["experiment=multiqa", "target_half_width={agreement.alpha: 0.1}"],
            "target_half_width names agreement.alpha (Cronbach's α), which is no mean over questions",
        ),
        (
            ["target_half_width={frs.breaking_temperature.median: 0.1}"],
            "target_half_width names frs.breaking_temperature.median (median breaking temperature), which is no mean",
        ),
        (
            ["target_half_width={frs.unbrokenshare: 0.1}"],
            (
                "target_half_width names frs.unbrokenshare, which is no figure of this run (did you mean "
                "frs.unbroken_share?)"
            ),
        ),
        (
            ["target_half_width={agreement.worst.t1: 0.1}"],
            "target_half_width names agreement.worst.t1, which is no figure of this run",
        ),
        (
            ["target_half_width={frs.d9: 0.1}"],
            (
                "target_half_width names frs.d9, which this run does not measure (did you mean "
                "frs.d5?); it measures frs.d1, "
                "frs.d2, frs.d5, frs.d10, frs.d50"
            ),
        ),
        (
            ["target_half_width={frs.d1.t0.2: 0.1}"],
            "target_half_width names frs.d1.t0.2, which this run does not measure",
        ),
        (
            ["experiment=certainty", "target_half_width={certainty.entropy: 0.1}"],
            (
                "target_half_width names certainty.entropy, which this run does not measure (did you mean "
                "certainty.entropy.t0.7?); it measures certainty.entropy.t0.7"
            ),
        ),
        (
            ["experiment=certainty", "target_half_width={certainty.error_rate.t1: 0.1}"],
            "target_half_width names certainty.error_rate.t1, which this run does not measure",
        ),
        (
            ["experiment=order", "target_half_width={order.bias.place1: 0.1}"],
            (
                "target_half_width names order.bias.place1, which this run does not measure (did you "
                "mean order.bias.placeN.t1?); "
                "it measures order.bias.placeN.t1"
            ),
        ),
        (
            ["target_half_width={frs.d1: 0}"],
            "target_half_width={frs.d1: 0}: the half-width of an interval must be a number above 0",
        ),
        (
            ["target_half_width={frs.d1: wide}"],
            "target_half_width={frs.d1: wide}: the half-width of an interval must be a number above 0",
        ),
        (
            ["target_half_width=0.02"],
            "target_half_width=0.02: it must name figures, as target_half_width={frs.d1: 0.02} does",
        ),
        (
            ["target_half_width={}"],
            "target_half_width={}: it must name figures, as target_half_width={frs.d1: 0.02} does",
        ),
    ],
)
def test_a_figure_that_cannot_end_a_run_is_refused_before_anything_is_asked(overrides: list[str], expected: str):
    assert message(*overrides).startswith(expected)


@pytest.mark.parametrize(
    "overrides",
    [
        ["metric.d=9", "target_half_width={frs.d9: 0.1}"],
        ["target_half_width={accuracy.t0.6: 0.1, frs.survival.t2: 0.1, frs.entropy.mean: 0.1}"],
        ["experiment=certainty", "target_half_width={certainty.entropy.t0.7: 0.1, certainty.error_rate.own: 0.1}"],
        ["experiment=order", "target_half_width={order.bias.place1.t1: 0.1, order.one_choice.t1: 0.1}"],
        ["experiment=thinking", "target_half_width={thinking.frs: 0.1, thinking.accuracy.b64.t1: 0.1}"],
    ],
)
def test_figures_that_a_run_measures_can_end_it(overrides: list[str]):
    assert checked_overrides(overrides).config.target_half_width


def test_recorded_answers_are_not_taken_until_a_figure_is_known(tmp_path: Path):
    said = message(
        "model=recorded", "model.name=m", "sampler=recorded", "sampler.file=f", "target_half_width={frs.d1: 0.02}"
    )
    assert (
        said
        == "target_half_width=… says how many questions a model is asked, and sampler=recorded asks none: leave it out"
    )
