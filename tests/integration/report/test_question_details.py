from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from answer_rows import answer_row, changed
from experiments import without_figures
from recorded_run import TEMPERATURES, recorded_run
from scipy import stats
from tiny_model import byte_tokenizer

from robust_eval.answer import EXACT_CURVES, answer_table
from robust_eval.question import Question
from robust_eval.report.question_details import MAX_ANSWERS, details
from robust_eval.runtime.text import cut
from robust_eval.tracking.result import Result


def answers(*texts: str, temperature: float = 1.0, **columns: Any) -> pa.Table:
    """Graded answers to the question q, one trial each."""
    row = partial(answer_row, "q", temperature=temperature, weight=1 / max(len(texts), 1))
    return answer_table(
        row(**({"trial": trial, "text": text, "label": text, "correct": text == "yes"} | columns))
        for trial, text in enumerate(texts)
    )


def of_one_question(result: Result, **changes: Any) -> Result:
    question = Question("q", "Is it?", ("yes",))
    return replace(result, questions=[question], kept=[question], scores={}, exact_curves={}, **changes)


def test_the_greedy_answer_comes_with_its_verdict_and_outcome(result: Result):
    wrong, right = details(result, result.questions[:2], 600, None)
    assert wrong["greedy"] == ["wrong 0", "wrong", "ok"]
    assert right["greedy"] == ["answer 1", "right", "ok"]
    assert "samplers" in right
    assert wrong["samplers"] == {}  # it was not asked again


def test_answers_are_counted_by_wording_text_and_temperature(result: Result):
    (shown,) = details(result, [result.questions[3]], 600, None)
    assert shown["wordings"] == ["Fact 3 is what? ", "Tell me fact 3. "]
    assert shown["samplers"]["perturbation"] == {
        "temperatures": [1.0],
        "rows": [
            [0, "answer 3", "answer 3", "right", "ok", True, ["1"]],
            [1, "answer 3", "answer 3", "right", "ok", False, ["1"]],
            [2, "answer 3", "answer 3", "right", "ok", False, ["1"]],
        ],
        "read": [["first line", "", 0]] * 3,
        "labels": False,
        "others": [],
        "whole": [["right", ["3"]]],
    }
    expected = [sum((trial + 1) / 5 > t / 2.4 * (1.2 - 3 / 28) for trial in range(4)) for t in TEMPERATURES]
    right, wrong = shown["samplers"]["temperature_sweep"]["rows"]
    assert right[6] == [str(count or "") for count in expected]
    assert wrong[6] == [str(4 - count or "") for count in expected]


def test_the_first_reply_of_an_answer_is_there_as_it_came_and_cut_ones_are_counted_by_verdict(result: Result):
    table = pa.concat_tables(
        [
            answers("\nno\n", "no", "yes", finish_reason="length", label="1"),
            answers("no", "yes, of course", finish_reason="stop", label="1"),
        ]
    )
    run = of_one_question(
        result, graded_baseline=answers("yes", temperature=0.0), graded_by_sampler={"repetition": table}
    )
    (shown,) = details(run, run.questions, 600, None)
    found = shown["samplers"]["repetition"]
    assert found["cut"] == [["right", "1"], ["wrong", "2"]]
    assert [(line[1], line[7:]) for line in found["rows"]] == [
        ("no", ["2", "\nno\n"]),
        ("yes", ["1"]),
        ("yes, of course", []),
    ]


def test_each_answer_comes_with_what_was_extracted_by_which_rule_and_whether_that_is_uncertain(result: Result):
    long = "It is said to be " + "very " * 200 + "so."
    table = pa.concat_tables(
        [
            answers("It is: yes", "It is: yes", answer="yes", rule="explicit answer", uncertain=True),
            answers(" no ", answer="no", rule="whole reply", uncertain=False),
            answers(long, answer=long, rule="whole reply"),
            answers("perhaps"),  # of a run that did not record it
        ]
    )
    greedy = answers("Yes, it is", temperature=0.0, answer="Yes", rule="first word", uncertain=True)
    run = of_one_question(result, graded_baseline=greedy, graded_by_sampler={"repetition": table})
    (shown,) = details(run, run.questions, 600, None)
    assert shown["greedy_read"] == ["first word", "Yes", 1]
    found = shown["samplers"]["repetition"]
    assert dict(zip([line[1][:12] for line in found["rows"]], found["read"], strict=True)) == {
        "It is: yes": ["explicit answer", "yes", 1],
        "no": ["whole reply", "", 0],
        "It is said t": ["whole reply", "", 0],
        "perhaps": [],
    }
    assert found["uncertain"] == "2"

    plain = of_one_question(
        result, graded_baseline=answers("yes", temperature=0.0), graded_by_sampler={"repetition": answers("no")}
    )
    (shown,) = details(plain, plain.questions, 600, None)
    assert "greedy_read" not in shown
    assert not {"read", "uncertain"} & {*shown["samplers"]["repetition"]}


