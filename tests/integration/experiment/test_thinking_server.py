"""A run against llama.cpp's own server, whose chat template opens the thoughts of the model."""

import re
from pathlib import Path

from api_server import api_server
from experiments import run_experiment

from robust_eval.answer import rows

GRAMMAR = r'root ::= [A-Za-z ,.]{10,30} "\n</think>\n\n" [A-Z] [a-z]{2,9} [.]'


def test_thoughts_stand_apart_and_only_the_answer_is_read(tmp_path: Path):
    with api_server(slots=2, thinking=True) as url:
        result = run_experiment(
            tmp_path,
            *("experiment=certainty", "dataset=facts", "dataset.limit=1", "sampler.repetition.trials=2"),
            *("sampler.repetition.max_new_tokens=40", "sampler.repetition.prompts=builtin:zero_shot.yaml"),
            *("model=openai_compatible", f"model.base_url={url}", "model.model=m"),
            *(f"model.extra_body={{grammar:'{GRAMMAR}'}}", "tracking=none", f"paths.mlruns={tmp_path}"),
        )
    found = list(rows(result.graded_by_sampler["repetition"], "reasoning", "answer", "outcome", "reason"))
    assert len(found) == 2
    for reasoning, answer, outcome, reason in found:
        assert len(reasoning.strip()) >= 10
        assert "think" not in reasoning
        assert (outcome, reason) == ("ok", None)
        assert re.fullmatch(r"[A-Z][a-z]{2,9}\.", answer)
    assert result.summary()["accuracy.greedy"] is not None
