"""Records of any shape become questions that can be asked and graded, or are counted, or are one sentence."""

import json
import math
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from robust_eval.dataset.own_table import OwnTable
from robust_eval.dataset.published import LAYOUTS, Published
from robust_eval.error import UserError
from robust_eval.question import LETTERS, Question, Scenario

texts = st.one_of(
    st.text(max_size=8),
    st.text(st.characters(), max_size=4),
    st.sampled_from(
        [
            *(
                *("", " ", "\x00", "\ud800", "a\udfffb", "\u200f", "\u200fא", "\u202e", "The", "---", "Paris", "1"),
                *("A", "True"),
            ),
            *("[]", "[[", "['a', 'b']", '["a"]', "a; b; ", "a ) 1 , b ) 2", "HUM:ind Who ?", "NUM", "x" * 100_001),
        ]
    ),
)
cells = st.one_of(
    texts,
    st.none(),
    st.booleans(),
    st.integers(-2, 6),
    st.sampled_from([math.nan, math.inf, 1.0, 0.5, 10**30]),
    st.lists(texts, max_size=4),
    st.just([f"choice {number}" for number in range(30)]),
    st.just([]),
)
NAMES = {
    "squad": ("id", "title", "context", "question", "answers", "is_impossible", "data"),
    "trivia_qa": ("question", "question_id", "answer", "Question", "QuestionId", "Answer", "Data"),
    "hotpot_qa": ("id", "_id", "question", "answer", "type", "context", "input", "output"),
    "nq_open": ("question", "answer"),
    "pop_qa": ("id", "question", "possible_answers", "prop", "s_uri"),
    "wiki_qa": ("question_id", "question", "document_title", "answer", "label", "QuestionID", "Sentence", "Label"),
    "truthful_qa_answers": ("question", "best_answer", "correct_answers", "incorrect_answers", "category"),
    "truthful_qa_choices": ("question", "mc1_targets"),
    "lettered": ("id", "question", "question_stem", "choices", "answerKey"),
    "mmlu": ("question", "subject", "choices", "answer", "A", "B", "C", "D"),
    "sciq": ("question", "answer", "correct_answer", "distractor1", "distractor2", "distractor3", "support"),
    "piqa": ("goal", "sol1", "sol2", "label"),
    "math_qa": ("Problem", "options", "correct", "category"),
    "boolq": ("question", "answer", "passage"),
    "mlphys101": ("id", "diff", "task", "opt", "ans"),
    "trec": ("line", "text", "coarse_label", "fine_label"),
}
OURS = ("question", "answers", "choices", "correct", "id")
INNER = (
    *("text", "label", "stem", "choices", "labels", "value", "aliases", "Value", "Aliases", "answer", "title"),
    *("sentences", "paragraphs", "qas", "context", "question", "answers", "id"),
)


def values() -> st.SearchStrategy[object]:
    objects = st.dictionaries(st.sampled_from(INNER), st.one_of(cells, st.lists(cells, max_size=3)), max_size=4)
    deeper = st.dictionaries(st.sampled_from(INNER), st.one_of(objects, st.lists(objects, max_size=2)), max_size=2)
    return st.one_of(cells, objects, deeper, st.lists(st.one_of(objects, deeper), max_size=3))


def check(question: Question) -> None:
    """That a question can be asked, kept and graded; or has a key and an id, by which recorded answers are."""
    assert question.text.strip() or question.id
    json.dumps(list(vars(question).values()), ensure_ascii=False).encode("utf-8")
    if question.scenario is Scenario.MULTIPLE_CHOICE:
        assert 2 <= len(question.choices) <= len(LETTERS)
        assert question.correct in range(len(question.choices))
        assert all(choice.strip() for choice in question.choices)
    else:
        assert any(answer.strip() for answer in question.answers)


def load(dataset: Published | OwnTable) -> str:
    """Load as a run does; what was refused, which is one sentence."""
    try:
        questions = dataset.load()
    except UserError as problem:
        return str(problem)
    assert len({question.id for question in questions}) == len(questions)
    for question in questions:
        check(question)
    return "nothing"


def published(layout: str, file: Path, **more: object) -> Published:
    return Published(name="fuzz", layout=layout, path=str(file), subsets=["all"], max_invalid_fraction=1, **more)  # type: ignore[arg-type]


def test_every_layout_is_fuzzed():
    assert set(NAMES) == set(LAYOUTS)


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_any_record_is_a_question_or_counted(layout, data):
    record = st.dictionaries(st.sampled_from(NAMES[layout]), values(), max_size=len(NAMES[layout]))
    records = data.draw(st.lists(record, max_size=4))
    scenario = data.draw(st.sampled_from([None, *map(str, Scenario)]))
    with TemporaryDirectory() as folder:
        file = Path(folder) / "fuzz.jsonl"
        file.write_text("\n".join(json.dumps(entry) for entry in records))
        (Path(folder) / "fuzz-labels.lst").write_text("0\n" * len(records))
        dataset = published(layout, file, scenario=scenario)
        for found in dataset.read():
            if isinstance(found, Question):
                check(found)
        assert "\n" not in load(dataset)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    rows=st.lists(
        st.dictionaries(st.sampled_from(["question", "answers", "choices", "correct", "id"]), cells), max_size=5
    ),
    correct=st.sampled_from(["letter", "from_0", "from_1", "text"]),
    separator=st.sampled_from([None, "; ", ","]),
)
def test_any_row_of_a_table_is_a_question_or_counted(rows, correct, separator):
    key = {"letter": "A", "from_0": 0, "from_1": 1, "text": "a"}[correct]
    rows = [{"question": "Who?", "answers": "Ann", "choices": ["a", "b"], "correct": key}, *rows]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "fuzz.jsonl"
        file.write_text("\n".join(json.dumps(row) for row in rows))
        table = OwnTable(name="fuzz", path=str(file), correct=correct, separator=separator, max_invalid_fraction=1)
        said = load(table)
        assert said == "nothing" or "add 'dataset.separator=" in said  # the first row is good


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    content=st.one_of(
        st.binary(max_size=60), st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass"))
    ),
    kind=st.sampled_from([".json", ".jsonl", ".csv", ".tsv", ".parquet", ".label"]),
    layout=st.sampled_from(["squad", "mmlu", "trivia_qa", "trec", None]),
)
def test_any_bytes_are_one_sentence_or_counted(content, kind, layout):
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"fuzz{kind}"
        file.write_bytes(content)
        dataset = published(layout, file) if layout else OwnTable(name="fuzz", path=str(file))
        assert "\n" not in load(dataset)
