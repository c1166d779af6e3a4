"""What draws tell with their last step summed, against every answer of a language with its probability."""

from collections.abc import Iterator

import numpy as np
import pytest
from toy_language import ALL, MATCHER, PIECES, WORDS, Table, truth

from robust_eval.model.served.exact.topk_tree import summed_draw
from robust_eval.model.served.transport.token_logprobs import PART, Position, TopKToken

DEPTH, SHOWN = 3, 5
UNNAMED = (b"ian", b"x", b" the", b"Lyon")


@pytest.mark.parametrize("lists_ends", [True, False])
@pytest.mark.parametrize(("unnamed", "temperature"), [((), 0.6), (UNNAMED, 2.0)])
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
