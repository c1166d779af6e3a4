"""Letters of a multiple-choice question as single-token replies."""

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from robust_eval.model.token_texts import Ids, TokenTexts
from robust_eval.question import LETTERS
from robust_eval.reader.letters import anchored_letter

_ONE_LETTER = re.compile(rb"[\W_]*[A-Za-z][\W_]*")


@dataclass(frozen=True)
class LetterChoices:
    """Choices of one question as letters."""

    count: int
    correct: int | None
    strict: bool = False

    @property
    def identity(self) -> str:
        """See Choices."""
        return f"letters {self.count} {self.correct}{' strict' if self.strict else ''}"

    def tokens(self, texts: TokenTexts) -> list[Ids]:
        """Return the ids of the tokens of each choice: "B", " B", "B." and the like."""
        return _tokens_by_letter(texts, self.count, self.strict)


@lru_cache(maxsize=64)
def _tokens_by_letter(texts: TokenTexts, choices: int, strict: bool) -> list[Ids]:
    letters = [
        anchored_letter(raw.decode("utf-8", "replace"), choices, strict) if _ONE_LETTER.fullmatch(raw) else None
        for raw in texts.raw
    ]
    return [np.flatnonzero([chosen == letter for chosen in letters]) for letter in LETTERS[:choices]]
