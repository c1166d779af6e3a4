"""Other engines that draw the answers of a sweep: continuous batching, vLLM and CTranslate2, each at its best settings.

The last two need another torch or none: they run in a process of a Python that has them, which is started once and
waits for lines between its turns.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from support.continuous import continuous
from support.counted_model import CountedModel
from support.ways import Search, Texts, Way, timed

from robust_eval.model.base import Request

NAMES = {"vllm": "vLLM", "ctranslate2": "CTranslate2"}
"""The engines that need a Python of their own."""
PEERS = ("continuous", *NAMES)


class PeerProcess:
    """An engine in a process of another Python, with the model in a folder; RuntimeError where it does not start."""

    def __init__(self, python: Path, kind: str, folder: Path, dtype: str) -> None:
        script = Path(__file__).with_name("peer_process.py")
        command = [str(python), str(script), kind, str(folder), dtype, str(torch.get_num_threads())]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._tokens = 0
        self.name: str = self._said()["name"]

    def answer(self, ends: Sequence[int], size: int, requests: Sequence[Request]) -> Texts:
        """The texts of the answers to each request, temperature-major; so many questions at once."""
        first = requests[0]
        asked = {
            "prompts": [request.prompt.text() for request in requests],
            "temperatures": first.temperatures,
            "trials": first.trials,
            "max_new_tokens": first.max_new_tokens,
            "ends": ends,
            "at_once": size,
        }
        assert self._process.stdin is not None
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        said = self._said()
        self._tokens += said["tokens"]
        return [[text.split("\n", 1)[0].strip() for text in texts] for texts in said["texts"]]

    def work(self) -> Counter[str]:
        """The "tokens" that were evaluated so far, as the engine tells them."""
        return Counter(tokens=self._tokens)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _said(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended with status {self._process.wait()}")
        return json.loads(line)


class Peers:
    """The engines that are there; what is not there is left out, with a sentence on stderr."""

    def __init__(self, model: CountedModel, processes: dict[str, PeerProcess], skipped: Sequence[str]) -> None:
        self._model, self._processes, self._skipped = model, processes, skipped

    def ways(self, search: Search, block: Sequence[Request]) -> dict[str, Way]:
        """Each with its best settings for such requests."""
        ends = torch.nonzero(self._model.ends).flatten().tolist()
        found = {} if "continuous" in self._skipped else {"continuous": self._continuous(search, block)}
        if "vllm" in self._processes:
            engine = self._processes["vllm"]  # it cuts what it is asked for into batches by itself
            found["vllm"] = Way(engine.name, partial(engine.answer, ends, len(block)), engine.work)
        if "ctranslate2" in self._processes:
            engine = self._processes["ctranslate2"]
            best = best_size(search, block, partial(engine.answer, ends))
            found["ctranslate2"] = Way(
                f"{engine.name}, batch size {best}", partial(engine.answer, ends, best), engine.work
            )
        return found

    def _continuous(self, search: Search, block: Sequence[Request]) -> Way:
        best = best_size(search, block, partial(continuous, self._model))
        label = f"continuous batching, batch size {best}"
        return Way(label, partial(continuous, self._model, best), self._model.work)


def best_size(search: Search, block: Sequence[Request], answer: Any) -> int:
    """The number of questions at once that is fastest, by answers at one temperature."""
    sizes = sorted({min(size, len(block)) for size in search.generate_sizes})
    trial = [replace(request, temperatures=(1.0,)) for request in block]
    answer(1, trial[:1])
    return search.fastest(sizes, lambda size: timed(partial(answer, size, trial))[0])


@contextmanager
def peers(
    python: Path | None, model: CountedModel, folder: Path, dtype: str, skipped: Sequence[str]
) -> Iterator[Peers]:
    """The engines, of which those in processes have the model of a ``folder``; they end with the context."""
    with ExitStack() as stack:
        processes = {}
        for kind, name in NAMES.items():
            if kind in skipped:
                continue
            if python is None:
                print(f"{name} is left out: --peers names no Python that has it", file=sys.stderr)
                continue
            processes[kind] = PeerProcess(python, kind, folder, dtype)
            stack.callback(processes[kind].close)
        yield Peers(model, processes, skipped)
