"""A run against llama.cpp's own server, whose chat template opens the thoughts of the model."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_server import api_server
from experiments import run_experiment

from robust_eval.answer import rows
from robust_eval.reader.base import NOT_ENDED

ENDS = r'root ::= [A-Za-z ,.]{10,30} "\n</think>\n\n" [A-Z] [a-z]{2,9} [.]'
NEVER_ENDS = "root ::= [A-Za-z ,.]{400,500}"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with api_server(slots=2, thinking=True) as url:
        yield url


@pytest.mark.parametrize("grammar", [ENDS, NEVER_ENDS], ids=["ends", "never ends"])
def test_thoughts_stand_apart_and_only_the_answer_is_read(url: str, tmp_path: Path, grammar: str):
    result = run_experiment(
        tmp_path,
        *("experiment=certainty", "dataset=facts", "dataset.limit=1", "sampler.repetition.trials=2"),
        *("sampler.repetition.max_new_tokens=40", "model=openai_compatible", f"model.base_url={url}", "model.model=m"),
        *(f"model.extra_body={{grammar:'{grammar}'}}", "tracking=none", f"paths.mlruns={tmp_path}"),
    )
    found = list(rows(result.graded["repetition"], "reasoning", "answer", "outcome", "reason"))
    assert len(found) == 2
    for reasoning, answer, outcome, reason in found:
        assert len(reasoning.strip()) >= 10
        assert "think" not in reasoning
        if grammar == ENDS:
            assert (outcome, reason) == ("ok", None)
            assert re.fullmatch(r"[A-Z][a-z]{2,9}\.", answer)
        else:
            assert (outcome, reason, answer) == ("invalid", NOT_ENDED, None)
    figures = result.summary()
    assert figures["accuracy.greedy"] is not None
    assert figures.get(f"invalid.{NOT_ENDED.replace(' ', '_')}", 0) == (0 if grammar == ENDS else 3)
