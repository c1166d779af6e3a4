from types import SimpleNamespace

import pytest
import torch
from transformers import MinPLogitsWarper, RepetitionPenaltyLogitsProcessor, TopKLogitsWarper, TopPLogitsWarper

from robust_eval.model.generation import Generation


@pytest.mark.parametrize(
    ("settings", "library"),
    [
        ({"top_k": 7}, [TopKLogitsWarper(7)]),
        ({"top_p": 0.8}, [TopPLogitsWarper(0.8)]),
        ({"min_p": 0.1}, [MinPLogitsWarper(0.1)]),
        (
            {"top_k": 20, "top_p": 0.7, "min_p": 0.05},
            [TopKLogitsWarper(20), TopPLogitsWarper(0.7), MinPLogitsWarper(0.05)],
        ),
    ],
)
def test_truncation_keeps_the_tokens_that_the_library_keeps(settings: dict, library: list):
    logits = torch.randn(40, 500, generator=torch.Generator().manual_seed(0)) * 3
    expected = logits
    for warper in library:
        expected = warper(None, expected)
    assert torch.equal(Generation(**settings).truncated(logits), expected)


def test_the_repetition_penalty_is_that_of_the_library():
    logits = torch.randn(2, 30, generator=torch.Generator().manual_seed(0))
    occurred = [[3, 4, 4, 29], [0, 1, 2, 3]]
    expected = RepetitionPenaltyLogitsProcessor(1.3)(torch.tensor(occurred), logits.clone())
    found = Generation(repetition_penalty=1.3).penalized(logits, occurred)
    assert torch.allclose(found, expected)


def test_nothing_is_truncated_by_default():
    assert Generation().effective(SimpleNamespace(top_k=50, top_p=0.8, repetition_penalty=1.1)) == Generation()
    assert not Generation().truncates


def test_presets_take_what_the_repository_brings():
    qwen = SimpleNamespace(top_k=20, top_p=0.8, min_p=None, repetition_penalty=1.05)
    bare = SimpleNamespace(top_k=None, top_p=None)
    repository = Generation(preset="repository")
    defaults = Generation(preset="library_defaults")
    assert repository.effective(qwen) == Generation("repository", 20, 0.8, 0.0, 1.05)
    assert repository.effective(bare) == repository
    assert defaults.effective(qwen) == Generation("library_defaults", 20, 0.8, 0.0, 1.05)
    own = Generation("repository", top_p=0.9, repetition_penalty=1.2)
    assert own.effective(SimpleNamespace(top_k=20)) == Generation("repository", 20, 0.9, 0.0, 1.2)
    assert defaults.effective(bare) == Generation("library_defaults", 50)
    assert repr(repository.effective(SimpleNamespace(top_k=20.0)).top_k) == "20"
    for top_k in (2.5, "20", True):
        with pytest.raises(ValueError, match=f"^top_k must be a whole number, not {top_k!r}$"):
            repository.effective(SimpleNamespace(top_k=top_k))
