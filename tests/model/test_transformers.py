import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from architectures import tiny
from tiny_model import VOCABULARY, byte_tokenizer, save_tiny_model

from robust_eval.error import UserError
from robust_eval.model.base import Request
from robust_eval.model.transformers import Transformers, TransformersModel
from robust_eval.prompt.prompt import Prompt, prompt_for
from robust_eval.question import Question

DROPS_SYSTEM = "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}<bot>"
REFUSES_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + DROPS_SYSTEM
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model"))


def load(folder: Path, **settings: object) -> TransformersModel:
    return Transformers(name="tiny", path=str(folder), **settings).load()


def request(text: str, trials: int = 1, temperatures: tuple[float, ...] = (0.0,), tokens: int = 8) -> Request:
    return Request(text, 0, Prompt("Be brief.", (("One?", "1"),), text), temperatures, trials, tokens, 0, 5)


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


def test_a_folder_without_weights_is_named(tmp_path: Path):
    with pytest.raises(UserError, match=f"^model tiny: {tmp_path} cannot be loaded: "):
        load(tmp_path)


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
    ends = torch.nonzero(model._vocabulary.ends).flatten().tolist()
    assert ends == sorted([2, newline])
    assert not model._vocabulary.carries[newline]
    completions = [c for reply in model.complete([request("Two?", 400, (3.0,))]) for c in reply.completions]
    stopped = [c for c in completions if c.finish_reason == "stop"]
    assert stopped
    for completion in completions:
        assert completion.prompt_tokens == len("One? 1\n\nTwo?")
        assert completion.answer_tokens == len(completion.token_ids) - (completion.finish_reason == "stop")
        assert "\n" not in completion.text
        answer = completion.token_ids[: completion.answer_tokens]
        assert completion.text == model.tokenizer.decode(answer, skip_special_tokens=True).split("\n")[0].strip()


def test_a_chat_prompt_follows_the_template(folder: Path):
    model = load(folder, prompt_style="chat")
    ids = model._encode(request("Two?").prompt)
    assert model.tokenizer.decode(ids) == "<system>Be brief.<user>One?<assistant>1<user>Two?<bot>"
    assert torch.nonzero(model._vocabulary.ends).flatten().tolist() == [2]


def test_a_chat_answer_is_its_first_line(folder: Path):
    model = load(folder, prompt_style="chat")

    def read(text: str) -> tuple[str, str]:
        ids = tuple(model.tokenizer(text).input_ids)
        answer, tokens = model._read(ids)
        return answer, model.tokenizer.decode(list(ids[:tokens]))

    assert read("Paris") == ("Paris", "Paris")
    assert read("Paris\n\nIt is") == ("Paris", "Paris")
    assert read("\n\nParis \nIt") == ("Paris", "\n\nParis")
    assert read("\n \n") == ("", "")
    end = model.tokenizer.eos_token_id
    assert model._read((*model.tokenizer("Paris").input_ids, end)) == ("Paris", 5)


def test_the_date_in_a_template_is_always_the_same(folder: Path):
    model = load(folder, prompt_style="chat")
    model.tokenizer.chat_template = "{{ date_string or strftime_now('%d %b %Y') }}{{ messages[-1].content }}"
    assert model.tokenizer.decode(model._encode(request("Two?").prompt)) == "26 Jul 2024Two?"


def test_a_device_that_is_not_there_is_named(folder: Path):
    with pytest.raises(UserError, match=r"^model\.device=nonsense cannot be used: "):
        load(folder, device="nonsense")


