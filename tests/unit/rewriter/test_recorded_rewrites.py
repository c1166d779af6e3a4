import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from json_lines import cases

from robust_eval.config.groups import PROJECT
from robust_eval.error import UserError
from robust_eval.question import Question
from robust_eval.rewriter.recorded_rewrites import RecordedRewrites, distinct

CAPITAL = Question("1", "What is the capital of Italy?", ("Rome",), rewrites=("Italy's capital is …?", "Capital city?"))
FORCE = Question(
    "2",
    "What is the unit of force?",
    choices=("joule", "newton"),
    correct=1,
    context="Units.",
    rewrites=("Force is measured in what?",),
)
NOBODY: Any = None  # recorded rewrites need no model
PLAIN = Question("3", "Who wrote Emma?", ("Austen",))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rewrites.jsonl"


def write(file: Path, *records: object) -> None:
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def rewrites(file: Path, *questions: Question) -> dict[str, tuple[str, ...]]:
    return {
        question.id: question.rewrites
        for question in RecordedRewrites(str(file)).rewrite(questions, NOBODY, 0).questions
    }


def refusal(file: Path) -> str:
    with pytest.raises(UserError) as caught:
        RecordedRewrites(str(file)).rewrite([CAPITAL], NOBODY, 0)
    return str(caught.value)


def test_without_a_file_the_rewrites_of_the_data_set_are_taken_in_silence(caplog: pytest.LogCaptureFixture):
    questions = [CAPITAL, FORCE, PLAIN]
    assert RecordedRewrites().rewrite(questions, NOBODY, 0).questions == questions
    assert caplog.messages == []


def test_the_rewrites_of_a_file_replace_those_of_the_data_set_and_nothing_else(
    file: Path, caplog: pytest.LogCaptureFixture
):
    write(file, {"id": "2", "rewrites": ["Name force's unit."]}, {"id": "1", "rewrites": ["Which city?", "Where?"]})
    assert RecordedRewrites(str(file)).rewrite([CAPITAL, FORCE], NOBODY, 0).questions == [
        replace(CAPITAL, rewrites=("Which city?", "Where?")),
        replace(FORCE, rewrites=("Name force's unit.",)),
    ]
    assert caplog.messages == []


def test_a_question_that_the_file_does_not_name_has_no_rewrites(file: Path):
    write(file, {"id": "1", "rewrites": ["Which city?"]}, {"id": "3", "rewrites": []})
    assert rewrites(file, CAPITAL, FORCE, PLAIN) == {"1": ("Which city?",), "2": (), "3": ()}


def test_repetitions_and_echoes_are_dropped_and_counted(caplog: pytest.LogCaptureFixture):
    question = Question(
        "1",
        "Who wrote Emma?",
        rewrites=(
            "who wrote  EMMA",  # the question
            "Emma is by whom?",
            "Who is the author of Emma?",
            "Emma is by whom",  # the second
            "“Emma” is by whom…?",  # the second
            "Whose work is Emma?",
        ),
    )
    other = Question("2", "Why?", rewrites=("Emma is by whom?",))  # elsewhere the wording is new
    kept = RecordedRewrites().rewrite([question, other], NOBODY, 0).questions
    distinct_ones = ("Emma is by whom?", "Who is the author of Emma?", "Whose work is Emma?")
    assert kept == [replace(question, rewrites=distinct_ones), other]
    assert caplog.messages == ["3 rewrites dropped: the same as the question or as another rewrite"]
    assert RecordedRewrites().rewrite(kept, NOBODY, 0).questions == kept


def test_repetitions_in_a_file_are_dropped_and_counted_without_those_of_other_data_sets(
    file: Path, caplog: pytest.LogCaptureFixture
):
    write(file, {"id": "1", "rewrites": ["Which?", "WHICH!", "Where?"]}, {"id": "x", "rewrites": ["So?", "So!"]})
    assert rewrites(file, CAPITAL) == {"1": ("Which?", "Where?")}
    assert caplog.messages == [
        f"{file}: ids that belong to no question in this data set: 1",
        "1 rewrite dropped: the same as the question or as another rewrite",
    ]


@pytest.mark.parametrize(
    ("question", "rewrite"), cases(__file__, "a_rewrite_with_the_normal_form_of_the_question_is_an_echo")
)
def test_a_rewrite_with_the_normal_form_of_the_question_is_an_echo(question: str, rewrite: str):
    # METHODS §2, "Query Rewriter": duplicates (after normalisation), echoes of q_0 are dropped; what that is says §0
    assert distinct(question, [rewrite, "And now?"]) == ("And now?",)


