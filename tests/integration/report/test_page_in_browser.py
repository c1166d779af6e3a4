"""The page of a run, opened and used in a browser."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest
from answer_rows import changed
from browser import NARROW, WIDE, Opened, column, listed
from contrast import hardly_seen
from experiments import without_figures
from playwright.sync_api import Browser, Locator, Page
from recorded_run import TEMPERATURES, recorded_run

from robust_eval.answer import rows
from robust_eval.report.page import page_script, write_page
from robust_eval.runtime.text import number, printable_lines
from robust_eval.tracking.result import Result

QUESTIONS = 60
KEPT = QUESTIONS - 9  # each seventh is answered wrong
METRICS = "[frs,agreement,certainty]"
READ = "\n(rule: first line)"
"""What stands below each reply, which is all of it the answer."""
HOSTILE = {
    "a script": "<script>window.hacked = true; alert(1)</script>",
    "the end of a script": "</script><img src=x onerror='window.hacked = true'></bdi></td>",
    "a template": "{{ 7 * 7 }} {% raise %} ${window.hacked = true} ",
    "combining characters": "a" + "\u0301\u0336\u20dd" * 3400,
    "right-to-left overrides": "\u202egnorw\u2066\u2067\u202e",
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """A run of all three methods, and the page with figures that it wrote."""
    folder = tmp_path_factory.mktemp("benign") / "run"
    result = recorded_run(folder, QUESTIONS, text=["plain"], metrics=METRICS)
    return result, folder / "run" / "report.html"


@pytest.fixture(scope="module")
def report(ran: tuple[Result, Path]) -> Path:
    """The page of the run without figures, which opens in half the time."""
    result, page = ran
    write_page(result, [], bare := page.with_name("bare.html"))
    return bare


@pytest.fixture(scope="module")
def doubted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run with an uncertain greedy reply to one question, and an uncertain sampled one to another."""
    folder = tmp_path_factory.mktemp("doubted") / "run"
    with without_figures():
        result = recorded_run(folder, 14, metrics="[frs]")
    table = result.graded_by_sampler["temperature_sweep"]
    row = table["question_id"].to_pylist().index("q5")
    table = changed(
        table,
        text={row: "The answer is **answer 5**. Many say otherwise."},
        answer={row: "<b>answer 5</b>"},
        rule={row: "explicit answer"},
        uncertain={row: True},
    )
    baseline = changed(
        result.graded_baseline, uncertain={result.graded_baseline["question_id"].to_pylist().index("q3"): True}
    )
    write_page(
        replace(result, graded_baseline=baseline, graded_by_sampler={"temperature_sweep": table}),
        [],
        folder / "report.html",
    )
    return folder / "report.html"


@pytest.fixture(params=[(WIDE, "light"), (NARROW, "dark")], ids=str)
def opened(request: pytest.FixtureRequest, browser: Browser, ran: tuple[Result, Path]) -> Iterator[Opened]:
    width, scheme = request.param
    found = Opened(browser, ran[1], width, scheme)
    yield found
    found.page.close()


def head(page: Page, name: str) -> Locator:
    """The button in the head of a column."""
    return page.locator("table.questions thead button").get_by_text(name, exact=True)


def open_everything(page: Page) -> None:
    """A question, the drawings, and all that is folded."""
    page.locator("table.questions button.question").nth(1).click()
    page.locator("#scatter").scroll_into_view_if_needed()
    page.wait_for_selector("#scatter svg")
    page.wait_for_selector(".curve svg")
    page.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")


def test_the_page_opens_without_trouble_fits_the_screen_is_accessible_and_all_can_be_seen(opened: Opened):
    open_everything(opened.page)
    width = opened.page.viewport_size["width"]
    assert opened.page.evaluate("document.documentElement.scrollWidth") == width
    assert opened.violations() == []
    assert hardly_seen(opened.page) == []
    assert opened.troubles == []


def test_nothing_moves_under_the_reader_when_a_drawing_comes(opened: Opened):
    """What is clicked must still be there when the button is let go."""
    page = opened.page
    height = "document.querySelector('{}').getBoundingClientRect().height"
    empty = page.evaluate(height.format("#scatter"))
    assert page.locator("#scatter svg").count() == 0
    page.locator("#scatter").scroll_into_view_if_needed()
    page.wait_for_selector("#scatter svg")
    assert page.evaluate(height.format("#scatter")) == empty
    opening = "document.querySelectorAll('table.questions button.question')[1].click()"
    empty = page.evaluate(f"{opening}; {height.format('.curve')}")
    page.wait_for_selector(".curve svg")
    assert page.evaluate(height.format(".curve")) == empty


