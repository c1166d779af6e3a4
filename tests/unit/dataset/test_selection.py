import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest

from robust_eval.dataset.record import Unusable
from robust_eval.dataset.selection import Selection
from robust_eval.error import UserError
from robust_eval.question import Question, fingerprint

WORD = Question("w", "Who drew?", ("Karl",), context="Karl drew.", group="p")
LETTER = Question("l", "What grinds?", choices=("mill", "hill", "pill"), correct=2)


@dataclass
class Given(Selection):
    """Questions, or reasons, as they are given."""

    records: Sequence[Question | Unusable] = ()

    @property
    def source(self) -> str:
        return "given.csv"

    def read(self) -> Iterator[Question | Unusable]:
        yield from self.records


def given(*records, **more):
    return Given(name="given", records=records, **more)


def numbered(count):
    return [Question(f"q{number}", f"How much is {number}?", (str(number),)) for number in range(count)]


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_limit_takes_some_and_the_share_of_unusable_records_is_that_of_all(shuffle):
    records = [Unusable("unanswerable"), *numbered(9)]
    loaded = given(*records, limit=3, shuffle=shuffle, max_invalid_fraction=0.1).load()
    assert [question.id for question in loaded] == (["q5", "q8", "q1"] if shuffle else ["q0", "q1", "q2"])
    assert loaded.unusable == {"unanswerable": 1}
    with pytest.raises(UserError, match=r"^1 of the 10 records of given\.csv is unusable"):
        given(*records, limit=3, shuffle=shuffle, max_invalid_fraction=0.09).load()


def test_a_shuffled_order_is_of_the_seed_alone():
    orders = [[q.id for q in given(*numbered(5), shuffle=True, seed=seed).load()] for seed in (0, 0, 1)]
    assert orders[0] == orders[1] == ["q1", "q0", "q3", "q4", "q2"]  # on every machine
    assert sorted(orders[2]) == sorted(orders[0])
    assert orders[2] != orders[0]
    backwards = given(*reversed(numbered(5)), shuffle=True).load()
    assert [q.id for q in backwards] == orders[0]


def test_a_smaller_sample_is_part_of_a_larger_one():
    small, large = ([q.id for q in given(*numbered(200), shuffle=True, limit=n).load()] for n in (10, 50))
    assert large[:10] == small
    assert len(set(large)) == 50


def test_choices_are_shuffled_by_question_and_the_right_one_is_kept(caplog):
    questions = [replace(LETTER, id=f"l{number}") for number in range(300)]
    with caplog.at_level(logging.INFO):
        loaded = given(*questions, shuffle_choices=True).load()
    assert {q.choices[q.correct] for q in loaded} == {"pill"}
    assert {frozenset(q.choices) for q in loaded} == {frozenset(LETTER.choices)}
    assert len({q.choices for q in loaded}) == 6
    assert loaded == given(*reversed(questions), shuffle_choices=True).load()[::-1]
    counts = Counter("ABC"[q.correct] for q in loaded)
    shares = ", ".join(f"{letter} {100 * counts[letter] / 300:.0f} %" for letter in "ABC")
    assert caplog.messages == [f"positions of the right choices in given: {shares}"]
    assert min(counts.values()) > 75
    assert given(*questions).load() == questions


def test_a_question_without_an_id_gets_one_of_its_content():
    plain = replace(WORD, id="")
    (first,) = given(plain).load()
    assert first == replace(WORD, id="bdcead08fd097070")  # on every machine
    others = [
        replace(plain, text="Who drew it?"),
        replace(plain, answers=("Anna",)),
        replace(plain, context="Anna and Karl drew."),
        replace(plain, category="c"),
        replace(LETTER, id=""),
        replace(LETTER, id="", correct=1),
    ]
    loaded = given(plain, *others).load()
    assert len({question.id for question in loaded}) == 7
    aliases = [given(replace(plain, answers=order)).load()[0].id for order in (("a", "b"), ("b", "a"))]
    assert aliases[0] == aliases[1]
    assert given(plain, scenario="abstractive").load()[0].id == first.id
    shuffled = given(replace(LETTER, id=""), shuffle_choices=True, seed=1).load()
    assert shuffled[0].id == given(replace(LETTER, id="")).load()[0].id


