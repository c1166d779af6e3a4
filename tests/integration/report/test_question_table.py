from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from experiments import without_figures
from recorded_run import TEMPERATURES, recorded_run

from robust_eval.question import QUESTION_TYPES
from robust_eval.report.question_table import Chosen, as_data, chosen, number_columns, word_columns
from robust_eval.report.warnings import left_out
from robust_eval.tracking.result import Result


def test_every_method_adds_its_figures_in_the_order_of_the_questions_asked(result: Result):
    columns = {column.name: column for column in number_columns(result)}
    assert list(columns) == [
        "frs",
        "entropy",
        "breaking",
        "agreement.certainty",
        "agreement.difficulty",
        "certainty.entropy",
        "certainty.error_rate",
    ]
    left_out = np.arange(28) % 7 == 0
    for column in columns.values():
        assert np.isnan(column.numbers).tolist() == left_out.tolist()
    table = result.scores["frs"].tables["frs"]
    assert columns["frs"].numbers[~left_out].tolist() == table["frs_d1"].to_pylist()
    assert columns["breaking"].numbers[~left_out].tolist() == table["breaking_temperature"].to_pylist()
    assert columns["breaking"].levels == list(TEMPERATURES)
    # Of the wordings one is wrong in two of three questions; of five repetitions one, or two if a multiple of four
    # stands at both ends.
    right = [1 if number % 3 == 0 else 2 / 3 for number in range(28)]
    assert columns["agreement.difficulty"].numbers[~left_out].tolist() == pytest.approx(np.array(right)[~left_out])
    errors = [sum((number + trial) % 4 == 0 for trial in range(5)) / 5 for number in range(28)]
    assert columns["certainty.error_rate"].numbers[~left_out].tolist() == pytest.approx(np.array(errors)[~left_out])


def test_words_that_no_question_has_are_left_out(result: Result):
    words = word_columns(result)
    assert list(words) == ["status", "type"]
    assert words["status"][6:9] == ["kept, right", "not kept, wrong", "kept, right"]


def test_all_questions_are_shown_where_they_are_not_too_many(result: Result):
    shown = chosen(result, number_columns(result), 28)
    assert shown == Chosen(list(range(28)), {"kept, right": (24, 24), "not kept, wrong": (4, 4)})


def test_of_too_many_some_of_every_kind_are_shown_and_counted(result: Result):
    columns = number_columns(result)
    shown = chosen(result, columns, 12)
    assert shown.kinds == {"kept, right": (8, 24), "not kept, wrong": (4, 4)}
    kept = [row for row in shown.rows if row % 7]
    frs = columns[0].numbers[kept]
    known = np.sort(columns[0].numbers[~np.isnan(columns[0].numbers)])
    assert sorted(frs)[:2] + sorted(frs)[-2:] == [*known[:2], *known[-2:]]
    assert [row for row in shown.rows if row % 7 == 0] == [0, 7, 14, 21]


def test_numbers_that_json_lacks_are_written_in_words(result: Result):
    breaking = next(column for column in number_columns(result) if column.name == "breaking")
    numbers = as_data(breaking, [0, 1, 27])["numbers"]
    assert numbers == [None, float(breaking.numbers[1]), "Infinity"]


def test_questions_that_were_asked_on_without_being_known_have_answers_and_no_frs(tmp_path: Path):
    with without_figures():
        result = recorded_run(tmp_path / "run", 28, "sampler.recorded.selection=none", metrics="[frs,certainty]")
    assert (len(result.kept), result.scores["frs"].values["frs.count.unknown"].value) == (28, 4)
    columns = {column.name: np.isnan(column.numbers) for column in number_columns(result)}
    wrong = (np.arange(28) % 7 == 0).tolist()
    assert all(columns[name].tolist() == wrong for name in ("frs", "entropy", "breaking"))
    assert not columns["certainty.entropy"].any()
    assert "Sampled questions without FRS, because their greedy answer is wrong: 4." in list(left_out(result))
    survival = [name for name in result.by_question().column_names if name.startswith("frs.survival")]
    assert all(np.isnan(result.by_question()[name].to_numpy()).tolist() == wrong for name in survival)


def test_types_and_categories_are_words_but_for_those_of_other_data_sets(result: Result):
    def words(*categories: str) -> list[str]:
        asked = [replace(question, category=each) for question, each in zip(result.questions, categories, strict=False)]
        return word_columns(replace(result, questions=asked, kept=[]))["category"]

    assert set(word_columns(result)["type"]) <= set(QUESTION_TYPES.values())
    assert words("D", "M", "", "C") == ["definitions", "several steps", "", "concepts"]
    assert words("D", "algebra") == ["D", "algebra"]
