import json
import re
import unicodedata
from collections import Counter, defaultdict
from importlib import resources

import pytest
import yaml

from robust_eval.dataset.jsonl import JsonLines
from robust_eval.normalization import normalize
from robust_eval.question import UNANSWERABLE, Question

NAMES = ("facts", "passages", "physics", "unanswerable")


def content(name):
    return resources.files("robust_eval.dataset").joinpath("builtin", f"{name}.jsonl").read_bytes()


def records(name):
    return [json.loads(line) for line in content(name).decode("utf-8").split("\n") if line]


def wordings(record):
    return [record["question"], *record.get("rewrites", [])]


def as_words(text):
    """Padded, so that whole words are found by plain containment."""
    return f" {normalize(text)} "


every_set = pytest.mark.parametrize("name", NAMES)


def test_these_sets_and_no_others_are_built_in():
    folder = resources.files("robust_eval.dataset").joinpath("builtin")
    assert sorted(entry.name for entry in folder.iterdir()) == [f"{name}.jsonl" for name in NAMES]


@every_set
def test_a_file_is_small_utf_8_text_in_nfc_with_one_object_a_line(name):
    raw = content(name)
    text = raw.decode("utf-8")
    assert len(raw) < 1_000_000
    assert unicodedata.is_normalized("NFC", text)
    assert text.endswith("}\n")
    assert not text.startswith("\ufeff")
    assert text.splitlines() == text.removesuffix("\n").split("\n")
    assert {type(json.loads(line)) for line in text.splitlines()} == {dict}


@every_set
def test_no_text_holds_stray_white_space(name):
    def texts(value):
        if isinstance(value, str):
            return [value]
        return [text for item in value for text in texts(item)] if isinstance(value, list) else []

    stray = [(r["id"], t) for r in records(name) for t in texts(list(r.values())) if t != " ".join(t.split())]
    assert stray == []


@every_set
def test_a_set_loads_whole(name):
    expected = []
    for record in records(name):
        fields = {key: tuple(value) if isinstance(value, list) else value for key, value in record.items()}
        expected.append(Question(text=fields.pop("question"), **fields))
    assert JsonLines(name=name, path=f"builtin:{name}.jsonl").load() == expected


def repeated(entries):
    return [entry for entry, count in Counter(entries).items() if count > 1]


@every_set
def test_ids_questions_wordings_and_aliases_stand_once(name):
    found = records(name)
    assert [record["id"] for record in found if not re.fullmatch(rf"{name}-[0-9]{{3}}", record["id"])] == []
    assert repeated(record["id"] for record in found) == []
    assert repeated(normalize(record["question"]) for record in found) == []
    assert repeated((record["id"], normalize(wording)) for record in found for wording in wordings(record)) == []
    aliases = [(record["id"], alias) for record in found for alias in record.get("answers", [])]
    assert repeated(aliases) == []
    assert [alias for alias in aliases if not normalize(alias[1])] == []


def test_no_question_stands_in_two_sets():
    counts = Counter(question for name in NAMES for question in {normalize(r["question"]) for r in records(name)})
    assert [question for question, count in counts.items() if count > 1] == []


@every_set
def test_no_answer_stands_in_its_own_question_or_rewrites(name):
    given_away = [
        (record["id"], alias, wording)
        for record in records(name)
        for alias in record.get("answers", [])
        for wording in wordings(record)
        if as_words(alias) in as_words(wording)
    ]
    assert given_away == []


@every_set
def test_no_exemplar_of_the_prompt_is_among_the_questions(name):
    templates = yaml.safe_load(resources.files("robust_eval.prompt").joinpath("few_shot.yaml").read_text("utf-8"))
    exemplars = {
        normalize(exemplar["question"])
        for scenario in ("abstractive", "extractive", "multiple_choice")
        for exemplar in templates[scenario]["exemplars"]
    }
    asked = {normalize(wording) for record in records(name) for wording in wordings(record)}
    assert len(exemplars) == 7
    assert exemplars & asked == set()


def test_the_facts_have_enough_questions_of_each_type_and_level():
    facts = records("facts")
    types = Counter(record["type"] for record in facts)
    assert len(facts) >= 400
    assert types.keys() == {"NUM", "LOC", "HUM", "ENTY"}
    assert {type_: count for type_, count in types.items() if count < 80} == {}
    assert {record["level"] for record in facts} == {1, 2, 3, 4}
    assert {type(record["level"]) for record in facts} == {int}


def test_the_facts_have_accepted_answers_and_no_context_or_choices():
    fields = {frozenset(record) for record in records("facts")}
    required = {"id", "question", "answers", "type", "level"}
    assert fields == {frozenset(required), frozenset(required | {"rewrites"})}
    assert [record["id"] for record in records("facts") if not record["answers"]] == []


def test_enough_facts_have_five_rewrites_and_the_others_none():
    counts = Counter(len(record.get("rewrites", [])) for record in records("facts"))
    assert counts.keys() == {0, 5}
    assert counts[5] >= 200


def test_the_physics_questions_have_five_distinct_choices_a_key_and_five_rewrites():
    physics = records("physics")
    assert len(physics) >= 100
    assert {frozenset(r) for r in physics} == {
        frozenset({"id", "question", "choices", "correct", "category", "rewrites"})
    }
    assert {len(record["choices"]) for record in physics} == {5}
    assert {len(record["rewrites"]) for record in physics} == {5}
    alike = {r["id"]: r["choices"] for r in physics if len({normalize(choice) for choice in r["choices"]}) < 5}
    assert alike == {}


def test_the_physics_questions_cover_the_five_published_categories():
    assert {record["category"] for record in records("physics")} == {"D", "F", "C", "S", "M"}


def test_the_right_choice_is_spread_evenly_over_the_positions():
    physics = records("physics")
    shares = {position: count / len(physics) for position, count in Counter(r["correct"] for r in physics).items()}
    assert shares.keys() == {0, 1, 2, 3, 4}
    assert {position: share for position, share in shares.items() if not 0.15 <= share <= 0.25} == {}


def test_the_passages_hold_their_answer_and_have_five_rewrites():
    passages = records("passages")
    assert len(passages) >= 60
    assert {frozenset(record) for record in passages} == {
        frozenset({"id", "question", "answers", "context", "group", "type", "rewrites"})
    }
    assert {len(record["rewrites"]) for record in passages} == {5}
    assert {record["type"] for record in passages} == {"NUM", "LOC", "HUM", "ENTY"}
    absent = {r["id"]: r["answers"][0] for r in passages if r["answers"][0] not in r["context"]}
    assert absent == {}
    broken = {r["id"]: r["answers"][0] for r in passages if as_words(r["answers"][0]) not in as_words(r["context"])}
    assert broken == {}


def test_sixty_questions_have_no_answer_and_ask_of_years_to_come_or_of_what_was_made_up():
    found = records("unanswerable")
    assert Counter(record["category"] for record in found) == dict.fromkeys(("person", "place", "work", "future"), 15)
    assert {tuple(record["answers"]) for record in found} == {(UNANSWERABLE,)}
    years = [int(year) for r in found if r["category"] == "future" for year in re.findall(r"\d{4}", r["question"])]
    assert len(years) == 15
    assert min(years) > 2060


def test_the_questions_of_a_group_share_a_passage_that_no_other_group_has():
    contexts, groups = defaultdict(set), defaultdict(set)
    for record in records("passages"):
        contexts[record["group"]].add(record["context"])
        groups[record["context"]].add(record["group"])
    assert {group for group, shared in contexts.items() if len(shared) != 1} == set()
    assert {context for context, sharing in groups.items() if len(sharing) != 1} == set()
