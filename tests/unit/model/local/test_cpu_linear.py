from pathlib import Path

import pytest
import torch
from architectures import tiny

from robust_eval.model.local import device
from robust_eval.model.local.device import OneDnnLinear, use_faster_linear


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("robust_eval.runtime.cache.cache_folder", lambda: tmp_path)
    return tmp_path / "linear"


def forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make oneDNN look faster, whatever this machine says."""
    monkeypatch.setattr(device, "_seconds", lambda layer, x: 0.0 if isinstance(layer, OneDnnLinear) else 1.0)


@torch.no_grad()
def test_the_logits_stay_the_same(monkeypatch: pytest.MonkeyPatch):
    forced(monkeypatch)
    model, ids = tiny("qwen2"), torch.tensor([[5, 6, 7, 8]])
    before = model(input_ids=ids).logits
    assert use_faster_linear(model) == "oneDNN"
    assert isinstance(model.model.layers[0].mlp.up_proj, OneDnnLinear)
    assert torch.allclose(model(input_ids=ids).logits, before, atol=1e-4)


def test_the_slower_kernel_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(device, "_seconds", lambda layer, x: 1.0 if isinstance(layer, OneDnnLinear) else 0.0)
    model = tiny("qwen2")
    assert use_faster_linear(model) == "torch"
    assert type(model.model.layers[0].mlp.up_proj) is torch.nn.Linear


def test_other_number_formats_are_left_alone(monkeypatch: pytest.MonkeyPatch):
    forced(monkeypatch)
    assert use_faster_linear(tiny("llama").to(torch.bfloat16)) == "torch"


def test_weights_shared_with_an_embedding_stay_shared(monkeypatch: pytest.MonkeyPatch):
    forced(monkeypatch)
    model = tiny("llama")
    model.lm_head.weight = model.model.embed_tokens.weight
    assert use_faster_linear(model) == "oneDNN"
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
