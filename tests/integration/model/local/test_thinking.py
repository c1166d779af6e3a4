"""Models that think before they answer, thoughts alone, and answers behind given thoughts: tiny random models beside
plain passes and draws.
"""

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from architectures import tiny
from asking import answered
from scipy import stats
from tiny_model import CHAT_TEMPLATE, byte_tokenizer, save_tiny_model

from robust_eval.error import UserError
from robust_eval.model.base import Completion, Enumeration, Reasoning, Request
from robust_eval.model.generation import Generation
from robust_eval.model.local.prompt_encoder import ChatTemplate
from robust_eval.model.local.transformers import Transformers
from robust_eval.model.local.transformers_model import TransformersModel
from robust_eval.prompt.prompt import Prompt

PROMPT = Prompt("Be brief.", (), "Two?")
SHOWN = "<system>Be brief.<user>Two?<bot>"
ALONE = Prompt("", (), "Two?")
OPENED, END = "<user>Two?<bot><think>\n", "\n</think>\n\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model"))


def load(folder: Path, **settings: object) -> TransformersModel:
    return Transformers(name="tiny", path=str(folder), prompt_style="chat", **settings).load()


def request(trials: int = 4, temperatures: tuple[float, ...] = (0.7, 1.5), text: str = "Two?") -> Request:
    prompt = Prompt("Be brief.", (), text)
    return Request(text, 0, prompt, temperatures, trials, 6, seed=5, first_line=False)


def ask(model: TransformersModel, *requests: Request) -> list[list[Completion]]:
    found = {reply.request.item: reply.completions for reply in answered(model, list(requests))}
    return [found[request.item] for request in requests]


def plain_logprobs(model: TransformersModel, before: list[int], ids: list[int]) -> list[float]:
    """Log-probabilities of tokens behind others, by one pass of the model."""
    with torch.inference_mode():
        logits = model.model(torch.tensor([[*before, *ids]])).logits[0].float()
    logprobs = logits.log_softmax(-1)
    return [logprobs[len(before) + place - 1, token].item() for place, token in enumerate(ids)]


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
    assert [(c.temperature, c.trial) for c in completions] == [(t, trial) for t in (0.7, 1.5) for trial in range(4)]
    assert len(behind) == 8
    assert len({completion.reasoning for completion in completions}) > 1
    for (ids, _), completion in zip(behind, completions, strict=True):
        assert ids[: len(prompt)] == prompt
        assert ids[-len(end) :] == end
        thought = model.tokenizer.decode(ids[len(prompt) : -len(end)], skip_special_tokens=True)
        assert thought.strip() == completion.reasoning
        assert completion.reasoning_tokens <= 12
        assert len(completion.token_ids) <= 6
        assert completion.prompt_tokens == len(prompt)
        plain = plain_logprobs(model, ids, completion.token_ids)
        assert completion.token_logprobs == pytest.approx(plain, abs=1e-4)


def test_a_thought_that_ends_by_itself_is_not_ended_for_the_model(folder: Path):
    model = load(folder, thinking_budget=200, chat_template=ChatTemplate(thinking_end="/"))
    (completions,) = ask(model, request(trials=10, temperatures=(2.0,)))
    ended = [c for c in completions if c.reasoning_tokens < 200]
    assert 0 < len(ended) < 10
    assert all("/" not in c.reasoning for c in completions)


def test_a_special_token_ends_a_thought_and_an_answer_where_it_is_a_tag_or_a_stop_string(tmp_path: Path):
    tokenizer = byte_tokenizer(CHAT_TEMPLATE)
    tokenizer.add_special_tokens({"additional_special_tokens": ["</think>", "<end>"]})
    tokenizer.save_pretrained(tmp_path)
    tiny("llama", vocabulary=len(tokenizer), positions=512).save_pretrained(tmp_path)
    tag, end = tokenizer.convert_tokens_to_ids(["</think>", "<end>"])

    (traces,) = ask(load(tmp_path), thoughts(trials=20, most=200, temperature=2.0))
    assert any(tag in trace.token_ids for trace in traces)
    assert all(tag not in trace.token_ids[:-1] for trace in traces)
    (completions,) = ask(load(tmp_path, thinking_budget=200), request(trials=20, temperatures=(2.0,)))
    assert any(completion.reasoning_tokens < 200 for completion in completions)

    asked = replace(request(trials=40, temperatures=(2.0,)), max_new_tokens=100)
    (answers,) = ask(load(tmp_path, stop=["<end>"]), asked)
    ended = [answer for answer in answers if end in answer.token_ids]
    assert ended
    for answer in ended:
        assert (answer.token_ids.index(end), answer.finish_reason) == (len(answer.token_ids) - 1, "stop")
        assert answer.answer_tokens == len(answer.token_ids) - 1


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
    with pytest.raises(UserError, match=r"^model tiny reasons before it answers \(model\.thinking_budget\)"):
        model.check([asked])
    with pytest.raises(UserError, match=r"^sampler\.stop_on_match=true has no effect on model tiny, .*: remove it, or"):
        model.check([replace(request(), stop_on_match=True)])
    load(folder, thinking_budget=0).check([request()])


