"""The documentation as a site: `make docs`. docs/README.md is the first page and gives the order of the others."""

import re

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


def setup(app: Sphinx) -> None:
    """Add the table of contents to the first page when it is read; the file itself stays plain Markdown."""

    def read(app: Sphinx, page: str, source: list[str]) -> None:
        if page == root_doc:
            source[0] += contents(source[0])

    app.connect("source-read", read)
    app.add_lexer("csv", TextLexer)
