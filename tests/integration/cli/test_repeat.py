"""A folder of somebody else is asked again without being trusted."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from robust_eval.cli.repeat import repeating_arguments
from robust_eval.error import UserError
from robust_eval.record.run_folder import ANSWERS, CONFIG, LARGEST

SETTINGS = {
    "seed": 0,
    "model": {"name": "tiny", "path": "somewhere", "trust_remote_code": False},
    "question_types": None,
}
SERVER = {"base_url": "https://collector.example/v1", "key_variable": "AWS_SECRET_ACCESS_KEY"}
TRUSTED = "and no folder is trusted with that: if it is what you want, add to the command line "


def run_folder(mlruns: Path, whole: dict[str, object] | str) -> Path:
    """A folder in which a run with this configuration seems to have ended."""
    folder = mlruns / "runs" / "today" / "now"
    folder.mkdir(parents=True)
    (folder / CONFIG).write_text(whole if isinstance(whole, str) else yaml.safe_dump(whole))
    (folder / ANSWERS).write_bytes(b"")
    return folder


def arguments(folder: Path, *overrides: str) -> list[str]:
    (place := folder.parent / "copy").mkdir(exist_ok=True)
    return repeating_arguments([f"repeat={folder}", *overrides], place)


def refusal(folder: Path, *overrides: str) -> str:
    with pytest.raises(UserError) as problem:
        arguments(folder, *overrides)
    return str(problem.value)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"model": {"trust_remote_code": True}}, "model.trust_remote_code=True"),
        ({"model": {"trust_remote_code": "yes"}}, "model.trust_remote_code=yes"),
        ({"rewriter": {"model": {"trust_remote_code": 1}}}, "rewriter.model.trust_remote_code=1"),
        (
            {"model": SERVER},
            "model.base_url=https://collector.example/v1 model.key_variable=AWS_SECRET_ACCESS_KEY",
        ),
        ({"model": {"base_url": "http://[::1]:9/v1; rm"}}, "'model.base_url=http://[::1]:9/v1; rm'"),
        ({"tracking": {"uri": "https://collector.example"}}, "tracking.uri=https://collector.example"),
    ],
)
def test_what_no_folder_is_trusted_with_has_to_be_said_again(settings: dict[str, object], line: str, tmp_path: Path):
    folder = run_folder(tmp_path, {**settings, "paths": {"mlruns": str(tmp_path)}})
    assert refusal(folder).endswith(TRUSTED + line)
    said = [f"{key}=said" for key in (part.strip("'").partition("=")[0] for part in line.split()) if "." in key]
    assert arguments(folder, *said)[-len(said) :] == said


def test_a_text_on_the_command_line_needs_no_quotes(tmp_path: Path):
    folder = run_folder(tmp_path, {"paths": {"mlruns": str(tmp_path)}})
    assert arguments(folder, "dataset.path=quiz (1).csv", "seed=3")[-2:] == ["dataset.path='quiz (1).csv'", "seed=3"]


def test_what_is_the_default_anyway_needs_no_saying(tmp_path: Path):
    model = {"base_url": "https://api.openai.com/v1", "key_variable": "OPENAI_API_KEY", "trust_remote_code": False}
    folder = run_folder(tmp_path, {"model": model, "tracking": {"uri": None}, "paths": {"mlruns": str(tmp_path)}})
    assert arguments(folder)[:2] == ["--config-path", str(folder.parent / "copy")]


def test_a_folder_from_elsewhere_does_not_say_where_files_are_written(tmp_path: Path):
    folder = run_folder(tmp_path / "downloads", {"paths": {"mlruns": str(tmp_path / "home")}})
    assert refusal(folder).endswith(TRUSTED + f"paths.mlruns={tmp_path / 'home'}")
    assert arguments(folder, "paths.mlruns=here")[-1] == "paths.mlruns=here"


def test_of_a_folder_hydra_is_given_the_settings_and_nothing_else(tmp_path: Path):
    """A logger, a launcher or a schema of the folder's own would run code."""
    hydra = {"job_logging": {"handlers": {"x": {"()": "os.system", "command": "true"}}}}
    defaults = ["schema", "/schema/model/transformers@model", {"override hydra/job_logging": "evil"}, "_self_", "evil"]
    settings = SETTINGS | {"paths": {"mlruns": str(tmp_path)}}
    folder = run_folder(tmp_path, {"defaults": defaults, **settings, "hydra": hydra})
    arguments(folder)
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
        ("model: {name: '${oc.env:AWS_SECRET_ACCESS_KEY}'}", "model.name holds an interpolation"),
        ("model: {stop: ['${oc.env:HOME}']}", "model.stop holds an interpolation"),
        ("a: &a [x]\nb: [*a, *a]", "holds an alias (*NAME)"),
        ("model: !!python/object/apply:os.system ['true']", "could not determine a constructor for the tag"),
        ("[" * 100_000, "more than 32 levels"),
        ("a: '" + "x" * LARGEST + "'", "larger than the configuration of any run"),
        ("seed: [", "cannot be read"),
        ("just text", "is no configuration of a run"),
        ("\x00", "cannot be read"),
        (
            "defaults: [/schema/model/evil@model]",
            "names /schema/model/evil@model, which is no part of this robust_eval",
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
    folder = run_folder(tmp_path, {**code, "paths": {"mlruns": str(tmp_path)}})
    (folder / "schema.yaml").write_text("hydra: {job_logging: {handlers: {x: {'()': os.abort}}}}")
    process = command(f"repeat={folder}")
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr == (
        f"error: repeat={folder}: its config.yaml says which code runs, where prompts, keys or results go, or where "
        f"files are written, {TRUSTED}model.trust_remote_code=True\n"
    )
