"""The page of a run with more questions than it shows in full, opened and searched in a browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import NARROW, Opened, column, listed
from experiments import without_figures
from playwright.sync_api import Browser, Page
from recorded_run import recorded_run

from robust_eval.report import page as report_page
from robust_eval.report import question_table as question_index
from robust_eval.report.page import write_page
from robust_eval.report.question_table import Chosen, chosen, number_columns
from robust_eval.runtime.text import packed
from robust_eval.tracking.result import Result

QUESTIONS = 203
SHOWN = 52


@pytest.fixture(scope="module", autouse=True)
def few_are_shown() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_page, "MAX_QUESTIONS", SHOWN)
        yield


@pytest.fixture(scope="module")
def result(few_are_shown: None, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A run in which no two answers to a question are alike, and every question has a word of its own."""
    words = [f"{'about ' * 30} nr{number:03}" for number in range(QUESTIONS)]
    with without_figures():
        return recorded_run(tmp_path_factory.mktemp("large") / "run", QUESTIONS, text=words, varied=True)


@pytest.fixture(scope="module")
def sampled(result: Result) -> Chosen:
    return chosen(result, number_columns(result), SHOWN)


@pytest.fixture(scope="module")
def missing(sampled: Chosen) -> int:
    """The number of a question that was answered wrong and is not shown in full."""
    return next(number for number in range(0, QUESTIONS, 7) if number not in sampled.rows)


