"""Models that think before they answer: tiny random ones, whose numbers are compared with plain passes."""

from pathlib import Path

import pytest
import torch
from asking import answered
from tiny_model import save_tiny_model

from robust_eval.error import UserError
from robust_eval.model.base import Completion, Enumeration, Request
from robust_eval.model.local.prompt_encoder import ChatTemplate
from robust_eval.model.local.transformers import Transformers
from robust_eval.model.local.transformers_model import TransformersModel
from robust_eval.prompt.prompt import Prompt

PROMPT = Prompt("Be brief.", (), "Two?")
SHOWN = "<system>Be brief.<user>Two?<bot>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model"))


def load(folder: Path, **settings: object) -> TransformersModel:
    return Transformers(name="tiny", path=str(folder), prompt_style="chat", **settings).load()


def request(trials: int = 4, temperatures: tuple[float, ...] = (0.7, 1.5), text: str = "Two?") -> Request:
    prompt = Prompt("Be brief.", (), text)
    return Request(text, 0, prompt, temperatures, trials, 6, seed=5, first_line=False)


def ask(model: TransformersModel, *requests: Request) -> list[list[Completion]]:
    return [reply.completions for reply in answered(model, list(requests))]


def plain_logprobs(model: TransformersModel, before: list[int], ids: list[int]) -> list[float]:
    """Log-probabilities of tokens behind others, by one pass of the model."""
    with torch.inference_mode():
        logits = model.model(torch.tensor([[*before, *ids]])).logits[0].float()
    logprobs = logits.log_softmax(-1)
    return [logprobs[len(before) + place - 1, token].item() for place, token in enumerate(ids)]


def test_an_answer_goes_on_behind_its_thought(folder: Path):
    model = load(folder, thinking_budget=20)
    (completions,) = ask(model, request())
    encode = model.tokenizer
    assert [(c.temperature, c.trial) for c in completions] == [(t, trial) for t in (0.7, 1.5) for trial in range(4)]
    assert len({c.reasoning for c in completions}) > 1
    for completion in completions:
        assert completion.reasoning_tokens <= 20
        assert len(completion.token_ids) <= 6
        assert completion.weight == 1 / 4
        assert completion.prompt_tokens == len(encode(f"{SHOWN}<think>\n").input_ids)


def test_the_probabilities_of_an_answer_are_those_behind_prompt_thought_and_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    model = load(folder, thinking_budget=12)
    seen: list[tuple[list[int], Request]] = []
    written = model._generate

    def watched(encoded, stop=()):
        seen.extend(encoded)
        return written(encoded, stop)

    monkeypatch.setattr(model, "_generate", watched)
    (completions,) = ask(model, request())
    (prompt, _), *behind = seen
    end = model.tokenizer("\n</think>\n\n").input_ids
    assert model.tokenizer.decode(prompt) == f"{SHOWN}<think>\n"
    assert len(behind) == len(completions) == 8
    for (ids, _), completion in zip(behind, completions, strict=True):
        assert ids[: len(prompt)] == prompt
        assert ids[-len(end) :] == end
        thought = model.tokenizer.decode(ids[len(prompt) : -len(end)], skip_special_tokens=True)
        assert thought.strip() == completion.reasoning
        plain = plain_logprobs(model, ids, completion.token_ids)
        assert completion.token_logprobs == pytest.approx(plain, abs=1e-4)


def test_a_thought_that_ends_by_itself_is_not_ended_for_the_model(folder: Path):
    model = load(folder, thinking_budget=200, chat_template=ChatTemplate(thinking_end="/"))
    (completions,) = ask(model, request(trials=10, temperatures=(2.0,)))
    ended = [c for c in completions if c.reasoning_tokens < 200]
    assert 0 < len(ended) < 10
    assert all("/" not in c.reasoning for c in completions)


def test_with_a_budget_of_nothing_the_model_answers_at_once(folder: Path):
    model = load(folder, thinking_budget=0)
    assert model.tokenizer.decode(model._encode(PROMPT)) == f"{SHOWN}<think>\n\n</think>\n\n"
    (completions,) = ask(model, request())
    assert {c.reasoning for c in completions} == {None}
    plain = plain_logprobs(model, model._encode(PROMPT), completions[0].token_ids)
    assert completions[0].token_logprobs == pytest.approx(plain, abs=1e-4)


def test_a_template_that_opens_the_reasoning_is_left_as_it_is(folder: Path):
    model = load(folder, thinking_budget=5)
    model.tokenizer.chat_template = "{{ messages[-1].content }}<think>"
    assert model.tokenizer.decode(model._encode(PROMPT)) == "Two?<think>"


def test_answers_do_not_depend_on_what_is_asked_beside_them(folder: Path):
    requests = [request(text=text) for text in ("Two?", "And three times three?", "Six?")]
    together = ask(load(folder, thinking_budget=10), *requests)
    alone = [ask(load(folder, thinking_budget=10, batch_size=3), each)[0] for each in requests]
    assert [[c.token_ids for c in each] for each in together] == [[c.token_ids for c in each] for each in alone]


def test_a_greedy_answer_follows_on_a_greedy_thought(folder: Path):
    model = load(folder, thinking_budget=8)
    ((first,),) = ask(model, request(trials=1, temperatures=(0.0,)))
    ((second,),) = ask(model, request(trials=1, temperatures=(0.0,)))
    assert (first.reasoning, first.token_ids) == (second.reasoning, second.token_ids)


def test_the_probabilities_of_answers_after_any_thought_are_refused(folder: Path):
    model = load(folder, thinking_budget=8)
    asked = Request("q", 0, PROMPT, (1.0,), 0, 4, 0, enumeration=Enumeration(5, (1.0,)))
    with pytest.raises(UserError, match=r"^model tiny thinks before it answers \(model\.thinking_budget\)"):
        model.check([asked])
    load(folder, thinking_budget=0).check([request()])


def test_the_template_is_filled_as_the_settings_say(folder: Path):
    template = ChatTemplate(enable_thinking=False, system_role=False, date="1 Jan 2030")
    model = load(folder, chat_template=template)
    model.tokenizer.chat_template = (
        "{{ date_string }} {{ enable_thinking }} {% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    )
    assert model.tokenizer.decode(model._encode(PROMPT)) == "1 Jan 2030 False <user>Be brief.\n\nTwo?"


def test_what_changes_answers_is_in_the_identity_and_what_does_not_is_not(folder: Path):
    plain = Transformers(name="tiny", path=str(folder))
    assert {"chat_template", "thinking_budget"}.isdisjoint(plain.identity())
    identities = [
        Transformers(name="tiny", path=str(folder), **settings).identity()
        for settings in ({}, {"thinking_budget": 0}, {"thinking_budget": 9}, {"chat_template": ChatTemplate(date="x")})
    ]
    assert len({repr(identity) for identity in identities}) == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"thinking_budget": -1}, "thinking_budget must be 0 or more, not -1"),
        (
            {"thinking_budget": 5, "prompt_style": "plain"},
            "thinking_budget needs prompt_style=chat: a model does not think on plain text",
        ),
    ],
)
def test_a_budget_that_cannot_be_is_refused(settings: dict[str, object], message: str):
    with pytest.raises(ValueError, match=f"^{message}$"):
        Transformers(name="tiny", path="somewhere", **settings)


def test_an_end_of_thinking_without_a_slash_is_refused():
    with pytest.raises(ValueError, match=r"^chat_template\.thinking_end must be a tag with a slash, not <end>$"):
        ChatTemplate(thinking_end="<end>")
