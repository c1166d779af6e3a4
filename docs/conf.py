"""The documentation as a site: `make docs`. docs/README.md is the first page and gives the order of the others."""

import re
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

from robust_eval import __version__

project = "robust_eval"
author = "The robust_eval developers"
release = __version__
html_title = f"robust_eval {release}"
root_doc = "README"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinxcontrib.mermaid"]
html_theme = "furo"
html_theme_options: dict[str, object] = {"top_of_page_buttons": []}
myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True


def contents(page: str) -> str:
    """Return a hidden table of contents for each section of the first page, in the order of its links."""
    trees = []
    for section in re.split(r"^(?=\*\*.*\*\*$)", page, flags=re.M)[1:]:
        caption, pages = section.split("**")[1], re.findall(r"^\| \[.*?\]\((.*?)\.(?:md|rst)\)", section, flags=re.M)
        trees.append("\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""]))
    return "\n".join(trees)


ACCESSIBLE = {
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="all pages">',
    '<aside class="toc-drawer">': '<aside class="toc-drawer" aria-label="this page">',
    "<pre>": '<pre tabindex="0">',
    '<div class="table-wrapper ': '<div tabindex="0" class="table-wrapper ',
}
"""Tags of the theme that a screen reader or a keyboard cannot use, with their replacements."""


def make_accessible(app: Sphinx, problem: Exception | None) -> None:
    """Replace these tags in all pages."""
    for page in Path(app.outdir).rglob("*.html"):
        before = text = page.read_text(encoding="utf-8")
        for tag, replacement in ACCESSIBLE.items():
            text = text.replace(tag, replacement)
        if text != before:
            page.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Add the table of contents to the first page when it is read, which itself stays plain Markdown; make the pages
    accessible.
    """

    def read(app: Sphinx, page: str, source: list[str]) -> None:
        if page == root_doc:
            source[0] += contents(source[0])

    app.connect("source-read", read)
    app.connect("build-finished", make_accessible)
    app.add_lexer("csv", TextLexer)
