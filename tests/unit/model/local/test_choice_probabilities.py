import numpy as np
import pytest
from toy_language import Table

from robust_eval.model.base import Enumeration, LetterChoices, Request
from robust_eval.model.generation import Generation
from robust_eval.model.local.exact_tree import Enumerated, enumerate_choices
from robust_eval.model.local.vocabulary import Vocabulary
from robust_eval.model.token_texts import TokenTexts
from robust_eval.prompt.prompt import Prompt

PIECES = [b"", b"\n", b" A", b"A", b" B", b"B.", b" C", b"D", b" Because", b" a force"]
LETTERS = {"A": [2, 3], "B": [4, 5], "C": [6], "none": [0, 1, 7, 8, 9]}
AT = (0.5, 1.0, 2.0)


def found(count: int, correct: int | None, cut: Generation | None = None) -> tuple[Table, Enumerated]:
    table = Table(language=9, vocabulary=len(PIECES))
    texts = TokenTexts(PIECES)
    ends = np.zeros(len(PIECES), dtype=bool)
    enumeration = Enumeration(96, AT, LetterChoices(count, correct))
    request = Request("q", 0, Prompt("", (), "q"), AT, 0, 1, 0, enumeration=enumeration)
    vocabulary = Vocabulary(ends, ~ends, lambda: texts)
    return table, enumerate_choices(table, [request], [[1]], vocabulary, cut or Generation())[0]


@pytest.mark.parametrize("cut", [Generation(), Generation(top_k=6)])
def test_each_letter_has_the_probability_of_all_tokens_that_choose_it(cut: Generation):
    table, result = found(3, 1, cut)
    for column, temperature in enumerate(AT):
        p = cut.truncated(table.logits(())[None].double() / temperature)[0].softmax(-1)
        expected = [float(p[ids].sum()) for ids in LETTERS.values()]
        assert result.weights[:, column] == pytest.approx(expected, abs=1e-6)
        assert result.curve.accuracy[column] == pytest.approx(expected[1], abs=1e-6)
    assert {*result.finish_reasons} == {"closed"}  # one token is the whole answer
    assert result.curve.lower.tolist() == result.curve.upper.tolist() == result.curve.accuracy.tolist()
    assert result.curve.standard_error.tolist() == [0, 0, 0]


def test_the_likeliest_token_stands_for_each_letter():
    table, result = found(3, 0)
    logits = table.logits(())
    expected = [ids[int(logits[ids].argmax())] for ids in LETTERS.values()]
    assert result.tokens == [(token,) for token in expected]
    for token, found_logprobs in zip(expected, result.logprobs, strict=True):
        logprobs = [[float((logits.double() / t).log_softmax(-1)[token])] for t in (1.0, *AT)]
        assert np.array(found_logprobs) == pytest.approx(np.array(logprobs), abs=1e-5)


def test_without_a_right_choice_there_is_a_distribution_but_no_accuracy():
    _, result = found(2, None)
    assert np.isnan(result.curve.accuracy).all()
    assert result.trials.tolist() == [0, 1, 2]