def test_broken_weights_are_named(folder: Path, tmp_path: Path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(UserError, match=f"^model tiny: {tmp_path} cannot be loaded: "):
        load(tmp_path)


def test_more_log_probabilities_than_tokens_are_padded_with_probability_zero(folder: Path):
    model = load(folder, prompt_style="plain")
    asked = Request("q", 0, Prompt("", (), "Two?"), (0.0,), 1, 2, 0, top_logprobs=VOCABULARY + 5)
    ((_, (completion,), _),) = model.complete([asked])
    first = torch.tensor(completion.top_logprobs[0])
    assert len(first) == VOCABULARY + 5
    assert first.exp().sum().item() == pytest.approx(1, abs=1e-4)
    assert first[VOCABULARY:].tolist() == [-math.inf] * 5


@pytest.mark.parametrize("template", [DROPS_SYSTEM, REFUSES_SYSTEM], ids=["drops", "refuses"])
def test_a_template_without_a_system_role_gets_the_system_line_from_the_user(folder: Path, template: str):
    model = load(folder, prompt_style="chat")
    model.tokenizer.chat_template = template
    model = TransformersModel(model.config, model.model, model.tokenizer)
    ids = model._encode(request("Two?").prompt)
    assert model.tokenizer.decode(ids) == "<user>Be brief.\n\nOne?<assistant>1<user>Two?<bot>"


def test_completions_are_the_same_at_any_block_size_and_order(folder: Path):
    requests = [request("a" * (1 + index % 9), 20, (0.5, 2.0)) for index in range(9)]

    def ask(answers_at_once: int | None, asked: list[Request]) -> dict:
        model = load(folder, prompt_style="plain", answers_at_once=answers_at_once)
        return {reply.request.question_id: [c.token_ids for c in reply.completions] for reply in model.complete(asked)}

    together = ask(1600, requests)
    assert len(together) == 9
    assert ask(1, requests) == together
    assert ask(80, requests[::-1]) == together
    assert ask(None, requests) == together


def test_a_request_is_answered_also_when_it_is_the_only_one(folder: Path):
    model = load(folder, prompt_style="plain")
    ((asked, completions, curve),) = model.complete([request("Two?", 2, (0.0, 1.0))])
    assert asked.question_id == "Two?"
    assert curve is None
    assert [(c.temperature, c.trial) for c in completions] == [(0.0, 0), (0.0, 1), (1.0, 0), (1.0, 1)]
    assert list(model.complete([])) == []


@pytest.mark.parametrize("style", ["plain", "chat"])
def test_the_embedded_model_answers_greedily_as_generate_does(embedded: TransformersModel, style: str):
    model = TransformersModel(
        Transformers(name="smollm2", path="embedded", sha256="0", prompt_style=style),
        embedded.model,
        embedded.tokenizer,
    )
    questions = ["What is the capital of Italy?", "How many legs does a spider have?", "Who painted the Mona Lisa?"]
    requests = [Request(q, 0, prompt_for(Question(q, q, ("x",))), (0.0,), 1, 5, 0, 10) for q in questions]
    for asked, (completion,), _ in model.complete(requests):
        ids = torch.tensor([model._encode(asked.prompt)])
        ends = torch.nonzero(model._vocabulary.ends).flatten().tolist()
        generated = model.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=5,
            eos_token_id=ends,
            pad_token_id=2,
        )
        assert completion.token_ids == generated[0, ids.shape[1] :].tolist()
        assert completion.text
        for place, logprobs in enumerate(completion.top_logprobs):
            prefix = torch.cat([ids, torch.tensor([completion.token_ids[:place]], dtype=torch.long)], dim=1)
            with torch.no_grad():
                expected = model.model(input_ids=prefix).logits[0, -1].log_softmax(-1).topk(10).values
            assert logprobs == pytest.approx(expected.tolist(), abs=1e-3)


def test_the_embedded_model_splits_numbers_into_digits(embedded: TransformersModel):
    assert len(embedded.tokenizer(" 1945").input_ids) == 5


def test_answers_of_the_embedded_model_do_not_depend_on_the_blocks(embedded: TransformersModel):
    texts = ["What is the capital of Italy?", "Name a colour.", "Who was Napoleon?", "How many days has a week?"]
    requests = [Request(t, 0, prompt_for(Question(t, t, ("x",))), (0.6, 1.2, 2.0), 10, 5, 0) for t in texts]

    def ask(answers_at_once: int, asked: list[Request]) -> list[list[int]]:
        config = replace(embedded.config, answers_at_once=answers_at_once)
        replies = TransformersModel(config, embedded.model, embedded.tokenizer).complete(asked)
        found = {reply.request.question_id: [c.token_ids for c in reply.completions] for reply in replies}
        return [ids for text in texts for ids in found[text]]

    together, alone = ask(1600, requests), ask(1, requests[::-1])
    flipped = sum(a != b for a, b in zip(together, alone, strict=True))
    print(f"{flipped} of {len(together)} answers differ by rounding")
    assert flipped <= len(together) / 100


def test_settings_that_make_no_sense_are_refused():
    for settings, message in (
        ({"prompt_style": "poem"}, "prompt_style must be plain or chat, not poem"),
        ({"dtype": "int8"}, "dtype must be one of auto, float32, bfloat16, float16, not int8"),
        ({"answers_at_once": 0}, "answers_at_once must be at least 1, not 0"),
        ({"path": "embedded:x/y.gguf"}, "sha256 must be given for an embedded model"),
    ):
        with pytest.raises(ValueError) as problem:  # noqa: PT011 (the whole message is compared)
            Transformers(**{"name": "tiny", "path": "x"} | settings)
        assert str(problem.value) == message


def test_the_mean_probability_of_a_greedy_answer_is_its_confidence(embedded: TransformersModel):
    question = Question("q", "What is the capital of France?", ("Paris",))
    ((_, (completion,), _),) = embedded.complete([Request("q", 0, prompt_for(question), (0.0,), 1, 5, 0, 10)])
    assert completion.text == "Paris"
    assert 0 < math.exp(completion.token_logprobs[0]) <= 1
    assert completion.token_logprobs[0] == pytest.approx(completion.top_logprobs[0][0], abs=1e-6)
