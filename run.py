"""Measure how firmly a language model holds its facts: ``python run.py`` or ``python run.py experiment=smoke``."""

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from robust_eval.cli import run as command_line
from robust_eval.cli.repeat import repeated_run


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(composed: DictConfig) -> None:
    """Run the experiment that was composed."""
    hydra_config = HydraConfig.get()
    swept = hydra_config.job.override_dirname if hydra_config.mode == RunMode.MULTIRUN else None
    repeated = repeated_run(hydra_config.runtime.config_sources)
    command_line.run(composed, hydra_config.runtime.output_dir, swept, repeated)


if __name__ == "__main__":
    command_line.main(main)
