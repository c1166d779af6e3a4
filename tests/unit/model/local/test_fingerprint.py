import http.server
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants

from robust_eval.error import UserError
from robust_eval.model.local import model_files
from robust_eval.model.local.model_files import folder_hash, hub_commit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(model_files, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model" / "part").mkdir(parents=True)
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "model" / "part" / "weights").write_bytes(b"1234")
    return tmp_path / "model"


def test_the_same_files_have_the_same_hash_wherever_they_lie(folder: Path, tmp_path: Path):
    before = folder_hash(folder)
    assert folder_hash(folder) == before
    assert folder_hash(folder.rename(tmp_path / "moved")) == before


def test_any_change_is_another_hash(folder: Path):
    seen = {folder_hash(folder)}
    (folder / "config.json").write_text("{ }")
    seen.add(folder_hash(folder))
    (folder / "part" / "weights").write_bytes(b"4321")  # of the same size
    seen.add(folder_hash(folder))
    (folder / "part" / "weights").rename(folder / "weights")
    seen.add(folder_hash(folder))
    assert len(seen) == 4


def test_a_file_is_read_once_as_long_as_it_stays(folder: Path, monkeypatch: pytest.MonkeyPatch):
    before, read = folder_hash(folder), []
    digest = model_files.hashlib.file_digest
    monkeypatch.setattr(
        model_files.hashlib, "file_digest", lambda file, name: read.append(file.name) or digest(file, name)
    )
    assert folder_hash(folder) == before
    assert read == []
    os.utime(folder / "config.json", ns=(0, 0))
    assert folder_hash(folder) == before
    assert read == [str(folder / "config.json")]


@pytest.mark.parametrize("content", [b"", b"\xff", b"{"])
def test_a_memory_that_cannot_be_read_is_made_anew(folder: Path, cache: Path, content: bytes):
    before = folder_hash(folder)
    (file,) = (cache / "hashes").iterdir()
    whole = file.read_bytes()
    file.write_bytes(content)
    assert folder_hash(folder) == before
    assert file.read_bytes() == whole


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A hub that has one model; the paths that it was asked for."""
    asked: list[str] = []

    class Hub(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            there = self.path.startswith("/api/models/some/model")
            body = json.dumps(
                {"id": "some/model", "sha": COMMIT} if there else {"error": "Repository not found"}
            ).encode()
            self.send_response(200 if there else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        api = huggingface_hub.HfApi(endpoint=f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setattr(huggingface_hub, "HfApi", lambda: api)
        yield asked
        server.shutdown()
        thread.join()


def test_the_hub_says_which_commit_a_revision_is_at(hub: list[str]):
    assert hub_commit("some/model", "main") == COMMIT
    assert hub == ["/api/models/some/model/revision/main"]


def test_a_model_that_the_hub_does_not_have_is_named(hub: list[str]):
    with pytest.raises(UserError, match=r"^no/model is not a local folder, and cannot be loaded from the hub: "):
        hub_commit("no/model", None)


def test_without_a_hub_the_commit_is_that_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    kept = tmp_path / "models--some--model"
    (kept / "snapshots" / COMMIT).mkdir(parents=True)
    (kept / "snapshots" / COMMIT / "config.json").write_text("{}")
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text(COMMIT)
    assert hub_commit("some/model", None) == COMMIT
    with pytest.raises(UserError, match=r"^other/model is not a local folder, and cannot be loaded from the hub: "):
        hub_commit("other/model", None)
