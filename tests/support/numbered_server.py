"""Questions that are told apart by their numbers, and servers that answer by the number: one thinks as much as it is
told, one gives in to doubt at a turn that is known.
"""

import json
import re
from pathlib import Path

from experiments import served
from scripted_server import Body, Scripted, ScriptedServer, chat_reply


def write_questions(file: Path, questions: int, choices: bool = False) -> Path:
    """Write so many questions to a file. A word is right, or with ``choices`` the first of three; those have a rewrite
    as well.
    """
    right = {"choices": ["one", "two", "three"], "correct": 0, "rewrites": ["What is number {}, please?"]}
    lines = []
    for number in range(questions):
        words = {"answers": [f"word{number}"]}
        line = json.dumps({"id": f"q{number}", "question": "What is number {}?"} | (right if choices else words))
        lines.append(line.replace("{}", str(number)))
    file.write_text("\n".join(lines))
    return file


def settings(server: ScriptedServer, folder: Path, questions: int, choices: bool = False) -> list[str]:
    """A run about so many questions, which lie in the folder with the store."""
    file = write_questions(folder / "questions.jsonl", questions, choices)
    return [
        *served(server.url),
        *("dataset=jsonl", f"dataset.path={file}", "dataset.name=words", f"paths.mlruns={folder / 'mlruns'}"),
    ]


def number_of(text: str) -> int | None:
    """The number that a text asks for; None where it asks for none, as where a server is asked what it can do."""
    found = re.findall(r"What is number (\d+)", text)
    return int(found[-1]) if found else None


def asks(body: Body) -> bool:
    return number_of(str(body["messages"])) is not None


THOUGHT = {"none": 0, "low": 20, "high": 300}
"""Tokens of a thought with each effort."""
RIGHT = {0: "none low high", 1: "low high", 2: "high", 3: "none high", 4: "none low", 5: "", 6: "low", 7: "low high"}
"""With which efforts a question is answered right."""


def thoughtful(body: Body) -> Scripted:
    """Think as much as it is told, and be right where that is enough; take no temperature but its own."""
    if "temperature" in body:
        return 400, {}, {"error": {"message": "temperature is not supported", "type": "invalid_request_error"}}
    number, effort = number_of(body["messages"][-1]["content"]), body.get("reasoning_effort", "none")
    right = number is not None and effort in RIGHT[number].split()
    thought = THOUGHT.get(effort, 0)
    return chat_reply(f"word{number}" if right else "wordless", f"hm {effort}" if thought else None, thought)


def right_after(number: int, turn: int) -> bool:
    """Whether a question is answered right: multiples of 4 are wrong at first, and mended at turn 2; others are right
    until turn ``number % 6``, 0: for ever.
    """
    if number % 4 == 0:
        return turn >= 2
    return number % 6 == 0 or turn < number % 6


def yielding(body: Body) -> Scripted:
    """Answer by the number of the question and the turn of the conversation."""
    said = [message["content"] for message in body["messages"] if message["role"] == "user"]
    asked = [place for place, text in enumerate(said) if number_of(text) is not None]
    if not asked:
        return chat_reply("nothing")
    number, turn = number_of(said[asked[0]]) or 0, len(said) - asked[0] - 1
    word = f"word{number}" if right_after(number, turn) else "wordless"
    return chat_reply(f"It is {word}." if turn else word)
