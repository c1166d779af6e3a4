"""Print the folder of the tasks, which lm-eval takes as ``--include_path``."""

from pathlib import Path

print(Path(__file__).parent)
