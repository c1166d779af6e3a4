import json
import math
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from architectures import WRONG_WITH_A_CACHE, tiny
from asking import answered
from json_lines import cases
from tiny_model import VOCABULARY, byte_tokenizer, save_tiny_model
from transformers import BertConfig, BertLMHeadModel, ByT5Tokenizer

from robust_eval.error import UserError
from robust_eval.grader.matching import Matching
from robust_eval.model.base import Completion, Enumeration, Reply, Request
from robust_eval.model.generation import Generation
from robust_eval.model.local import batching, transformers_model, vocabulary
from robust_eval.model.local import settings as local_settings
from robust_eval.model.local.batching import BatchContext
from robust_eval.model.local.prefixes import PackedPrefixes, PrefixRows, agrees_with_plain_passes
from robust_eval.model.local.transformers import Transformers
from robust_eval.model.local.transformers_model import TransformersModel
from robust_eval.model.reply_tables import answers_of
from robust_eval.prompt.prompt import Prompt, prompt_for
from robust_eval.question import Question
from robust_eval.store.keys_and_rows import answers_key


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model"))


def load(folder: Path, **settings: object) -> TransformersModel:
    return Transformers(name="tiny", path=str(folder), **settings).load()


def request(text: str, trials: int = 1, temperatures: tuple[float, ...] = (0.0,), tokens: int = 8) -> Request:
    return Request(text, 0, Prompt("Be brief.", (("One?", "1"),), text), temperatures, trials, tokens, 0, 5)


def test_some_answers_are_there_before_many_were_asked(folder: Path):
    greedy = [request(f"{index:03}") for index in range(300)]
    (first, *_) = load(folder, prompt_style="plain").complete(greedy, {each.item for each in greedy})
    assert len(first) == 1024 // 11  # tokens at once, of prompts of eleven


