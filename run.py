"""Measure how firmly a language model holds its facts: ``python run.py`` or ``python run.py experiment=smoke``."""

import sys

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from robust_eval import command_line


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(composed: DictConfig) -> None:
    """Run the experiment that was composed."""
    command_line.run(composed, HydraConfig.get().runtime.output_dir)


if __name__ == "__main__":
    sys.argv[1:] = command_line.checked(sys.argv[1:])
    main()
