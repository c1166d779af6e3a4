"""Samples of lm-eval in unusual forms."""

import json
import math
from pathlib import Path

import pytest
from json_lines import cases

from robust_eval.error import UserError
from robust_eval.interop.harness_logs import Collected, collect
from robust_eval.interop.log_as_answers import no_key


def sample(doc_id: int, target: str, resps: list, arguments: list, **others: object) -> dict:
    asked = {f"gen_args_{n}": {"arg_0": context, "arg_1": second} for n, (context, second) in enumerate(arguments)}
    doc = {"question": f"Question {doc_id}?"}
    return {"doc_id": doc_id, "doc": doc, "target": target, "arguments": asked, "resps": resps, **others}


def generated(doc_id: int, target: str, *replies: str, context: object = "Q?", **others: object) -> dict:
    settings = {"until": ["\n\n"], "do_sample": True, "temperature": 0.7}
    return sample(doc_id, target, [list(replies)], [(context, settings)], metrics=["exact_match"], **others)


def chosen(doc_id: int, target: str, likelihoods: list[float], continuations: list[str], **others: object) -> dict:
    resps = [[[str(each), "False"]] for each in likelihoods]
    return sample(doc_id, target, resps, [("Q?", f" {each}") for each in continuations], **others)


def read(folder: Path, *records: dict) -> Collected:
    file = folder / "samples_quiz_2026-01-01T00-00-00.000000.jsonl"
    file.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    (found,) = collect([file])
    return found


MESSAGES = [
    {"role": "system", "content": "Answer."},
    {"role": "user", "content": [{"type": "text", "text": "Who?\n(A) Ann\n(B) Ben"}]},
]


@pytest.mark.parametrize("context", [MESSAGES, json.dumps(MESSAGES), [json.dumps(MESSAGES)]])
def test_messages_are_read_in_each_form_in_which_a_model_gets_them(tmp_path: Path, context: object):
    found = read(tmp_path, generated(0, "(B)", "The answer is (B).", context=context))
    assert found.request.messages == (("system", "Answer."), ("user", "Who?\n(A) Ann\n(B) Ben"))
    assert (found.request.chat, found.request.reader) == (True, "reply")
    assert (found.questions[0].choices, found.questions[0].correct) == (("Ann", "Ben"), 1)


def test_a_prompt_that_begins_with_a_bracket_is_a_text(tmp_path: Path):
    found = read(tmp_path, generated(0, "7", "7", context="[1, 2, 4] has which sum?"))
    assert found.request.messages == (("user", "[1, 2, 4] has which sum?"),)


@pytest.mark.parametrize(
    ("backend", "temperature"), [("hf", 0.0), ("local-chat-completions", 0.7), ("openai-completions", 0.7)]
)
def test_a_temperature_without_sampling_is_that_of_the_backend(tmp_path: Path, backend: str, temperature: float):
    record = generated(0, "7", "7")
    record["arguments"]["gen_args_0"]["arg_1"]["do_sample"] = False
    with pytest.raises(UserError, match=r"do_sample is false, but the temperature is 0\.7"):
        read(tmp_path, record)
    results = json.dumps({"config": {"model": backend}})
    (tmp_path / "results_2026-01-01T00-00-00.000000.json").write_text(results)
    assert read(tmp_path, record).answers["temperature"].to_pylist() == [temperature]


def test_scores_of_all_filters_stand_at_the_first_reply(tmp_path: Path):
    one = generated(0, "7", "It is 7.", filter="strict", exact_match=0.0)
    two = generated(0, "7", "It is 7.", filter="flexible", exact_match=1.0)
    scores = read(tmp_path, one, two).answers.select(["score.exact_match,strict", "score.exact_match,flexible"])
    assert [tuple(row.values()) for row in scores.to_pylist()] == [(0.0, 1.0)]


def test_a_score_of_nan_is_no_score(tmp_path: Path):
    found = read(
        tmp_path, *(generated(number, "", "7", exact_match=score) for number, score in enumerate([1, math.nan]))
    )
    assert "(the log's own scores are exact_match,none 1.000 on average)" in str(no_key(found, "the log"))


def test_a_vote_is_no_score_of_the_first_reply(tmp_path: Path):
    record = generated(0, "7", "It is 7.", "It is 8.", filter="maj@2", exact_match=1.0)
    assert read(tmp_path, record).scorers == []


def test_answers_without_a_key_are_counted_by_reason(tmp_path: Path):
    found = read(
        tmp_path,
        generated(0, "Rome", "Rome", "Milan"),
        generated(1, "C", "C", "C"),
        generated(2, "\u200b", "a", "an"),
        generated(3, " ", "x", "y"),
    )
    assert found.ungraded == {
        "the target is a letter, and neither document nor prompt lists choices": ["1"],
        "the normalised target is empty": ["2"],
        "the target is empty": ["3"],
    }
    assert [question.id for question in found.keyed] == ["0", "2"]


def test_letters_in_another_order_are_put_in_theirs(tmp_path: Path):
    found = read(tmp_path, chosen(0, "0", [-1.0, -2.0], ["B", "A"], metrics=["acc"], acc=1.0))
    assert (found.questions[0].choices, found.questions[0].correct) == (("A", "B"), 1)
    rows = found.answers.filter(found.answers["temperature"].to_numpy() == 1).select(["text", "weight"]).to_pylist()
    assert [row["text"] for row in rows] == ["A", "B"]
    assert rows[1]["weight"] > rows[0]["weight"]
    assert found.answers["text"].to_pylist()[0] == "B"


def test_a_choice_whose_letter_is_the_text_of_another_is_named_by_its_text(tmp_path: Path):
    found = read(tmp_path, chosen(0, "2", [-1.0, -2.0, -3.0, -4.0], ["A", "C", "G", "T"], metrics=["acc"], acc=0.0))
    assert found.questions[0].correct == 2
    assert found.answers["text"].to_pylist()[1:] == ["A", "B", "G", "D"]
    assert found.request.reader == "reply"


def test_unconditional_likelihoods_are_no_choices(tmp_path: Path):
    record = chosen(0, "1", [-2.0, -1.0, -9.0, -8.0], ["no", "yes", "no", "yes"], metrics=["acc"], acc=1.0)
    for number in (2, 3):
        record["arguments"][f"gen_args_{number}"]["arg_0"] = ""
    found = read(tmp_path, record)
    assert (found.questions[0].choices, found.answers.num_rows) == (("no", "yes"), 3)


def test_one_contradicted_target_makes_all_of_a_task_doubtful(tmp_path: Path):
    right = chosen(0, "1", [-2.0, -1.0], ["no", "yes"], metrics=["acc"], acc=1.0)
    wrong = chosen(1, "0", [-2.0, -1.0], ["no", "yes"], metrics=["acc"], acc=1.0)
    found = read(tmp_path, right, wrong)
    assert found.ungraded == {"the target and the log's acc name different choices": ["0", "1"]}


@pytest.mark.parametrize(
    ("record", "said"), cases(__file__, "samples_that_hold_no_answers_are_refused_by_task_and_document")
)
def test_samples_that_hold_no_answers_are_refused_by_task_and_document(tmp_path: Path, record: dict, said: str):
    with pytest.raises(UserError) as caught:
        read(tmp_path, record)
    assert f"line 1, document 0: {said}" in str(caught.value)
