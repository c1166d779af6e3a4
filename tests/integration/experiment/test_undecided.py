"""A sweep that asks no more than breaking temperatures need, of a server: what it finds, asks, keeps and says."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fading_server import UNDECIDED, FadingServer, answers, ask, scored
from scripted_server import ScriptedServer, scripted_server

FACTS, GRID, TRIALS = 5, 4, 6
FEW = (
    f"dataset.limit={FACTS}",
    "sampler.temperature_sweep.temperatures=[0.5,1,1.5,2]",
    f"sampler.temperature_sweep.trials={TRIALS}",
)


@pytest.fixture
def served() -> Iterator[ScriptedServer]:
    with scripted_server(FadingServer()) as server:
        yield server


def test_breaking_temperatures_and_scores_are_those_of_all_answers_for_fewer(served: ScriptedServer, tmp_path: Path):
    served.answer = few = FadingServer(choices=4)
    less = ask(served, tmp_path, *FEW, UNDECIDED, store="less")
    served.answer = many = FadingServer(choices=4)
    whole = ask(served, tmp_path, *FEW, store="all")
    assert scored(less) == scored(whole)
    drawn = [{key: n for key, n in each.answered.items() if key[1] > 0} for each in (few, many)]
    assert drawn[0].items() <= drawn[1].items()
    assert len(drawn[1]) == FACTS * GRID * TRIALS
    assert FACTS * 3 <= len(drawn[0]) <= 0.7 * len(drawn[1])
    assert set(few.answered.values()) == {1}
    assert answers(less).items() <= answers(whole).items()
    assert len(answers(less)) == len(drawn[0])
    assert "accuracy" not in less.scores["frs"].curves
    assert set(less.scores["frs"].tables) == {"frs", "frs_types"}


def test_faults_lose_nothing_and_asking_for_all_afterwards_asks_for_the_rest_alone(
    served: ScriptedServer, tmp_path: Path
):
    served.answer = server = FadingServer(failing=0.2)
    faulty = ask(served, tmp_path, *FEW, UNDECIDED, "model.retries=3")
    assert len(server.failed) > 5
    before = server.answered.total()
    whole = ask(served, tmp_path, *FEW)
    assert server.answered.total() - before == FACTS * GRID * TRIALS - (before - FACTS)
    assert set(server.answered.values()) == {1}
    served.answer = FadingServer()
    fresh = ask(served, tmp_path, *FEW, store="fresh")
    assert whole.graded_by_sampler["temperature_sweep"].equals(fresh.graded_by_sampler["temperature_sweep"])
    assert whole.summary().keys() == fresh.summary().keys()
    assert scored(faulty) == scored(fresh)
    assert answers(faulty).items() <= answers(fresh).items()
    again = ask(served, tmp_path, *FEW, UNDECIDED)
    assert (again.prompts_asked, scored(again)) == (0, scored(whole))
