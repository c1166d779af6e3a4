"""CITATION.cff names this version, and the papers under their titles."""

import yaml

from robust_eval import __version__
from robust_eval.config.groups import PROJECT

CITATION = yaml.safe_load((PROJECT / "CITATION.cff").read_text(encoding="utf-8"))


def test_the_citation_is_of_this_version():
    assert (CITATION["title"], CITATION["version"]) == ("robust_eval", __version__)


def test_the_papers_of_the_readme_can_be_cited():
    readme = " ".join((PROJECT / "README.md").read_text(encoding="utf-8").split())
    for paper in CITATION["references"]:
        families = ", ".join(author["family-names"] for author in paper["authors"])
        assert f'{families}, "{paper["title"]}".' in readme
        assert all(author["given-names"] for author in paper["authors"])
        assert paper["url"].startswith("https://")
    assert len(CITATION["references"]) == 3