def test_probabilities_of_answers_are_rounded_once_as_they_are_shown(result: Result):
    weights = [0.654527, 0.0625, 0.28247, 0.000003]
    table = changed(answers(*"abcd"), weight=dict(enumerate(weights)))
    run = of_one_question(
        result,
        graded_baseline=answers("yes", temperature=0.0),
        graded_by_sampler={"exact": table},
        estimator_of={"exact": "exact"},
    )
    (shown,) = details(run, run.questions, 600, None)
    counts = {text: count for _, text, *_, (count,) in shown["samplers"]["exact"]["rows"]}
    assert counts == {"a": "0.655", "b": "0.063", "c": "0.282", "d": "0.000"}


def test_enumerated_answers_without_a_curve_are_no_counted_trials(result: Result):
    (trials,) = details(result, [result.questions[3]], 600, None)
    assert len(trials["curve"]["counted"]) == len(TEMPERATURES)
    enumerated = replace(result, estimator_of={"temperature_sweep": "exact"})
    (shown,) = details(enumerated, [result.questions[3]], 600, None)
    assert "counted" not in shown.get("curve", {})


def test_the_answers_that_came_least_are_only_counted_by_their_verdicts(result: Result):
    texts = [
        *["no 0", "no 1"] * 2,
        *[f"no {number}" for number in range(2, MAX_ANSWERS + 3)],
        "yes",
        "yes!",
        "perhaps",
        "…",
    ]
    verdicts = [{"yes": True, "yes!": True, "perhaps": None, "…": None}.get(text, False) for text in texts]
    table = changed(answers(*texts), correct=dict(enumerate(verdicts)), outcome={len(texts) - 1: "error"})
    run = of_one_question(
        result, graded_baseline=answers("yes", temperature=0.0), graded_by_sampler={"repetition": table}
    )
    (shown,) = details(run, run.questions, 600, None)
    found = shown["samplers"]["repetition"]
    assert [(text, said, count) for _, text, _, said, _, _, (count,) in found["rows"]] == [
        ("no 0", "wrong", "2"),
        ("no 1", "wrong", "2"),
        *((f"no {number}", "wrong", "1") for number in range(2, MAX_ANSWERS)),
    ]
    assert found["others"] == [
        ["right", 2, ["2"]],
        ["wrong", 3, ["3"]],
        ["not judged", 1, ["1"]],
        ["no reply", 1, ["1"]],
    ]
    assert found["whole"] == [["right", ["2"]], ["wrong", ["17"]], ["not judged", ["1"]], ["no reply", ["1"]]]


def test_the_counts_of_every_question_add_up_to_its_accuracy(tmp_path: Path):
    """Of 20 answers to each question no two are alike, so that most of them are only counted."""
    with without_figures():
        run = recorded_run(tmp_path / "run", 29, varied=True)
    table = run.scores["frs"].tables["frs_accuracy"].to_pylist()
    told = {(row["question_id"], row["temperature"]): (row["correct"], row["replies"]) for row in table}
    checked = 0
    for shown in details(run, run.kept, 600, None):
        found = shown["samplers"]["temperature_sweep"]
        assert found["temperatures"] == list(TEMPERATURES)
        assert sum(number for _, number, _ in found["others"]) == len(TEMPERATURES) * 4 - MAX_ANSWERS
        lines = [(said, counts) for *_, said, _, _, counts in found["rows"]]
        lines += [(said, counts) for said, _, counts in found["others"]]
        for t, (_, accuracy, _, _) in enumerate(shown["curve"]["counted"]):
            right, replies = told[shown["id"], TEMPERATURES[t]]
            assert sum(int(counts[t] or 0) for said, counts in lines if said == "right") == right == accuracy * replies
            assert sum(int(counts[t] or 0) for said, counts in lines if said == "wrong") == replies - right
            assert sum(int(counts[t] or 0) for said, counts in found["whole"] if said == "right") == right
            checked += 1
    assert checked == len(run.kept) * len(TEMPERATURES)