def test_the_table_shows_each_question_with_its_figures(page: Page):
    known = [number for number in range(60) if number % 7]
    assert listed(page) == known[:50]  # the least robust first: here those that were asked first
    assert page.get_by_role("status").inner_text() == "50 of 60 questions shown."
    assert [head.strip() for head in page.locator("table.questions thead th").all_inner_texts()] == [
        "question",
        "greedy answer",
        "type",
        "status",
        "FRS (d = 1)",
        "initial entropy H",
        "breaking temperature",
        "agreement of raters",
        "correct raters",
        "entropy",
        "error rate",
    ]
    page.get_by_role("button", name="Show 10 more").click()
    assert listed(page) == [*known, *range(0, 60, 7)]
    assert column(page, "greedy answer")[KEPT - 1 : KEPT + 1] == ["answer 59", "wrong 0"]
    assert column(page, "status")[KEPT - 1 : KEPT + 1] == ["kept, right", "not kept, wrong"]
    assert column(page, "breaking temperature")[KEPT] == column(page, "FRS (d = 1)")[KEPT] == "not known"
    assert column(page, "entropy")[KEPT] == "–"
    assert page.get_by_role("button", name="more", exact=False).count() == 0


def test_numbers_are_rounded_in_the_page_as_they_are_everywhere(page: Page):
    halves = [k / 2**m for m in range(1, 12) for k in range(-(2**m), 2**m)]
    (function,) = re.findall(r"const rounded = (.*);", page_script())
    written = page.evaluate(f"(values) => values.map((value) => ({function})(value, 3))", halves)
    assert written == [number(value) for value in halves]


def test_a_click_on_a_column_sorts_and_another_turns_it_round_unbroken_facts_first_undefined_values_last(page: Page):
    page.get_by_role("button", name="Show 10 more").click()
    head(page, "question").click()
    head(page, "FRS (d = 1)").click()
    rising = column(page, "FRS (d = 1)")
    assert rising[KEPT:] == ["not known"] * (QUESTIONS - KEPT)
    assert rising[:KEPT] == sorted(rising[:KEPT])
    assert page.locator("th[aria-sort=ascending]").inner_text().strip() == "FRS (d = 1)"
    head(page, "FRS (d = 1)").click()
    falling = column(page, "FRS (d = 1)")
    assert falling[KEPT:] == ["not known"] * (QUESTIONS - KEPT)
    assert falling[:KEPT] == rising[:KEPT][::-1]
    assert page.locator("th[aria-sort=descending]").count() == 1
    head(page, "breaking temperature").click()
    head(page, "breaking temperature").click()
    values = column(page, "breaking temperature")
    assert values[0] == "unbroken"
    broken = [float(value) for value in values if value not in ("unbroken", "not known", "–")]
    assert broken == sorted(broken, reverse=True)
    assert set(broken) <= set(TEMPERATURES)


def test_searching_looks_into_questions_answers_and_ids_and_filters_leave_what_they_name(page: Page):
    page.get_by_label("search").fill("plain FACT 12")
    assert listed(page) == [12]
    page.get_by_label("search").fill("wrong 2")
    assert sorted(listed(page)) == [7, 21, 28, 42]
    page.get_by_label("search").fill("q33")
    assert listed(page) == [33]
    page.get_by_label("search").fill("nothing like it")
    assert listed(page) == []
    assert page.get_by_role("status").inner_text() == "0 of 0 questions shown, out of 60."
    page.get_by_label("search").fill("")
    page.locator("#filter-status").select_option("not kept, wrong")
    assert listed(page) == [*range(0, 60, 7)]
    page.locator("#filter-type").select_option("Numerical")
    assert listed(page) == [14, 42]
    page.locator("#filter-status").select_option("")
    assert sorted(listed(page)) == [*range(2, 60, 4)]


