import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robust_eval.rewriter.llm import asks, listed

PROPERTY = settings(max_examples=60, deadline=None, database=None, derandomize=True)

EMMA = [
    "Who is the author of Emma?",
    "Emma was written by which novelist?",
    "Which English writer created the novel Emma?",
    "Name the author of Emma.",
    "To whom do we owe the novel “Emma”?",
]
HAMLET = ['Who wrote "Hamlet"?', '"Hamlet" was written by whom?', 'Which playwright gave us "Hamlet"?']
PARIS = ["What is France's capital?", "Which city is the seat of France's government?", "The capital of France is ___."]


def numbered(*items: str) -> str:
    return "\n".join(f"{number}. {item}" for number, item in enumerate(items, start=1))


REPLIES = {
    "numbers with a dot": (numbered(*EMMA), EMMA),
    "an introduction and a closing": (
        (
            f"Sure! Here are five radically different ways to rewrite the question:\n\n{numbered(*EMMA)}\n\n"
            "I hope this helps! Would you like more?"
        ),
        EMMA,
    ),
    "an introduction and a closing without blank lines": (
        f"Here are five ways to rewrite the question:\n{numbered(*EMMA)}\nLet me know if you need anything else!",
        EMMA,
    ),
    "blank lines between": (numbered(*EMMA).replace("\n", "\n\n"), EMMA),
    "one item": ("1. What is France's capital?", PARIS[:1]),
    "only the beginning of a list": ("1. What is France's capital?\n2.", PARIS[:1]),
    "numbers with a parenthesis": ("1) What is France's capital?\n2) The capital of France is ___.", PARIS[::2]),
    "numbers in parentheses": ("(1) What is France's capital?\n(2) The capital of France is ___.", PARIS[::2]),
    "numbers in brackets": ("[1] What is France's capital?\n[2] The capital of France is ___.", PARIS[::2]),
    "numbers with a colon": ("1: What is France's capital?\n2: The capital of France is ___.", PARIS[::2]),
    "numbers with a hyphen": ("1 - What is France's capital?\n2 - The capital of France is ___.", PARIS[::2]),
    "numbers with a dash": ("1 – What is France's capital?\n2 – The capital of France is ___.", PARIS[::2]),
    "numbers without a space": ("1.What is France's capital?\n2.The capital of France is ___.", PARIS[::2]),
    "every number is 1": ("1. What is France's capital?\n1. The capital of France is ___.", PARIS[::2]),
    "Chinese": ("1、法国的首都是哪里？\n2、哪座城市是法国的首都？", ["法国的首都是哪里？", "哪座城市是法国的首都？"]),
    "rewrites with numbers": (
        "Rewrite 1: What is France's capital?\nRewrite 2: The capital of France is ___.",
        PARIS[::2],
    ),
    "versions with numbers": (
        "Version 1 - What is France's capital?\nVersion 2 - The capital of France is ___.",
        PARIS[::2],
    ),
    "variations with numbers": (
        "Variation 1. What is France's capital?\nVariation 2. The capital of France is ___.",
        PARIS[::2],
    ),
    "questions with numbers": ("Q1: What is France's capital?\nQuestion 2: The capital of France is ___.", PARIS[::2]),
    "letters with answers to choose from": (
        (
            "1. Which city is the capital of France?\n   a) Paris\n   b) Lyon\n2. France is governed from where?\n"
            "   a) Paris\n   b) Lyon"
        ),
        ["Which city is the capital of France?", "France is governed from where?"],
    ),
    "a name in the place of a letter": (
        "Where was A. Lincoln born?\nA. Lincoln was born where?\nJ. W. Booth shot which native of that place?",
        ["Where was A. Lincoln born?", "A. Lincoln was born where?", "J. W. Booth shot which native of that place?"],
    ),
    "bold numbers": ("**1.** What is France's capital?\n**2.** The capital of France is ___.", PARIS[::2]),
    "bold lines": ("**1. What is France's capital?**\n**2. The capital of France is ___.**", PARIS[::2]),
    "bold items": ("1. **What is France's capital?**\n2. **The capital of France is ___.**", PARIS[::2]),
    "bold rewrites with numbers": (
        "**Rewrite 1:** What is France's capital?\n\n**Rewrite 2**: The capital of France is ___.",
        PARIS[::2],
    ),
    "italic items": (
        "1. *What is France's capital?*\n2. *The capital of France is ___.*\n3. _Whose capital is Paris?_",
        [*PARIS[::2], "Whose capital is Paris?"],
    ),
    "bold and quoted": ('1. **"What is France\'s capital?"**\n2. "**The capital of France is ___.**"', PARIS[::2]),
    "hyphens": ("- What is France's capital?\n- The capital of France is ___.", PARIS[::2]),
    "asterisks": ("* What is France's capital?\n* The capital of France is ___.", PARIS[::2]),
    "asterisks and bold": ("* **What is France's capital?**\n* **The capital of France is ___.**", PARIS[::2]),
    "bullets": ("• What is France's capital?\n•The capital of France is ___.", PARIS[::2]),
    "small bullets": ("· What is France's capital?\n▪ The capital of France is ___.", PARIS[::2]),
    "other bullets": ("‣ What is France's capital?\n+ The capital of France is ___.", PARIS[::2]),
    "dashes": ("– What is France's capital?\n– The capital of France is ___.", PARIS[::2]),
    "bullets before numbers": ("- 1. What is France's capital?\n- 2. The capital of France is ___.", PARIS[::2]),
    "a quotation": ("> 1. What is France's capital?\n> 2. The capital of France is ___.", PARIS[::2]),
    "headings": (
        "## Rewrites\n\n### Rewrite 1\nWhat is France's capital?\n\n### Rewrite 2\nThe capital of France is ___.",
        PARIS[::2],
    ),
    "headings with a style": (
        "### 1. Formal\nWhat is France's capital?\n\n### 2. Playful and Concise\n*The capital of France is ___.*",
        PARIS[::2],
    ),
    "headings with a thought": (
        (
            "### 1. With an eye on geography\n\nWhat is France's capital?\n\n---\n\n### 2. As a gap\n\n"
            "The capital of France is ___."
        ),
        PARIS[::2],
    ),
    "headings without numbers": (
        "### Formal\nWhat is France's capital?\n\n### With a gap\nThe capital of France is ___.",
        PARIS[::2],
    ),
    "bold titles": (
        "**Version 1: Formal**\nWhat is France's capital?\n\n**Version 2: Gap**\nThe capital of France is ___.",
        PARIS[::2],
    ),
    "bold titles without numbers": (
        "**Direct**\nWhat is France's capital?\n\n**Gap**\nThe capital of France is ___.",
        PARIS[::2],
    ),
    "items on the lines after their numbers": (
        "1.\nWhat is France's capital?\n\n2.\nThe capital of France is ___.",
        PARIS[::2],
    ),
    "bold styles": (
        (
            "1. **Formal:** What is France's capital?\n2. **Puzzle**: Which city is the seat of France's government?\n"
            "3. **As a gap** – The capital of France is ___."
        ),
        PARIS,
    ),
    "italic styles": ("1. *Formal:* What is France's capital?\n2. *Gap*: The capital of France is ___.", PARIS[::2]),
    "words that are no style": (
        "1. In chemistry: what is a mole?\n2. Apollo 11: which astronauts?\n3. **Complete the gap:** A mole is ___.",
        ["In chemistry: what is a mole?", "Apollo 11: which astronauts?", "Complete the gap: A mole is ___."],
    ),
    "explanations in parentheses": (
        "1. What is France's capital?\n   (This is direct.)\n2. The capital of France is ___.\n   (A gap.)",
        PARIS[::2],
    ),
    "explanations in italics": (
        "1. What is France's capital?\n*This is direct.*\n\n2. The capital of France is ___.\n*A gap.*",
        PARIS[::2],
    ),
    "explanations with bullets": (
        (
            "1. What is France's capital?\n   - How it differs: it is direct.\n   - What it keeps: the fact.\n"
            "2. The capital of France is ___.\n   - How it differs: it has a gap.\n   - What it keeps: the fact."
        ),
        PARIS[::2],
    ),
    "explanations on a line": (
        "1. What is France's capital?\n   This version is direct.\n2. The capital of France is ___.\nThis has a gap.",
        PARIS[::2],
    ),
    "double quotes": (numbered(*(f'"{item}"' for item in PARIS)), PARIS),
    "curved quotes": (numbered(*(f"“{item}”" for item in PARIS)), PARIS),
    "curved single quotes": (numbered(*(f"‘{item}’" for item in PARIS)), PARIS),
    "angle quotes": (numbered(*(f"«{item}»" for item in PARIS)), PARIS),
    "code quotes": (numbered(*(f"`{item}`" for item in PARIS)), PARIS),
    "quotes and commas": (",\n".join(f'"{item}"' for item in PARIS), PARIS),
    "quotes inside": (numbered(*HAMLET), HAMLET),
    "quotes at both ends": ('1. "Hamlet" or "Macbeth"', ['"Hamlet" or "Macbeth"']),
    "JSON": (json.dumps(HAMLET), HAMLET),
    "JSON on many lines": (json.dumps(HAMLET, indent=2), HAMLET),
    "JSON in a fence": (f"Here is the list:\n```json\n{json.dumps(EMMA, indent=4)}\n```\nI hope this helps!", EMMA),
    "JSON in a line": (f"Sure! Here they are: {json.dumps(EMMA, ensure_ascii=False)} Enjoy!", EMMA),
    "JSON of an object with a list": (json.dumps({"topic": "What is asked", "rewrites": PARIS}), PARIS),
    "JSON of an object": (json.dumps(dict(enumerate(PARIS, start=1))), PARIS),
    "JSON of objects": (json.dumps([{"id": 1, "style": "formal", "question": item} for item in PARIS]), PARIS),
    "JSON of an object a line": ("\n".join(json.dumps({"question": item}) for item in PARIS), PARIS),
    "JSON without commas": ('[\n"What is France\'s capital?"\n"The capital of France is ___."\n]', PARIS[::2]),
    "brackets that are no list": (
        '1. Which word is missing: ["to", "be", "or", …]?\n2. [Paris] is the capital of what?',
        ['Which word is missing: ["to", "be", "or", …]?', "[Paris] is the capital of what?"],
    ),
    "a line for all": (f"Sure: {numbered(*PARIS)}".replace("\n", " "), PARIS),
    "a line for all, with semicolons": (
        "1. Who wrote Emma?; 2. Emma is by whom?",
        ["Who wrote Emma?", "Emma is by whom?"],
    ),
    "a table": (
        "| # | Rewrite |\n|---|---|\n| 1 | What is France's capital? |\n| 2 | The capital of France is ___. |",
        PARIS[::2],
    ),
    "bullets before names and numbers": (
        "- A. Lincoln was born where?\n- 5 and 5 are what?",
        ["A. Lincoln was born where?", "5 and 5 are what?"],
    ),
    "JSON of one object whose original stands first": (
        json.dumps({"original_question": "What's the capital?", "rewrites": PARIS}),
        PARIS,
    ),
    "JSON with numbers in its strings": (json.dumps(numbered(*PARIS).split("\n")), PARIS),
    "Great Britain": (
        "1. What is the capital of\nGreat Britain?\n2. Sure enough, which is it?",
        ["What is the capital of Great Britain?", "Sure enough, which is it?"],
    ),
    "arithmetic": (
        numbered("What is 2 * 3 * 4?", "What is 2**10?", "What is A* search?"),
        ["What is 2 * 3 * 4?", "What is 2**10?", "What is A* search?"],
    ),
    "a bold note": (f"{numbered(*PARIS)}\n\n**Note:** All of them ask for Paris.", PARIS),
    "years and places in a line": (
        "1. The war ended in 1945. Which year was 1. 2 years before?\n2. Who came 3. in the race?",
        ["The war ended in 1945. Which year was 1. 2 years before?", "Who came 3. in the race?"],
    ),
    "items that go on": (
        "1. What is\n   France's capital?\n2. Which city is the seat\nof France's government?\n\nThese are two.",
        PARIS[:2],
    ),
    "items of two sentences": (
        "1. Imagine a map of France.\n   What is its capital?\n2. France has a capital. Name it.",
        ["Imagine a map of France. What is its capital?", "France has a capital. Name it."],
    ),
    "no markers": ("\n".join(EMMA), EMMA),
    "no markers, with blank lines and introduction": (
        "Sure! Here are five rewrites:\n\n" + "\n\n".join(EMMA) + "\n\nWould you like more?",
        EMMA,
    ),
    "one line": ("What is France's capital?", PARIS[:1]),
    "the original question on the next line": (
        "**Original Question:**\nWhat's the capital of France?\n\n**Rewrites:**\n- What is France's capital?",
        PARIS[:1],
    ),
    "thoughts": (f"<think>\n1. Should I rewrite?\n2. Yes.\n</think>\n\n{numbered(*PARIS)}", PARIS),
    "thoughts whose beginning is in the prompt": (f"1. Should I?\n</think>\n{numbered(*PARIS)}", PARIS),
    "thoughts that do not end": ("<think>\n1. Should I rewrite?\n2. Yes, but", []),
    "carriage returns": (numbered(*EMMA).replace("\n", "\r\n"), EMMA),
    "tabs and fixed spaces": (
        "\t1.\tWhat is France's\u00a0capital?\n\u00a02.\u2003The capital of France is ___.",
        PARIS[::2],
    ),
    "control characters": (
        "1. What is\u200b France's\u0007 capital?\n\ufeff2. The capital of France is ___.\u0000",
        PARIS[::2],
    ),
    "a refusal": ("I'm sorry, but I can't help with that.", []),
    "pleasantries": ("Sure! Here are five rewrites:", []),
    "nothing": ("", []),
    "white space": (" \r\n\t\u00a0\n", []),
}


