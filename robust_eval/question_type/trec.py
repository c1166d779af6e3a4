"""The question types of TREC, as Li & Roth published them: "Learning Question Classifiers" (COLING 2002)."""

from pathlib import Path

from robust_eval.error import UserError
from robust_eval.question import QUESTION_TYPES, Question
from robust_eval.runtime.text_lines import text_lines

_WANTED = "a coarse class, a colon, a fine class, a space and a question, as in DESC:manner How did serfdom develop ?"


def read_trec(path: Path) -> list[Question]:
    """Return the questions of a ``.label`` file with their coarse classes; the id of each is the number of its line.

    The files are in Latin-1, a question a line (``DESC:manner How did serfdom develop ?``). UserError where a file
    cannot be read, holds no question, or has a line that is none.
    """
    questions = []
    for number, line in text_lines(path, "latin-1"):
        line = line.rstrip("\r\n")
        if not line.strip():
            continue
        label, _, question = line.partition(" ")
        coarse, colon, fine = label.partition(":")
        if not (colon and fine and question.strip()):
            raise UserError(f"{path}, line {number}: wanted {_WANTED}, not {line[:60]!r}")
        if coarse not in QUESTION_TYPES:
            raise UserError(f"{path}, line {number}: {coarse!r} is none of the classes {', '.join(QUESTION_TYPES)}")
        questions.append(Question(id=str(number), text=question.strip(), type=coarse))
    if not questions:
        raise UserError(f"{path} holds no questions: wanted on each line {_WANTED}")
    return questions
