from dataclasses import replace

import numpy as np
import pytest
from conftest import without_figures
from recorded_run import TEMPERATURES, recorded_run

from robust_eval.report.question_table import as_data, number_columns, shown, word_columns
from robust_eval.result import Result


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    with without_figures():
        return recorded_run(tmp_path_factory.mktemp("run") / "run", 28, metrics="[frs,agreement,certainty]")


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
    assert list(words) == ["question", "answer", "status", "type"]
    assert words["answer"][:2] == ["wrong 0", "answer 1"]
    assert words["status"][6:9] == ["kept", "left out", "kept"]


def test_all_questions_are_shown_where_they_are_not_too_many(result: Result):
    assert shown(result, number_columns(result), 28).tolist() == list(range(28))


def test_of_too_many_those_at_either_end_are_shown(result: Result):
    columns = number_columns(result)
    frs = columns[0].numbers
    chosen = shown(result, columns, 6)
    known = np.flatnonzero(~np.isnan(frs))
    ranked = known[np.argsort(frs[known], kind="stable")]
    assert chosen.tolist() == sorted([*ranked[:3], *ranked[-3:]])


def test_where_few_were_kept_the_first_of_the_others_fill_the_page(result: Result):
    few = replace(result, kept=[question for question in result.kept if question.id in ("q20", "q22")])
    assert shown(few, [], 5).tolist() == [0, 1, 2, 20, 22]


def test_numbers_that_json_lacks_are_written_in_words(result: Result):
    breaking = next(column for column in number_columns(result) if column.name == "breaking")
    numbers = as_data(breaking, [0, 1, 27])["numbers"]
    assert numbers == [None, float(breaking.numbers[1]), "Infinity"]