def test_rewrites_in_a_script_with_vowel_signs_are_told_apart_by_them():
    assert distinct("यह कौन है?", ["यह की?", "यह का?"]) == ("यह की?", "यह का?")


@pytest.mark.parametrize(("line", "message"), cases(__file__, "a_broken_line_is_named_with_its_file_and_number"))
def test_a_broken_line_is_named_with_its_file_and_number(file: Path, line: str, message: str):
    file.write_text(f'{{"id": "0", "rewrites": []}}\n\n{line}\n{{"id": "9", "rewrites": 7}}\n', encoding="utf-8")
    assert refusal(file) == f"rewriter.file: {file}, line 3: {message}"


def test_a_file_that_is_not_there_or_no_file_is_named(tmp_path: Path):
    gone = tmp_path / "gone.jsonl"
    assert refusal(gone) == f"rewriter.file: {gone} cannot be read: No such file or directory"
    assert refusal(tmp_path) == f"rewriter.file: {tmp_path} cannot be read: Is a directory"
    os.mkfifo(pipe := tmp_path / "pipe.jsonl")
    assert refusal(pipe) == f"rewriter.file: {pipe} cannot be read: it is a named pipe, not a file"


def squad(*questions: tuple[str, str, str]) -> str:
    """Of (id, question, context), one to an article."""
    articles = [{"paragraphs": [{"context": c, "qas": [{"id": i, "question": q}]}]} for i, q, c in questions]
    return json.dumps({"data": articles})


def paired(folder: Path, originals: str, rewrites: str, questions: list[Question]) -> list[tuple[str, ...]]:
    """The rewrites of each question in two files in the layout of SQuAD."""
    original, paraphrase = folder / "orig.json", folder / "para.json"
    original.write_text(originals)
    paraphrase.write_text(rewrites)
    rewriter = RecordedRewrites(str(paraphrase), str(original))
    return [question.rewrites for question in rewriter.rewrite(questions, NOBODY, 0).questions]


ORIGINALS = squad(("7", "Who wrote Emma?", "Austen."), ("8", "Where is Bath?", "Bath."), ("7", "Who wrote Emma?", "C."))


def test_paraphrases_in_the_layout_of_squad_go_with_the_questions_at_their_place(tmp_path: Path):
    # the ids are those of the questions before, as in the paraphrases of Gan & Ng
    shifted = squad(
        ("6", "Emma is by whom?", "Austen."), ("7", "In which county is Bath?", "Bath."), ("8", "Emma?", "C.")
    )
    questions = [Question("8", "Where is Bath?", ("Somerset",)), Question("7", "Who wrote Emma?", ("Austen",))]
    assert paired(tmp_path, ORIGINALS, shifted, questions) == [
        ("In which county is Bath?",),
        ("Emma is by whom?", "Emma?"),
    ]


def paragraphs(wording: str, *, back: bool = False, ids: int = 0, answers: bool = True) -> str:
    """Eight paragraphs of five questions each, whose numbers are their answers.

    Inside each the order may be turned around. The ids may be those of questions so many places on.
    """
    data = []
    for paragraph in range(8):
        numbers = range(5 * paragraph, 5 * paragraph + 5)
        qas = [
            {"id": f"id{number + ids}", "question": f"{wording} {number}?"}
            | ({"answers": [{"text": f"{number}", "answer_start": 0}]} if answers else {})
            for number in (reversed(numbers) if back else numbers)
        ]
        data.append({"paragraphs": [{"context": f"Paragraph {paragraph}.", "qas": qas}]})
    return json.dumps({"data": data})


def pairs(tmp_path: Path, originals: str, rewrites: str) -> dict[str, tuple[str, ...]]:
    questions = [Question(f"id{number}", f"Which {number}?", (str(number),)) for number in range(40)]
    found = paired(tmp_path, originals, rewrites, questions)
    return {question.id: rewrites for question, rewrites in zip(questions, found, strict=True)}


RIGHT = {f"id{number}": (f"What {number}?",) for number in range(40)}


