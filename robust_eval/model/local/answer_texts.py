"""What the tokens of an answer write, and which tokens of a vocabulary end one."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from robust_eval.model.local.vocabulary import Vocabulary
from robust_eval.model.token_texts import token_texts


class AnswerTexts:
    """Reads answers off the tokens of a loaded ``model`` that is asked in a ``prompt_style``.

    Strings in ``stop`` end an answer. ``vocabularies`` are the tokens as the parts of answers: under True where an
    answer is the first line of a reply, under False where it is all of it.
    """

    def __init__(self, model: Any, tokenizer: Any, prompt_style: str, stop: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._chat = prompt_style == "chat"
        self._stop = stop
        self.vocabularies = {first_line: self._vocabulary(model, first_line) for first_line in (True, False)}

    def read(self, ids: tuple[int, ...], first_line: bool) -> tuple[str, int]:
        """Return the text of an answer, which its first line break may end, and how many leading tokens carry it."""
        carrying, vocabulary = len(ids), self.vocabularies[first_line]
        if vocabulary.ends[ids[-1]] and not vocabulary.carries[ids[-1]]:
            carrying -= 1
        if not first_line:
            text = self._until_stop(ids)
            while self._stop and carrying and self._until_stop(ids[: carrying - 1]) == text:
                carrying -= 1
            return text, carrying
        answer = self._answer(ids[:carrying])
        if self._chat or self._stop:  # either may go on after what is the answer
            while carrying and self._answer(ids[: carrying - 1]) == answer:
                carrying -= 1
        return answer, carrying

    def _vocabulary(self, model: Any, first_line: bool) -> Vocabulary:
        """Return which token ids end an answer, of which the ``first_line`` counts or all, and which carry text of it.

        Read off the tokenizer and the generation config.
        """
        size = model.get_output_embeddings().weight.shape[0]
        ends, carries = np.zeros(size, dtype=bool), np.ones(size, dtype=bool)
        eos = model.generation_config.eos_token_id
        end_ids = {*(eos if isinstance(eos, list) else [eos]), self._tokenizer.eos_token_id} - {None}
        for token in end_ids:
            ends[token], carries[token] = True, False
        if first_line and not self._chat:
            ids = [[token] for token in range(min(size, len(self._tokenizer)))]
            texts = self._tokenizer.backend_tokenizer.decode_batch(ids, skip_special_tokens=False)
            for token, text in enumerate(texts):
                if "\n" in text:
                    ends[token] = True
                    carries[token] = bool(text.split("\n", 1)[0].strip())
        return Vocabulary(
            ends,
            carries,
            lambda: token_texts(self._tokenizer, size),
            tuple(stop.encode() for stop in self._stop),
            first_line=first_line and self._chat,
        )

    def _answer(self, ids: Sequence[int]) -> str:
        """Return the first line of what the tokens write, up to a stop string; a chat reply may open with
        line breaks.
        """
        text = self._until_stop(ids)
        if self._chat:
            text = text.strip()
        return text.split("\n", 1)[0].strip()

    def _until_stop(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        for stop in self._stop:
            text = text.split(stop, 1)[0]
        return text