def test_an_opened_question_shows_its_curve_and_all_its_answers(page: Page):
    page.get_by_label("search").fill("q5")
    button = page.locator("table.questions button.question").first
    button.click()
    detail = page.locator(".detail")
    assert button.get_attribute("aria-expanded") == "true"
    said = dict(zip(detail.locator("dt").all_inner_texts(), detail.locator("dd").all_inner_texts(), strict=True))
    assert said["accepted answers"] == "answer 5"
    assert said["greedy answer"] == f"answer 5 ✓ right{READ}"
    page.wait_for_selector(".curve svg")
    points = page.locator(".curve svg .mark-symbol path[aria-roledescription=point]")
    assert points.count() == len(TEMPERATURES)
    tables = {
        table.locator("caption").inner_text(): [
            row.replace("\n\t", "\t").split("\t") for row in table.locator("tbody tr").all_inner_texts()
        ]
        for table in detail.locator("table").all()
    }
    # Right where (trial + 1) / 5 is above t / 2.4 * (1.2 - 5 / 60), of four trials.
    expected = [sum((trial + 1) / 5 > t / 2.4 * (1.2 - 5 / 60) for trial in range(4)) for t in TEMPERATURES]
    right, wrong = tables["Answers: temperature sweep"]
    assert right == [f"answer 5{READ}", "✓ right", *(str(count) if count else "" for count in expected)]
    assert wrong == [f"wrong 0{READ}", "✗ wrong", *(str(4 - count) if count < 4 else "" for count in expected)]
    bars = (
        detail.locator("table")
        .first.locator("tbody td.number")
        .evaluate_all("(cells) => cells.map((cell) => cell.style.getPropertyValue('--share'))")
    )
    assert bars == [f"{25 * count}%" for count in (*expected, *(4 - count for count in expected))]
    assert tables["Answers: perturbation"] == [
        ["What is fact 5? plain", f"answer 5 (majority vote){READ}", "✓ right", "1"],
        ["Fact 5 is what? plain", f"answer 5{READ}", "✓ right", "1"],
        ["Tell me fact 5. plain", f"wrong 0{READ}", "✗ wrong", "1"],
    ]
    assert tables["Answers: repetition"] == [[f"answer 5{READ}", "✓ right", "4"], [f"wrong 0{READ}", "✗ wrong", "1"]]


@pytest.mark.parametrize(
    ("address", "dashed"),
    [
        ("only=unbroken", "Dashed: the threshold."),
        ("broken=1.4&only=kept", "Dashed: the threshold, and the temperature at which this fact breaks."),
    ],
    ids=["unbroken", "broken"],
)
def test_the_note_below_a_curve_names_the_dashed_lines_that_are_drawn(
    browser: Browser, report: Path, address: str, dashed: str
):
    page = opened_at(browser, report, address).page
    page.locator("table.questions button.question").first.click()
    page.wait_for_selector(".curve svg")
    assert page.locator("figure:has(.curve) .note").inner_text().endswith(f"interval. {dashed}")
    page.close()


@pytest.mark.parametrize(("width", "scheme"), [(WIDE, "light"), (NARROW, "dark")])
def test_an_opened_question_shows_what_was_extracted_of_a_reply_and_marks_uncertain_ones(
    browser: Browser, doubted: Path, width: int, scheme: str
):
    opened = Opened(browser, doubted, width, scheme)
    page = opened.page
    page.get_by_label(re.compile("^ ?uncertain")).check()
    assert listed(page) == [3, 5]  # one is uncertain in its greedy answer alone
    page.get_by_text("What is fact 5?").first.click()
    (line,) = page.locator(".detail tbody small.read", has_text="uncertain").all()
    assert line.inner_text() == "extracted: <b>answer 5</b> (rule: explicit answer) uncertain"
    note = "Uncertain replies, whose verdict depends on which part of the reply counts: 1."
    assert page.locator(".detail .note", has_text="Uncertain").all_inner_texts() == [note]
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.wait_for_selector(".curve svg")
    assert opened.violations() == []
    assert hardly_seen(page) == []
    assert opened.troubles == []
    page.close()


def test_the_page_can_be_used_with_the_keyboard_alone(page: Page):
    page.get_by_label("search").focus()
    for _ in page.locator("#questions-controls select, #questions-controls input").all():  # the search is the first
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "questions"  # the table scrolls
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.locator("th[aria-sort=ascending]").inner_text().strip() == "question"
    first = page.locator("table.questions button.question").first
    first.focus()
    page.keyboard.press("Enter")
    assert first.get_attribute("aria-expanded") == "true"
    assert page.evaluate("document.activeElement.className") == "question"  # where it was
    page.keyboard.press("Space")
    assert first.get_attribute("aria-expanded") == "false"


