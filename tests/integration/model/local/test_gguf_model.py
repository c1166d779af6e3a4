import hashlib
import math
import shutil
import tempfile
from pathlib import Path

import pytest
import torch
from architectures import tiny
from json_lines import cases
from tiny_gguf import SPECIAL, save_tiny_gguf

from robust_eval.error import UserError
from robust_eval.model.local import gguf_model, model_files
from robust_eval.model.local.transformers import Transformers
from robust_eval.model.local.transformers_model import TransformersModel

MIDDLE = (8192 / (2 * math.pi * 500_000**0.5) - 1) / (4 - 1)
"""Place of the third of four frequencies between those that Llama 3.1 divides by 8 and those that it leaves."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (gguf_model, model_files):
        monkeypatch.setattr(module, "cache_folder", lambda: tmp_path)
    return tmp_path


def load(file: Path, **settings: object) -> TransformersModel:
    return Transformers(name="tiny", path=str(file), **settings).load()


def test_a_file_has_the_weights_that_were_written(cache: Path):
    loaded = load(save_tiny_gguf(cache / "tiny.gguf"))
    expected = tiny("llama", vocabulary=loaded.model.config.vocab_size, positions=512).state_dict()
    weights = loaded.model.state_dict()
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_the_embedded_model_by_its_path_has_the_answers_of_the_embedded_one(embedded: TransformersModel):
    file = gguf_model._embedded_file(embedded.config.path, embedded.config.sha256)
    by_path = Transformers(name="mine", path=str(file), prompt_style="plain")
    assert by_path.identity() == embedded.config.identity()
    assert by_path.tokenizer_file() == embedded.config.tokenizer_file()


@pytest.mark.parametrize(
    ("metadata", "tokens"),
    [
        ({"pre": "gpt-2"}, ["12"]),
        ({"pre": "smollm"}, ["1", "2"]),
        ({"pre": "llama-bpe"}, ["<s>", "12"]),
        ({"pre": "llama-bpe", "add_bos_token": False}, ["12"]),
        ({"pre": "qwen2"}, ["1", "2"]),
    ],
)
def test_text_is_split_and_begins_as_the_file_says(cache: Path, metadata: dict[str, object], tokens: list[str]):
    tokenizer = load(save_tiny_gguf(cache / "tiny.gguf", **metadata), prompt_style="plain").tokenizer
    assert tokenizer.convert_ids_to_tokens(tokenizer("12").input_ids) == tokens


@pytest.mark.parametrize(("template", "style"), [({}, "plain"), ({"chat_template": "{{ messages }}"}, "chat")])
def test_the_prompt_style_is_that_of_the_file(cache: Path, template: dict[str, str], style: str):
    file = save_tiny_gguf(cache / "tiny.gguf", **template)
    assert Transformers(name="tiny", path=str(file)).prompt_style == style


def test_an_answer_ends_at_each_end_token_of_the_file(cache: Path):
    loaded = load(save_tiny_gguf(cache / "tiny.gguf", eot_token_id=SPECIAL.index("<end>")))
    ends = loaded.texts.vocabularies[True].ends
    assert [token for token, name in enumerate(SPECIAL) if ends[token]] == [
        SPECIAL.index("</s>"),
        SPECIAL.index("<end>"),
    ]


@pytest.mark.parametrize(("metadata", "loss"), cases(__file__, "a_file_that_would_lose_something_is_refused"))
def test_a_file_that_would_lose_something_is_refused(cache: Path, metadata: dict[str, object], loss: str):
    file = save_tiny_gguf(cache / "tiny.gguf", **metadata)
    with pytest.raises(UserError) as problem:
        load(file)
    assert str(problem.value) == (
        f"{file} cannot be loaded without loss: {loss}; set model.path to the folder of the original model, or serve "
        "the file with llama.cpp (model=openai_compatible)"
    )


def test_rotary_positions_are_scaled_as_the_file_says(cache: Path):
    divisors = [1.0, 1.0, 1 / ((1 - MIDDLE) / 8 + MIDDLE), 8.0]
    plain, scaled = (
        load(save_tiny_gguf(cache / f"{len(values)}.gguf", rope_freqs=values)).model.model.rotary_emb.inv_freq
        for values in ([], divisors)
    )
    torch.testing.assert_close(plain / scaled, torch.tensor(divisors))


@pytest.mark.parametrize("size", [0, 4, 30, 3000, 20_000])
def test_half_a_file_is_refused_in_a_sentence(cache: Path, size: int):
    whole = save_tiny_gguf(cache / "whole.gguf").read_bytes()
    file = cache / "half.gguf"
    file.write_bytes(whole[:size])
    with pytest.raises(UserError, match=f"^{file} can(not be read as a GGUF file|not be converted): "):
        load(file)


def test_parts_in_several_packages_are_joined_and_checked(cache: Path, monkeypatch: pytest.MonkeyPatch):
    content = save_tiny_gguf(cache / "tiny.gguf").read_bytes()
    for number, piece in enumerate([content[:1000], content[1000:]]):
        data = cache / "site" / f"some_model_part{number + 1}" / "data"
        data.mkdir(parents=True)
        (data / f"tiny.gguf.part{number:02}").write_bytes(piece)
    (cache / "site" / "some_model").mkdir()
    monkeypatch.syspath_prepend(cache / "site")
    whole = hashlib.sha256(content).hexdigest()
    with pytest.raises(UserError, match="is not the expected file: its sha256 is"):
        gguf_model.converted_model("embedded:some-model/tiny.gguf", "0" * 64)
    folder = gguf_model.converted_model("embedded:some-model/tiny.gguf", whole)
    shutil.rmtree(cache / "site")
    assert gguf_model.converted_model("embedded:some-model/tiny.gguf", whole) == folder


def gguf(folder: Path) -> tuple[str, str]:
    file = folder / "model.gguf"
    file.write_bytes(b"weights")
    return str(file), hashlib.sha256(b"weights").hexdigest()


def converting(monkeypatch: pytest.MonkeyPatch, fails: int = 0) -> list[Path]:
    """The conversions, of which the first so many find a full disk."""
    conversions: list[Path] = []

    def convert(gguf: Path, target: Path) -> None:
        conversions.append(gguf)
        target.mkdir()
        (target / "config.json").write_text("{}")
        if len(conversions) <= fails:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(gguf_model, "_convert", convert)
    return conversions


def test_a_file_with_another_checksum_is_refused(cache: Path):
    file, found = gguf(cache)
    with pytest.raises(UserError, match=f"its sha256 is {found}, not {'0' * 64}; install it again$"):
        gguf_model.converted_model(file, "0" * 64)


def test_a_model_is_converted_once_and_again_only_if_a_file_is_empty(cache: Path, monkeypatch: pytest.MonkeyPatch):
    conversions = converting(monkeypatch)
    folder = gguf_model.converted_model(*gguf(cache))
    assert gguf_model.converted_model(*gguf(cache)) == folder
    assert len(conversions) == 1
    (folder / "config.json").write_bytes(b"")
    assert gguf_model.converted_model(*gguf(cache)) == folder
    assert (folder / "config.json").read_text() == "{}"
    assert len(conversions) == 2
    assert list((cache / "models").iterdir()) == [folder]


def test_a_model_that_cannot_be_kept_is_converted_elsewhere(cache: Path, monkeypatch: pytest.MonkeyPatch):
    conversions = converting(monkeypatch, fails=1)
    folder = gguf_model.converted_model(*gguf(cache))
    assert (folder / "config.json").read_text() == "{}"
    assert gguf_model.converted_model(*gguf(cache)) == folder == gguf_model.converted_folder("model", gguf(cache)[1])
    assert len(conversions) == 2
    assert list((cache / "models").iterdir()) == []


def test_where_every_disk_is_full_it_is_said_which_folders_can_be_named(cache: Path, monkeypatch: pytest.MonkeyPatch):
    converting(monkeypatch, fails=2)
    with pytest.raises(UserError) as problem:
        gguf_model.converted_model(*gguf(cache))
    assert str(problem.value) == (
        f"the converted model cannot be written to {cache / 'models'} or {tempfile.gettempdir()} ([Errno 28] No "
        "space left on device): set XDG_CACHE_HOME or TMPDIR to a writable folder"
    )
