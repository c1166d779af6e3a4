"""Vocabulary of a model as the parts of answers, the outcome of each next token, and the text of an answer."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from robust_eval.model.base import Matcher, NextTokens
from robust_eval.model.token_texts import Ids, Mask, TokenTexts, token_texts


@dataclass(frozen=True)
class Vocabulary:
    """Vocabulary of a local model: its tokens as the parts of answers.

    ``ends`` (V,) are the tokens that end an answer at any position: end-of-text tokens and, in plain text, those with
    a line break. ``carries`` (V,) are those that carry text of the answer (before a line break, if any). An answer also
    ends before any of the strings ``stop``; with ``first_line``, in a conversation, after its first line that is not
    blank. ``read_texts`` returns the texts of the tokens, and is called on demand.
    """

    ends: Mask
    carries: Mask
    read_texts: Callable[[], TokenTexts]
    stop: tuple[bytes, ...] = ()
    first_line: bool = False

    @cached_property
    def texts(self) -> TokenTexts:
        """Texts of the vocabulary's tokens; ValueError if they are unreadable."""
        return self.read_texts()

    @cached_property
    def end_ids(self) -> Ids:
        """End tokens of the vocabulary, ascending."""
        return np.flatnonzero(self.ends)

    @cached_property
    def _first_line_ends(self) -> tuple[Ids, Ids]:
        """End tokens of the vocabulary for a blank answer, and for one that is not, if its first line ends it."""
        breaks = np.flatnonzero(self.texts.breaks_line)
        something = [bool(self.texts.raw[token].split(b"\n", 1)[0].strip()) for token in breaks]
        return np.union1d(self.end_ids, breaks[np.array(something, dtype=bool)]), np.union1d(self.end_ids, breaks)

    def ending(self, text: bytes) -> Ids:
        """Return the tokens of the vocabulary that end an answer after ``text``, ascending."""
        ids = self._first_line_ends[bool(text.strip())] if self.first_line else self.end_ids
        return np.union1d(ids, self.stopping(text)) if self.stop else ids

    def stopping(self, text: bytes) -> Ids:
        """Return the tokens of the vocabulary that complete a stop string after ``text``."""
        ids = set(self._with_stop)
        for prefix, tokens in self._completing.items():
            if text.endswith(prefix):
                ids.update(tokens)
        return np.array(sorted(ids), dtype=np.intp)

    @cached_property
    def _with_stop(self) -> list[int]:
        """Tokens of the vocabulary that contain a whole stop string."""
        return [token for token, raw in enumerate(self.texts.raw) if any(stop in raw for stop in self.stop)]

    @cached_property
    def _completing(self) -> dict[bytes, list[int]]:
        """Tokens of the vocabulary that begin with the rest of a stop string, by its prefix."""
        completing: dict[bytes, list[int]] = {}
        for stop in self.stop:
            for done in range(1, len(stop)):
                rest = stop[done:]
                tokens = [token for token, raw in enumerate(self.texts.raw) if raw.startswith(rest)]
                completing.setdefault(stop[:done], []).extend(tokens)
        return completing

    def answer(self, text: bytes) -> bytes:
        """Return the answer in a reply: its first line (in chat, the first that is not blank), up to a stop string."""
        for stop in self.stop:
            text = text.split(stop, 1)[0]
        if self.first_line:
            text = text.lstrip()
        return text.split(b"\n", 1)[0].strip()


class NextTokenSets(NamedTuple):
    """Sets of next tokens after a prefix of answers; after any other token the answer is unfinished, and not right.

    ``right`` end the answer and it is right, or decide it: no continuation can make it wrong (these are ``decided``).
    ``wrong`` end it and it is not right. After ``open`` ones it is right if it ends, but a continuation may be wrong.
    ``begun`` are those after which a right answer has begun. At the last token of an answer all tokens that are not
    right are wrong, and ``wrong``, ``open`` and ``begun`` are empty.
    """

    right: Ids
    wrong: Ids
    open: Ids
    begun: Ids
    decided: Ids