@pytest.mark.parametrize(("reply", "items"), REPLIES.values(), ids=REPLIES.keys())
def test_the_items_of_a_reply(reply: str, items: list[str]):
    assert listed(reply) == items


@pytest.mark.parametrize(
    "text",
    [
        *EMMA,
        *PARIS,
        *HAMLET,
        "法国的首都是哪里？",
        "ما هي عاصمة فرنسا؟",
        "“Who wrote Emma?”",
        "Emma's author (who is it?)",
        "Really?!",
        "In which city is the Louvre",
        "At what temperature does water boil",
        "By whom was Emma written",
        "What's the capital of France",
        "Isn't Paris the capital of France",
        "Has France a capital",
        "Tell me who wrote Emma.",
        "Identify the author of Emma.",
        "State the boiling point of water.",
        "give the capital of France",
        "Explain who wrote Emma.",
        "Please name the author.",
        "I'd like to know who wrote Emma.",
        "I’d like to know who wrote Emma.",
        "I wonder who wrote Emma.",
        "Can you name the author of Emma.",
        "Calculate 2 + 2.",
        "Point out the capital.",
        "Complete the sentence: Emma was written by",
        "The capital of France is …",
        "The capital of France is ...",
        "____ wrote Emma.",
        "… is the author of Emma.",
        "[blank] is the author of Emma.",
    ],
)
def test_questions_and_requests_ask(text: str):
    assert asks(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "!",
        "Paris is the capital of France.",
        "Here are five rewrites:",
        "Here are five rewrites...",
        "Sure!",
        "Certainly!",
        "Note: the wording differs.",
        "Rewrites:",
        "List of rewrites",
        "State: Ohio",
        "Identity is a concept.",
        "Whatever happens, Paris stays.",
        "Let me know if you need more!",
        "I hope this helps!",
    ],
)
def test_statements_and_introductions_do_not_ask(text: str):
    assert not asks(text)


