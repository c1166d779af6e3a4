from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_model import save_tiny_cross_encoder, save_tiny_encoder, save_tiny_model
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DistilBertConfig, DistilBertModel

from robust_eval.error import UserError
from robust_eval.model.local.model_files import folder_hash
from robust_eval.question import QUESTION_TYPES, Question
from robust_eval.question_type.classifier import TypeClassifier, from_encoder, read_classifier, with_types

TEXTS = ["who wrote emma?", "where is graz?", "when?", "how many legs has a very large spider?", "what is nato?"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier that learned nothing, and so gives types at random."""
    base = tmp_path_factory.mktemp("classifier")
    with torch.random.fork_rng():
        torch.manual_seed(1)
        classifier = from_encoder(str(save_tiny_encoder(base / "encoder")))
        torch.nn.init.normal_(classifier.model.classifier.weight, std=10)
    classifier.save(base / "classifier")
    return base / "classifier"


def by_hand(folder: Path, text: str) -> str:
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        logits = model(**AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")).logits
    return list(QUESTION_TYPES)[int(logits.argmax())]


def test_a_saved_classifier_gives_each_question_the_type_of_its_largest_output(folder: Path):
    predicted = read_classifier(folder).predict(TEXTS)
    assert predicted == [by_hand(folder, text) for text in TEXTS]
    assert len(set(predicted)) > 1


@pytest.mark.parametrize("number", [0, 150])
def test_questions_are_read_in_batches(folder: Path, number: int):
    texts = [text * (place % 2 + 1) for place, text in enumerate(TEXTS * 30)][:number]
    expected = {text: by_hand(folder, text) for text in set(texts)}
    assert read_classifier(folder).predict(texts) == [expected[text] for text in texts]


def test_a_saved_classifier_names_its_outputs(folder: Path):
    names = AutoModelForSequenceClassification.from_pretrained(folder).config.id2label
    assert names == dict(enumerate(["ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"]))


def test_only_questions_without_a_type_are_given_one(folder: Path):
    questions = [Question(str(place), text, ("yes",), group="g") for place, text in enumerate(TEXTS)]
    questions[1] = replace(questions[1], type="fish")
    typed, record = with_types(questions, str(folder))
    types = [by_hand(folder, text) for text in TEXTS]
    types[1] = "fish"
    assert typed == [replace(question, type=kind) for question, kind in zip(questions, types, strict=True)]
    assert record == {"question_types.predicted": 4, "question_types.sha256": folder_hash(folder)}


def test_without_a_classifier_questions_stay_as_they_are():
    questions = [Question("1", "Who?"), Question("2", "Where?", type="LOC")]
    assert with_types(questions, None) == (questions, {})


def test_a_classifier_of_other_classes_is_refused(tmp_path: Path):
    folder = save_tiny_cross_encoder(tmp_path, labels=2)
    with pytest.raises(UserError, match="classifier of question types"):
        read_classifier(folder)


def test_a_folder_that_holds_no_model_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match=f"^classifier of question types {tmp_path} cannot be loaded: the folder "):
        read_classifier(tmp_path)


def test_an_encoder_that_is_not_there_is_refused():
    with pytest.raises(UserError) as problem:
        from_encoder("nowhere")
    assert str(problem.value) == "encoder nowhere: there is no such folder"


def test_a_model_with_a_layer_of_other_classes_is_no_encoder(tmp_path: Path):
    folder = save_tiny_cross_encoder(tmp_path, labels=2)
    with pytest.raises(UserError, match=f"^encoder {folder} cannot be loaded: "):
        from_encoder(str(folder))


def test_an_encoder_whose_tokenizer_does_not_pad_is_refused(tmp_path: Path):
    folder = save_tiny_model(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(folder)
    with pytest.raises(UserError, match="cannot read questions in batches: its tokenizer has no"):
        from_encoder(str(folder))


def test_a_distilbert_with_the_tokenizer_of_a_bert_is_an_encoder(tmp_path: Path):
    # as its files on the hub are: the tokenizer tells of two kinds of tokens, and the model knows of none
    folder = save_tiny_encoder(tmp_path)
    shape = {"n_layers": 1, "dim": 16, "hidden_dim": 16, "n_heads": 2, "max_position_embeddings": 64}
    size = len(AutoTokenizer.from_pretrained(folder))
    DistilBertModel(DistilBertConfig(vocab_size=size, **shape)).save_pretrained(folder)
    classifier = from_encoder(str(folder))
    inputs = classifier.inputs(TEXTS)
    assert classifier.model.config.model_type == "distilbert"
    assert "token_type_ids" in inputs
    classifier.model.eval()
    with torch.no_grad():
        read = classifier.model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
        torch.testing.assert_close(classifier.model(**inputs).logits, read)
    assert classifier.predict(TEXTS) == [list(QUESTION_TYPES)[place] for place in read.argmax(-1).tolist()]


def test_long_questions_are_cut(folder: Path):
    classifier = read_classifier(folder)
    classifier.tokenizer.model_max_length = 16
    assert isinstance(classifier, TypeClassifier)
    assert classifier.inputs(["who " * 100])["input_ids"].shape == (1, 16)