def test_a_fact_among_the_extremes_opens_in_the_table_whatever_hides_it(page: Page):
    page.get_by_label("search").fill("nothing like it")
    page.locator("td[data-question=q59] button").first.click()
    assert page.locator("table.questions button[aria-expanded=true]").inner_text().endswith("What is fact 59? plain")
    assert page.evaluate("document.activeElement.innerText").endswith("What is fact 59? plain")
    assert page.get_by_label("search").input_value() == ""


def test_a_row_of_the_map_shows_its_fact_by_pointer_and_keyboard_and_opens_it(
    browser: Browser, ran: tuple[Result, Path]
):
    opened = Opened(browser, ran[1])
    page = opened.page
    shown = page.locator("#fact h2 bdi")
    rows_of_map = page.get_by_role("slider")
    breaking = dict(rows(ran[0].tables["frs"], "question", "breaking_temperature"))
    assert rows_of_map.get_attribute("aria-valuemax") == str(KEPT) == str(len(breaking))
    middle = shown.inner_text()
    box = rows_of_map.bounding_box()
    assert box is not None
    rows_of_map.hover(position={"x": 50, "y": 1})
    assert shown.inner_text() == middle
    firmest = page.locator(".hint").inner_text().removesuffix(" (unbroken)")
    assert breaking[firmest] == math.inf
    rows_of_map.click(position={"x": 50, "y": box["height"] - 1})
    fragile = shown.inner_text()
    assert breaking[fragile] == min(breaking.values())
    assert rows_of_map.get_attribute("aria-valuenow") == "1"
    assert rows_of_map.get_attribute("aria-valuetext") == f"{fragile} breaks at t = {breaking[fragile]:g}"
    page.wait_for_selector("#fact .curve svg")
    page.keyboard.press("End")
    assert shown.inner_text() == firmest
    page.keyboard.press("ArrowDown")
    assert rows_of_map.get_attribute("aria-valuenow") == str(KEPT - 1)
    page.keyboard.press("Home")
    assert shown.inner_text() == fragile
    page.keyboard.press("Enter")
    assert page.locator("table.questions button[aria-expanded=true] bdi").inner_text() == fragile
    assert opened.troubles == []
    page.close()


def test_points_open_their_question_and_a_rectangle_lists_those_inside(page: Page):
    page.locator("#scatter").scroll_into_view_if_needed()
    page.wait_for_selector("#scatter svg .mark-symbol path")
    assert page.locator("#scatter svg .mark-symbol path").count() == KEPT
    page.locator("#axis-0").select_option(label="initial entropy H")
    page.locator("#axis-1").select_option(label="breaking temperature")
    page.wait_for_function("document.querySelector('#scatter svg').textContent.includes('unbroken')")
    page.locator("#scatter svg .mark-symbol path").first.click()
    assert page.locator("table.questions button[aria-expanded=true]").inner_text().endswith("What is fact 1? plain")
    page.evaluate("document.getElementById('scatter').scrollIntoView()")
    box = page.locator("#scatter svg").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 100, box["y"] + 15)  # all that is unbroken is at the top
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 150, box["y"] + 90, steps=8)
    page.mouse.up()
    page.wait_for_function("document.querySelector('[role=status]').textContent.includes('out of 60')")
    assert set(column(page, "breaking temperature")) == {"unbroken"}


def test_what_is_printed_is_light_and_leaves_out_what_only_a_screen_can_do(browser: Browser, ran: tuple[Result, Path]):
    opened = Opened(browser, ran[1], scheme="dark")
    opened.page.emulate_media(media="print", color_scheme="dark")
    assert opened.page.evaluate("getComputedStyle(document.body).color") == "rgb(27, 29, 33)"
    assert not opened.page.locator("nav").is_visible()
    assert not opened.page.locator("#scatter").is_visible()
    assert opened.page.locator(".headline").is_visible()
    assert hardly_seen(opened.page) == []
    assert len(opened.page.pdf()) > 20_000
    opened.page.close()


def test_a_category_of_many_words_does_not_widen_the_page(browser: Browser, tmp_path: Path):
    with without_figures():
        result = recorded_run(tmp_path / "run", 8, text=[" word" * 60], grouped=True)
    write_page(result, [], tmp_path / "report.html")
    opened = Opened(browser, tmp_path / "report.html", NARROW)
    assert opened.page.get_by_label("category").is_visible()
    assert opened.page.evaluate("document.documentElement.scrollWidth") == NARROW
    words = "[...document.querySelectorAll('table.questions td:nth-child(n+3) .text')]"
    assert 0 < opened.page.evaluate(f"Math.max(...{words}.map((each) => each.offsetWidth))") <= 20 * 16
    opened.page.close()


