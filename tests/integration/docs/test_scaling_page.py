"""docs/scaling.md does what it says: its commands are accepted, and its figures are those that its numbers give."""

import re
import shlex
from pathlib import Path

import hydra
import pytest
from omegaconf import OmegaConf

from robust_eval.config.groups import CONF, PROJECT
from robust_eval.config.overrides import checked_overrides
from robust_eval.config.schema import register

PAGE = (PROJECT / "docs" / "scaling.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
LINES = [line for block in BLOCKS for line in block.splitlines()]
RUNS = [line for line in LINES if line.startswith("python run.py")]


@pytest.mark.parametrize("line", RUNS)
def test_its_commands_are_accepted(line: str, tmp_path: Path):
    register()
    given = [word for word in shlex.split(line)[2:] if word != "-m" and not word.startswith(("dry_run=", "paths."))]
    assert ("-m" in line.split()) == (checked_overrides([*given, f"paths.mlruns={tmp_path}"]).jobs > 1)
    launching = [word for word in given if word.lstrip("+").startswith("hydra")]
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        hydra.compose("config", launching, return_hydra_config=True)


@pytest.mark.filterwarnings("ignore:.*Any type hint:UserWarning")  # of MLflow's own parts
def test_the_options_of_the_tracking_server_exist():
    from mlflow.cli import server

    (line,) = (line for line in LINES if line.startswith("mlflow server"))
    options = {name for option in server.params for name in option.opts}
    assert set(re.findall(r"--[a-z-]+", line)) <= options


def test_the_study_on_paper_adds_up():
    tokens, requests = 115_834_262 + 601_696_580, 376_201 + 2_257_206
    prices = OmegaConf.load(CONF / "model" / "gpt35_turbo.yaml")
    prompt, completion = prices.prompt_price, prices.completion_price
    of_two_cores = 221 / 0.43
    found = [
        f"{tokens:,}",
        f"{requests:,}",
        f"{tokens * prompt / 1e6:,.0f} dollars",
        f"{tokens * completion / 1e6:,.0f} (only completions)",
        f"or {tokens * (0.9 * prompt + 0.1 * completion) / 1e6:,.0f} if a tenth are completion tokens",
        f"{requests / 10_000 / 60:.1f} hours at 10,000 a minute",
        f"{tokens / 2e6 / 60:.1f} hours at 2 million tokens a minute",
        f"one process needs {requests / 775 / 3600:.1f} hours",
        f"take {2_257_206 / 832 / 3600:.1f} hours at the lower rate",
        f"{of_two_cores:.0f} tokens a second",
        f"{tokens / of_two_cores / 86400:.1f} days",
        f"{tokens / of_two_cores / 8 / 3600:.0f} hours on eight",
        f"{tokens / 5000 / 3600:.0f} hours on one GPU",
        f"{tokens / 5000 / 3600 / 8:.0f} hours on eight",
        f"{2 * tokens / 5000 / 3600:.0f} dollars",
    ]
    words = " ".join(PAGE.split())
    for figure in found:
        assert figure in words, figure