WORD = st.text(st.sampled_from("abdefghklmnoprstuwyzéßñ漢"), min_size=2, max_size=9)
QUESTION = st.builds(
    lambda first, words, end: " ".join([first, *words]) + end,
    st.sampled_from(["What is", "Which", "In which city", "Who", "Name the", "“Emma” is by", 'The "Emma" of', "5 and"]),
    st.lists(WORD | st.sampled_from(["1945", "3.5", "Austen's", "(Emma)", "well-known"]), min_size=1, max_size=12),
    st.just("?"),
)
QUESTIONS = st.lists(QUESTION, min_size=2, max_size=9)
STYLES: dict[str, Callable[[int, str], str]] = {
    "dot": lambda number, item: f"{number}. {item}",
    "parenthesis": lambda number, item: f"{number}) {item}",
    "parentheses": lambda number, item: f"({number}) {item}",
    "brackets": lambda number, item: f"[{number}] {item}",
    "dash": lambda number, item: f"{number} – {item}",
    "rewrite": lambda number, item: f"Rewrite {number}: {item}",
    "bold rewrite": lambda number, item: f"**Rewrite {number}:** {item}",
    "bold number": lambda number, item: f"**{number}.** {item}",
    "bold line": lambda number, item: f"**{number}. {item}**",
    "bold item": lambda number, item: f"{number}. **{item}**",
    "style": lambda number, item: f"{number}. **Style {number}:** {item}",
    "title": lambda number, item: f"### Version {number}\n{item}",
    "explained": lambda number, item: f"{number}. {item}\n   (Version {number}.)",
    "hyphen": lambda number, item: f"- {item}",
    "asterisk": lambda number, item: f"* **{item}**",
    "bullet": lambda number, item: f"• {item}",
    "none": lambda number, item: item,
}


