"""Vocabulary of a model as the parts of answers, the outcome of each next token, and the text of an answer."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from robust_eval.model.base import Matcher, TokenVerdict
from robust_eval.model.token_texts import Ids, Mask, NextTokenOutcomes, OutcomeCodes, TokenTexts, token_texts


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

    def is_end(self, text: bytes, token: int) -> bool:
        """Return True if a token ends an answer after ``text``."""
        if self.are_ends(not text.strip())[token]:
            return True
        return bool(self.stop) and token in self.stopping(text)

    def are_ends(self, blank: bool) -> Mask:
        """Return the mask (V,) of the tokens that end an answer, ``blank`` so far or not, without a stop string."""
        return self._first_line_ends[not blank] if self.first_line else self.ends

    @cached_property
    def _first_line_ends(self) -> tuple[Mask, Mask]:
        """Masks (V,) of the tokens that end a blank answer, and one that is not, if its first line ends it."""
        ends = self.ends.copy()
        for token in np.flatnonzero(self.texts.breaks_line):
            ends[token] |= bool(self.texts.raw[token].split(b"\n", 1)[0].strip())
        return ends, self.ends | self.texts.breaks_line

    def usual_outcomes(self, verdicts: OutcomeCodes, blank: bool, last: bool) -> OutcomeCodes:
        """Return the outcomes (V,) of tokens with usual ``verdicts`` (V,) after an answer that is ``blank`` or not."""
        key = id(verdicts), blank and self.first_line, last
        if key not in self._usual_outcomes:
            outcomes = _LAST_OUTCOMES[verdicts] if last else _OUTCOMES[verdicts, self.are_ends(blank).view(np.uint8)]
            outcomes.flags.writeable = False  # others share it
            self._usual_outcomes[key] = verdicts, outcomes
        return self._usual_outcomes[key][1]

    @cached_property
    def _usual_outcomes(self) -> dict[tuple[int, bool, bool], tuple[OutcomeCodes, OutcomeCodes]]:
        """Usual verdicts and outcomes, by identity of the former, which the table keeps alive."""
        return {}

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


OTHER, RIGHT, WRONG, OPEN, BEGUN = range(5)
"""Outcomes of next tokens. ``RIGHT`` ones end the answer and it is right, or no continuation can make it wrong.
``WRONG`` ones end it and it is not right. After ``OPEN`` ones it is right if it ends, but a continuation may be wrong.
After ``BEGUN`` ones a right answer has begun; after ``OTHER`` ones it is unfinished, and not right. Last tokens of an
answer that do not make it right are ``OTHER``."""
_OUTCOMES = np.array([[OTHER, WRONG], [BEGUN, WRONG], [OPEN, RIGHT], [RIGHT, RIGHT]], dtype=np.uint8)
"""Outcome of a token with each :class:`TokenVerdict`, if it does not end an answer, and if it does."""
_LAST_OUTCOMES = np.array([OTHER, OTHER, RIGHT, RIGHT], dtype=np.uint8)
"""Outcome of the last token of an answer with each verdict."""


@dataclass(frozen=True)
class TokenSets:
    """Sets of token ids, k for each of n rows. Rows with the same sets share one of s states.

    ``sizes`` (s, k) are the sizes of the sets of each state, ``tokens`` (m,) the ids in them, one set after the other,
    and ``states`` (n,) the state of each row.
    """

    sizes: Ids
    tokens: Ids
    states: Ids

    def __getitem__(self, rows: slice) -> "TokenSets":
        """Return the sets of some rows."""
        return replace(self, states=self.states[rows])

    def expanded(self) -> tuple[Ids, Ids, Ids]:
        """Return the row (m,) and column (m,) of each token of all rows' sets, and its id (m,)."""
        counts = self.counts.ravel()
        shifts = self.starts.ravel() - (counts.cumsum() - counts)
        rows, columns = np.divmod(np.repeat(np.arange(len(counts)), counts), self.sizes.shape[1])
        return rows, columns, self.tokens[np.arange(counts.sum()) + np.repeat(shifts, counts)]

    @property
    def counts(self) -> Ids:
        """Number (n, k) of the tokens of each set."""
        return self.sizes[self.states]

    @property
    def starts(self) -> Ids:
        """Place (n, k) of the first token of each set in ``tokens``."""
        return (self.sizes.cumsum() - self.sizes.ravel()).reshape(self.sizes.shape)[self.states]


