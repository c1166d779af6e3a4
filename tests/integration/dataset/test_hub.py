"""The hub cannot be reached from a test: a server that answers like it takes its place, or a folder, or a fake."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import httpx2
import hub_server
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robust_eval.dataset import hub
from robust_eval.dataset.hub import PARQUET, commit, read_hub
from robust_eval.dataset.published import Published
from robust_eval.error import UserError
from robust_eval.question import Question

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def _fresh():
    commit.cache_clear()
    yield
    commit.cache_clear()


def squad_records(*ids):
    spans = {"text": ["1832"], "answer_start": [3]}
    return [
        {"id": name, "title": "Mills", "context": "", "question": f"When, {name}?", "answers": spans} for name in ids
    ]


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A folder with the files of a repository's branch refs/convert/parquet, and a cache of its own."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "mill"
    for place, ids in (
        ("plain_text/validation/0000.parquet", "ab"),
        ("plain_text/validation/0001.parquet", "c"),
        ("plain_text/train/0000.parquet", "d"),
        ("other/validation/0000.parquet", "e"),
    ):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(squad_records(*ids)), folder / place)
    return folder


def squad(repository, **more):
    settings = {"subsets": ["plain_text"], "split": "validation"} | more
    return Published(name="squad", layout="squad", hub=str(repository), **settings)


def test_the_branch_of_parquet_files_is_found_on_a_server(tmp_path):
    wanted = ("plain_text/validation", "plain_text/train", "other/validation", "plain_text/test")
    done = subprocess.run(
        [sys.executable, hub_server.__file__, *wanted],
        env=os.environ | {"HF_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    edition = f"rajpurkar/squad, {{}}, {hub_server.COMMIT}"
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        [edition.format("plain_text, validation"), "a", "b", "c"],
        [edition.format("plain_text, train"), "d"],
        [edition.format("other, validation"), "e"],
        [f"rajpurkar/squad (plain_text, test, {PARQUET}) cannot be loaded from the hub"],
    ]


class FakeHub:
    """What ``datasets`` and ``huggingface_hub`` were asked for."""

    exceptions = SimpleNamespace(DatasetsError=KeyError)

    def __init__(self):
        self.calls = []

    def load_dataset(self, *arguments, **settings):
        self.calls.append((arguments, settings))
        batches = pa.Table.from_pylist(squad_records("a", "b"))
        found = SimpleNamespace(iter=lambda batch_size: iter([batches.slice(0, 1), batches.slice(1)]))
        return SimpleNamespace(with_format=lambda kind: found if kind == "arrow" else None)


@pytest.fixture
def fake(monkeypatch):
    found = FakeHub()
    monkeypatch.setitem(sys.modules, "datasets", found)
    return found


def test_a_subset_and_a_split_are_read_and_nothing_else(repository):
    loaded = squad(repository).load()
    assert loaded == [Question(name, f"When, {name}?", ("1832",), category="Mills") for name in "abc"]
    assert loaded.edition == f"{repository}, plain_text, validation, {PARQUET}"
    assert [q.id for q in squad(repository, subsets=["other", "plain_text"]).load()] == list("eabc")
    assert [q.id for q in squad(repository, split="train").load()] == ["d"]


def test_what_is_not_there_is_one_sentence(repository):
    for more, shown in (({"subsets": ["x"]}, "x, validation"), ({"split": "test"}, "plain_text, test")):
        with pytest.raises(UserError) as caught:
            squad(repository, **more).load()
        said = str(caught.value)
        assert said.startswith(f"{repository} ({shown}, {PARQUET}) cannot be loaded from the hub: ")
        assert said.endswith("; set dataset.path to a local copy")
        assert "\n" not in said


@pytest.mark.parametrize("revision", [PARQUET, "main"])
def test_a_hub_that_may_not_be_asked_is_one_sentence(repository, revision):
    with pytest.raises(UserError) as caught:
        squad("rajpurkar/nowhere", revision=revision).load()
    assert str(caught.value).startswith(f"rajpurkar/nowhere (plain_text, validation, {revision}) cannot be loaded from")


@pytest.mark.parametrize("problem", [httpx2.ConnectError("refused"), OSError("refused"), ValueError("refused")])
def test_a_hub_that_cannot_be_reached_is_one_sentence(fake, monkeypatch, problem):
    def refuse(*arguments, **settings):
        raise problem

    monkeypatch.setattr(fake, "load_dataset", refuse)
    with pytest.raises(UserError) as caught:
        list(read_hub("a/b", "plain_text", "test", COMMIT))
    assert str(caught.value) == (
        f"a/b (plain_text, test, {COMMIT}) cannot be loaded from the hub: refused; set dataset.path to a local copy"
    )


def test_the_branch_of_parquet_files_is_read_at_the_commit_that_it_stands_for(fake, monkeypatch):
    monkeypatch.setattr(hub, "commit", lambda name, revision: COMMIT)
    assert list(read_hub("a/b", "plain_text", "test", PARQUET)) == squad_records("a", "b")
    files = {"test": "plain_text/test/*.parquet"}
    assert fake.calls == [(("a/b",), {"data_files": files, "split": "test", "revision": COMMIT})]


def test_another_revision_is_read_by_the_name_of_the_subset(fake):
    assert list(read_hub("a/b", "plain_text", "test", COMMIT)) == squad_records("a", "b")
    assert fake.calls == [(("a/b", "plain_text"), {"split": "test", "revision": COMMIT})]


def test_a_branch_becomes_the_commit_that_it_stands_for(monkeypatch):
    import huggingface_hub

    asked = []

    def dataset_info(self, name, revision):
        asked.append((name, revision))
        return SimpleNamespace(sha=COMMIT)

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", dataset_info)
    assert [commit("a/b", "main"), commit("a/b", "main"), commit("a/b", COMMIT[::-1])] == [COMMIT, COMMIT, COMMIT[::-1]]
    assert asked == [("a/b", "main")]


@pytest.mark.parametrize("problem", [ConnectionError("no way\nout"), httpx2.ConnectError("no way")])
def test_where_the_hub_cannot_be_asked_the_branch_is_named_and_a_warning_says_so(caplog, monkeypatch, problem):
    import huggingface_hub

    def dataset_info(self, name, revision):
        raise problem

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", dataset_info)
    assert commit("a/b", "main") == "main"
    assert caplog.messages == ["the commit of a/b (main) is unknown: no way"]


def test_the_hub_is_imported_only_when_it_is_asked(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)  # an import would fail
    file = tmp_path / "q.jsonl"
    file.write_text('{"question": "who", "answer": ["Ann"]}\n')
    assert len(Published(name="nq", layout="nq_open", path=str(file), hub="a/b").load()) == 1
    with pytest.raises(ImportError):
        Published(name="nq", layout="nq_open", hub="a/b", revision=COMMIT).load()
