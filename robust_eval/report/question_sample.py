"""Which questions stand for all of them where all are too many to be shown."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from robust_eval.stats.interval import Floats


def sample(kinds: Sequence[str], values: Floats, most: int) -> NDArray[np.intp]:
    """Return rows of at most ``most`` questions of every kind, in their order; always the same of the same questions.

    Each kind has the same number of places, and what a small one leaves free the larger ones share. Of a kind that has
    to be cut a third of the places goes to its lowest ``values`` (n,), a third to its highest, and the rest to
    questions spread evenly over those between, undefined values (NaN) among them; equal values are taken at random.

    >>> sample(["kept", "kept", "wrong", "kept", "kept"], np.array([0.4, 0.1, np.nan, 0.2, 0.3]), 4).tolist()
    [0, 1, 2, 3]
    """
    random = np.random.default_rng(0)
    members = {kind: np.flatnonzero(np.array(kinds) == kind) for kind in sorted(set(kinds))}
    places = _places({kind: len(rows) for kind, rows in members.items()}, most)
    taken = [_taken(random.permutation(rows), values, places[kind]) for kind, rows in members.items()]
    return np.sort(np.concatenate(taken)) if taken else np.zeros(0, dtype=np.intp)


def _places(sizes: dict[str, int], most: int) -> dict[str, int]:
    """Return how many of each kind are taken: the smallest kinds first, each the share that is left for it."""
    places: dict[str, int] = {}
    for left, kind in zip(range(len(sizes), 0, -1), sorted(sizes, key=lambda kind: sizes[kind]), strict=True):
        places[kind] = min(sizes[kind], (most - sum(places.values())) // left)
    return places


def _taken(rows: NDArray[np.intp], values: Floats, places: int) -> NDArray[np.intp]:
    ranked = rows[np.argsort(values[rows], kind="stable")]  # undefined values come last
    known = len(rows) - int(np.isnan(values[rows]).sum())
    ends = min(places, known) // 3
    between = np.concatenate([ranked[ends : known - ends], ranked[known:]])
    spread = places - 2 * ends
    middle = between[np.arange(spread) * len(between) // max(spread, 1)]
    return np.concatenate([ranked[:ends], middle, ranked[known - ends : known]])