@pytest.mark.parametrize("answers", [True, False])
def test_paraphrases_are_paired_by_id_in_whatever_order_they_stand(tmp_path: Path, answers: bool):
    original = paragraphs("Which", answers=answers)
    assert pairs(tmp_path, original, paragraphs("What", back=True, answers=answers)) == RIGHT


def test_paraphrases_may_be_those_of_some_questions_and_several_of_one(tmp_path: Path):
    first, second = (json.loads(paragraphs(wording))["data"] for wording in ("What", "Name"))
    found = pairs(tmp_path, paragraphs("Which"), json.dumps({"data": [first[7], first[1], second[1]]}))
    assert {question: rewrites for question, rewrites in found.items() if rewrites} == {
        **{f"id{number}": (f"What {number}?", f"Name {number}?") for number in range(5, 10)},
        **{f"id{number}": (f"What {number}?",) for number in range(35, 40)},
    }


@pytest.mark.parametrize("ids", [1, -1, 3, 5, 1000])
def test_paraphrases_with_ids_of_other_questions_are_paired_by_order_if_their_answers_agree(tmp_path: Path, ids: int):
    assert pairs(tmp_path, paragraphs("Which"), paragraphs("What", ids=ids)) == RIGHT


@pytest.mark.parametrize(
    ("rewrites", "by_id", "by_order"),
    [
        (
            paragraphs("What", back=True, ids=100),
            "question 1 has the id id104, which is missing in the other file",
            "the questions at position 1 have different answers",
        ),
        (
            paragraphs("What", back=True, ids=5),
            "question 1 has the id id9, which has a different context in the other file",
            "the questions at position 1 have different answers",
        ),
        (
            paragraphs("What", ids=1, answers=False),
            "question 5 has the id id5, which has a different context in the other file",
            "the questions at position 1 share their context with others, without distinct answers",
        ),
        (
            squad(("6", "Emma?", "Austen.")),
            "question 1 has the id 6, which is missing in the other file",
            "it has 1 question, but the other file has 40",
        ),
    ],
)
def test_paraphrases_that_cannot_be_paired_are_refused(tmp_path: Path, rewrites: str, by_id: str, by_order: str):
    with pytest.raises(UserError) as caught:
        pairs(tmp_path, paragraphs("Which"), rewrites)
    assert str(caught.value) == (
        f"rewriter.file: {tmp_path / 'para.json'} matches {tmp_path / 'orig.json'} neither by id ({by_id}) "
        f"nor by order ({by_order})"
    )


def test_an_id_whose_answers_are_others_is_not_believed(tmp_path: Path):
    asked = [
        {"id": str(number), "question": f"Q{number}?", "answers": [{"text": "abc"[number]}]} for number in range(3)
    ]
    turned = [{**each, "id": str((number + 1) % 3)} for number, each in enumerate(asked)]
    original, rewrites = (
        json.dumps({"data": [{"paragraphs": [{"context": "One.", "qas": qas}]}]}) for qas in (asked, turned)
    )
    found = paired(tmp_path, original, rewrites.replace("?", " then?"), [Question("1", "Q1?", ("b",))])
    assert found == [("Q1 then?",)]


PUBLISHED = PROJECT.parent / "shared" / "data" / "squad_paraphrase"


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published paraphrases are not at hand")
def test_the_published_paraphrases_are_paired_by_order_although_nearly_all_their_ids_are_known():
    asked, rewritten = (
        [item for article in json.loads(file.read_text())["data"] for item in article["paragraphs"][0]["qas"]]
        for file in (PUBLISHED / "dev_orig.json", PUBLISHED / "dev_para.json")
    )
    questions = [Question(str(item["id"]), "?", ("x",)) for item in asked]
    rewriter = RecordedRewrites(str(PUBLISHED / "dev_para.json"), str(PUBLISHED / "dev_orig.json"))
    found = [question.rewrites for question in rewriter.rewrite(questions, NOBODY, 0).questions]
    assert found == [(item["question"],) for item in rewritten]
    assert len(found) == 1_062


@pytest.mark.parametrize(
    ("rewrites", "message"), cases(__file__, "files_that_do_not_go_together_are_named_in_one_sentence")
)
def test_files_that_do_not_go_together_are_named_in_one_sentence(tmp_path: Path, rewrites: str, message: str):
    with pytest.raises(UserError) as caught:
        paired(tmp_path, ORIGINALS, rewrites, [PLAIN])
    assert str(caught.value) == message.format(para=tmp_path / "para.json", orig=tmp_path / "orig.json")
