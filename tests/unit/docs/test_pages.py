"""The README and the pages in docs/: every block, example, link, setting, file and figure that they name."""

import doctest
import re

import pytest
from doc_pages import DOCS, FRONT, LAYOUTS, PAGES, TESTED_ELSEWHERE, fences
from omegaconf import DictConfig, OmegaConf

from robust_eval.config.groups import CONF, PROJECT
from robust_eval.config.schema import SCHEMAS
from robust_eval.plot.figure_registry import registered
from robust_eval.runtime.registry import COMBINABLE_GROUPS

OWN = {"mine", "quiz", *re.findall(r'@robust_eval\.register\("\w+", "(\w+)"\)', "".join(PAGES.values()))}
"""Options that the pages make."""


@pytest.mark.parametrize("page", [name for name in PAGES if name not in TESTED_ELSEWHERE])
def test_every_block_says_what_it_is(page: str):
    """So that no command stands in a block that is not run, and no code in one that is not written to a file."""
    for kind, text in fences(page):
        known = ("sh", "python", "yaml", "toml", "csv", "json", "mermaid", *(["text"] if page == FRONT else []))
        assert kind in known, text
        if kind in LAYOUTS and not text.startswith(">>> "):
            assert re.match(LAYOUTS[kind], text, re.M), text


@pytest.mark.parametrize("page", [name for name, text in PAGES.items() if ">>> " in text])
def test_every_example_gives_what_is_printed_below_it(page: str):
    runner = doctest.DocTestRunner()
    for kind, text in fences(page):
        if kind == "python" and text.startswith(">>> "):
            runner.run(doctest.DocTestParser().get_doctest(text, {}, page, page, 0))
    assert runner.tries > 0
    assert runner.failures == 0


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str):
    text = re.sub(r"^```.*?^```$", "", PAGES[page], flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        file = ((DOCS / page).parent / name).resolve() if name else DOCS / page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file.read_text(encoding="utf-8")), target


@pytest.mark.parametrize("page", PAGES)
def test_no_comment_begins_a_line_of_text(page: str):
    """Markdown ends the paragraph there, and takes the line for HTML."""
    assert re.findall(r"^ {0,3}<!--.*?-->.+", PAGES[page], flags=re.MULTILINE) == []


def anchors(text: str) -> set[str]:
    """What GitHub calls the headings of a page, and the anchors set by hand."""
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    return slugs | set(re.findall(r'<a id="([^"]+)">', text))


def spans(page: str) -> list[str]:
    """What stands in backticks, outside of blocks."""
    text = re.sub(r"^```.*?^```$", "", PAGES[page], flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


@pytest.mark.parametrize("page", PAGES)
def test_every_setting_that_is_named_exists(page: str):
    for span in spans(page):
        for word in span.split():
            key, equals, value = word.partition("=")
            group, *path = key.split(".")
            if group in SCHEMAS and path:
                assert is_setting(group, path), word
            elif group in SCHEMAS and equals and re.fullmatch(r"[a-z0-9_.,]+", value):
                for option in value.split(","):
                    exists = (CONF / group / f"{option}.yaml").is_file() or option.endswith(".csv")
                    assert exists or option in OWN, word


def is_setting(group: str, path: list[str]) -> bool:
    """Whether some option of a group has a setting; in groups that take several, its name may be left out."""
    if path[0] in OWN:
        return path in (["always_right"], ["always_right", "tolerated"])
    named = group in COMBINABLE_GROUPS and path[0] in SCHEMAS[group]
    schemas = [SCHEMAS[group][path[0]]] if named else list(SCHEMAS[group].values())
    return any(_has(OmegaConf.structured(schema), path[1:] if named else path) for schema in schemas)


def _has(node: object, path: list[str]) -> bool:
    if not path:
        return True
    return isinstance(node, DictConfig) and path[0] in node.keys() and _has(node._get_node(path[0]), path[1:])  # noqa: SIM118, a missing value is a key as well


@pytest.mark.parametrize("page", PAGES)
def test_every_file_of_the_repository_that_is_named_exists(page: str):
    own = {match.group(1) for kind, text in fences(page) if (match := re.match(LAYOUTS.get(kind, "$^"), text, re.M))}
    for span in spans(page):
        for word in span.split():
            if re.fullmatch(r"(?:robust_eval|conf|benchmarks|tests)/[\w/]*[\w.]*", word) and "NAME" not in word:
                assert (PROJECT / word).exists() or word in own, word


def test_the_index_names_every_page():
    named = set(re.findall(r"\]\(([\w/]+\.md)\)", PAGES["README.md"]))
    assert named == set(PAGES) - {FRONT, "README.md"}


def test_the_readme_is_short_enough_to_be_read():
    assert len(PAGES[FRONT].split()) <= 900


OF_USERS = sorted({*PAGES} - {FRONT, "README.md"} - {page for page in PAGES if page.startswith("development/")})


def test_the_pages_are_few_enough_to_be_known():
    assert len([*OF_USERS, *DOCS.glob("*.rst")]) <= 25


@pytest.mark.parametrize("page", [page for page in OF_USERS if page != "methods.md"])
def test_a_page_is_short_enough_to_be_read(page: str):
    assert len(PAGES[page].split()) <= 1500


def test_every_figure_of_a_run_is_explained():
    headings = " ".join(re.findall(r"^### .*", PAGES["figures.md"], flags=re.MULTILINE))
    assert {entry.name for entry in registered()} - set(re.findall(r"`(\w+)`", headings)) == set()
