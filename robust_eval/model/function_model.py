"""Python function as a model: it takes prompts, and returns a text for each."""

import inspect
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from weakref import WeakKeyDictionary

from robust_eval.error import UserError
from robust_eval.model.base import Completion, Item, LanguageModel, Reply, Request, Temperatures
from robust_eval.model.model_config import ModelConfig

log = logging.getLogger(__name__)

PROMPTS_AT_ONCE = 64
"""Minimum number of prompts in a call of the function, if there are that many; those of a request stay together."""
_FUNCTION_IDS: WeakKeyDictionary[Callable[..., Any], str] = WeakKeyDictionary()
"""Identifier of each function in the store, for the life of this process."""


@dataclass
class FunctionModel(ModelConfig):
    """Python function from a list of prompts to a list of texts, one for each prompt, in their order.

    A prompt that occurs several times in the list requests several independent answers. If the function has a parameter
    ``temperature``, it receives the temperature of the answers, 0 for greedy ones. A function without it answers at a
    fixed temperature and cannot be sampled at several. It returns no log-probabilities.

    Answers are stored under ``name`` and ``version``: change the version when the function changes. Without a version
    only the same function in the same process reads them from the store.

    >>> model = FunctionModel(lambda prompts, temperature: ["Rome"] * len(prompts), "roman", version="1")
    >>> model.takes_temperature
    True
    """

    function: Callable[..., Sequence[str]]
    """The function."""
    name: str
    version: str | None = None
    """Version of the function, for the store."""

    @property
    def takes_temperature(self) -> bool:
        """True if the Python function has a parameter ``temperature``."""
        try:
            return "temperature" in inspect.signature(self.function).parameters
        except ValueError:  # of a function that is compiled
            return False

    def identity(self) -> Mapping[str, Any]:
        """Return the name and version, or the identifier of this Python function in this process."""
        version = _function_id(self.function) if self.version is None else self.version
        return {"kind": "function", "name": self.name, "version": version, "temperature": self.takes_temperature}

    def temperatures(self, highest: float) -> Temperatures:
        """Return all temperatures; a Python function returns no log-probabilities."""
        return Temperatures(has_logprobs=False)

    def load(self) -> "FunctionCalls":
        """Return the Python function as a loaded model."""
        return FunctionCalls(self)


class FunctionCalls(LanguageModel):
    """Loaded Python function; see :class:`FunctionModel`."""

    def __init__(self, config: FunctionModel) -> None:
        self._config = config
        self._has_warned = False

    def check(self, requests: Sequence[Request]) -> None:
        """Refuse requests for log-probabilities, and several temperatures for a function without the parameter."""
        super().check(requests)
        self._check_parameters()
        if self._config.takes_temperature:
            return
        temperatures = sorted({t for request in requests for t in request.temperatures})
        if len(temperatures) > 1:
            raise UserError(
                f"the function {self._config.name} has no parameter 'temperature', but the sampler requests several "
                f"({', '.join(f'{t:g}' for t in temperatures)}): add the parameter, or set one temperature"
            )
        if not self._has_warned:
            log.warning(
                "the function %s has no parameter 'temperature': the settings do not change its temperature",
                self._config.name,
            )
            self._has_warned = True

    def _check_parameters(self) -> None:
        arguments = {"temperature": 0.0} if self._config.takes_temperature else {}
        try:
            inspect.signature(self._config.function).bind([], **arguments)
        except ValueError:  # of a function that is compiled
            return
        except TypeError as problem:
            raise UserError(
                f"the function {self._config.name} must take a list of prompts and, optionally, a temperature: "
                f"{problem}"
            ) from problem

    def complete(
        self, requests: Sequence[Request], missing: Set[Item], batch_context: object = None
    ) -> Iterator[list[Reply]]:
        """Call the Python function with batches of prompts, and yield the replies."""
        block: list[Request] = []
        for request in requests:
            if request.item in missing:
                block.append(request)
            if sum(each.max_answers for each in block) >= PROMPTS_AT_ONCE:
                yield self._replies(block)
                block = []
        if block:
            yield self._replies(block)

    def _replies(self, block: Sequence[Request]) -> list[Reply]:
        pending = [(t, place, k) for place, request in enumerate(block) for t, k in request.pending]
        completions: list[list[Completion]] = [[] for _ in block]
        for temperature, group in groupby(sorted(pending), key=lambda each: each[0]):
            draws = [(place, k) for _, place, k in group]
            texts = self._texts([block[place].prompt.text() for place, _ in draws], temperature)
            for (place, k), text in zip(draws, texts, strict=True):
                completions[place].append(_completion(block[place], temperature, k, text))
        return [Reply(request, answers) for request, answers in zip(block, completions, strict=True)]

    def _texts(self, prompts: list[str], temperature: float) -> list[str]:
        arguments = {"temperature": temperature} if self._config.takes_temperature else {}
        texts = self._config.function(prompts, **arguments)
        if isinstance(texts, str) or not isinstance(texts, Sequence) or len(texts) != len(prompts):
            returned = str(len(texts)) if isinstance(texts, list | tuple) else f"a {type(texts).__name__}"
            raise UserError(
                f"the function {self._config.name} must return a list of {len(prompts)} strings, not {returned}"
            )
        if wrong := [text for text in texts if not isinstance(text, str)]:
            raise UserError(f"the function {self._config.name} must return strings, not a {type(wrong[0]).__name__}")
        for text in texts:
            try:
                text.encode()
            except UnicodeEncodeError as problem:
                raise UserError(
                    f"the function {self._config.name} returned {text!r}, which is not Unicode text"
                ) from problem
        return list(texts)

    def description(self) -> dict[str, Any]:
        """Return the name of the Python function, and whether it takes a temperature."""
        return {"name": self._config.name, "takes_temperature": self._config.takes_temperature}


def _completion(request: Request, temperature: float, trial: int, text: str) -> Completion:
    text = text.strip()
    return Completion(
        temperature=temperature,
        trial=trial,
        text=text.split("\n", 1)[0].rstrip() if request.first_line else text,
    )


def _function_id(function: Callable[..., Any]) -> str:
    try:
        return _FUNCTION_IDS.setdefault(function, uuid.uuid4().hex)
    except TypeError:  # it has no hash, or cannot be referred to weakly
        return uuid.uuid4().hex
