import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace

import pytest
from comparison_by_hand import Page
from gated import gated_run
from json_lines import cases
from junitparser import JUnitXml
from markdown_it import MarkdownIt

from robust_eval.config.groups import CONF, PROJECT, option_folders
from robust_eval.error import UserError
from robust_eval.gate.baselines import baseline_named, baselines, folder_of, set_baseline
from robust_eval.gate.changed_facts import single_facts
from robust_eval.gate.decision import Decision, GateSettings, MetricVerdict, decide, differences, gate_settings
from robust_eval.gate.measured_run import refuse_incomparable
from robust_eval.gate.verdict_files import Report, write_verdict

HOSTILE = " <script>alert(1)</script>|`x`\x1b[31m\x00\ufffe‮ [a](http://b)"


def written(tmp_path: Path, each_fact: bool = False, text: str = "") -> Path:
    one = gated_run(tmp_path / "one", 200, known=lambda number: number < 180, text=text)
    other = gated_run(tmp_path / "other", 200, known=lambda number: number >= 30, text=text)
    shared = refuse_incomparable(one, other)
    decision = decide(one, other, differences(one, other, shared, GateSettings()), GateSettings())
    facts = single_facts(one, other, shared)
    changed = {"model.generation.top_k": [None, 50]}
    report = Report(decision, "one", "other", (one.model, other.model), 0.95, len(shared), facts, (150, 50), changed)
    write_verdict(report, tmp_path / "out", each_fact)
    return tmp_path / "out"


def test_the_json_holds_the_verdict_and_every_fact_that_changed(tmp_path: Path):
    found = json.loads((written(tmp_path) / "verdict.json").read_text())
    assert (found["outcome"], found["status"], found["identical"], found["level"]) == ("INCONCLUSIVE", 3, False, 0.95)
    assert found["baseline"] == {"run": "one", "model": "m"}
    assert found["asked"] == {"taken": 150, "left": 50}
    assert found["settings"] == {"model.generation.top_k": ["none", "50"]}
    assert [each["name"] for each in found["metrics"]] == ["accuracy.greedy", "frs.d1"]
    assert found["metrics"][0]["difference"] == pytest.approx(-0.05)
    assert [fact["question_id"] for fact in found["facts"]["forgotten"]] == [f"q{number}" for number in range(30)]
    assert len(found["facts"]["learned"]) == 20


def test_every_key_of_the_json_is_in_the_schema_of_the_docs(tmp_path: Path):
    found = json.loads((written(tmp_path) / "verdict.json").read_text())
    page = (PROJECT / "docs" / "gate.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (`[^|]+`) \| ([^|]+) \|$", page.split("| key of `verdict.json` |")[1], re.MULTILINE))
    named = {key: words for keys, words in rows.items() for key in re.findall(r"`(\w+)`", keys)}
    assert named.keys() == found.keys()
    for key, inner in (("metrics", found["metrics"][0]), ("baseline", found["baseline"]), ("asked", found["asked"])):
        assert set(re.findall(r"`(\w+)`", named[key])) >= inner.keys()
    fact = found["facts"]["forgotten"][0]
    assert set(re.findall(r"`(\w+)`", named["facts"])) == {*found["facts"], *fact}


@pytest.mark.parametrize(("each_fact", "cases"), [(False, 3), (True, 53)])
def test_junit_has_a_case_for_each_figure_and_where_asked_for_each_fact(tmp_path: Path, each_fact: bool, cases: int):
    found = JUnitXml.fromfile(str(written(tmp_path, each_fact, HOSTILE) / "junit.xml"))
    (suite,) = found
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (cases, 0, 3, 30 if each_fact else 0)
    assert [case.name for case in suite][:3] == ["accuracy.greedy", "frs.d1", "verdict"]
    assert [case.is_passed for case in suite][:3] == [False, False, False]


def test_a_figure_that_no_fact_has_is_an_error_that_says_so(tmp_path: Path):
    one = gated_run(tmp_path / "one", 60)
    other = gated_run(tmp_path / "other", 60, known=lambda number: False)
    shared = refuse_incomparable(one, other)
    decision = decide(one, other, differences(one, other, shared, GateSettings()), GateSettings())
    write_verdict(Report(decision, "one", "other", ("m", "m"), 0.95, len(shared)), tmp_path / "out", False)
    (suite,) = JUnitXml.fromfile(str(tmp_path / "out" / "junit.xml"))
    messages = {case.name: [(type(each).__name__, each.message) for each in case.result] for case in suite}
    assert messages["accuracy.greedy"][0][0] == "Failure"
    assert messages["frs.d1"] == [("Error", "firmness (mean FRS, d = 1): no fact has a value in both runs.")]
    assert (
        "| firmness (mean FRS, d = 1) | INCONCLUSIVE | 0 | undefined |" in (tmp_path / "out" / "verdict.md").read_text()
    )