@dataclass(frozen=True)
class TokenSets:
    """n sets of token ids, as two arrays: ``sizes`` (n,), and ``tokens``, the ids of one set after the other."""

    sizes: Ids
    tokens: Ids

    @classmethod
    def of(cls, sets: Sequence[Ids]) -> "TokenSets":
        """Return a list of sets of token ids as two arrays."""
        return cls(np.array([len(ids) for ids in sets], dtype=np.intp), np.concatenate([np.empty(0, np.intp), *sets]))

    @classmethod
    def of_rows(cls, rows: Sequence[NextTokenSets], *names: str) -> "TokenSets":
        """Return the named sets of each row, one row after the other; rows of one state share their sets."""
        states = {id(row): row for row in rows}
        place = {state: index for index, state in enumerate(states)}
        states_of_rows = np.array([place[id(row)] for row in rows], dtype=np.intp)
        sets = cls.of([getattr(state, name) for state in states.values() for name in names])
        return sets.take((len(names) * states_of_rows[:, None] + np.arange(len(names))).ravel())

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, places: slice) -> "TokenSets":
        first, end, _ = places.indices(len(self))
        before = int(self.sizes[:first].sum())
        return TokenSets(self.sizes[first:end], self.tokens[before : before + int(self.sizes[first:end].sum())])

    @property
    def members(self) -> Ids:
        """The place of each token's set among the sets."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def take(self, places: Ids) -> "TokenSets":
        """Return the sets at ``places`` (m,), in that order."""
        sizes = self.sizes[places]
        shifts = (self.sizes.cumsum() - self.sizes)[places] - (sizes.cumsum() - sizes)
        return TokenSets(sizes, self.tokens[np.arange(sizes.sum()) + np.repeat(shifts, sizes)])


class NextTokenClassifier:
    """Classifier of the next tokens of the answers to one question; its results are cached by state of the matcher."""

    def __init__(self, matcher: Matcher, vocabulary: Vocabulary) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._outcomes: dict[bytes, NextTokens] = {}
        self._sets: dict[tuple[bytes, bool, bool], NextTokenSets] = {}

    def classify(self, text: bytes, last: bool) -> NextTokenSets:
        """Classify the next tokens after ``text``; ``last``: only one token follows."""
        answer = text.lstrip() if self._vocabulary.first_line else text
        state = answer if self._vocabulary.stop else self._matcher.state(answer)
        key = (text if self._vocabulary.stop else state, not text.strip(), last)
        if key not in self._sets:
            self._sets[key] = self._classified(text, state, last)
        return self._sets[key]

    def _classified(self, text: bytes, state: bytes, last: bool) -> NextTokenSets:
        matcher, vocabulary = self._matcher, self._vocabulary
        if state not in self._outcomes:
            self._outcomes[state] = matcher.next_tokens(state, vocabulary.texts)
        right, decided, begun = self._outcomes[state]
        if vocabulary.stop:
            right, decided = right.copy(), decided.copy()
        for token in vocabulary.stopping(text) if vocabulary.stop else ():
            whole = vocabulary.answer(text + vocabulary.texts.raw[token])
            right[token] = matcher.right(whole.decode("utf-8", "replace"))
            decided[token] = False
        none = np.empty(0, dtype=np.intp)
        if last:
            return NextTokenSets(np.flatnonzero(right), none, none, none, np.flatnonzero(decided))
        ends = vocabulary.ending(text)
        final = decided.copy()
        final[ends] = True
        return NextTokenSets(
            right=np.flatnonzero(right & final),
            wrong=ends[~right[ends]],
            open=np.flatnonzero(right & ~final),
            begun=begun[~final[begun] & ~right[begun]],
            decided=np.flatnonzero(decided),
        )


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

    def stopping_at(self, stop: Sequence[str], first_line: bool) -> Vocabulary:
        """Return the vocabulary of answers that also end before any of the strings ``stop``."""
        vocabulary = self.vocabularies[first_line]
        ends = vocabulary.ends.copy()
        ends[self._special(stop, len(ends))] = True
        strings = (*vocabulary.stop, *(each.encode() for each in stop))
        return replace(vocabulary, ends=ends, stop=strings, read_texts=lambda: vocabulary.texts)

    def _special(self, stop: Iterable[str], size: int) -> list[int]:
        """Return the special tokens among the stop strings, which the texts of tokens do not have."""
        added = self._tokenizer.added_tokens_decoder.items()
        return [token for token, each in added if each.special and each.content in stop and token < size]

    def _vocabulary(self, model: Any, first_line: bool) -> Vocabulary:
        """Return the tokens that end an answer (the ``first_line`` or all of a reply), and those that carry its text.

        They follow from the tokenizer and the generation config.
        """
        size = model.get_output_embeddings().weight.shape[0]
        ends, carries = np.zeros(size, dtype=bool), np.ones(size, dtype=bool)
        eos = model.generation_config.eos_token_id
        end_ids = {*(eos if isinstance(eos, list) else [eos]), self._tokenizer.eos_token_id} - {None}
        for token in (*end_ids, *self._special(self._stop, size)):
            if token < size:  # the model writes no other
                ends[token], carries[token] = True, False
        silent = np.flatnonzero(ends).tolist()
        if first_line and not self._chat:
            ids = [[token] for token in range(min(size, len(self._tokenizer)))]
            backend = getattr(self._tokenizer, "backend_tokenizer", None)  # none of a tokenizer in Python
            decode = self._tokenizer.batch_decode if backend is None else backend.decode_batch
            texts = decode(ids, skip_special_tokens=False)
            for token, text in enumerate(texts):
                if "\n" in text and not ends[token]:
                    ends[token] = True
                    carries[token] = bool(text.split("\n", 1)[0].strip())
        return Vocabulary(
            ends,
            carries,
            lambda: token_texts(self._tokenizer, size, silent),
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
