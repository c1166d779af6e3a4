"""Tokens found by looking at each: what a faster search must agree with."""

from robust_eval.model.token_texts import TokenTexts, is_boundary


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