@dataclass(frozen=True)
class OutcomeTable:
    """Outcomes, 0 to ``count``, of a vocabulary's tokens after each of n prefixes.

    Prefixes with the same outcomes share one of s states. State i has the outcomes ``usual[rows[i]]`` of ``usual``
    (u, V), with m exceptions in all: ``tokens`` (m,) have ``outcomes`` (m,) after the states ``owners`` (m,), in
    ascending order. ``states`` (n,) are the states of the prefixes.
    """

    usual: OutcomeCodes
    rows: Ids
    owners: Ids
    tokens: Ids
    outcomes: OutcomeCodes
    states: Ids
    count: int

    @classmethod
    def of(cls, prefixes: Sequence[NextTokenOutcomes], count: int) -> "OutcomeTable":
        """Return the outcomes of the next tokens after each prefix; those with the same object have one state."""
        identities = [*map(id, prefixes)]
        states = dict(zip(identities, prefixes, strict=True))
        usual = {id(state.usual): state.usual for state in states.values()}
        row = dict(zip(usual, range(len(usual)), strict=True))
        place = dict(zip(states, range(len(states)), strict=True))
        return cls(
            usual=np.stack([*usual.values()]),
            rows=np.array([row[id(state.usual)] for state in states.values()]),
            owners=np.repeat(np.arange(len(states)), [len(state.tokens) for state in states.values()]),
            tokens=np.concatenate([state.tokens for state in states.values()]),
            outcomes=np.concatenate([state.outcomes for state in states.values()]),
            states=np.fromiter(map(place.__getitem__, identities), dtype=np.intp, count=len(prefixes)),
            count=count,
        )

    @property
    def places(self) -> Ids:
        """Places (m,) of the exceptions in the outcomes (s, V) of all states."""
        return np.asarray(self.owners * self.usual.shape[1] + self.tokens)

    def at(self, prefixes: Ids, tokens: Ids) -> OutcomeCodes:
        """Return the outcomes (k,) of ``tokens`` (k,) after ``prefixes`` (k,)."""
        states, exceptions = self.states[prefixes], self.places
        sought = states * self.usual.shape[1] + tokens
        place = np.searchsorted(exceptions, sought)
        is_exception = np.append(exceptions, -1)[place] == sought
        return np.where(
            is_exception, np.append(self.outcomes, np.uint8(0))[place], self.usual[self.rows[states], tokens]
        )

    @cached_property
    def sets(self) -> TokenSets:
        """Tokens of each outcome above 0."""
        outcomes = self.usual[self.rows]
        outcomes.flat[self.places] = self.outcomes
        sets = [np.flatnonzero(of_state == outcome) for of_state in outcomes for outcome in range(1, self.count + 1)]
        sizes = np.array([*map(len, sets)]).reshape(len(outcomes), self.count)
        return TokenSets(sizes, np.concatenate(sets), self.states)


class NextTokenClassifier:
    """Classifier of the next tokens of the answers to one question; its results are cached by state of the matcher."""

    def __init__(self, matcher: Matcher, vocabulary: Vocabulary) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._verdicts: dict[bytes, NextTokenOutcomes] = {}
        self._outcomes: dict[tuple[bytes, bool, bool], NextTokenOutcomes] = {}
        self._states: dict[bytes, bytes] = {}

    def classify(self, texts: Sequence[bytes], last: bool) -> list[NextTokenOutcomes]:
        """Return the outcomes of the next tokens after each of some texts; ``last``: only one token follows."""
        return [self._classify(text, last) for text in texts]

    def decides(self, text: bytes, token: int) -> bool:
        """Return True if no continuation makes an answer wrong after a text and one more token."""
        return self._of_state(self._state(text)).at(token) == TokenVerdict.DECIDED

    def extended(self, texts: Sequence[bytes], tokens: Iterable[int]) -> list[bytes]:
        """Return each text with one more token, and cache its state if that follows from the shorter text's state."""
        raw, states = self._vocabulary.texts.raw, self._states
        parts = [raw[token] for token in tokens]
        longer = [text + part for text, part in zip(texts, parts, strict=True)]
        for text, part, whole in zip(texts, parts, longer, strict=True):
            if whole not in states:
                self._derive(whole, text, part)
        return longer

    def _derive(self, whole: bytes, text: bytes, token: bytes) -> None:
        """Cache the state of a text with one more token if it follows from the state of the text."""
        if self._vocabulary.stop:
            return
        if self._vocabulary.first_line and not text.strip():
            token = token.lstrip()
        derived = self._matcher.next_state(self._state(text), token)
        if derived is not None:
            self._states[whole] = derived

    def _classify(self, text: bytes, last: bool) -> NextTokenOutcomes:
        state = self._state(text)
        key = (text if self._vocabulary.stop else state, not text.strip(), last)
        if key not in self._outcomes:
            self._outcomes[key] = self._classified(text, state, last)
        return self._outcomes[key]

    def _state(self, text: bytes) -> bytes:
        if text not in self._states:
            answer = text.lstrip() if self._vocabulary.first_line else text
            self._states[text] = answer if self._vocabulary.stop else self._matcher.state(answer)
        return self._states[text]

    def _of_state(self, state: bytes) -> NextTokenOutcomes:
        """Return the matcher's verdicts on the next tokens after the prefixes of a state."""
        if state not in self._verdicts:
            self._verdicts[state] = self._matcher.next_tokens(state, self._vocabulary.texts)
        return self._verdicts[state]

    def _classified(self, text: bytes, state: bytes, last: bool) -> NextTokenOutcomes:
        vocabulary, (usual, tokens, verdicts) = self._vocabulary, self._of_state(state)
        is_blank = not text.strip()
        is_end = vocabulary.are_ends(is_blank)[tokens]
        if vocabulary.stop:
            stopping = vocabulary.stopping(text)
            wholes = (vocabulary.answer(text + vocabulary.texts.raw[token]) for token in stopping)
            is_right = [self._matcher.right(whole.decode("utf-8", "replace")) for whole in wholes]
            stopped = np.where(np.array(is_right, dtype=bool), TokenVerdict.RIGHT, TokenVerdict.WRONG).astype(np.uint8)
            tokens, first = np.unique(np.concatenate([stopping, tokens]), return_index=True)
            verdicts = np.concatenate([stopped, verdicts])[first]
            is_end = np.concatenate([np.ones(len(stopping), dtype=bool), is_end])[first]
        outcomes = _LAST_OUTCOMES[verdicts] if last else _OUTCOMES[verdicts, is_end.view(np.uint8)]
        return NextTokenOutcomes(vocabulary.usual_outcomes(usual, is_blank, last), tokens, outcomes)


