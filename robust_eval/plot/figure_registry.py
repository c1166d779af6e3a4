"""Registry of the figures of a run: each is a function, registered at its definition."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from robust_eval.runs.figure_data import FigureData

Draw = Callable[[Any, FigureData], object]
_MODULES = (
    "frs_figures",
    "agreement_figures",
    "certainty_figures",
    "uncertainty_figures",
    "perturbation_figures",
    "comparison_figures",
)
"""Modules with registered figures, in display order."""


@dataclass(frozen=True)
class RegisteredFigure:
    """Registered figure: ``draw`` draws it on the only axes of a figure.

    The docstring of ``draw`` says in one sentence what it shows, ``interpretation`` how to read it, and ``source``
    which figure of a paper it stands for. A run has it where it is ``allowed``; figures without ``allowed`` belong to
    the method, not to a run.
    """

    draw: Draw
    caption: str
    interpretation: str
    source: str
    allowed: Callable[[FigureData], bool] | None

    @property
    def name(self) -> str:
        """Name of a registered figure's files."""
        return self.draw.__name__

    @property
    def shows(self) -> str:
        """Sentence on the content of the registered figure."""
        return " ".join((self.draw.__doc__ or "").split())

    @property
    def reading(self) -> str:
        """Sentences on the content of the registered figure and on its interpretation."""
        return f"{self.shows} {self.interpretation}"

    @property
    def alternative(self) -> str:
        """Alternative text of a registered figure for readers who do not see it."""
        return f"{self.caption}. {self.shows}"


_FIGURES: list[RegisteredFigure] = []


def run_figure(
    caption: str, interpretation: str, source: str, allowed: Callable[[FigureData], bool] | None
) -> Callable[[Draw], Draw]:
    """Register a function as a figure (see :class:`RegisteredFigure`)."""

    def register(draw: Draw) -> Draw:
        _FIGURES.append(RegisteredFigure(draw, caption, interpretation, source, allowed))
        return draw

    return register


def registered() -> list[RegisteredFigure]:
    """Return all registered figures, in display order; import the modules that define them, and matplotlib."""
    for module in _MODULES:
        import_module(f"robust_eval.plot.{module}")
    return sorted(_FIGURES, key=lambda figure: _MODULES.index(figure.draw.__module__.rpartition(".")[2]))
