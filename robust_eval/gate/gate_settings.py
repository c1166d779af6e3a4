"""Settings of a gate, from ``conf/gate/`` and the command line."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from robust_eval.error import UserError, first_line


@dataclass
class GateSettings:
    """The figures that a gate judges and how sure it must be."""

    figures: dict[str, float] = field(default_factory=lambda: {"accuracy.greedy": 0.02, "frs.d1": 0.02})
    """Each figure with its margin, in (0, 1): how much worse than the baseline its mean may be."""
    level: float = 0.95
    """Of the two-sided intervals."""
    no_reply: float = 0.05
    """The largest share of a run's greedy, or of its sampled, answers that may be missing (failed, filtered)."""

    def __post_init__(self) -> None:
        if not self.figures:
            raise ValueError("figures must name at least one figure with its margin, as {accuracy.greedy: 0.02}")
        for name, margin in self.figures.items():
            if not 0 < margin < 1:
                raise ValueError(f"figures: the margin of {name} must lie between 0 and 1, not {margin:g}")
        if not 0 < self.level < 1:
            raise ValueError(f"level must lie between 0 and 1, not {self.level:g}")
        if not 0 <= self.no_reply < 1:
            raise ValueError(f"no_reply must be at least 0 and below 1, not {self.no_reply:g}")


def gate_settings(overrides: Sequence[str], folders: Sequence[Path]) -> GateSettings:
    """Return the settings that ``gate=NAME`` and ``gate.SETTING=VALUE`` ask for; files stand in ``folders``, whose last
    goes first.

    Raises UserError for a setting or a file that does not exist, and for a value that makes no sense.
    """
    name, changed = "default", {}
    try:
        for override in OverridesParser.create().parse_overrides(list(overrides)):
            key, value = str(override.key_or_group), override.value()
            if key == "gate":
                name = str(value)
            else:
                changed[key.removeprefix("gate.")] = value
        files = [file for folder in reversed(folders) if (file := folder / "gate" / f"{name}.yaml").is_file()]
        if not files:
            there = sorted({file.stem for folder in folders for file in (folder / "gate").glob("*.yaml")})
            raise UserError(f"there is no gate={name}; there are {', '.join(there)}")
        known = OmegaConf.structured(GateSettings)
        read = OmegaConf.load(files[0])
        for source in (read, changed):
            if "figures" in source:  # those that are named are judged, and no others
                known.figures = {}
            known = OmegaConf.merge(known, source)
        settings = OmegaConf.to_object(known)
    except UserError:
        raise
    except (HydraException, OmegaConfBaseException, ValueError, OSError) as problem:
        raise UserError(f"gate: {first_line(problem)}") from problem
    assert isinstance(settings, GateSettings)
    return settings
