import random as standard_random

import pytest
from hypothesis import settings

from robust_eval.model.token_texts import TokenTexts, is_boundary

PROPERTY = settings(max_examples=100, deadline=None, database=None, derandomize=True)


def test_the_texts_of_a_byte_level_tokenizer_with_merges_are_those_that_it_decodes(embedded):
    texts = embedded._vocabularies[True].texts
    size = embedded.model.get_output_embeddings().weight.shape[0]
    assert len(texts) == size == 49_152
    for token in range(size):
        written = embedded.tokenizer.decode([token], skip_special_tokens=True)
        assert texts.raw[token].decode("utf-8", "replace") == written


def starting_with(texts: TokenTexts, text: str) -> list[int]:
    return [token for token, key in enumerate(texts.keys) if key.startswith(text)]


def equal_to(texts: TokenTexts, text: str) -> list[int]:
    return [token for token, key in enumerate(texts.keys) if key == text]


def has_word(key: str, word: str) -> bool:
    places = [place for place in range(len(key)) if key.startswith(word, place)]
    bounded = [
        (place == 0 or is_boundary(key[place - 1]))
        and (place + len(word) == len(key) or is_boundary(key[place + len(word)]))
        for place in places
    ]
    return any(bounded)


def with_word(texts: TokenTexts, word: str) -> list[int]:
    return [token for token, key in enumerate(texts.keys) if has_word(key, word)]


@pytest.mark.parametrize("seed", range(3))
def test_tokens_of_a_real_vocabulary_are_found(embedded, seed: int):
    texts = embedded._vocabularies[True].texts
    random = standard_random.Random(seed)
    for word in [*random.sample(texts.keys, 5), "paris", "a", "s", " the", "ï", "nowhere in there"]:
        assert sorted(texts.starting_with(word)) == starting_with(texts, word)
        assert sorted(texts.equal_to(word)) == equal_to(texts, word)
        if word.strip():
            assert sorted(set(texts.with_word(word.strip()))) == with_word(texts, word.strip())