def test_the_same_record_again_has_an_id_of_its_own_unless_the_source_gave_one(caplog):
    plain = replace(WORD, id="")
    loaded = given(plain, WORD, plain, WORD, plain, max_invalid_fraction=0.2).load()
    own = loaded[0].id
    assert [question.id for question in loaded] == [own, "w", f"{own}-2", f"{own}-3"]
    assert loaded.unusable == {"duplicate id": 1}
    assert caplog.messages == [
        (
            "excluded: 1 of the 5 records of given.csv is unusable: 1 × duplicate id (record 4: 'w' is already the id "
            "of an earlier record; ids must be unique)"
        )
    ]


def test_a_limit_beyond_the_data_is_said_with_how_many_there_are(caplog):
    with caplog.at_level(logging.WARNING):
        assert given(*numbered(3), limit=3).load() == numbered(3)
        assert caplog.messages == []
        assert given(*numbered(3), limit=4).load() == numbered(3)
    assert caplog.messages == ["dataset.limit=4: given has 3 questions"]


def test_what_is_left_out_is_counted_and_said(caplog):
    records = [*numbered(60), Unusable("no question", ["a", "b"]), Unusable("unanswerable"), Unusable("no question")]
    with caplog.at_level(logging.WARNING):
        loaded = given(*records).load()
    assert loaded == numbered(60)
    assert loaded.unusable == {"no question": 2, "unanswerable": 1}
    assert loaded.description() == {"unusable.no_question": 2, "unusable.unanswerable": 1}
    (said,) = caplog.messages
    assert said == (
        "excluded: 3 of the 63 records of given.csv are unusable: 2 × no question (the first is record 61), "
        "1 × unanswerable (record 62)"
    )


def test_too_many_unusable_records_stop_the_run():
    records = [*numbered(3), Unusable("no question", ["a", "b"])]
    with pytest.raises(UserError) as caught:
        given(*records, max_invalid_fraction=0.2).load()
    assert str(caught.value) == (
        "1 of the 4 records of given.csv is unusable: 1 × no question (record 4); the first has the columns a, b; "
        "fix the records, or raise dataset.max_invalid_fraction (now 0.2)"
    )
    assert given(*records, max_invalid_fraction=0.25).load() == numbered(3)
    with pytest.raises(UserError, match=r"^1 of 1 records of given\.csv is unusable: 1 × no question"):
        given(Unusable("no question"), max_invalid_fraction=1).load()


@pytest.mark.parametrize(
    ("scenario", "question", "asked"),
    [
        (None, WORD, WORD),
        (None, LETTER, LETTER),
        ("extractive", WORD, WORD),
        ("extractive", LETTER, "no context"),
        ("extractive", replace(LETTER, context="c"), Question("l", LETTER.text, ("pill",), context="c")),
        ("abstractive", WORD, replace(WORD, context="")),
        ("abstractive", LETTER, Question("l", LETTER.text, ("pill",))),
        ("abstractive", replace(LETTER, answers=("x",)), Question("l", LETTER.text, ("x",))),
        ("multiple_choice", WORD, "no choices"),
        ("multiple_choice", replace(LETTER, context="c"), LETTER),
    ],
)
def test_a_scenario_shows_its_part_of_a_question(scenario, question, asked):
    dataset = given(question, scenario=scenario)
    if isinstance(asked, Question):
        assert dataset.load() == [asked]
    else:
        with pytest.raises(UserError, match=f"unusable: 1 × {asked} "):
            dataset.load()


def test_the_fingerprint_covers_content_order_and_edition():
    one, other = numbered(2)
    assert fingerprint([one, other]) == fingerprint(given(one, other).load())
    different = [
        fingerprint([one, other]),
        fingerprint([other, one]),
        fingerprint([one]),
        fingerprint([one, replace(other, group="g")]),
        fingerprint([one, other], "hub, test, 1"),
        fingerprint([one, other], "hub, test, 2"),
        fingerprint([one, other], "hub, train, 1"),
    ]
    assert len(set(different)) == 7


@pytest.mark.parametrize(("records", "wrong"), [(["Who"], "not 'Who'"), ([], "not return None")])
def test_what_is_no_question_is_refused(records, wrong, monkeypatch):
    monkeypatch.setattr(Given, "read", lambda self: self.records or None)
    with pytest.raises(UserError, match=rf"^Given\.read\(\) must yield questions, {wrong}$"):
        given(*records).load()


def test_a_question_with_more_choices_than_letters_is_unusable():
    many = Question("q", "Which?", choices=tuple("abcdefghijklmn"), correct=13)
    assert given(*numbered(1), many, max_invalid_fraction=0.5).load().unusable == {"more than 13 choices": 1}
