"""Tab in real shells: they read what ``robust-eval completion`` prints, and ask it for words."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from robust_eval.config.groups import PROJECT

bash = pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a shell that finds the command ``robust-eval``."""
    place = tmp_path_factory.mktemp("shell")
    program = place / "bin" / "robust-eval"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m robust_eval "$@"\n')
    program.chmod(0o755)
    return {
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(place),
        "PYTHONPATH": str(PROJECT),
        "XDG_DATA_HOME": str(place / "data"),
        "TERM": "dumb",
        "PS1": "$ ",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LC_ALL": "C.UTF-8",
    }


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where the shell is, which holds a file."""
    (tmp_path / "my quiz.csv").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def terminal(surroundings: dict[str, str], place: Path) -> Iterator[Callable[[str, str], str]]:
    """An interactive bash: type keys, and read what it writes until a text is there."""
    process, screen = pty.fork()
    if not process:
        os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], surroundings)
    seen = ""

    def typed(keys: str, until: str) -> str:
        nonlocal seen
        os.write(screen, keys.encode())
        while until not in seen:
            assert select.select([screen], [], [], 60)[0], seen
            seen += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|[\r\a]", "", os.read(screen, 65536).decode())
        found, _, seen = seen.partition(until)
        return found + until

    typed('bind "set completion-query-items 0" "set enable-bracketed-paste off"; echo re""ady\n', "ready\n")
    typed('eval "$(robust-eval completion bash)"; echo d""one\n', "done\n")
    yield typed
    os.write(screen, b"\x15exit\n")
    os.waitpid(process, 0)
    os.close(screen)


@bash
@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("robust-eval model=transf\t.", "robust-eval model=transformers ."),
        ("robust-eval sampler.temperature_\tmax_n\t7", "robust-eval sampler.temperature_sweep.max_new_tokens=7"),
        ("robust-eval 'metric=[frs,cer\t .", "robust-eval 'metric=[frs,certainty'  ."),
        ("robust-eval dataset=loc\tdataset.pa\tmy\t.", r"robust-eval dataset=local dataset.path=my\ quiz.csv ."),
        ("robust-eval compa\tmy\t.", r"robust-eval compare my\ quiz.csv ."),
    ],
)
def test_tab_completes_the_word_in_a_terminal(terminal: Callable[[str, str], str], keys: str, line: str):
    assert terminal(keys, line).endswith(line)


@bash
@pytest.mark.parametrize(
    ("line", "cursor", "part", "found"),
    [("robust-eval tracking=", 21, "", ["mlflow", "none"]), ("robust-eval store=p sampler=", 19, "p", ["parquet"])],
)
def test_the_function_of_bash_completes_up_to_the_cursor(
    surroundings: dict[str, str], line: str, cursor: int, part: str, found: list[str]
):
    script = (
        f"""eval "$(robust-eval completion bash)"; COMP_LINE='{line}' COMP_POINT={cursor}\n"""
        f"""_robust_eval robust-eval '{part}'; printf '%s\\n' "${{COMPREPLY[@]}}\""""
    )
    ran = subprocess.run(["bash", "-c", script], env=surroundings, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == found


@bash
def test_the_script_of_bash_bears_strict_options(surroundings: dict[str, str]):
    script = (
        """set -eu -o pipefail; eval "$(robust-eval completion bash)"; COMP_LINE='robust-eval zzz' COMP_POINT=15\n"""
        """_robust_eval robust-eval zzz; echo "${#COMPREPLY[@]}"; complete -p robust-eval"""
    )
    ran = subprocess.run(["bash", "-c", script], env=surroundings, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (
        0,
        "0\ncomplete -o bashdefault -o default -F _robust_eval robust-eval\n",
        "",
    )


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_zsh_and_fish_are_told_whole_words(surroundings: dict[str, str], shell: str):
    command = ["robust-eval", "completion", shell, "--", "-m", "sampler=exact", "sampler.no"]
    ran = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=True)
    assert ran.stdout == "sampler.nodes=\n"