def test_what_changes_answers_is_in_the_identity_and_what_does_not_is_not(folder: Path):
    plain = Transformers(name="tiny", path=str(folder))
    assert {"chat_template", "thinking_budget"}.isdisjoint(plain.identity())
    identities = [
        Transformers(name="tiny", path=str(folder), **settings).identity()
        for settings in ({}, {"thinking_budget": 0}, {"thinking_budget": 9}, {"chat_template": ChatTemplate(date="x")})
    ]
    assert len({repr(identity) for identity in identities}) == 4


# Thoughts alone, and answers behind them


def thoughts(trials: int, most: int, temperature: float = 1.0, text: str = "Two?", seed: int = 5) -> Request:
    prompt, thought = Prompt("", (), text), Reasoning(most=most)
    return Request(text, 5000, prompt, (temperature,), trials, most, seed, first_line=False, reasoning=thought)


def behind(tokens: list[int], number: int, temperatures: tuple[float, ...] = (1.0,), trials: int = 3) -> Request:
    return Request(
        "Two?", 5000 + number, ALONE, temperatures, trials, 4, 5, first_line=False, reasoning=Reasoning(tuple(tokens))
    )


def test_a_thought_stands_alone_without_what_ends_it(folder: Path):
    model = load(folder, chat_template=ChatTemplate(thinking_end="/"))
    (found,) = ask(model, thoughts(trials=12, most=200, temperature=2.0))
    ended = [thought for thought in found if thought.finish_reason == "stop"]
    assert 0 < len(ended) < 12
    for thought in found:
        own = thought.token_ids[: thought.answer_tokens]
        assert thought.text == model.tokenizer.decode(own, skip_special_tokens=True)
        assert "/" not in thought.text
        assert len(own) == len(thought.token_ids) - (thought in ended)
        opened = model.tokenizer("<user>Two?<bot>").input_ids  # no tag opens a thought that a mere slash ends
        assert thought.token_logprobs == pytest.approx(plain_logprobs(model, opened, thought.token_ids), abs=1e-4)


def test_answers_come_behind_prompt_thought_and_its_end(folder: Path):
    model = load(folder)
    encode = model.tokenizer
    long, lined, nothing = (encode(text).input_ids for text in ("so it is", "so\n", ""))
    requests = [behind(tokens, number) for number, tokens in enumerate((long, lined, nothing))]
    shown = [f"{OPENED}so it is{END}", f"{OPENED}so{END}", f"{OPENED}{END}"]
    for completions, text, tokens in zip(ask(model, *requests), shown, (long, lined, nothing), strict=True):
        before = encode(text).input_ids
        for completion in completions:
            assert completion.prompt_tokens == len(before)
            assert completion.token_logprobs == pytest.approx(
                plain_logprobs(model, before, completion.token_ids), abs=1e-4
            )
            assert completion.reasoning == (encode.decode(tokens).strip() if tokens else None)
            assert completion.reasoning_tokens == (len(tokens) or None)


def test_answers_about_a_question_do_not_depend_on_which_are_missing_or_asked_beside(folder: Path):
    model = load(folder)
    requests = [behind(list(range(10, 10 + length)), length, (0.7, 1.5)) for length in (0, 1, 5, 9)]
    whole = ask(model, *requests)
    other = Request(
        "Six?", 5000, Prompt("", (), "Six?"), (1.0,), 2, 4, 5, first_line=False, reasoning=Reasoning((7, 8))
    )
    (last,) = model.complete([other, *requests], {requests[2].item})
    assert [reply.request.item for reply in last] == [requests[2].item]
    assert last[0].completions == whole[2]


def test_thoughts_about_a_question_do_not_depend_on_how_many_are_written_together(folder: Path):
    requests = [thoughts(3, 24, text=text) for text in ("Two?", "And three times three?", "Six?", "Why?", "Really so?")]
    together, alone, one_of_them = (
        {reply.request.item: reply.completions for block in found for reply in block}
        for found in (
            load(folder).complete(requests, {request.item for request in requests}),
            load(folder, batch_size=1).complete(requests, {request.item for request in requests}),
            load(folder).complete(requests, {requests[2].item}),
        )
    )
    ids = {item: [thought.token_ids for thought in found] for item, found in together.items()}
    assert len({tuple(each) for found in ids.values() for each in found}) == 15
    assert {item: [thought.token_ids for thought in found] for item, found in alone.items()} == ids
    assert [thought.token_ids for thought in one_of_them[requests[2].item]] == ids[requests[2].item]


