"""Axes to draw into, which are closed after the test."""

from collections.abc import Iterator

import matplotlib.pyplot as plt
import pytest
from matplotlib.axes import Axes


@pytest.fixture
def axes() -> Iterator[Axes]:
    drawn, axes = plt.subplots()
    yield axes
    plt.close(drawn)
