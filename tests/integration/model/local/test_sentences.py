import socket
from pathlib import Path

import pytest
import torch
from tiny_model import save_tiny_cross_encoder
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from robust_eval.error import UserError
from robust_eval.model.local.sentences import fit_of_answers

PAIRS = [
    ("what is the capital of france?", "paris"),
    ("what is the capital of france?", "the capital of france is paris."),
    ("paris", "what is the capital of france?"),
    ("who?", "1945"),
    ("what is the capital of france?", "a very long answer " * 20),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_cross_encoder(tmp_path_factory.mktemp("cross-encoder"))


def by_hand(folder: Path, question: str, answer: str) -> float:
    """What the model says of one pair, with nothing on top."""
    tokens = AutoTokenizer.from_pretrained(folder)(
        question, answer, truncation="longest_first", max_length=64, return_tensors="pt"
    )
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        return model(**tokens).logits.item()


def test_the_fit_of_an_answer_is_what_the_model_says_of_question_and_answer_in_this_order(folder: Path):
    scores = fit_of_answers(str(folder), PAIRS)
    assert scores == pytest.approx([by_hand(folder, *pair) for pair in PAIRS], abs=1e-5)
    assert len({round(score, 3) for score in scores}) == len(PAIRS)  # whose order matters
    assert fit_of_answers(str(folder), PAIRS[::-1]) == pytest.approx(scores[::-1], abs=1e-5)


def test_large_scores_stay_apart(folder: Path, tmp_path: Path):
    # a sigmoid in float32 is 1 from 17 on, and then the first of all answers would win
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    with torch.no_grad():
        model.classifier.bias += 40
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path)
    scores = fit_of_answers(str(tmp_path), PAIRS)
    assert min(scores) > 30
    assert scores == pytest.approx([score + 40 for score in fit_of_answers(str(folder), PAIRS)], abs=1e-4)


def refused(path: Path | str) -> str:
    with pytest.raises(UserError) as problem:
        fit_of_answers(str(path), PAIRS)
    assert "\n" not in str(problem.value)
    return str(problem.value)


def test_a_model_without_a_layer_that_scores_is_refused_and_not_given_a_random_one(folder: Path, tmp_path: Path):
    AutoModel.from_pretrained(folder).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path)
    assert refused(tmp_path) == f"cross-encoder {tmp_path} cannot be loaded: it is a model of another kind"


def test_a_model_with_several_scores_is_refused(tmp_path: Path):
    save_tiny_cross_encoder(tmp_path, labels=3)
    assert refused(tmp_path) == f"cross-encoder {tmp_path} cannot rank answers: it returns 3 scores, not one"


@pytest.mark.parametrize("content", [None, "{", "[]", "{}", '{"model_type": "bert"}', '{"model_type": 3}'])
def test_a_folder_that_holds_no_model_is_named_in_one_sentence(tmp_path: Path, content: str | None):
    if content:
        (tmp_path / "config.json").write_text(content)
        (tmp_path / "model.safetensors").write_text("no weights")
    assert refused(tmp_path).startswith(f"cross-encoder {tmp_path} cannot be loaded: ")


def test_what_is_not_there_is_named_and_offline_the_network_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for path in (tmp_path / "gone", "gone", "cross-encoder/ms-marco-MiniLM-L6-v2", "embedded:no-such-package/model"):
        assert "network was asked" not in (message := refused(path))
        assert str(path).removeprefix("embedded:").split("/model")[0] in message
