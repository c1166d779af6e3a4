"""Draws with their last step summed, against every answer of a language; the estimate of a curve by them."""

from collections.abc import Iterator

import numpy as np
import pytest
from json_lines import cases
from toy_language import ALL, MATCHER, PIECES, WORDS, Table, truth

from robust_eval.model.served.exact.topk_tree import BOUNDS, DRAWS, CurveEstimate, summed_draw
from robust_eval.model.served.transport.token_logprobs import PART, Position, TopKToken

DEPTH, SHOWN = 3, 5
UNNAMED = (b"ian", b"x", b" the", b"Lyon")


@pytest.mark.parametrize(("unnamed", "temperature", "lists_ends"), [((), 0.6, True), (UNNAMED, 2.0, False)])
def test_the_mean_over_all_draws_is_the_probability_of_a_right_answer(
    lists_ends: bool, unnamed: tuple[bytes, ...], temperature: float
) -> None:
    table = Table(3)

    def answers(path: tuple[int, ...], places: tuple[Position, ...], weight: float) -> Iterator[tuple[float, float]]:
        """Every answer that begins so: its probability, and what it tells."""
        logits = table.logits(path).double().numpy()
        p, at_one = (np.exp(logits / t - np.logaddexp.reduce(logits / t)) for t in (temperature, 1.0))
        tokens = [
            TopKToken(PART, float(np.log(at_one[token])))
            if piece in unnamed
            else TopKToken(piece, float(np.log(at_one[token])), None if unnamed else token)
            for token, piece in enumerate(PIECES)
        ]
        largest = [tokens[token] for token in np.argsort(-at_one)[:SHOWN]]
        for token, piece in enumerate(PIECES):
            listed = bool(piece) or lists_ends
            seen = (*places, Position(tokens[token], largest)) if listed else places
            longer, probability = (*path, token), weight * p[token]
            cut = len(longer) == DEPTH
            if piece and b"\n" not in piece and not cut:
                yield from answers(longer, seen, probability)
                continue
            text = WORDS.answer(b"".join(PIECES[each] for each in longer)).decode()
            right = MATCHER.right(text)
            yield probability, summed_draw(MATCHER, seen, temperature, DEPTH, False, cut and bool(piece), right)

    weights, told = map(np.array, zip(*answers((), (), 1.0), strict=True))
    assert weights.sum() == pytest.approx(1)
    mean = float((weights * told).sum())
    assert mean == pytest.approx(truth(table, depth=DEPTH)[ALL.index(temperature)], abs=1e-9)


POINTS = [0.5, 1.0, 1.5, 2.0]


def points(close: int = 1) -> CurveEstimate:
    """A curve of which nothing is known but at the first ``close`` temperatures, where all answers are right."""
    apart = np.array([0.0] * close + [1.0] * (len(POINTS) - close))
    return CurveEstimate(POINTS, np.where(apart, 0.0, 1.0), np.ones(len(POINTS)), np.ones(len(POINTS)), apart)


@pytest.mark.parametrize(("drawn", "near"), cases(__file__, "a_temperature_is_near_one_half_where_its_neighbours_are"))
def test_a_temperature_is_near_one_half_where_its_neighbours_are(drawn: list[float], near: list[float]):
    curve = points()
    for t, mean in zip(POINTS[1:], drawn, strict=True):
        curve.draw(t, mean, 0.1)
    assert curve.points_near_threshold(POINTS) == near


def test_what_was_read_off_bounds_is_never_near_one_half():
    curve = points(close=2)
    curve.draw(1.5, 0.0, 0.1)
    curve.draw(2.0, 0.0, 0.1)
    assert curve.how == [BOUNDS, BOUNDS, DRAWS, DRAWS]
    assert curve.points_near_threshold(POINTS) == [1.5]


def test_a_single_temperature_has_no_neighbours_to_go_by():
    curve = CurveEstimate([1.5], np.zeros(1), np.ones(1), np.ones(1), np.ones(1))
    curve.draw(1.5, 0.5, 0.1)
    assert curve.points_near_threshold([1.5]) == []


def test_means_stay_without_bias_where_more_is_drawn():
    truth, random, found = np.array([1.0, 0.7, 0.5, 0.3]), np.random.default_rng(0), []
    for _ in range(1500):
        curve, first = points(), random.binomial(4, truth)
        for t, right in zip(POINTS[1:], first[1:], strict=True):
            curve.draw(t, right / 4, 0.1)
        near = np.isin(POINTS, curve.points_near_threshold(POINTS))
        found.append(np.where(near, (first + random.binomial(8, truth)) / 12, first / 4))
    error = np.std(found, axis=0) / np.sqrt(len(found))
    assert np.all(np.abs(np.mean(found, axis=0) - truth) <= 4 * error)
    assert np.std(found, axis=0)[1] < np.sqrt(0.7 * 0.3 / 4)  # and more is drawn now and then
