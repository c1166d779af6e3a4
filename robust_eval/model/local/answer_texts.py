"""Text of an answer from its tokens, and the end tokens of a vocabulary."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from robust_eval.model.local.vocabulary import Vocabulary
from robust_eval.model.token_texts import token_texts


class AnswerTexts:
    """Decoder of the answers of a loaded ``model``, prompted in a ``prompt_style``.

    Strings in ``stop`` end an answer. ``vocabularies`` has two entries: True for answers that are the first line of a
    reply, False for answers that are the whole reply.
    """

    def __init__(self, model: Any, tokenizer: Any, prompt_style: str, stop: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._chat = prompt_style == "chat"
        self._stop = stop
        self.vocabularies = {first_line: self._vocabulary(model, first_line) for first_line in (True, False)}

    def read(self, ids: tuple[int, ...], first_line: bool) -> tuple[str, int]:
        """Return the text of an answer, which its first line break may end, and the number of tokens that carry it."""
        carrying, vocabulary = len(ids), self.vocabularies[first_line]
        if vocabulary.ends[ids[-1]] and not vocabulary.carries[ids[-1]]:
            carrying -= 1
        if not first_line:
            text = self._until_stop(ids)
            while self._stop and carrying and self._until_stop(ids[: carrying - 1]) == text:
                carrying -= 1
            return text, carrying
        answer = self._answer(ids[:carrying])
        if self._chat or self._stop:  # both may continue after the answer
            while carrying and self._answer(ids[: carrying - 1]) == answer:
                carrying -= 1
        return answer, carrying

    def _vocabulary(self, model: Any, first_line: bool) -> Vocabulary:
        """Return the tokens that end an answer (the ``first_line`` or all of a reply), and those that carry its text.

        They follow from the tokenizer and the generation config.
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
        """Return the first line of the tokens' text, up to a stop string; a chat reply may begin with line breaks."""
        text = self._until_stop(ids)
        if self._chat:
            text = text.strip()
        return text.split("\n", 1)[0].strip()

    def _until_stop(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        for stop in self._stop:
            text = text.split(stop, 1)[0]
        return text
