"""llama.cpp's OpenAI-compatible server, asked by the official client."""

import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path

import openai
import xllamacpp

from robust_eval.model.base import Request

TOKENS_PER_SLOT = 256
"""Room for a prompt and its answer; the built-in questions need about 60 tokens."""


class LlamaServer:
    """A server of a GGUF file within this process, with its best settings.

    Its prompt cache is on by default. One cache for all slots, in which the n answers of a request share their prompt,
    was measured to be 1.1 to 1.2 times as fast as a cache for each slot.
    """

    def __init__(self, gguf: Path, slots: int, threads: int) -> None:
        settings = xllamacpp.CommonParams()
        settings.model.path = str(gguf)
        settings.n_parallel = slots
        settings.n_ctx = slots * TOKENS_PER_SLOT
        settings.kv_unified = True
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = threads
        settings.endpoint_metrics = True
        settings.port = 0  # any that is free
        settings.verbosity = 0
        self.slots = slots
        self._settings = settings

    @contextmanager
    def running(self) -> Iterator[None]:
        """The server runs only as long as it is asked: while its many threads merely wait, torch's are a third slower
        (their OpenMP library stops spinning when it counts more threads than processors).
        """
        self._answers = 0
        self._server = xllamacpp.Server(self._settings)
        url = f"{self._server.listening_address}/v1"
        self._client = openai.OpenAI(base_url=url, api_key="none", timeout=600, max_retries=0)
        try:
            yield
        finally:
            self._client.close()
            del self._server  # stops it

    def complete(self, requests: Sequence[Request]) -> list[list[str]]:
        """The texts of the answers to each request, temperature-major.

        Each temperature of a question is one request for n answers, or several where there are fewer slots; plain
        completions honour n as chat completions do. One request more is in flight than the slots can hold, so that
        none waits.
        """
        most = min(requests[0].trials, self.slots)
        asked = [
            (request, temperature, min(most, request.trials - first))
            for request in requests
            for temperature in request.temperatures
            for first in range(0, request.trials, most)
        ]
        with ThreadPoolExecutor(self.slots // most + 1) as pool:
            texts = iter(list(chain.from_iterable(pool.map(lambda one: self._ask(*one), asked))))
        self._answers += sum(request.max_answers for request in requests)
        return [list(islice(texts, request.max_answers)) for request in requests]

    def _ask(self, request: Request, temperature: float, n: int) -> list[str]:
        reply = self._client.completions.create(
            model="any",
            prompt=request.prompt.text(),
            n=n,
            max_tokens=request.max_new_tokens,
            temperature=temperature,
            top_p=1,
            stop=["\n"],
            extra_body={"top_k": 0, "min_p": 0.0},
        )
        if len(reply.choices) != n:
            raise RuntimeError(f"{len(reply.choices)} answers came where {n} were asked for")
        return [choice.text.strip() for choice in reply.choices]

    def work(self) -> Counter[str]:
        """The "tokens" that were evaluated since the start: those of prompts, and all that were drawn but each answer's
        last, as the server counts them.
        """
        with urllib.request.urlopen(f"{self._server.listening_address}/metrics") as reply:
            lines = reply.read().decode().splitlines()
        totals = dict(line.split() for line in lines if line.startswith("llamacpp:"))
        prompts, drawn = totals["llamacpp:prompt_tokens_total"], totals["llamacpp:tokens_predicted_total"]
        return Counter(tokens=int(prompts) + int(drawn) - self._answers)