class AnswerTexts:
    """Decoder of the answers of a loaded ``model``, prompted in a ``prompt_style``.

    Strings in ``stop`` end an answer. ``vocabularies`` has two entries: True for answers that are the first line of a
    reply, False for answers that are the whole reply.
    """

    def __init__(self, model: Any, tokenizer: Any, prompt_style: str, stop: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._decode = _batch_decoder(tokenizer)
        self._chat = prompt_style == "chat"
        self._stop = stop
        self.vocabularies = {first_line: self._vocabulary(model, first_line) for first_line in (True, False)}

    def read(self, answers: Sequence[Sequence[int]], first_line: bool) -> list[tuple[str, int]]:
        """Return the text of each answer, which its first line break may end, and the number of tokens that carry it.

        ``answers`` are their token ids.
        """
        vocabulary = self.vocabularies[first_line]
        last = [ids[-1] for ids in answers]
        silent = vocabulary.ends[last] & ~vocabulary.carries[last]
        carrying = [len(ids) - is_silent for ids, is_silent in zip(answers, silent.tolist(), strict=True)]
        texts = self._decoded(
            [ids[:n] if first_line else ids for ids, n in zip(answers, carrying, strict=True)], first_line
        )
        # tokens behind a stop string carry no text, nor do those behind the first line of a chat reply
        pending = [i for i, n in enumerate(carrying) if n] if self._stop or (self._chat and first_line) else []
        while pending:
            shorter = self._decoded([answers[i][: carrying[i] - 1] for i in pending], first_line)
            pending = [i for i, text in zip(pending, shorter, strict=True) if text == texts[i]]
            for i in pending:
                carrying[i] -= 1
            pending = [i for i in pending if carrying[i]]
        return [*zip(texts, carrying, strict=True)]

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
            for token, text in enumerate(self._decode(ids, skip_special_tokens=False)):
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

    def _decoded(self, answers: Sequence[Sequence[int]], first_line: bool) -> list[str]:
        """Return the text of each answer up to a stop string, or, with ``first_line``, its first line up to one."""
        texts = self._decode([list(ids) for ids in answers], skip_special_tokens=True)
        return [self._cut(text, first_line) for text in texts]

    def _cut(self, text: str, first_line: bool) -> str:
        """Return a reply up to a stop string, or the first line of that; a chat reply may begin with line breaks."""
        for stop in self._stop:
            text = text.split(stop, 1)[0]
        if not first_line:
            return text
        if self._chat:
            text = text.strip()
        return text.split("\n", 1)[0].strip()


def _batch_decoder(tokenizer: Any) -> Callable[..., list[str]]:
    """Return the decoder of batches: that of the tokenizers library, which is eight times as fast as transformers', if
    transformers adds nothing to it, such as the removal of spaces before punctuation.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)  # none of a tokenizer in Python
    if backend is None:
        return tokenizer.batch_decode  # type: ignore[no-any-return]
    ids = tokenizer("One , two . three ! four ? five ' six do n't I 'm he 's we 've you 're").input_ids
    random = np.random.default_rng(0).integers(0, len(tokenizer), size=(100, 6)).tolist()
    same = backend.decode_batch([ids, *random]) == tokenizer.batch_decode([ids, *random], skip_special_tokens=True)
    return backend.decode_batch if same else tokenizer.batch_decode  # type: ignore[no-any-return]