@pytest.mark.parametrize("style", STYLES)
@PROPERTY
@given(questions=QUESTIONS, gap=st.sampled_from(["\n", "\n\n", "\r\n"]), around=st.booleans())
def test_a_list_in_any_style_is_read_back(style: str, questions: list[str], gap: str, around: bool):
    reply = gap.join(STYLES[style](number, item) for number, item in enumerate(questions, start=1))
    assert listed(f"Sure! Here you go:\n\n{reply}\n\nI hope this helps!" if around else reply) == questions


@PROPERTY
@given(questions=QUESTIONS, indent=st.none() | st.just(2), kept=st.booleans())
def test_a_list_in_json_is_read_back(questions: list[str], indent: int | None, kept: bool):
    objects = [{"question": item} for item in questions]
    for data in (questions, {"rewrites": questions}, dict(enumerate(questions)), objects):
        assert listed(json.dumps(data, indent=indent, ensure_ascii=kept)) == questions


@PROPERTY
@given(questions=QUESTIONS, data=st.data())
def test_of_json_that_is_cut_nothing_is_read(questions: list[str], data: st.DataObject):
    text = json.dumps(questions)
    assert listed(text[: data.draw(st.integers(2, len(text) - 1))]) == []


PIECES = st.sampled_from(
    [
        *"[]{}\"“”'*_#-:,.?()\\\n \t\r\0\u2028\ud800１",
        "1.",
        "2)",
        "**",
        "- ",
        "```",
        "<think>",
        "</think>",
        "What",
        "Sure",
    ]
)


