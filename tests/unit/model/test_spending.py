import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robust_eval.model.workload import Spending

PROPERTY = settings(max_examples=100, deadline=None, database=None, derandomize=True)


def test_what_was_used_costs_its_price_by_the_million() -> None:
    spending = Spending(0.15, 0.6, 1.0)
    for prompt_tokens, completion_tokens in [(1_000_000, 250_000), (500_000, 0), (500_000, 250_000)]:
        spending.use(prompt_tokens, completion_tokens)
    assert (spending.prompt_tokens, spending.completion_tokens) == (2_000_000, 500_000)
    assert spending.has_prices
    assert spending.spent == pytest.approx(0.3 + 0.3)
    assert spending.price(1000, 1) == pytest.approx(0.00015 + 0.0000006)


@pytest.mark.parametrize(("prompt_price", "completion_price"), [(None, None), (0.1, None), (None, 0.1)])
def test_without_both_prices_the_cost_is_0_but_tokens_are_counted(
    prompt_price: float | None, completion_price: float | None
) -> None:
    spending = Spending(prompt_price, completion_price, None)
    spending.use(3_000_000, 4_000_000)
    assert (spending.has_prices, spending.prompt_tokens, spending.completion_tokens) == (False, 3_000_000, 4_000_000)
    assert (spending.spent, spending.allows(math.inf)) == (0, True)


def test_what_is_free_costs_nothing_and_any_budget_holds_it() -> None:
    spending = Spending(0, 0, 0)
    spending.use(1_000_000, 1_000_000)
    assert (spending.has_prices, spending.spent, spending.allows(0), spending.allows(1e-9)) == (True, 0, True, False)


def test_the_budget_holds_what_was_spent_what_is_reserved_and_the_next_request() -> None:
    spending = Spending(1.0, 2.0, 8.0)
    spending.use(1_000_000, 500_000)  # 2
    spending.reserved += [1.0, 2.5]
    assert (spending.spent, spending.allows(2.5), spending.allows(2.51)) == (2.0, True, False)
    spending.reserved.remove(2.5)
    assert (spending.allows(5.0), spending.allows(5.01)) == (True, False)


@PROPERTY
@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_what_is_reserved_and_given_back_in_any_order_leaves_the_whole_budget(
    prices: list[float], order: object
) -> None:
    spending = Spending(1.0, 1.0, 1e-6)
    spending.reserved += prices
    order.shuffle(prices)  # type: ignore[attr-defined]
    for price in prices:
        spending.reserved.remove(price)
    assert spending.allows(1e-6)


def test_spendings_are_apart() -> None:
    Spending(1.0, 1.0, 1.0).reserved.append(0.9)
    assert Spending(1.0, 1.0, 1.0).allows(1.0)