SKELETON = """() => {
  const names = (node) => [...node.attributes].map((each) => each.name).filter((name) => name !== "style");
  const shape = (node) => [
    node.tagName,
    names(node).join(),
    [...node.children].filter((child) => child.tagName !== "svg").map(shape),
  ];
  return JSON.stringify(shape(document.documentElement));
}"""


def shape(opened: Opened) -> str:
    """All elements of the page with the names of their attributes, but for what drawings hold."""
    open_everything(opened.page)
    return str(opened.page.evaluate(SKELETON))


def test_texts_of_questions_and_answers_change_nothing_but_the_text_shown(
    browser: Browser, report: Path, tmp_path: Path
):
    texts = list(HOSTILE.values())
    with without_figures():
        result = recorded_run(tmp_path / "run", QUESTIONS, text=texts, wrong=texts, metrics=METRICS)
    write_page(result, [], tmp_path / "run" / "hostile.html")
    benign = Opened(browser, report)
    hostile = Opened(browser, tmp_path / "run" / "hostile.html")
    assert json.loads(shape(hostile)) == json.loads(shape(benign))
    figures = benign.page.locator("table.questions tbody td.number").all_inner_texts()
    assert hostile.page.locator("table.questions tbody td.number").all_inner_texts() == figures
    for button in hostile.page.locator("table.questions button.question").all()[1:6]:
        button.click()  # a question with each of the texts
    assert hostile.troubles == []
    assert hostile.page.evaluate("window.hacked") is None
    assert hostile.page.evaluate("document.documentElement.scrollWidth") == WIDE
    for selector in ("table.questions > tbody > tr:not(.opened)", ".detail tbody tr"):
        rows = hostile.page.locator(selector)
        heights = [(row.bounding_box() or {})["height"] for row in rows.all()[:40]]
        assert max(heights) < 260, selector  # nothing spills over what stands beside it
    for place, text in enumerate(texts):
        hostile.page.get_by_label("search").fill(f"q{place + 5}")
        shown = hostile.page.locator("table.questions button.question bdi").first
        assert shown.inner_text()[:35] == f"What is fact {place + 5}? {printable_lines(text)}"[:35]
    for opened in (benign, hostile):
        opened.page.close()


# --- links to questions, and what the page says first --------------------------------------------------------------


def opened_at(browser: Browser, report: Path, address: str, width: int = 1400) -> Opened:
    opened = Opened(browser, report, width)
    opened.page.goto("about:blank")
    opened.page.goto(f"{report.as_uri()}#{address}")
    opened.page.wait_for_selector("table.questions tbody tr", state="attached")
    return opened


def test_a_link_opens_its_question_with_filters_and_sort(browser: Browser, report: Path):
    opened = opened_at(browser, report, f"q=q33&type=Human&sort={quote('-question')}")
    page = opened.page
    assert page.locator("button[aria-expanded=true] bdi").inner_text() == "What is fact 33? plain"
    shown = listed(page)
    assert {place % 4 for place in shown} == {1}
    assert page.locator("th[aria-sort=descending]").inner_text().strip() == "question"
    assert page.locator("#filter-type").input_value() == "Human"
    assert opened.troubles == []
    page.close()


def test_kinds_of_questions_are_listed_alone_and_stand_in_the_address(browser: Browser, report: Path):
    """Every seventh question is answered wrong; the earlier a question, the sooner it breaks."""
    opened = opened_at(browser, report, "")
    page = opened.page
    facts = pq.read_table(report.parent / "frs.parquet").to_pylist()
    breaking = {int(fact["question_id"][1:]): fact["breaking_temperature"] for fact in facts}
    boxes = page.locator("label.kind").all_inner_texts()
    unbroken = [number for number, t in breaking.items() if math.isinf(t)]
    assert [" ".join(text.split()) for text in boxes][:3] == [
        f"kept {len(facts)}",
        f"not known to the model {60 - len(facts)}",
        f"never breaks {len(unbroken)}",
    ]
    page.get_by_role("checkbox", name="never breaks").check()
    assert sorted(listed(page)) == unbroken
    assert page.evaluate("location.hash") == "#only=unbroken"
    page.get_by_role("checkbox", name="never breaks").uncheck()
    page.get_by_role("checkbox", name="not known to the model").check()
    assert sorted(listed(page)) == list(range(0, 60, 7))
    page.get_by_role("checkbox", name="kept").check()
    assert listed(page) == []
    page.close()
    page = opened_at(browser, report, "broken=1.4&only=kept&sort=t_b").page
    assert page.locator("#filter-broken").input_value() == "1.4"
    assert page.get_by_role("checkbox", name="kept").is_checked()
    assert sorted(listed(page)) == [number for number, t in breaking.items() if t <= 1.4]
    page.close()


