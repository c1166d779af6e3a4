from pathlib import Path

import pytest
from tiny_model import save_tiny_model

from robust_eval.model.local.gguf_model import converted_folder
from robust_eval.model.local.transformers import Transformers
from robust_eval.model.model_config import RecordedModel
from robust_eval.model.served.openai import OpenAI


def test_a_folder_has_its_tokenizer(tmp_path: Path):
    save_tiny_model(tmp_path)
    found = Transformers(name="mine", path=str(tmp_path)).tokenizer_file()
    assert found == tmp_path / "tokenizer.json"


def test_an_embedded_model_has_that_of_its_conversion(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr("robust_eval.model.local.gguf_model.cache_folder", lambda: tmp_path)
    config = Transformers("some", "embedded:package/some.gguf", sha256="abc")
    assert config.tokenizer_file() is None
    folder = converted_folder("some", "abc")
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text("{}")
    assert config.tokenizer_file() == folder / "tokenizer.json"


def test_a_hub_model_has_that_of_its_revision_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--me--mine"
    snapshot = repository / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123")
    (snapshot / "tokenizer.json").write_text("{}")
    assert Transformers("some", "me/mine", None).tokenizer_file() == snapshot / "tokenizer.json"
    assert Transformers("some", "me/mine", "0123").tokenizer_file() == snapshot / "tokenizer.json"
    assert Transformers("some", "me/mine", "other").tokenizer_file() is None
    assert Transformers("some", "me/another", None).tokenizer_file() is None


def test_models_elsewhere_have_none():
    assert OpenAI(name="a", model="b", base_url="http://localhost").tokenizer_file() is None
    assert RecordedModel("a").tokenizer_file() is None