def test_traces_by_the_tree_are_like_traces_that_are_drawn_plainly(folder: Path):
    pvalues = []
    for setting, (top_k, top_p, hot, answered_at) in enumerate(product((0, 5), (1.0, 0.8), (0.7, 2.0), (1.5,))):
        model = load(folder, generation=Generation(top_k=top_k, top_p=top_p))
        tree = by_tree(model, hot, answered_at, seed=setting)
        plain = drawn_plainly(model, hot, answered_at, torch.Generator().manual_seed(setting))
        table = np.array([np.bincount(each, minlength=32) for each in (tree, plain)])
        both = table.sum(axis=0)
        table = np.column_stack([table[:, both >= 10], table[:, both < 10].sum(axis=1)])
        pvalues.append(stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue)
    assert len(pvalues) == 8
    assert min(pvalues) > 1e-3
    assert stats.kstest(pvalues, "uniform").pvalue > 1e-3


DRAWS = 200


def cell(thought: list[int], answer: int) -> int:
    """Where a thought of two tokens and the first token of an answer are counted."""
    return (thought[0] % 4) + 4 * (thought[-1] % 2) + 8 * (answer % 4)


def by_tree(model: TransformersModel, hot: float, answered_at: float, seed: int) -> list[int]:
    (found,) = ask(model, thoughts(DRAWS, 2, hot, seed=seed))
    traces = [thought.token_ids[: thought.answer_tokens] for thought in found]
    requests = [
        Request(
            "q", 5000 + number, ALONE, (answered_at,), 1, 1, seed, first_line=False, reasoning=Reasoning(tuple(trace))
        )
        for number, trace in enumerate(traces)
    ]
    answers = ask(model, *requests)
    return [cell(trace or [0], answer.token_ids[0]) for trace, (answer,) in zip(traces, answers, strict=True)]


def drawn_plainly(model: TransformersModel, hot: float, answered_at: float, generator: torch.Generator) -> list[int]:
    """Draw each token from the softmax of all logits, one forward pass for each, and no tree."""
    end, found = model.tokenizer.eos_token_id, []
    before = model.tokenizer(OPENED).input_ids

    def drawn(prompts: list[list[int]], t: float) -> list[int]:
        tokens = [0] * len(prompts)
        for length in {len(prompt) for prompt in prompts}:
            rows = [row for row, prompt in enumerate(prompts) if len(prompt) == length]
            with torch.inference_mode():
                logits = model.model(torch.tensor([prompts[row] for row in rows])).logits[:, -1].float()
            p = model.generation.truncated(logits.double() / t).softmax(-1)
            for row, token in zip(rows, torch.multinomial(p, 1, generator=generator)[:, 0].tolist(), strict=True):
                tokens[row] = token
        return tokens

    traces: list[list[int]] = [[] for _ in range(DRAWS)]
    going = list(range(DRAWS))
    for _ in range(2):
        for row, token in zip(going, drawn([[*before, *traces[row]] for row in going], hot), strict=True):
            traces[row].append(token)
        going = [row for row in going if traces[row][-1] != end]
    traces = [[token for token in trace if token != end] for trace in traces]
    shown = []
    for trace in traces:
        own_line = "" if trace and model.tokenizer.decode(trace).endswith("\n") else "\n"
        shown.append([*before, *trace, *model.tokenizer(f"{own_line}</think>\n\n").input_ids])
    for trace, answer in zip(traces, drawn(shown, answered_at), strict=True):
        found.append(cell(trace or [0], answer))
    return found


def test_a_budget_of_the_model_and_thoughts_of_a_request_are_not_both_told(folder: Path):
    with pytest.raises(UserError, match=r"^sampler=thinking sets the reasoning budget of model tiny: remove"):
        load(folder, thinking_budget=5).check([thoughts(2, 4)])


def test_ray_is_given_thoughts_in_blocks_and_the_answers_to_a_question_together(folder: Path):
    config = Transformers(name="tiny", path=str(folder), prompt_style="chat", batch_size=32)
    requests = [thoughts(2, 4, text=f"{number}{number}?") for number in range(5)]
    division = config.shard(requests)
    assert division.blocks == [requests[:2], requests[2:]]  # 2 · 2 answers, an eighth of the most, and 4 · 2
    assert division.batch_context is not None
    assert len(division.batch_context.longest[-1]) == len(load(folder).tokenizer("<user>00?<bot><think>\n").input_ids)
    answers = [behind([number], number) for number in range(3)]
    assert config.shard(answers).blocks == [answers]
