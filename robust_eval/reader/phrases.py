"""Phrases of replies in several languages (``phrases.toml``), as patterns."""

from types import SimpleNamespace

from robust_eval.runtime.files import module_data

WORD = "A-Za-zÀ-ÖØ-öø-ÿ0-9_"
"""Characters of words; Chinese words are not parted by spaces."""
_TABLES = module_data(__file__)


def _joined(phrases: str | list[str]) -> str:
    """Return alternative phrases as one pattern."""
    return phrases if isinstance(phrases, str) else "|".join(phrases)


def _spaced(pattern: str) -> str:
    """Return a phrase's pattern with any white space for a space, and either form of an apostrophe."""
    return pattern.replace(" ", r"\s+").replace("'", "['’]")


def phrases(table: str) -> SimpleNamespace:
    """Return the patterns of the phrases in a table of several languages, in capitals or not, by their names."""
    patterns = {}
    for name, languages in _TABLES[table].items():
        words = "|".join(_joined(phrases) for language, phrases in languages.items() if language != "zh")
        whole_words = _spaced(rf"(?<![{WORD}])(?i:{words})(?![{WORD}])")
        patterns[name] = f"(?:{whole_words}|{_joined(languages['zh'])})" if "zh" in languages else f"(?:{whole_words})"
    return SimpleNamespace(**patterns)


def clause_phrases(name: str) -> str:
    """Return the pattern of the phrases of this name in a clause."""
    entry = _TABLES["clauses"][name]
    whole_words = _spaced(rf"(?<![^\W_])(?:{_joined(entry['words'])})(?![^\W_])")
    return f"{whole_words}|{entry['zh']}" if "zh" in entry else whole_words


AFTER_A_LETTER = f"(?i:{_joined(_TABLES['after_a_letter']['words'])})"
"""Words after a letter that is chosen, but no noun that the letter A would be the article of."""
