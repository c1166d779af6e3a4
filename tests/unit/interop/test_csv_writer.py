"""What a spreadsheet computes, and what it does not."""

import pytest
from json_lines import cases

from robust_eval.interop.csv_writer import inert


@pytest.mark.parametrize("text", cases(__file__, "a_text_that_would_be_computed_has_an_apostrophe_before_it"))
def test_a_text_that_would_be_computed_has_an_apostrophe_before_it(text: str):
    assert inert(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", " ", "Rome", "1=1", "a-b", '["=1"]', "é", "\u202eRome"])
def test_any_other_stays_as_it_is(text: str):
    assert inert(text) == text