def test_the_labels_are_shown_where_they_say_more_than_the_text(result: Result):
    table = answers("yes", "Yes, it is", label="1")
    run = of_one_question(
        result, graded_baseline=answers("yes", temperature=0.0), graded_by_sampler={"repetition": table}
    )
    (shown,) = details(run, run.questions, 600, None)
    assert shown["samplers"]["repetition"]["labels"]


def test_counted_accuracies_have_wilsons_interval(result: Result):
    (shown,) = details(result, [result.questions[3]], 600, None)
    for t, accuracy, low, high in shown["curve"]["counted"]:
        right = round(accuracy * 4)
        expected = stats.binomtest(right, 4).proportion_ci(method="wilson")
        assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-4)
        assert t in TEMPERATURES
    assert "computed" not in shown["curve"]


def test_what_a_model_told_comes_with_its_error_and_its_certain_bounds(result: Result):
    row = {"rewrite": 0, "accuracy": 0.9, "standard_error": 0.1, "lower": 0.2, "upper": 0.95}
    told = [{"question_id": "q3", "temperature": t, **row} for t in (0.5, 1.0)]
    table = pa.Table.from_pylist([*told, {**told[0], "rewrite": 1}], EXACT_CURVES)
    (shown,) = details(replace(result, exact_curves={"temperature_sweep": table}), [result.questions[3]], 600, None)
    assert shown["curve"]["computed"] == [[t, 0.9, 0.704, 1.0, 0.2, 0.95] for t in (0.5, 1.0)]


def test_the_answer_tree_is_that_of_all_answers_to_the_question_as_it_stands(result: Result):
    tokenizer = byte_tokenizer()
    ids = {text: tokenizer(text, add_special_tokens=False).input_ids for text in ("yes", "yeah")}

    def asked(text: str, last: float, rewrite: int = 0, temperature: float = 1.0) -> pa.Table:
        logprobs = [*[-0.01] * (len(ids[text]) - 1), last]
        columns = {"rewrite": rewrite, "token_ids": ids[text], "token_logprobs": logprobs}
        return answers(text, temperature=temperature, **columns, answer_tokens=len(ids[text]))

    graded = {
        "temperature_sweep": pa.concat_tables([asked("yeah", -2.0), asked("yeah", -2.0), asked("yes", -5.0, rewrite=1)])
    }
    run = of_one_question(result, graded_baseline=asked("yes", -0.5, temperature=0.0), graded_by_sampler=graded)
    (shown,) = details(run, run.questions, 600, tokenizer.decode)
    one, other = ["right", 1], ["wrong", 1]
    leaf = ["h", "13", "wrong", [other], [], []]
    branches = [
        ["a", "97", "", [other], [], [leaf]],
        ["s", "59", "right", [one], [], []],
    ]
    beginning = ["ye", "98", "", [one, other], [], branches]
    assert shown["tree"] == ["", "100", "", [one, other], [], [beginning]]


def test_without_a_tokenizer_there_is_no_tree(result: Result):
    (shown,) = details(result, [result.questions[3]], 600, None)
    assert "tree" not in shown


def test_choices_and_the_passage_are_shown():
    question = Question("q", "Which?", choices=("one", "two"), correct=1, context="A passage. " * 100)
    empty = answers()
    run = Result("", {}, [question], [], None, empty, {}, {}, {}, {}, None, 0, 0, None)  # type: ignore[arg-type]
    (shown,) = details(run, [question], 20, None)
    assert shown == {
        "id": "q",
        "answers": [],
        "choices": ["A) one", "B) two"],
        "correct": 1,
        "context": "A passage. A passage. A passage. A passa… (1,100 characters)",
        "wordings": [],
        "samplers": {},
    }


def test_a_text_that_is_too_long_is_cut_and_its_length_said():
    assert [cut("abc", 3), cut("abcd" * 1000, 3)] == ["abc", "abc… (4,000 characters)"]


def test_texts_are_cut_the_shorter_the_more_there_are(result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from robust_eval.report import page

    def size() -> int:
        return len(page._question_data(result, [], [0, 1, 2, 3], []))

    whole = size()
    monkeypatch.setattr(page, "DATA_LIMIT", whole - 1)
    monkeypatch.setattr(page, "TEXT_LIMITS", (600, 5))
    assert size() < whole
