"""Bounds by what a server names, where it names several tokens as one."""

import numpy as np
import pytest

from robust_eval.model.served.exact.topk_tree import TopKCoverage
from robust_eval.model.served.transport.token_logprobs import read_positions

TEMPERATURES = (0.2, 0.7, 1.0, 1.5, 3.0)


@pytest.mark.parametrize("every", [2, 3, 5])
def test_bounds_hold_where_parts_of_characters_go_by_one_name(every: int) -> None:
    """vLLM's plain completions map the text of a token to its log-probability: of like texts the last one stays."""
    random = np.random.default_rng(every)
    for _ in range(100):
        logits = random.normal(size=30) * 3
        p = np.exp(logits - np.logaddexp.reduce(logits))
        order = np.argsort(-p)
        chosen = order[random.integers(30)]
        named, kept = {}, {}
        for token in dict.fromkeys([chosen, *order[:8]]):
            text = "" if token % every == 0 else f" {token}"
            named[text], kept[text] = float(np.log(p[token])), token
        text = "" if chosen % every == 0 else f" {chosen}"
        said = {"tokens": [text], "token_logprobs": [float(np.log(p[chosen]))], "top_logprobs": [named]}
        (position,) = read_positions(said)
        largest = position.largest[:8]  # the one that was drawn may be one more
        bounds = TopKCoverage(8).bounds(largest, TEMPERATURES)
        tokens = [kept["" if token.unnamed else token.text.decode()] for token in largest]
        for place, t in enumerate(TEMPERATURES):
            tempered = np.exp(logits / t - np.logaddexp.reduce(logits / t))
            assert (bounds.lower[:, place] <= tempered[tokens] + 1e-9).all()
