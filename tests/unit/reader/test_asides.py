import pytest

from robust_eval.reader.clauses import is_denial, without_denials, without_doubts


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("It is not Sydney.", False),
        ("It isn’t Sydney but Canberra.", False),
        ("Canberra rather than Sydney", False),
        ("If it were the largest city, it would be Sydney.", False),
        ("Many people think it is Sydney, but it is Canberra.", False),
        ("Sydney is wrong.", False),
        ("Es ist nicht Sydney, sondern Canberra.", False),
        ("Ce n'est pas Sydney.", False),
        ("No es Sydney.", False),
        ("不是Sydney。", False),
        ("If I am not mistaken, it is Sydney.", True),
        ("It is not only the largest city: Sydney.", True),
        ("It is called “Not Sydney”.", True),
        ("It was not until Sydney grew.", True),
        ("Sydney, without a doubt.", True),
    ],
)
def test_what_is_denied_supposed_or_said_of_others_is_left_out(text: str, named: bool):
    assert ("Sydney" in without_denials(text)) is named


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("It could be Sydney or Perth. It is Canberra.", "It is Canberra."),
        ("Is it Sydney? It is Canberra.", "It is Canberra."),
        ("It is Canberra. Other cities are Sydney and Perth.", "It is Canberra."),
        ("It is Canberra.\n1. Sydney\n2. Perth\n3. Hobart", "It is Canberra."),
        ("1. Canberra\n2. Perth", "1. Canberra\n2. Perth"),
        ("It is Canberra.", "It is Canberra."),
    ],
)
def test_candidates_among_which_a_reply_does_not_decide_are_left_out(text: str, left: str):
    assert without_doubts(text) == left


def test_an_answer_that_denies_is_no_aside():
    assert [form for form in ("not guilty", "no", "never", "paris", "nothing else matters") if is_denial(form)] == [
        *("not guilty", "no", "never", "nothing else matters"),
    ]