def test_hostile_text_is_text_everywhere(tmp_path: Path):
    folder = written(tmp_path, each_fact=True, text=HOSTILE)
    texts = {file.name: file.read_text() for file in folder.iterdir() if file.suffix != ".png"}
    assert sorted(texts) == ["junit.xml", "margins.svg", "verdict.html", "verdict.json", "verdict.md"]
    for text in texts.values():
        assert not {"\x1b", "\x00", "\ufffe", "‮"} & set(text)
    assert "script" not in Page(texts["verdict.html"]).tags
    assert "<script>" not in texts["verdict.md"]
    ElementTree.fromstring(texts["junit.xml"])


def test_the_markdown_is_a_table_in_a_renderer(tmp_path: Path):
    markdown = MarkdownIt("commonmark").enable("table")
    text = (written(tmp_path, text=HOSTILE) / "verdict.md").read_text()
    html = markdown.render(text)
    assert text.startswith("# INCONCLUSIVE: no metric reaches a verdict.\n")
    assert html.count("<table>") == 4
    assert "<td>knowledge (accuracy of all greedy answers)</td>" in html
    assert "<script>" not in html
    assert "<a " not in html


def test_the_page_opens_with_the_verdict(tmp_path: Path):
    page = (written(tmp_path) / "verdict.html").read_text()
    assert re.findall("<h1>(.*)</h1>", page) == ["INCONCLUSIVE: no metric reaches a verdict."]
    assert "<h2>Settings that differ</h2>" in page
    assert "Exit status: 3 (0 PASS, 1 FAIL, 3 INCONCLUSIVE)." in page
    assert "50 were not (25 % saved)" in page


def test_the_headline_names_what_is_not_decided():
    numbers = (40, 0.5, 0.5, 0.0, -0.1, 0.1, 900.0)
    figures = [
        MetricVerdict(name, name, 0.02, outcome, *numbers) for name, outcome in (("a", "PASS"), ("b", "INCONCLUSIVE"))
    ]
    decision = Decision("INCONCLUSIVE", figures, [])
    assert Report(decision, "one", "other", ("m", "m"), 0.95).headline == "INCONCLUSIVE: b reaches no verdict."
    lost = decision._replace(metrics=[figures[0], figures[1]._replace(outcome="FAIL")])  # and many answers are missing
    assert Report(lost, "one", "other", ("m", "m"), 0.95).headline == "INCONCLUSIVE: too many answers are missing."


def test_settings_come_from_files_and_the_command_line(tmp_path: Path):
    assert gate_settings([], [CONF]) == GateSettings()
    (tmp_path / "gate").mkdir()
    (tmp_path / "gate" / "strict.yaml").write_text("metrics: {frs.d1: 0.01}\nlevel: 0.99\n")
    assert gate_settings(["gate=strict"], [CONF, tmp_path]) == GateSettings({"frs.d1": 0.01}, 0.99)
    own = ["gate=strict", "gate.metrics={accuracy.greedy: 0.1}", "gate.no_reply=0.2"]
    assert gate_settings(own, [CONF, tmp_path]) == GateSettings({"accuracy.greedy": 0.1}, 0.99, 0.2)


def test_own_settings_need_no_other_option_and_do_not_replace_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf" / "gate").mkdir(parents=True)
    for name in ("strict", "default"):
        (tmp_path / "conf" / "gate" / f"{name}.yaml").write_text("level: 0.99\n")
    assert gate_settings(["gate=strict"], option_folders()).level == 0.99
    assert gate_settings([], option_folders()) == GateSettings()


@pytest.mark.parametrize(("override", "said"), cases(__file__, "a_setting_that_makes_no_sense_is_refused"))
def test_a_setting_that_makes_no_sense_is_refused(override: str, said: str):
    with pytest.raises(UserError, match=said):
        gate_settings([override], [CONF])


def test_a_baseline_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "mlruns" / "runs" / "a").mkdir(parents=True)
    assert baselines(tmp_path / "mlruns") == []
    set_baseline(tmp_path / "mlruns", "prod", str(tmp_path / "mlruns" / "runs" / "a"))
    set_baseline(tmp_path / "mlruns", "id", "abc123")
    (tmp_path / "mlruns").rename(tmp_path / "moved")
    moved = tmp_path / "moved"
    assert baselines(moved) == ["id", "prod"]
    assert baseline_named(moved, "prod") == str(moved / "runs" / "a")
    assert baseline_named(moved, "id") == "abc123"
    monkeypatch.chdir(moved)
    tracked = SimpleNamespace(fetched=lambda run_id: Path("fetched", run_id))
    assert folder_of("id", Path(), tracked) == Path("fetched/abc123")  # type: ignore[arg-type]
    assert folder_of("prod", Path(), tracked) == Path("runs/a")  # type: ignore[arg-type]
    assert baseline_named(moved, "none") is None
    assert baseline_named(moved, "../prod") is None
    with pytest.raises(UserError, match="the name of a baseline may contain only letters"):
        set_baseline(moved, "../x", "abc")
    (moved / "baselines" / "id.json").write_text("{")
    with pytest.raises(UserError, match=r"^the baseline id is damaged"):
        baseline_named(moved, "id")
