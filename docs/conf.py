"""The documentation as a site: `make docs`. docs/README.md is the first page and gives the order of the others."""

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.ext.napoleon import Config, NumpyDocstring

from robust_eval import __version__

project = "robust_eval"
author = "The robust_eval developers"
release = __version__
html_title = f"robust_eval {release}"
root_doc = "README"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinxcontrib.mermaid"]
html_math_renderer = "mathml"
html_static_path = ["math.css"]
html_css_files = ["math.css"]
html_theme = "furo"
html_theme_options: dict[str, object] = {"top_of_page_buttons": []}
myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True

SECTIONS = Config(napoleon_custom_sections=["Returns"])  # sentences, whose first word is no type
ARRAY_LIKE = r"[~\w.]*_Buffer \|.*?\| ~?_?\w*[\w.]*\[complex \| bytes \| str\]"
FLOATS = r"[~\w.]*ndarray\[.*?float64\]\]"


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
    '<div id="search-results">': '<h1>Search</h1><div id="search-results">',
}
"""Tags of the theme that a screen reader or a keyboard cannot use, with their replacements; its search has no title."""


def make_accessible(app: Sphinx, problem: Exception | None) -> None:
    """Replace these tags in all pages."""
    for page in Path(app.outdir).rglob("*.html"):
        before = text = page.read_text(encoding="utf-8")
        for tag, replacement in ACCESSIBLE.items():
            text = text.replace(tag, replacement)
        if text != before:
            page.write_text(text, encoding="utf-8")


def mathml(formula: str, display: str = "inline") -> str:
    """Return a formula as MathML, which browsers render without scripts or network access.

    ExtensionError for a command that the converter does not know, which it would print.
    """
    spaced = re.sub(r"\\(ln|log)(_(?:\w|\{[^}]*\}))? ", r"\\\1\2\\, ", formula)
    converted: str = convert(spaced, display=display)
    if "\\" in converted:
        raise ExtensionError(f"the formula {formula!r} has a command that latex2mathml does not convert: {converted}")
    return converted


def visit_math(translator: Any, node: nodes.math) -> None:
    """Write a formula within a line."""
    translator.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def visit_math_block(translator: Any, node: nodes.math_block) -> None:
    """Write a formula on lines of its own, which the keyboard can scroll; ExtensionError for a label, which would be
    lost.
    """
    if node.get("label"):
        raise ExtensionError(f"the formula {node.astext()!r} has a label, which is not shown: remove it")
    translator.body.append(f'<div class="math" tabindex="0">{mathml(node.astext(), "block")}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Add the table of contents to the first page when it is read, which itself stays plain Markdown; draw formulas;
    make the pages accessible.
    """

    def read(app: Sphinx, page: str, source: list[str]) -> None:
        if page == root_doc:
            source[0] += contents(source[0])

    def sections(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
        if what in ("function", "class", "method"):  # of an attribute it would read what precedes a colon as its type
            lines[:] = NumpyDocstring(lines, SECTIONS, app, what, name, thing, options).lines()

    def signature(*described: Any) -> tuple[str, str] | None:
        """Return the parameters and the result, with arrays under their names."""
        parameters, result = (re.sub(ARRAY_LIKE, "ArrayLike", each or "") for each in described[-2:])
        return (parameters, re.sub(FLOATS, "Floats", result)) if parameters else None

    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    app.connect("source-read", read)
    app.connect("build-finished", make_accessible)
    app.connect("autodoc-process-docstring", sections)
    app.connect("autodoc-process-signature", signature)
    app.add_lexer("csv", TextLexer)