def test_cut_replies_and_disagreement_are_kinds_where_there_are_any(
    browser: Browser, ran: tuple[Result, Path], tmp_path: Path
):
    result, _ = ran
    sweep = result.graded_by_sampler["temperature_sweep"]
    asked = enumerate(sweep["question_id"].to_pylist())
    ended = changed(sweep, finish_reason={row: "length" for row, name in asked if name == "q5"})
    write_page(
        replace(result, graded_by_sampler={**result.graded_by_sampler, "temperature_sweep": ended}),
        [],
        tmp_path / "report.html",
    )
    opened = opened_at(browser, tmp_path / "report.html", "only=cut", NARROW)
    page = opened.page
    assert listed(page) == [5]
    page.locator("table.questions button.question").click()
    said = page.locator(".detail .note").all_inner_texts()
    assert any(re.fullmatch(r"Truncated by the length limit: \d+ right, \d+ wrong\.", line) for line in said)
    first = page.locator(".detail table.counts td.number:not(:empty)").first
    box = first.bounding_box() or {}
    assert first.evaluate("(cell) => getComputedStyle(cell, '::before').content") == '"t = 0.2: "'
    assert 0 <= box["x"] <= NARROW - box["width"]  # on the screen without scrolling
    page.get_by_text("request settings").click()
    assert page.locator(".detail dd").get_by_text("made-up").is_visible()
    page.get_by_text("the raw replies").first.click()
    assert page.locator(".raw pre").first.inner_text() == "answer 5"
    page.get_by_role("checkbox", name="truncated").uncheck()
    page.get_by_role("checkbox", name="answers differ").check()
    table = result.tables["agreement"].to_pylist()
    apart = {row["question_id"] for row in table if row["certainty"] < 1}
    apart |= {row["question_id"] for row in result.tables["certainty"].to_pylist() if row["entropy"] > 0}
    if len(apart) > 50:
        page.get_by_role("button", name="Show ").click()
    assert sorted(listed(page)) == sorted(int(name[1:]) for name in apart)
    assert opened.troubles == []
    page.close()


def test_what_is_opened_stands_in_the_address(browser: Browser, report: Path):
    opened = opened_at(browser, report, "")
    page = opened.page
    page.get_by_label("search").fill("q12")
    page.locator("table.questions button.question").first.click()
    assert page.evaluate("location.hash") == "#q=q12&search=q12"
    assert opened.troubles == []
    page.close()


def test_beside_another_run_a_question_stands_alone(browser: Browser, report: Path):
    opened = opened_at(browser, report, "q=q33&alone=1", NARROW)
    assert opened.page.locator(".detail").is_visible()
    assert not opened.page.locator("h1").is_visible()
    assert opened.page.locator("table.questions > tbody > tr:visible").count() == 1
    opened.page.close()


def test_the_first_screen_says_what_came_out_as_the_summary_has_it(browser: Browser, report: Path):
    summary = json.loads((report.parent / "summary.json").read_text())
    page = Opened(browser, report).page
    said = page.locator(".headline p").all_inner_texts()
    assert said[0].startswith(f"It gets {number(summary['accuracy.greedy'], '.0%')} (")
    assert summary["frs.breaking_temperature.median"] is None  # more than half are unbroken
    assert said[2] == "It still retains more than half of the 51 known facts at t = 2."
    assert len(said) == 5  # of the whole and of each method, and nothing of one kind of questions
    assert page.locator(".scale strong").inner_text() == number(summary["frs.d1"])
    assert page.locator(".scale dt").all_inner_texts()[0] == "0.143"  # H = 1, t_b = 0.2: f = −1 / 1.2
    page.close()
