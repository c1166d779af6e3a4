"""Each data set in every layout in which it is met; the files are of our own making."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robust_eval.dataset.published import Published
from robust_eval.error import UserError


@pytest.fixture
def load(tmp_path):
    def loaded(layout, name, content, **more):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True, parents=True)
        if file.suffix == ".parquet":
            pq.write_table(pa.Table.from_pylist(content), file)
        elif isinstance(content, bytes):
            file.write_bytes(content)
        else:
            lines = file.suffix == ".jsonl"
            file.write_text("\n".join(map(json.dumps, content)) if lines else json.dumps(content), encoding="utf-8")
        return Published(name=layout, layout=layout, path=str(file), **{"max_invalid_fraction": 1, **more}).load()

    return loaded


def shown(questions):
    return [(q.text, q.choices, q.correct) for q in questions]


def in_every_export(load, layout, records, **more):
    """The questions of an export, which are the same in Parquet and JSON Lines."""
    found = [load(layout, f"export.{kind}", records, **more) for kind in ("parquet", "jsonl", "json")]
    assert found[1] == found[0] == found[2]
    assert found[1].unusable == found[0].unusable == found[2].unusable
    return found[0]


@pytest.mark.parametrize("stem", ["question", "question_stem"])
def test_arc_and_openbook_qa(load, stem):
    cases = [
        ("a1", "What grinds?", ("a mill", "a hill", "a pill"), "ABC", "B"),
        ("a2", "What burns?", ("wood", "water", "stone", "air"), "1234", "4"),
        ("a3", "What flows?", ("a river", "a stone"), "AB", "C"),
        ("a4", "Which?", tuple("abcdefghijklmn"), "ABCDEFGHIJKLMN", "A"),
        ("a5", "Which one?", ("x", " "), "AB", "A"),
        ("a6", "Who?", (), "", "A"),
    ]
    wanted = [(cases[0][1], cases[0][2], 1), (cases[1][1], cases[1][2], 3)]
    unusable = {"malformed choices": 1, "more than 13 choices": 1, "no choices": 1, "no right choice": 1}
    published = [
        {
            "id": name,
            "question": {
                "stem": asked,
                "choices": [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)],
            },
            "answerKey": key,
        }
        for name, asked, texts, labels, key in cases
    ]
    found = load("lettered", "test.jsonl", published)
    assert (shown(found), [q.id for q in found], found.unusable) == (wanted, ["a1", "a2"], unusable)
    exported = [
        {"id": name, stem: asked, "choices": {"text": list(texts), "label": list(labels)}, "answerKey": key}
        for name, asked, texts, labels, key in cases
    ]
    hub = in_every_export(load, "lettered", exported)
    assert (hub, hub.unusable) == (found, unusable)


def test_mmlu_takes_all_subjects_or_some(load, tmp_path):
    anatomy = '"What, pray, grinds?",mill,hill,pill,till,A\nWhat burns?,1,2,3,4,D\n'
    load("mmlu", "data/test/anatomy_test.csv", anatomy.encode(), subsets=["all"])
    load("mmlu", "data/test/virology_test.csv", b"What flows?,a,b,c,d,C\r\n", subsets=["all"])
    load("mmlu", "data/dev/virology_dev.csv", b"What stands?,a,b,c,d,C\r\n", subsets=["all"])

    def loaded(**more):
        return Published(name="mmlu", layout="mmlu", path=str(tmp_path / "data"), **more).load()

    anatomy = [
        ("What, pray, grinds?", ("mill", "hill", "pill", "till"), 0),
        ("What burns?", ("1", "2", "3", "4"), 3),
    ]
    virology = [("What flows?", ("a", "b", "c", "d"), 2)]
    every = loaded(subsets=["all"])
    assert shown(every) == anatomy + virology
    assert [q.category for q in every] == ["anatomy", "anatomy", "virology"]
    assert shown(loaded(subsets=["virology"])) == virology
    assert shown(loaded(subsets=["anatomy", "virology", "marketing"])) == anatomy + virology
    assert shown(loaded(subsets=["all"], split="dev")) == [("What stands?", ("a", "b", "c", "d"), 2)]
    exported = [
        {"question": q.text, "subject": q.category, "choices": list(q.choices), "answer": q.correct} for q in every
    ]
    assert in_every_export(load, "mmlu", exported, subsets=["all"]) == every  # with the same ids


def test_mmlu_has_57_subjects():
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        Published(name="mmlu", layout="mmlu", path="x", subsets=["biology"])
    said, there = str(caught.value).split("; ")
    assert said == "biology is no subset of mmlu"
    assert len(there.split(", ")) == 58  # and all of them


def test_mmlu_rows_that_do_not_fit_are_counted(load):
    table = b"Which?,a,b,c,d,E\nWho?,a,b,,d,A\nWhere?,a,b,c,d,2\n"
    found = load("mmlu", "anatomy_test.csv", table, subsets=["all"])
    assert shown(found) == [("Where?", ("a", "b", "c", "d"), 2)]
    assert found.unusable == {"malformed choices": 1, "no right choice": 1}
    with pytest.raises(
        UserError, match=r"anatomy_test.csv, line 2: 5 fields, where the header has 6; a text with a ','"
    ):
        load("mmlu", "anatomy_test.csv", b"Where?,a,b,c,d,2\nWhat?,a,b,c,A\n", subsets=["all"])


def test_sciq(load):
    record = {
        "question": "What grinds?",
        "distractor3": "till",
        "distractor1": "hill",
        "distractor2": "pill",
        "correct_answer": "mill",
        "support": "A mill grinds.",
    }
    found = in_every_export(load, "sciq", [record])
    assert shown(found) == [("What grinds?", ("mill", "hill", "pill", "till"), 0)]
    assert [(q.answers, q.context) for q in found] == [(("mill",), "A mill grinds.")]
    (abstractive,) = load("sciq", "test.json", [record], scenario="abstractive")
    assert (abstractive.answers, abstractive.choices, abstractive.context) == (("mill",), (), "")
    (alone,) = load("sciq", "qa.jsonl", [{"question": "What grinds?", "answer": "mill"}])
    assert (alone.answers, alone.choices) == (("mill",), ())
    with pytest.raises(UserError, match="1 × no choices"):
        load("sciq", "qa.jsonl", [{"question": "What grinds?", "answer": "mill"}], scenario="multiple_choice")


def test_piqa(load, tmp_path):
    goals = [
        {"goal": "To grind", "sol1": "use a mill", "sol2": "use a hill"},
        {"goal": "To burn", "sol1": "use water", "sol2": "use fire"},
    ]
    (tmp_path / "valid-labels.lst").write_bytes(b"0\r\n1\r\n")
    published = load("piqa", "valid.jsonl", goals)
    assert shown(published) == [
        ("To grind", ("use a mill", "use a hill"), 0),
        ("To burn", ("use water", "use fire"), 1),
    ]
    assert in_every_export(load, "piqa", [g | {"label": label} for label, g in enumerate(goals)]) == published
    unlabelled = in_every_export(load, "piqa", [goals[0] | {"label": 0}, goals[1] | {"label": -1}])
    assert unlabelled.unusable == {"no right choice": 1}


def test_piqa_labels_must_stand_beside_the_questions(load, tmp_path):
    goals = [{"goal": "To grind", "sol1": "mill", "sol2": "hill"}] * 2
    with pytest.raises(UserError) as caught:
        load("piqa", "valid.jsonl", goals)
    file, labels = tmp_path / "valid.jsonl", tmp_path / "valid-labels.lst"
    assert str(caught.value) == f"{file} holds no labels, and {labels} cannot be read: No such file or directory"
    for content in (b"0\n", b"0\n1\n0\n"):
        labels.write_bytes(content)
        with pytest.raises(UserError) as caught:
            load("piqa", "valid.jsonl", goals)
        number = content.count(b"\n")
        assert str(caught.value) == f"{file} holds another number of questions than {labels} has labels ({number})"


def test_math_qa(load):
    cases = [
        ("a ) 38 , b ) 27.675 , c ) 1,000 , d ) 3 , 012 , e ) none of these", "c"),
        ("['a ) 2 : 3', 'b ) it\\'s 4', 'c ) 5', 'd ) 6', 'e ) 7']", "e"),
        ("a ) yes , b ) no", "a"),
        ("a ) a ) 8 , b ) b ) 10 , c ) c ) 20", "c"),
        ("a ) 1 , c ) 2 , b ) 3", "a"),
        ("1 , 2 , 3", "a"),
        ("a ) 1 , b ) , c ) 3", "a"),
        ("a ) 1 , b ) 2", "e"),
        ("", "a"),
    ]
    records = [
        {"Problem": f"how many {number} ?", "Rationale": "…", "options": options, "correct": key, "category": "gain"}
        for number, (options, key) in enumerate(cases)
    ]
    found = in_every_export(load, "math_qa", records)
    assert shown(found) == [
        ("how many 0 ?", ("38", "27.675", "1,000", "3 , 012", "none of these"), 2),
        ("how many 1 ?", ("2 : 3", "it's 4", "5", "6", "7"), 4),
        ("how many 2 ?", ("yes", "no"), 0),
    ]
    assert {q.category for q in found} == {"gain"}
    assert found.unusable == {"malformed choices": 4, "no choices": 1, "no right choice": 1}


def test_boolq(load):
    published = load(
        "boolq",
        "dev.jsonl",
        [
            {"question": "is it old", "title": "Mill", "answer": "True", "passage": "It is old."},
            {"question": "is it new", "title": "Mill", "answer": "False", "passage": "It is old."},
            {"question": "is it", "title": "Mill", "answer": "maybe", "passage": "It is old."},
        ],
    )
    assert shown(published) == [("is it old", ("yes", "no"), 0), ("is it new", ("yes", "no"), 1)]
    assert [q.answers for q in published] == [("yes", "true"), ("no", "false")]
    assert published[0].group == published[1].group != ""
    assert published.unusable == {"no right choice": 1}
    exported = [
        {"question": "is it old", "answer": True, "passage": "It is old."},
        {"question": "is it new", "answer": False, "passage": "It is old."},
    ]
    assert in_every_export(load, "boolq", exported) == published
    (old, _) = in_every_export(load, "boolq", exported, scenario="extractive")
    assert (old.context, old.choices, old.answers) == ("It is old.", (), ("yes", "true"))


def test_truthful_qa_with_choices(load):
    published = [
        {"question": "Do mills fly?", "mc1_targets": {"No": 1, "Yes": 0, "At night": 0}, "mc2_targets": {"No": 1}},
        {"question": "Do mills swim?", "mc1_targets": {"No": 1, "Never": 1}, "mc2_targets": {}},
        {"question": "Do mills run?", "mc1_targets": {"No": 1} | {str(n): 0 for n in range(13)}, "mc2_targets": {}},
        {"question": "Do mills walk?", "mc1_targets": {"No": 1, "Yes": "?"}, "mc2_targets": {}},
        {"question": "Do mills sleep?", "mc2_targets": {}},
    ]
    found = load("truthful_qa_choices", "mc_task.json", published)
    assert shown(found) == [("Do mills fly?", ("No", "Yes", "At night"), 0)]
    assert found.unusable == {
        "malformed choices": 1,
        "more than 13 choices": 1,
        "no choices": 1,
        "no right choice": 1,
    }
    exported = [
        {
            "question": entry["question"],
            "mc1_targets": {
                "choices": list(entry["mc1_targets"]),
                "labels": list(entry["mc1_targets"].values()),
            },
        }
        for entry in published[:3]
    ]
    assert in_every_export(load, "truthful_qa_choices", exported) == found


def test_the_physics_study(load):
    record = {"id": "0_2", "diff": "D", "task": "What grinds?", "opt": ["A: mill.", "B: hill."], "ans": 1}
    (found,) = load("mlphys101", "mlphys101_en.jsonl", json.dumps([record], indent=2).encode())
    assert (found.id, found.text, found.choices, found.correct) == ("0_2", "What grinds?", ("mill.", "hill."), 1)
    assert (found.category, found.group) == ("D", "")
    (first,) = load("mlphys101", "mlphys101_en.jsonl", [record | {"ans": 0}])
    assert first.correct == 0
    with pytest.raises(UserError, match=r"1 × no choices .*; the first has the columns id, diff, task, opt, ans; "):
        load("mlphys101", "gold.jsonl", [record | {"opt": ""}], max_invalid_fraction=0.5)


def test_the_physics_study_has_questions_of_which_only_the_key_is_known(load):
    record = {"id": "0_2", "diff": "D", "task": "", "opt": "", "ans": 3}
    (found,) = load("mlphys101", "gold.jsonl", json.dumps([record], indent=2).encode())
    assert (found.id, found.text, found.choices, found.correct) == ("0_2", "", ("A", "B", "C", "D", "E"), 3)
    assert (found.category, found.title) == ("D", "0_2")
    with pytest.raises(UserError, match=r"1 × no right choice "):
        load("mlphys101", "gold.jsonl", [record | {"ans": 5}])
    with pytest.raises(UserError, match=r"1 × no choices "):
        load("mlphys101", "gold.jsonl", [record | {"id": ""}])
    with pytest.raises(UserError, match=r"1 × no question "):
        load("mlphys101", "gold.jsonl", [record | {"opt": ["A: mill", "B: hill", "C: till", "D: pill"]}])


def test_trec(load):
    lines = "HUM:ind Who is René ?\nNUM:date When did it burn ?\nHUM:ind Who is René ?\nWHAT:x What ?\nABBR\n"
    published = load("trec", "train.label", lines.encode("latin-1"))
    classes = ("abbreviation", "entity", "description", "human", "location", "number")
    assert shown(published) == [
        ("Who is René ?", classes, 3),
        ("When did it burn ?", classes, 5),
        ("Who is René ?", classes, 3),
    ]
    assert [(q.type, q.category) for q in published] == [("HUM", "ind"), ("NUM", "date"), ("HUM", "ind")]
    assert published[2].id == f"{published[0].id}-2"
    assert published.unusable == {"malformed record": 1, "no question": 1}
    exported = [{"text": "Who is René ?", "coarse_label": 3, "fine_label": 29}]
    (hub,) = in_every_export(load, "trec", exported)
    assert (hub.text, hub.choices, hub.correct, hub.type, hub.category) == ("Who is René ?", classes, 3, "HUM", "")
