import logging

import numpy as np
import pytest
import torch
from tiny_model import save_tiny_encoder

from robust_eval.cli.train_question_types import EMBEDDED
from robust_eval.dataset.jsonl import JsonLines
from robust_eval.question import Question
from robust_eval.question_type.training import Settings, batches, fine_tune

WORDS = {"what": "ENTY", "who": "HUM", "where": "LOC", "when": "NUM"}
QUESTIONS = [
    Question(f"{word} {place}", f"{word} is {'it' * place}?", type=kind)
    for word, kind in WORDS.items()
    for place in range(6)
]
FAST = Settings(learning_rate=0.01, batch_size=4, epochs=12)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny_encoder(tmp_path_factory.mktemp("encoder")))


def weights(classifier):
    return torch.cat([parameter.detach().ravel() for parameter in classifier.model.parameters()])


def test_an_encoder_learns_the_types_of_questions(encoder: str, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO):
        classifier, losses = fine_tune(encoder, QUESTIONS, FAST, seed=0)
    assert classifier.predict([question.text for question in QUESTIONS]) == [question.type for question in QUESTIONS]
    assert len(losses) == 12
    assert losses[-1] < losses[0] / 3
    assert [record.message for record in caplog.records if record.name == "robust_eval.question_type.training"] == [
        f"epoch {epoch} of 12: mean loss {loss:.4f}" for epoch, loss in enumerate(losses, start=1)
    ]


def test_the_same_seed_gives_the_same_classifier_and_leaves_the_numbers_of_others_alone(encoder: str):
    settings = Settings(learning_rate=0.01, batch_size=5, epochs=1)
    state = torch.random.get_rng_state()
    (first, losses), (again, same), (other, _) = (fine_tune(encoder, QUESTIONS, settings, seed) for seed in (1, 1, 2))
    assert torch.equal(weights(first), weights(again))
    assert losses == same
    assert not torch.equal(weights(first), weights(other))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_embedded_encoder_learns_from_a_few_dozen_questions_and_tells_others_apart():
    facts = JsonLines("facts", "builtin:facts.jsonl").load()
    learned, others = facts[0::10], facts[1::6]
    classifier, _ = fine_tune(EMBEDDED, learned, Settings(learning_rate=3e-4, batch_size=8, epochs=3), seed=0)
    predicted = classifier.predict([question.text for question in others])
    right = [kind == question.type for kind, question in zip(predicted, others, strict=True)]
    assert len(right) == 86
    assert np.mean(right) > 0.6  # one in four by chance


def test_batches_hold_every_question_once_and_those_of_equal_length_together():
    lengths = np.random.default_rng(0).integers(5, 100, size=1001)
    made = list(batches(lengths, 16, np.random.default_rng(1)))
    assert sorted(np.concatenate(made).tolist()) == list(range(1001))
    assert sorted(map(len, made)) == [9, *[16] * 62]
    spread = np.mean([np.ptp(lengths[places]) for places in made])
    assert spread < np.ptp(lengths) / 4
    assert [len(places) for places in made] != sorted((len(places) for places in made), reverse=True)


def test_a_set_smaller_than_a_batch_is_one_batch():
    (places,) = batches(np.array([3, 1, 2]), 16, np.random.default_rng(0))
    assert sorted(places.tolist()) == [0, 1, 2]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((0.0, 16, 3), "the learning rate must lie between 0 and 1, not 0.0"),
        ((1.0, 16, 3), "the learning rate must lie between 0 and 1, not 1.0"),
        ((1e-4, 0, 3), "the batch size must be at least 1, not 0"),
        ((1e-4, 16, 0), "the epochs must be at least 1, not 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(values: tuple[float, int, int], said: str):
    with pytest.raises(ValueError, match=f"^{said}$"):
        Settings(*values)