@pytest.fixture(scope="module")
def report(result: Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_page(result, [], path)
    return path


def test_facts_of_the_map_are_shown_in_full_besides_the_sample(result: Result, sampled: Chosen, missing: int):
    more = chosen(result, number_columns(result), SHOWN, {f"q{missing}"})
    assert more.rows == sorted([*sampled.rows, missing])
    assert more.kinds["not kept, wrong"] == (27, 29)


def status(page: Page) -> str:
    return page.get_by_role("status").inner_text()


def said_of_the_opened(page: Page) -> dict[str, str]:
    detail = page.locator(".detail")
    return dict(zip(detail.locator("dt").all_inner_texts(), detail.locator("dd").all_inner_texts(), strict=True))


def test_the_table_says_how_many_of_each_kind_it_shows_and_its_filters_find_as_many(page: Page, sampled: Chosen):
    kinds = page.get_by_role("region", name="questions by kind").locator("tbody tr").all_inner_texts()
    assert [row.split("\t") for row in kinds] == [["kept, right", "26", "174"], ["not kept, wrong", "26", "29"]]
    assert page.get_by_text("The table shows").inner_text() == (
        "The table shows 52 of 203 questions: a sample of every kind, with low, middle and high values of FRS "
        "(d = 1). Sorting and filters cover only these. All questions are in questions.parquet, all answers in "
        "graded.parquet. A search covers the ids and the texts of all questions, and the greedy answers of "
        "those shown."
    )
    assert status(page) == "50 of 52 questions shown in this table (203 were asked)."
    for kind in sampled.kinds:
        page.locator("#filter-status").select_option(kind)
        assert status(page) == "26 of 26 questions shown, out of 52 in this table (203 were asked)."
        assert set(column(page, "status")) == {kind}
        assert len(listed(page)) == 26


def test_a_question_that_is_not_in_the_table_is_found_by_its_id_and_by_a_word_of_its_text(page: Page, missing: int):
    page.get_by_label("search").fill(f"q{missing}")
    matching = [number for number in range(QUESTIONS) if str(number).startswith(str(missing))]
    assert listed(page)[0] == missing
    assert sorted(listed(page)) == matching
    page.get_by_label("search").fill(f"NR{missing:03}")
    assert listed(page) == [missing]
    assert status(page) == "1 of 1 questions shown, out of all 203; the answers to 1 of them are not on this page."
    assert column(page, "greedy answer") == ["not on this page"]
    assert column(page, "status") == ["not kept, wrong"]
    assert column(page, "initial entropy H") == [""]
    page.locator("#filter-status").select_option("kept, right")
    assert listed(page) == []
    page.locator("#filter-status").select_option("")
    page.locator("table.questions button.question").click()
    assert said_of_the_opened(page) == {
        "id": f"q{missing}",
        "status": "not kept, wrong",
        "type": ["Location", "Human", "Numerical", "Entity"][missing % 4],
        "FRS (d = 1)": "not known",
    }
    assert page.locator(".detail p").inner_text() == (
        "Its answers and other metrics are not on this page. They are in graded.parquet and questions.parquet, in the "
        f"rows whose question_id is q{missing}."
    )


def test_the_headline_figure_of_a_question_that_is_not_in_the_table_is_known(
    page: Page, result: Result, sampled: Chosen
):
    number = next(number for number in range(QUESTIONS) if number % 7 and number not in sampled.rows)
    table = result.scores["frs"].tables["frs"]
    frs = dict(zip(table["question_id"].to_pylist(), table["frs_d1"].to_pylist(), strict=True))
    page.get_by_label("search").fill(f"nr{number:03}")
    assert column(page, "FRS (d = 1)") == [f"{frs[f'q{number}']:.3f}"]


def test_all_questions_that_match_are_sorted_by_their_headline_figure(page: Page):
    page.get_by_label("search").fill("about")
    assert status(page) == "50 of 203 questions shown; the answers to 151 of them are not on this page."
    while page.get_by_role("button", name="Show ").is_visible():
        page.get_by_role("button", name="Show ").click()
    assert sorted(listed(page)) == list(range(QUESTIONS))
    figures = [float(value) for value in column(page, "FRS (d = 1)") if value != "not known"]
    assert len(figures) == 174
    assert figures == sorted(figures)


def test_what_is_said_of_a_question_fits_the_screen_and_is_accessible(browser: Browser, report: Path, missing: int):
    opened = Opened(browser, report, NARROW, "dark")
    opened.page.locator("table.questions button.question").first.click()
    opened.page.wait_for_selector(".curve svg")
    assert opened.violations() == []
    opened.page.get_by_label("search").fill(f"nr{missing:03}")
    opened.page.locator("table.questions button.question").click()
    assert opened.violations() == []
    assert opened.page.evaluate("document.documentElement.scrollWidth") == NARROW
    assert opened.troubles == []
    opened.page.close()


def written(result: Result, folder: Path, limit: int) -> Path:
    """The page where the index may take so many characters."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(question_index, "INDEX_LIMIT", limit)
        write_page(result, [], folder / "report.html")
    return folder / "report.html"


def test_where_the_texts_of_all_are_too_large_the_page_says_so_and_finds_all_by_their_ids(
    browser: Browser, result: Result, sampled: Chosen, missing: int, tmp_path: Path
):
    headline = number_columns(result)[0]
    sizes = {
        texts: len(packed(question_index._index(result, range(QUESTIONS), set(sampled.rows), texts, headline)))
        for texts in question_index.TEXTS
    }
    assert sorted(sizes.values(), reverse=True) == list(sizes.values())
    opened = Opened(browser, written(result, tmp_path, sizes[0]))
    page = opened.page
    assert "but only the texts and greedy answers of those shown: the texts of all would make this page too large." in (
        page.get_by_text("The table shows").inner_text()
    )
    page.get_by_label("search").fill(f"nr{missing:03}")
    assert status(page) == "0 of 0 questions shown, out of all 203."
    page.get_by_label("search").fill(f"q{missing}")
    assert page.locator("table.questions button.question").first.inner_text().endswith(f"id q{missing}")
    assert opened.troubles == []
    page.close()


def test_a_fact_among_the_extremes_opens_though_the_table_lacks_it(browser: Browser, result: Result, tmp_path: Path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_page, "MAX_QUESTIONS", 8)
        write_page(result, [], tmp_path / "report.html")
    opened = Opened(browser, tmp_path / "report.html")
    for button in opened.page.locator("td[data-question] button").all()[:12]:
        text = button.inner_text()
        button.click()
        assert opened.page.evaluate("document.activeElement.innerText").endswith(text)
        assert opened.page.evaluate("document.activeElement.ariaExpanded") == "true"
    assert opened.troubles == []
    opened.page.close()
