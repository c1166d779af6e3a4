"""Labels are saved one by one; whoever else writes to the file loses none of them."""

from pathlib import Path

import pyarrow as pa
import pytest
from json_lines import cases

from robust_eval.error import UserError
from robust_eval.labels.human_labels import agreements
from robust_eval.labels.label_records import LABELS, read_labels
from robust_eval.labels.labelling import Labelling, SampledAnswer
from robust_eval.question import Question

TEXTS = ("a", "b", "a", "c", "b")
QUESTIONS = {"q": Question("q", "Which?", ("a",))}


def order(size: int = 50) -> list[SampledAnswer]:
    return [
        SampledAnswer("q", text, "s", 0, 1.0, trial, "answer", "s, t = 1, right", size)
        for trial, text in enumerate(TEXTS)
    ]


def labelling(folder: Path, who: str = "ann", size: int = 50) -> Labelling:
    return Labelling(folder / "labels.parquet", order(size), QUESTIONS, who)


def saved(folder: Path) -> list[tuple[str, int, str]]:
    return [(row["labeller"], row["trial"], row["label"]) for row in read_labels(folder / "labels.parquet").to_pylist()]


def test_what_was_drawn_twice_is_shown_once_and_its_copies_come_when_they_are_reached(tmp_path: Path):
    person = labelling(tmp_path)
    shown = []
    for label, there in (("right", [0]), ("wrong", [0, 1, 2]), ("unclear", [0, 1, 2, 3, 4])):
        item = person.next()
        shown.append(item.text)
        assert person.label(item.number, label)
        assert [trial for _, trial, _ in saved(tmp_path)] == there
    assert shown == ["a", "b", "c"]
    assert person.next() is None
    assert saved(tmp_path) == [
        ("ann", trial, label) for trial, label in enumerate(["right", "wrong", "right", "unclear", "wrong"])
    ]


def test_who_stops_goes_on_where_it_was_and_may_go_back(tmp_path: Path):
    person = labelling(tmp_path)
    person.label(0, "right")
    again = labelling(tmp_path)
    assert (again.done, again.next().text) == (1, "b")
    assert again.back() is None  # nothing was said in this sitting
    again.label(1, "wrong")
    assert again.back() == again.item(1)
    assert again.label(1, "right", expected="wrong")
    assert {trial: label for _, trial, label in saved(tmp_path)} == {0: "right", 1: "right", 2: "right"}


def test_two_windows_have_different_replies_and_neither_overwrites_the_other_unseen(tmp_path: Path):
    person = labelling(tmp_path)
    one, other = person.next("one"), person.next("other")
    assert (one.text, other.text) == ("a", "b")
    assert person.label(other.number, "wrong")
    assert person.label(one.number, "right")
    assert not person.label(one.number, "wrong", expected=None)
    assert {label for _, trial, label in saved(tmp_path) if trial == 0} == {"right"}


def test_two_processes_of_one_person_lose_nothing(tmp_path: Path):
    one, other = labelling(tmp_path), labelling(tmp_path)
    one.label(0, "right")
    other.label(1, "wrong")
    one.label(2, "unclear")
    assert len(saved(tmp_path)) == 5
    assert other.next() is None


def test_two_people_label_the_same_replies_and_their_agreement_is_told(tmp_path: Path):
    for who, labels in (("ann", ["right", "wrong", "unclear"]), ("bob", ["right", "wrong", "wrong"])):
        person = labelling(tmp_path, who)
        for number, label in enumerate(labels):
            person.label(number, label)
    (found,) = agreements(read_labels(tmp_path / "labels.parquet"))
    # observed 2/3; by chance (1·1 + 1·2 + 1·0)/9
    assert found == ("ann", "bob", 3, 2, pytest.approx((2 / 3 - 1 / 3) / (1 - 1 / 3)))


def test_labels_of_a_run_that_was_graded_anew_are_not_mixed_with_others(tmp_path: Path):
    labelling(tmp_path).label(0, "right")
    with pytest.raises(UserError, match=r"regraded \(s, t = 1, right had 50 answers, now 60\)"):
        labelling(tmp_path, size=60)


def test_labels_made_elsewhere_are_read(tmp_path: Path):
    file = tmp_path / "mine.csv"
    file.write_text("id,reply,correct,temperature,trial\nq,a,True,,\nq,b,0,1.0,3\n")
    found = read_labels(file).to_pylist()
    assert [(row["question_id"], row["text"], row["label"], row["labeller"], row["trial"]) for row in found] == [
        ("q", "a", "right", "elsewhere", None),
        ("q", "b", "wrong", "elsewhere", 3),
    ]


def test_rows_without_a_label_are_left_out_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    file = tmp_path / "mine.csv"
    file.write_text("id,reply,label,rewrite\nq,a,right,0.0\nq,b, ,\nq,c,,\nq,d,wrong,1\n")
    assert [(row["text"], row["rewrite"]) for row in read_labels(file).to_pylist()] == [("a", 0), ("d", 1)]
    assert "rows without a label: 2" in caplog.text


def test_a_reply_with_an_unpaired_surrogate_is_refused_with_the_row(tmp_path: Path):
    file = tmp_path / "mine.jsonl"
    file.write_text('{"id": "q", "reply": "\\ud800", "label": "right"}\n')
    with pytest.raises(UserError, match="row 1: text must be Unicode"):
        read_labels(file)


@pytest.mark.parametrize(("text", "said"), cases(__file__, "a_file_that_makes_no_sense_is_refused_with_the_row"))
def test_a_file_that_makes_no_sense_is_refused_with_the_row(tmp_path: Path, text: str, said: str):
    file = tmp_path / "labels.csv"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        read_labels(file)
    assert said in str(caught.value)


def test_what_is_written_is_read_as_it_was(tmp_path: Path):
    labelling(tmp_path).label(0, "right")
    table = read_labels(tmp_path / "labels.parquet")
    assert table.schema == LABELS
    assert (
        table.to_pylist()
        == pa.Table.from_pylist([{**order()[0]._asdict(), "label": "right", "labeller": "ann"}], LABELS).to_pylist()
    )
