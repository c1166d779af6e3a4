import math

import numpy as np
import pytest
from answer_rows import answer_row
from hypothesis import given, settings
from hypothesis import strategies as st

from robust_eval.answer import answer_table
from robust_eval.metric.frs_metric import FactualRobustness
from robust_eval.model.logprobs import fault

TEN = np.log([0.5, 0.2, *[0.03] * 8]).tolist()
TWO = np.log([0.7, 0.3]).tolist()


@pytest.mark.parametrize(
    ("chosen", "top", "needed", "said"),
    [
        ([-0.7], [TEN], 10, None),
        ([-0.7], [[*TEN, -20.0]], 10, None),  # as well as that of the token drawn
        ([-0.7, -0.1], [TEN, []], 10, None),  # nothing of an end token
        ([1e-3], [[1e-3, *[-math.inf] * 9]], 10, None),  # rounded up
        ([-math.inf], [[0.0, *[-9999.0] * 9]], 10, None),  # impossible tokens as services write them
        ([-1e300], [[0.0, *[-1e300] * 9]], 10, None),  # and as others do
        ([-0.7], [np.log([0.504, 0.505]).tolist()], 2, None),  # in half precision
        ([-0.7], [TWO], 10, None),  # a small vocabulary
        ([-0.7], [[]], 0, None),
        ([-0.7], [TEN[:3]], 0, None),
        (None, None, 0, None),
        ([], [], 0, None),
        ([3.0], [TEN], 10, "a log-probability of 3, which must be at most 0"),
        ([0.002], [TEN], 0, "a log-probability of 0.002, which must be at most 0"),
        ([math.nan], [TEN], 10, "a log-probability of nan, which must be at most 0"),
        ([math.inf], [TEN], 0, "a log-probability of inf, which must be at most 0"),
        ([-0.7], [[3.0, *TEN[1:]]], 10, "a log-probability of 3, which must be at most 0"),
        ([-0.7], [[*TEN[:-1], math.nan]], 10, "a log-probability of nan, which must be at most 0"),
        ([-0.7, -1.0], [TEN, [math.nan]], 10, "a log-probability of nan, which must be at most 0"),
        ([-0.7], [[-0.1] * 10], 10, "log-probabilities of a token whose probabilities sum to 9.048, more than 1"),
        ([-0.7], [TEN[:3]], 10, "3 log-probabilities of a token, but 10 are needed"),
        ([-0.7, -0.1], [TEN, TEN[:3]], 10, "3 log-probabilities of a token, but 10 are needed"),
        ([-0.7], [[]], 10, "0 log-probabilities of a token, but 10 are needed"),
        ([-0.7], [[-math.inf] * 10], 10, "log-probabilities that exclude every token"),
        ([-0.7], [[-9999.0] * 10], 0, "log-probabilities that exclude every token"),
        (None, None, 10, "no log-probabilities, but 10 per token are needed"),
        ([], [], 10, "no log-probabilities, but 10 per token are needed"),
    ],
)
def test_what_servers_send_is_believed_unless_it_cannot_be(
    chosen: list[float] | None, top: list[list[float]] | None, needed: int, said: str | None
):
    assert fault(chosen, top, 1, needed) == said


def test_a_small_vocabulary_is_not_enough_of_a_server_that_has_more():
    assert fault([-0.7], [TWO], 1, 10, whole_is_enough=False) == "2 log-probabilities of a token, but 10 are needed"


ANY = st.floats(width=32) | st.floats(-50, 1.5e-3) | st.sampled_from([-9999.0, -0.0, 1e-3, 0.00101])


@settings(deadline=None)
@given(st.lists(st.lists(ANY, max_size=6), max_size=3), st.integers(0, 4))
def test_whatever_is_believed_has_an_entropy(top: list[list[float]], answer_tokens: int):
    chosen = [-0.5] * len(top)
    if fault(chosen, top, answer_tokens, 3):
        return
    columns = {"token_logprobs": chosen, "top_logprobs": top, "answer_tokens": answer_tokens}
    answer = answer_row("a", temperature=0.0, text="a", **columns)
    (entropy,) = FactualRobustness(k=3).initial_entropy(["a"], answer_table([answer]))
    assert 0 <= entropy <= 1 or (math.isnan(entropy) and not top[:answer_tokens])