@PROPERTY
@given(st.text() | st.lists(PIECES | st.text(max_size=3), max_size=60).map("".join))
def test_every_item_is_one_line_that_is_not_empty(reply: str):
    for item in listed(reply):
        assert item == " ".join(item.split())
        assert item
        assert not any(ord(character) < 32 for character in item)
    asks(reply)


@pytest.mark.parametrize(
    "piece",
    [
        *[
            "1. ",
            "[",
            "{",
            '["',
            "['a', ",
            '"',
            "'",
            "*",
            "**a",
            " *a",
            "_",
            "_a ",
            "(",
            "#",
            "?",
            ".",
            "…",
            ":",
            " ",
            "\n",
        ],
        *[
            "\t\n",
            "1.\n",
            "1. a\nb\n",
            "- ",
            "version ",
            "version",
            "a) ",
            "```",
            ':["',
            "[{",
            "\\",
            '",',
            '" ',
            "? 1. ",
            "1️⃣",
        ],
        *[
            "? 2. ",
            "original",
            "original: \n",
            "<think>",
            "</think>",
            "\n**A**\n",
            "### \n",
            "“",
            "a",
            "1",
            "in the ",
            "**:",
        ],
        *["1. a:\n", "1. a?\nwhat\n", '"a": ', '["a", "b"', "=[[", "a\n", "``` "],
    ],
)
def test_a_hundred_thousand_characters_are_read(piece: str):
    """A pattern that goes back over what it has read would take hours."""
    reply = piece * (100_000 // len(piece))
    listed(reply)
    listed(f"1. {reply}x")
    listed(f"[{reply}x")
    asks(reply)
    asks(f"{reply}x")