def test_a_local_folder_is_loaded_and_described(folder: Path):
    description = load(folder, prompt_style="plain").description()
    assert description["class"] == "LlamaForCausalLM"
    weights = tiny("llama", vocabulary=VOCABULARY).parameters()
    assert description["parameters"] == sum(weight.numel() for weight in weights)
    expected = {
        "name": "tiny",
        "path": str(folder),
        "revision": "local files",
        "dtype": "float32" if not torch.cuda.is_available() else "bfloat16",
        "prompt_style": "plain",
        "generation.preset": "full",
        "generation.top_k": 0,
        "generation.top_p": 1.0,
        "generation.min_p": 0.0,
        "generation.repetition_penalty": 1.0,
    }
    assert {name: description[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("files", "path", "reason"), cases(__file__, "a_path_that_holds_no_model_is_named_with_what_is_there")
)
def test_a_path_that_holds_no_model_is_named_with_what_is_there(
    tmp_path: Path, files: list[str], path: str, reason: str
):
    for name in files:
        (tmp_path / name).touch()
    with pytest.raises(UserError) as problem:
        Transformers(name="tiny", path=path.format(base=tmp_path)).identity()
    assert str(problem.value) == f"model.path of tiny: {reason.format(base=tmp_path)}"


@pytest.mark.parametrize(("file", "left", "reason"), cases(__file__, "a_folder_whose_model_cannot_be_loaded_is_named"))
def test_a_folder_whose_model_cannot_be_loaded_is_named(
    folder: Path, tmp_path: Path, file: str, left: int, reason: str
):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    content = (tmp_path / file).read_bytes()
    (tmp_path / file).unlink()
    if left:
        (tmp_path / file).write_bytes(content[:left])
    with pytest.raises(UserError) as problem:
        load(tmp_path)
    assert str(problem.value).startswith(f"model tiny: {tmp_path} cannot be loaded: {reason.format(base=tmp_path)}")


@pytest.mark.parametrize(
    ("file", "change", "reason"),
    [
        ("config.json", {"num_hidden_layers": 3}, "it lacks weights of a causal language model (model.layers.2."),
        ("config.json", {"hidden_size": "x"}, "Validation error for field 'hidden_size'"),
        ("tokenizer.json", None, "it has no readable tokenizer (tokenizer.json, tokenizer.model); save one next to it"),
        ("generation_config.json", {"top_k": -1}, "top_k must be 0 (off) or more, not -1: set model.generation.preset"),
    ],
)
def test_files_of_a_model_that_do_not_belong_together_are_named(
    folder: Path, tmp_path: Path, file: str, change: dict | None, reason: str
):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    content = {} if change is None else json.loads((tmp_path / file).read_text()) | change
    (tmp_path / file).write_text(json.dumps(content))
    with pytest.raises(UserError) as problem:
        load(tmp_path, generation=Generation(preset="repository"))
    assert reason in str(problem.value)


def test_an_encoder_that_loads_as_a_language_model_is_refused(tmp_path: Path):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertLMHeadModel(BertConfig(vocab_size=VOCABULARY, initializer_range=0.5, **sizes)).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    reason = (
        r"it is not a causal language model \(BertLMHeadModel\): its logits depend on later tokens, as those of an "
        "encoder do"
    )
    with pytest.raises(UserError, match=f"^model tiny: .* cannot be loaded: {reason}$"):
        load(tmp_path, prompt_style="plain")


def test_a_hub_model_without_a_hub_is_named():
    with pytest.raises(UserError, match=r"^model tiny: nobody/nothing cannot be loaded: "):
        Transformers(name="tiny", path="nobody/nothing").load()


def test_a_chat_style_needs_a_chat_template(folder: Path, tmp_path: Path):
    tiny("llama").save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(UserError) as problem:
        load(tmp_path, prompt_style="chat")
    assert str(problem.value) == "model tiny has no chat template: set model.prompt_style=plain"


def test_plain_prompts_are_continued_and_end_at_a_line_break(folder: Path):
    model = load(folder, prompt_style="plain")
    newline = model.tokenizer("\n").input_ids[0]
    ends = np.flatnonzero(model.texts.vocabularies[True].ends).tolist()
    assert ends == sorted([2, newline])
    assert not model.texts.vocabularies[True].carries[newline]
    completions = [c for reply in answered(model, [request("Two?", 400, (3.0,))]) for c in reply.completions]
    stopped = [c for c in completions if c.finish_reason == "stop"]
    assert stopped
    for completion in completions:
        assert completion.prompt_tokens == len("One? 1\n\nTwo?")
        assert completion.answer_tokens == len(completion.token_ids) - (completion.finish_reason == "stop")
        assert "\n" not in completion.text
        answer = completion.token_ids[: completion.answer_tokens]
        assert completion.text == model.tokenizer.decode(answer, skip_special_tokens=True).split("\n")[0].strip()


def test_a_chat_answer_is_its_first_line(folder: Path):
    model = load(folder, prompt_style="chat")
    assert np.flatnonzero(model.texts.vocabularies[True].ends).tolist() == [2]

    def read(text: str) -> tuple[str, str]:
        ids = tuple(model.tokenizer(text).input_ids)
        [(answer, tokens)] = model.texts.read([ids], first_line=True)
        return answer, model.tokenizer.decode(list(ids[:tokens]))

    assert read("Paris") == ("Paris", "Paris")
    assert read("Paris\n\nIt is") == ("Paris", "Paris")
    assert read("\n\nParis \nIt") == ("Paris", "\n\nParis")
    assert read("\n \n") == ("", "")
    end = model.tokenizer.eos_token_id
    assert model.texts.read([(*model.tokenizer("Paris").input_ids, end)], first_line=True) == [("Paris", 5)]


def list_request(name: str, trials: int = 1, temperatures: tuple[float, ...] = (0.0,), tokens: int = 8) -> Request:
    return replace(request(name, trials, temperatures, tokens), first_line=False)


@pytest.mark.parametrize("style", ["plain", "chat"])
def test_all_lines_are_the_answer_where_more_than_the_first_is_wanted(folder: Path, style: str):
    model = load(folder, prompt_style=style)
    ((_, completions, *_),) = answered(model, [list_request("Two?", 100, (0.0, 1.0, 4.0), 40)])
    end = model.tokenizer.eos_token_id
    reasons = set()
    for completion in completions:
        stopped = completion.finish_reason == "stop"
        written = completion.token_ids[:-1] if stopped else completion.token_ids
        assert stopped == (completion.token_ids[-1] == end)
        assert stopped or len(written) == 40
        assert end not in written
        assert completion.answer_tokens == len(written)
        assert completion.text == model.tokenizer.decode(written, skip_special_tokens=True)
        reasons.add(completion.finish_reason)
    assert reasons == {"stop", "length"}
    assert any("\n" in completion.text.strip() for completion in completions)


@pytest.mark.parametrize("style", ["plain", "chat"])
def test_answers_of_one_line_and_of_several_are_the_same_whatever_is_asked_beside_them(folder: Path, style: str):
    names = [f"{'a' * index}{index}" for index in range(5)]
    asked = [
        (request if index % 2 else list_request)(name, 12, (0.5, 4.0), 16 + index % 3)
        for index, name in enumerate(names)
    ]
    model = load(folder, prompt_style=style)
    alone = {name: draw for one in asked for name, draw in everything(answered(model, [one])).items()}
    assert everything(answered(model, asked)) == alone
    assert everything(answered(model, asked[::-1])) == alone
    kinds = [
        [text for index, name in enumerate(names) if index % 2 == odd for _, _, text, *_ in alone[name]]
        for odd in (0, 1)
    ]
    assert [any("\n" in text for text in texts) for texts in kinds] == [True, False]


@pytest.mark.parametrize("style", ["plain", "chat"])
def test_the_first_line_of_all_of_an_answer_is_the_answer_of_one_line(folder: Path, style: str):
    model = load(folder, prompt_style=style)
    one, several = request("Two?", 100, (1.0, 4.0), 12), list_request("Two?", 100, (1.0, 4.0), 12)
    ((_, short, *_),), ((_, long, *_),) = answered(model, [one]), answered(model, [several])
    longer = 0
    for line, whole in zip(short, long, strict=True):
        assert whole.token_ids[: len(line.token_ids)] == line.token_ids
        text = whole.text.strip() if style == "chat" else whole.text
        assert text.split("\n")[0].strip() == line.text
        longer += len(whole.text) > len(line.text) + 1
    assert longer > 0


def test_a_stop_string_ends_an_answer_of_several_lines_as_well(folder: Path):
    asked = list_request("Two?", 100, (4.0,), 20)
    free, stopping = load(folder, prompt_style="chat"), load(folder, prompt_style="chat", stop=["e"])
    ((_, without, *_),), ((_, found, *_),) = answered(free, [asked]), answered(stopping, [asked])
    assert [completion.text for completion in found] == [completion.text.split("e")[0] for completion in without]
    assert any("\n" in completion.text for completion in found)


def test_answers_of_several_lines_are_stored_apart():
    asked = Request("q1", 2, Prompt("Be brief.", (("One?", "1"),), "Two?"), (0.5, 1.0), 3, 8, 7, 5)
    identity = {"version": 1, "files": "abc"}
    assert answers_key(identity, replace(asked, first_line=False)) != answers_key(identity, asked)


@pytest.mark.parametrize("device", ["nonsense", "meta"])
def test_a_device_that_is_not_there_is_named(folder: Path, device: str):
    with pytest.raises(UserError, match=rf"^model\.device={device} cannot be used: "):
        load(folder, device=device)


def test_more_log_probabilities_than_tokens_are_padded_with_probability_zero(folder: Path):
    model = load(folder, prompt_style="plain")
    asked = Request("q", 0, Prompt("", (), "Two?"), (0.0,), 1, 2, 0, top_logprobs=VOCABULARY + 5)
    ((_, (completion,), *_),) = answered(model, [asked])
    first = torch.tensor(completion.top_logprobs[0])
    assert len(first) == VOCABULARY + 5
    assert first.exp().sum().item() == pytest.approx(1, abs=1e-4)
    assert first[VOCABULARY:].tolist() == [-math.inf] * 5


def free_request(name: str, trials: int = 5, stop_on_match: bool = False, tokens: int = 4) -> Request:
    """Some one-letter answers of the tiny model are right."""
    matcher = Matching().matcher(Question(name, name, ("b", "h", "5", "z")))
    return Request(
        name, 0, Prompt("", (), name), (0.5, 2.0, 4.0), trials, tokens, 0, matcher=matcher, stop_on_match=stop_on_match
    )


def everything(replies: Iterable[Reply]) -> dict[str, list[tuple[object, ...]]]:
    """All that is drawn, by question."""
    return {reply.request.question_id: [drawn(one) for one in reply.completions] for reply in replies}


def drawn(one: Completion) -> tuple[object, ...]:
    return one.temperature, one.trial, one.text, one.weight, one.token_ids, one.answer_tokens, one.finish_reason


def out_of_memory_beyond(monkeypatch: pytest.MonkeyPatch, most: int, error: Exception) -> list[int]:
    """Let blocks of more than ``most`` prompts fail; the list holds the sizes of all that are tried."""
    asked = []
    sample_answers = transformers_model.sample_answers

    def sample(prefixes: object, requests: Sequence[Request], *others: object) -> object:
        asked.append(len(requests))
        if len(requests) > most:
            raise error
        return sample_answers(prefixes, requests, *others)

    monkeypatch.setattr(transformers_model, "sample_answers", sample)
    return asked


@pytest.fixture
def blocks_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first blocks are as large as the later ones."""
    monkeypatch.setitem(batching.BLOCK_SIZES, False, batching.BLOCK_SIZES[False]._replace(ramp_up=1))


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
    ],
    ids=["cuda", "python", "cpu"],
)
def test_being_out_of_memory_is_survived_with_smaller_blocks(
    folder: Path, error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    requests = [free_request("a" * (1 + index % 3) + str(index)) for index in range(7)]
    undisturbed = {r.request.question_id: r for r in answered(load(folder, prompt_style="plain"), requests)}
    asked = out_of_memory_beyond(monkeypatch, 2, error)
    with caplog.at_level("WARNING"):
        replies = list(answered(load(folder, prompt_style="plain"), requests))
    assert len(replies) == 7
    assert everything(replies) == everything(undisturbed.values())
    for reply in replies:
        expected = undisturbed[reply.request.question_id]
        for one, other in zip(reply.completions, expected.completions, strict=True):
            assert one.token_logprobs == pytest.approx(other.token_logprobs, abs=1e-4)
            assert one.sampling_logprobs == pytest.approx(other.sampling_logprobs, abs=1e-4)
    assert max(asked) > 2
    first = next(size for size in asked if size > 2)
    assert f"out of memory with {first} prompts at a time; continuing with half as many" in caplog.messages
    assert len(caplog.messages) == sum(size > 2 for size in asked)


@pytest.mark.parametrize("evaluator", [PackedPrefixes, PrefixRows])
def test_being_out_of_memory_in_the_middle_of_a_block_is_survived(
    folder: Path, evaluator: type, monkeypatch: pytest.MonkeyPatch
):
    requests = [free_request(f"{index:02}") for index in range(8)]  # 15 answers each
    monkeypatch.setattr(TransformersModel, "_can_pack", lambda *_: evaluator is PackedPrefixes)
    undisturbed = everything(answered(load(folder, prompt_style="plain"), requests))
    children, failed = evaluator.children, []

    def limited(self: object, parents: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        if len(tokens) > 25:
            failed.append(len(tokens))
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return children(self, parents, tokens)

    monkeypatch.setattr(evaluator, "children", limited)
    assert everything(answered(load(folder, prompt_style="plain"), requests)) == undisturbed
    assert failed


@pytest.mark.usefixtures("blocks_alike")
def test_a_block_that_was_too_large_makes_those_after_it_smaller(folder: Path, monkeypatch: pytest.MonkeyPatch):
    requests = [free_request(f"{index:02}") for index in range(32)]  # 15 answers each
    asked = out_of_memory_beyond(monkeypatch, 3, torch.OutOfMemoryError("CUDA out of memory."))
    model = load(folder, prompt_style="plain", batch_size=8 * 15)
    assert len(list(answered(model, requests))) == 32
    assert asked[:4] == [8, 4, 2, 2]
    assert sum(size > 3 for size in asked) <= 3  # at 8, and at each of its halves
    assert set(asked[7:]) == {2}


def test_one_question_that_is_too_large_stops_the_run_in_one_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch):
    out_of_memory_beyond(
        monkeypatch, 0, torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore")
    )
    with pytest.raises(UserError) as problem:
        list(answered(load(folder, prompt_style="plain"), [free_request("a"), free_request("b")]))
    assert str(problem.value) == (
        "model tiny: out of memory with the answers to one question: CUDA out of memory. Tried to allocate 2.00 GiB; "
        "request fewer answers, or use a device with more memory"
    )


def test_other_errors_are_not_taken_for_a_lack_of_memory(folder: Path, monkeypatch: pytest.MonkeyPatch):
    asked = out_of_memory_beyond(monkeypatch, 0, RuntimeError("shapes differ"))
    with pytest.raises(RuntimeError, match=r"^shapes differ$"):
        list(answered(load(folder, prompt_style="plain"), [free_request("a"), free_request("b")]))
    assert len(asked) == 1


@pytest.mark.usefixtures("blocks_alike")
def test_free_memory_limits_the_answers_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch):
    requests = [free_request(f"{index:02}", trials=20) for index in range(6)]  # 60 answers each
    everywhere = {}
    asked_before = load(folder, prompt_style="plain")
    everything(answered(asked_before, requests))
    one_question = asked_before.bytes_per_question
    for free, block in ((1, 1), (4, 2), (10**6, 6)):
        with monkeypatch.context() as patch:
            asked = out_of_memory_beyond(patch, 10**6, MemoryError())
            model = load(folder, prompt_style="plain")
            memory = free * one_question  # half of it holds so many times 30 answers
            patch.setattr(transformers_model, "free_memory", lambda device, memory=memory: memory)
            everywhere[free] = everything(answered(model, requests))
        assert max(asked) == block
        assert sum(asked) == 6
    assert all(found == everywhere[1] for found in everywhere.values())


@pytest.mark.usefixtures("blocks_alike")
def test_more_answers_at_once_than_pay_are_not_taken_however_much_memory_there_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(transformers_model, "free_memory", lambda device: 10**15)
    monkeypatch.setattr(local_settings, "MAX_ANSWERS_AT_ONCE", {False: 130, True: 130})
    asked = out_of_memory_beyond(monkeypatch, 10**6, MemoryError())
    requests = [free_request(f"{index:02}", trials=20) for index in range(5)]
    assert len(list(answered(load(folder, prompt_style="plain"), requests))) == 5
    assert asked == [2, 2, 1]


def test_free_memory_is_that_of_the_device():
    assert 2**20 < transformers_model.free_memory(torch.device("cpu")) < 2**50


@pytest.mark.parametrize(
    ("style", "stop"),
    [("plain", ["th", "Q"]), ("chat", ["e"]), ("chat", ["\x01", "a b"])],
    ids=["pair", "letter", "rare"],
)
def test_stop_strings_end_answers_and_are_no_part_of_the_text(folder: Path, style: str, stop: list[str]):
    asked = Request("Two?", 0, Prompt("", (), "Two?"), (1.0, 4.0), 120, 12, 0)
    free = load(folder, prompt_style=style)
    stopped = load(folder, prompt_style=style, stop=stop)
    ((_, without, *_),), ((_, found, *_),) = answered(free, [asked]), answered(stopped, [asked])
    ends = np.flatnonzero(free.texts.vocabularies[True].ends).tolist()
    raw = free.texts.vocabularies[True].texts.raw
    earlier = 0
    for longer, completion in zip(without, found, strict=True):
        # by the definition: the undisturbed answer, up to the first token that completes a stop string
        written = b""
        expected, reason = longer.token_ids, longer.finish_reason
        for place, token in enumerate(longer.token_ids):
            written += raw[token]
            if any(one.encode() in written for one in stop):
                expected, reason = longer.token_ids[: place + 1], "stop"
                break
        earlier += len(expected) < len(longer.token_ids)
        assert completion.token_ids == expected
        assert completion.finish_reason == reason
        text = free.tokenizer.decode(expected, skip_special_tokens=True)
        for one in stop:
            text = text.split(one)[0]
        text = text.strip() if style == "chat" else text
        assert completion.text == text.split("\n")[0].strip()
        assert not any(one in completion.text for one in stop)
        assert completion.answer_tokens <= len(expected) - (expected[-1] in ends)
        answer = free.tokenizer.decode(expected[: completion.answer_tokens], skip_special_tokens=True)
        assert answer.strip().startswith(completion.text)
    assert earlier > 0 or stop[0] == "\x01"


def test_stop_strings_reach_answers_that_bring_no_matcher_and_need_not_be_whole(folder: Path):
    asked = free_request("Two?", stop_on_match=True)
    model = load(folder, prompt_style="plain", stop=["e"])
    ((_, whole, *_),) = answered(model, [replace(asked, matcher=None, stop_on_match=False)])
    ((_, found, *_),) = answered(model, [replace(asked, matcher=None)])
    assert found == whole


def test_answers_are_drawn_also_where_their_tokens_cannot_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch):
    asked = free_request("Two?")
    ((_, expected, *_),) = answered(load(folder, prompt_style="plain"), [asked])

    def unreadable(tokenizer: object, size: int, ends: object) -> None:
        raise ValueError("what its tokens write is unknown")

    monkeypatch.setattr(vocabulary, "token_texts", unreadable)
    model = load(folder, prompt_style="plain")
    ((_, found, *_),) = answered(model, [asked])
    assert found == expected
    enumeration = Enumeration(8, (0.5, 1.0, 2.0, 4.0))
    for needs_them, instead in (
        (replace(asked, stop_on_match=True), "sampler.stop_on_match=false"),
        (replace(asked, trials=0, enumeration=enumeration), "sampler=temperature_sweep"),
    ):
        with pytest.raises(UserError) as problem:
            list(answered(model, [needs_them]))
        assert str(problem.value) == f"model tiny: what its tokens write is unknown; choose {instead}"


def grades(replies: Iterable[Reply]) -> list[bool]:
    """Correctness by the grader of every completion."""
    replies = list(replies)
    questions = [Question(reply.request.question_id, "?", ("b", "h", "5", "z")) for reply in replies]
    table = pa.concat_tables(answers_of(replies))
    return Matching().grade(questions, table)["correct"].to_pylist()


@pytest.mark.parametrize(("style", "stop"), [("plain", []), ("chat", ["e"])])
def test_answers_that_need_not_be_whole_end_once_they_are_right_whatever_follows(
    folder: Path, style: str, stop: list[str]
):
    model = load(folder, prompt_style=style, stop=stop)
    requests = [replace(free_request(f"q{i}", 40, tokens=5), temperatures=(4.0,)) for i in range(2)]
    replies = {
        whole: list(answered(model, [replace(each, stop_on_match=not whole) for each in requests]))
        for whole in (True, False)
    }
    assert grades(replies[True]) == grades(replies[False])
    assert any(grades(replies[True]))
    closed = 0
    for long, short in zip(replies[True], replies[False], strict=True):
        assert long.request.question_id == short.request.question_id
        for whole, early in zip(long.completions, short.completions, strict=True):
            assert early.token_ids == whole.token_ids[: len(early.token_ids)]
            expected = whole.token_logprobs[: len(early.token_ids)]
            assert early.token_logprobs == pytest.approx(expected, abs=1e-4)
            if early.finish_reason == "closed":
                assert short.request.matcher.right(early.text)
                closed += len(early.token_ids) < len(whole.token_ids)
            else:
                assert drawn(early) == drawn(whole)
        assert "closed" not in {completion.finish_reason for completion in long.completions}
    assert closed > 0


@torch.no_grad()
@pytest.mark.parametrize(
    ("architecture", "prefixes"),
    [
        ("mistral_short_window", "one row per prefix"),
        ("gemma3_short_window", "one row per prefix"),
        *((architecture, "one row per prefix, without a cache") for architecture in WRONG_WITH_A_CACHE),
    ],
)
def test_a_window_that_only_the_answers_exceed_is_respected_and_a_cache_that_is_wrong_is_not_used(
    architecture: str, prefixes: str
):
    network = tiny(architecture, vocabulary=VOCABULARY)  # a window has 6 tokens
    config = Transformers(name="tiny", path="nowhere", prompt_style="plain")
    model = TransformersModel(config, network, byte_tokenizer())
    shots = (("one shot", "1"),)
    asked = [Request(name, 0, Prompt("", shots, name), (1.0,), 4, 8, seed=0) for name in ("ab", "abc")]
    longest = 0
    for reply in answered(model, asked):
        prompt = model._encode(reply.request.prompt)
        for completion in reply.completions:
            ids = torch.tensor([prompt + completion.token_ids])
            logprobs = network(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].log_softmax(dim=-1)
            expected = logprobs.gather(1, ids[0, len(prompt) :, None]).flatten().tolist()
            assert completion.token_logprobs == pytest.approx(expected, abs=1e-4)
            longest = max(longest, ids.shape[1])
    assert longest > 8
    assert model.description()["prefixes"] == prefixes


def test_a_tokenizer_in_python_and_an_end_token_that_the_model_lacks_are_usable(tmp_path: Path):
    tokenizer = ByT5Tokenizer()
    tokenizer.save_pretrained(tmp_path)
    network = tiny("llama", vocabulary=len(tokenizer), positions=512)
    network.generation_config.eos_token_id = [1, len(tokenizer) + 5]
    network.save_pretrained(tmp_path)
    model = load(tmp_path, prompt_style="plain")
    ends = np.flatnonzero(model.texts.vocabularies[True].ends).tolist()
    assert ends == [1, tokenizer.convert_tokens_to_ids("\n")]
    ((_, completions, *_),) = answered(model, [request("Two?", 3, (0.0, 1.0))])
    assert len(completions) == 6
    with pytest.raises(UserError, match=r"^model tiny: .* its tokenizer is Python code, .*; choose sampler=temp"):
        list(answered(model, [replace(free_request("Two?"), enumeration=Enumeration(5, (0.5, 1.0)))]))


@torch.no_grad()
def test_an_end_token_that_has_a_text_adds_nothing_to_an_enumerated_answer(folder: Path, tmp_path: Path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 42]}))  # 42 is H
    model = load(tmp_path, prompt_style="plain")
    asked = replace(free_request("Two?", tokens=1), temperatures=(1.0,), enumeration=Enumeration(5, (1.0,)))
    ((_, _, curve, _),) = answered(model, [asked])
    logits = model.model(input_ids=torch.tensor([model._encode(asked.prompt)])).logits[0, -1].float()
    texts = model.texts.read([(token,) for token in range(VOCABULARY)], first_line=True)
    right = [token for token, (text, _) in enumerate(texts) if asked.matcher.right(text)]
    assert curve.accuracy == pytest.approx([logits.softmax(dim=-1)[right].sum().item()], abs=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        {"temperatures": (0.0,)},
        {"temperatures": (1.0,)},
        {"enumeration": Enumeration(16, (0.5, 1.0, 2.0, 4.0))},
        {"enumeration": Enumeration(16, (0.5, 1.0), Matching().choices(Question("q", "q", choices=("a", "b"))))},
    ],
    ids=["greedy", "drawn", "enumerated", "choices"],
)
def test_logits_that_are_no_numbers_end_the_run_in_one_sentence(
    folder: Path, change: dict, caplog: pytest.LogCaptureFixture
):
    model = load(folder, prompt_style="plain", dtype="float16")
    with torch.no_grad():
        model.model.model.norm.weight.fill_(60_000)  # too much for float16
    with pytest.raises(UserError) as problem:
        list(answered(model, [replace(free_request("Two?"), **change)]))
    expected = "its logits are infinite or not numbers with model.dtype=float16: set model.dtype=float32, or check its"
    assert str(problem.value) == f"model tiny: {expected} weights"
    assert caplog.messages == []


def test_prompts_beyond_the_context_are_refused_with_a_table_of_positions_and_warned_of_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    def tokens(architecture: str, text: str, number: int) -> list[int]:
        tiny(architecture, vocabulary=VOCABULARY, positions=64).save_pretrained(tmp_path)
        byte_tokenizer().save_pretrained(tmp_path)
        asked = Request("q", 0, Prompt("", (), text), (2.0,), 1, number, seed=3)
        ((_, (completion,), *_),) = answered(load(tmp_path, prompt_style="plain"), [asked])
        return completion.token_ids

    problem = "model tiny: a prompt of 60 tokens with an answer of 6 exceeds the 64 tokens of its context: "
    for architecture in ("gpt2", "llama"):
        assert len(tokens(architecture, "x" * 60, 5)) == 5
        assert len(tokens(architecture, "x" * 64, 1)) == 1
    assert problem not in caplog.text
    with pytest.raises(UserError) as refused:
        tokens("gpt2", "x" * 60, 6)
    assert str(refused.value) == f"{problem}leave out long questions, use fewer exemplars, or reduce max_new_tokens"
    model, asked = load(tmp_path, prompt_style="plain"), Request("q", 0, Prompt("", (), "x" * 60), (2.0,), 1, 1, seed=3)
    list(answered(model, [asked, replace(asked, question_id="p", prompt=Prompt("", (), "yyyyyy"), max_new_tokens=40)]))
    with pytest.raises(UserError, match=r"^model tiny: a prompt of 80 tokens with an answer of 1 exceeds the 64 "):
        list(answered(model, [replace(asked, prompt=Prompt("", (), "x" * 80))]))
    assert len(tokens("llama", "x" * 60, 6)) == 6
    assert f"{problem}such answers are unreliable" in caplog.messages


def test_a_token_that_the_model_lacks_is_named(folder: Path, tmp_path: Path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(["<role>"])
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"^model tiny: the token '<role>' of a prompt has id 259, but"):
        list(answered(load(tmp_path, prompt_style="plain"), [request("<role>Two?")]))


def test_a_request_is_answered_also_when_it_is_the_only_one(folder: Path):
    model = load(folder, prompt_style="plain")
    ((asked, completions, curve, _),) = answered(model, [request("Two?", 2, (0.0, 1.0))])
    assert asked.question_id == "Two?"
    assert curve is None
    assert [(c.temperature, c.trial) for c in completions] == [(0.0, 0), (0.0, 1), (1.0, 0), (1.0, 1)]
    assert list(answered(model, [])) == []


@pytest.mark.parametrize("style", ["plain", "chat"])
def test_the_embedded_model_answers_greedily_as_generate_does(embedded: TransformersModel, style: str):
    model = TransformersModel(
        Transformers(name="smollm2", path="embedded", prompt_style=style),
        embedded.model,
        embedded.tokenizer,
    )
    questions = ["What is the capital of Italy?", "How many legs does a spider have?"]
    requests = [Request(q, 0, prompt_for(Question(q, q, ("x",))), (0.0,), 1, 3, 0, 10) for q in questions]
    for asked, (completion,), *_ in answered(model, requests):
        ids = torch.tensor([model._encode(asked.prompt)], device=model.model.device)
        ends = np.flatnonzero(model.texts.vocabularies[True].ends).tolist()
        generated = model.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=3,
            eos_token_id=ends,
            pad_token_id=2,
        )
        assert completion.token_ids == generated[0, ids.shape[1] :].tolist()
        assert completion.text
        with torch.no_grad():
            logits = model.model(input_ids=generated).logits[0, ids.shape[1] - 1 : -1]
        expected = logits.log_softmax(-1).topk(10).values.tolist()
        for logprobs, of_the_model in zip(completion.top_logprobs, expected, strict=True):
            assert logprobs == pytest.approx(of_the_model, abs=1e-3)
    batch_context = BatchContext.of(model._encode.in_order(requests))
    prompts = [[*prompt, *prompt[: batch_context.new_tokens]] for prompt in batch_context.longest]
    assert agrees_with_plain_passes(model.model, batch_context.shared, prompts)


def test_weights_that_are_a_pickle_of_code_are_refused_and_do_not_run(folder: Path, tmp_path: Path):
    class Code:
        def __reduce__(self) -> tuple[object, ...]:
            return os.mkdir, (str(tmp_path / "ran"),)

    shutil.copytree(folder, tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors"))
    torch.save({"model.embed_tokens.weight": Code()}, tmp_path / "model" / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"^model tiny: .* cannot be loaded: Weights only load failed\."):
        load(tmp_path / "model", prompt_style="plain")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("trusted", [False, True])
def test_code_that_a_model_brings_does_not_run_unless_it_is_trusted(folder: Path, tmp_path: Path, trusted: bool):
    model = tmp_path / "model"
    shutil.copytree(folder, model)
    config = json.loads((model / "config.json").read_text())
    config |= {
        "model_type": "its_own",
        "auto_map": {"AutoConfig": "its_own.Own", "AutoModelForCausalLM": "its_own.Own"},
    }
    (model / "config.json").write_text(json.dumps(config))
    (model / "its_own.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'ran')!r})\nraise ImportError('stop')\n")
    with pytest.raises(UserError, match=r"^model tiny: "):
        load(model, prompt_style="plain", trust_remote_code=trusted)
    assert (tmp_path / "ran").exists() == trusted


def test_code_that_a_model_brings_is_announced_whenever_it_may_run(folder: Path, caplog: pytest.LogCaptureFixture):
    load(folder, prompt_style="plain")
    assert caplog.messages == []
    load(folder, prompt_style="plain", trust_remote_code=True)
    said = f"model tiny: Python code of {folder} runs on this machine (model.trust_remote_code)"
    assert [(record.levelname, record.message) for record in caplog.records] == [("WARNING", said)]
