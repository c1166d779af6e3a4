"""Answers of a run that become traces in the tracker: a sample, in bounded and printable text."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from robust_eval.answer import SAMPLER, concat_by_sampler, rows, temperature_name
from robust_eval.prompt.templates import ABSTAINING
from robust_eval.question import LETTERS, Question, seeded_rank
from robust_eval.runtime.parquet_files import read_parquet
from robust_eval.runtime.text import cut
from robust_eval.tracking.base import TracedAnswer
from robust_eval.tracking.result import Result

LONGEST = 2000
"""Maximum characters of a question or a reply."""


def traced_answers(result: Result, limit: int, verdicts: Path) -> list[TracedAnswer]:
    """Return at most ``limit`` graded answers as traces (:func:`sampled_rows`); ``verdicts`` is the file of a judge, if
    any.
    """
    table = concat_by_sampler(result.all_graded)
    if not limit or not table.num_rows:
        return []
    sample = table.take(sampled_rows(table, limit))
    questions = {question.id: question for question in result.questions}
    judged: dict[tuple[str, str | None], str | None] = {}
    if verdicts.is_file():
        columns = ("form", "question_id", "reply", "why")
        table_of_judge = read_parquet(verdicts, columns)
        judged = {(name, reply): why for form, name, reply, why in rows(table_of_judge, *columns) if form != ABSTAINING}
    return [_traced(row, questions[row["question_id"]], judged, result) for row in sample.to_pylist()]


def sampled_rows(table: pa.Table, limit: int) -> list[int]:
    """Return the rows of at most ``limit`` answers to trace, in their order; the table has a column of samplers.

    They are a random sample of questions and conditions (sampler, temperature, wording), the same in all runs on the
    same data. Of several answers to a question under a condition the likelier and earlier come first.
    """
    condition = ["question_id", SAMPLER, "temperature", "rewrite", "form"]
    frame = table.select([*condition, "trial", "weight"]).to_pandas()
    frame = frame.sort_values(["weight", "trial"], ascending=[False, True])
    repeated = frame.groupby(condition, dropna=False).cumcount()
    rank = [seeded_rank(0, *map(str, row)) for row in frame[condition].itertuples(index=False)]
    return sorted(frame.assign(repeated=repeated, rank=rank).sort_values(["repeated", "rank"]).index[:limit])


def _traced(
    row: Mapping[str, Any], question: Question, judged: Mapping[tuple[str, str | None], str | None], result: Result
) -> TracedAnswer:
    by_judge = next((key for key in ((question.id, row["text"]), (question.id, row["answer"])) if key in judged), None)
    form, rewrite = row["form"], row["rewrite"]
    is_rewrite = not form and 0 < rewrite <= len(question.rewrites)
    asked = {"question": question.rewrites[rewrite - 1] if is_rewrite else question.title}
    if question.context:
        asked["context"] = question.context
    if question.choices:
        asked["choices"] = "\n".join(map("{}) {}".format, LETTERS, question.choices))
    condition = {"question_id": question.id, SAMPLER: row[SAMPLER], "temperature": temperature_name(row["temperature"])}
    condition |= {"trial": str(row["trial"]), "outcome": row["outcome"]}
    condition |= {"form": form} if form else {"rewrite": str(rewrite)} if is_rewrite else {}
    return TracedAnswer(
        {name: cut(text, LONGEST) for name, text in asked.items()},
        cut(row["text"], LONGEST),
        {name: cut(value, LONGEST) for name, value in condition.items()},
        row["correct"],
        cut((by_judge and judged[by_judge]) or _reason(question, row), LONGEST),
        str(result.description.get("grader.model.name", "a judge")) if by_judge else None,
    )


def _reason(question: Question, row: Mapping[str, Any]) -> str:
    """Return the reason for a traced verdict: the extracted answer, or why there is none, and the accepted answers."""
    correct = question.correct
    accepted = question.answers if correct is None else (f"{LETTERS[correct]}) {question.choices[correct]}",)
    extracted = row["reason"] or f"answer: {row['text'].strip() if row['answer'] is None else row['answer']}"
    return f"{extracted}; accepted: {' | '.join(accepted) or 'none'}"
