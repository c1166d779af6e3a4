from collections.abc import Sequence

import numpy as np
import pytest
import torch
from architectures import FULL_ATTENTION, OTHERS, tiny

from robust_eval.model.local.batching import PromptTree
from robust_eval.model.local.prefixes import OutputHead, PackedPrefixes, PrefixRows, agrees_with_plain_passes

SHARED = [5, 6, 7]
PROMPTS = [[5, 6, 7, 12, 30, 9, 41, 22, 17], [5, 6, 7, 8, 40, 3, 19, 33, 21, 18, 27, 4], [5, 6, 7, 14]]
PARENTS = ([0, 0, 1, 2, 2], [0, 1, 1, 4], [0, 3])
TOKENS = ([9, 31, 4, 16, 44], [10, 8, 25, 36], [11, 12])


def differences(evaluator: type, model: torch.nn.Module, shared: list[int], prompts: list[list[int]]) -> list[float]:
    """Largest difference from plain passes over the whole sequences, at every level of a small tree."""
    sequences = prompts
    prefixes = evaluator(model, shared)
    found = [prefixes.roots(prompts)[:]]
    expected = [[*sequences]]
    for parents, tokens in zip(PARENTS, TOKENS, strict=True):
        sequences = [[*sequences[parent], token] for parent, token in zip(parents, tokens, strict=True)]
        found.append(prefixes.children(np.array(parents), np.array(tokens))[:])
        expected.append(sequences)
    return [
        max(
            (row - model(input_ids=torch.tensor([sequence]), use_cache=False).logits[0, -1]).abs().max().item()
            for row, sequence in zip(rows, level, strict=True)
        )
        for rows, level in zip(found, expected, strict=True)
    ]


@pytest.mark.parametrize("architecture", FULL_ATTENTION)
@pytest.mark.parametrize("shared", [SHARED, []], ids=["shared tokens", "nothing shared"])
@torch.no_grad()
def test_packed_prefixes_give_the_logits_of_plain_passes(architecture: str, shared: list[int]):
    model = tiny(architecture)
    assert agrees_with_plain_passes(model, shared, PROMPTS[:2])
    assert max(differences(PackedPrefixes, model, shared, PROMPTS)) < 1e-4


@torch.no_grad()
def test_prompts_of_one_token_have_the_logits_of_plain_passes():
    assert max(differences(PackedPrefixes, tiny("llama"), [], [[5], [8], [5]])) < 1e-4


@pytest.mark.parametrize("architecture", FULL_ATTENTION)
@torch.no_grad()
def test_prompts_that_share_a_passage_have_the_logits_of_plain_passes(architecture: str):
    passage, other = [5, 6, 7, *range(10, 34)], [5, 6, 7, *range(8, 48)]
    prompts = [[*passage, 9, 41, 22], [*other, 17], [*passage, 9]]
    tree = PromptTree.of([prompt[3:-1] for prompt in prompts], cheapest=False)
    assert [(len(stage.tokens), stage.width) for stage in tree.stages] == [(2, 40), (3, 2)]  # both are padded
    assert max(differences(AsDeeplyAsCanBe, tiny(architecture), SHARED, prompts)) < 1e-4


class AsDeeplyAsCanBe(PackedPrefixes):
    def roots(self, prompts: Sequence[Sequence[int]], deepest: bool = True) -> OutputHead:
        return super().roots(prompts, deepest)


@pytest.mark.parametrize("architecture", OTHERS)
def test_models_that_do_not_attend_to_everything_are_recognised(architecture: str):
    assert not agrees_with_plain_passes(tiny(architecture), SHARED, PROMPTS[:2])


@pytest.mark.parametrize("architecture", [*FULL_ATTENTION, *OTHERS])
@torch.no_grad()
def test_a_row_for_each_prefix_gives_the_logits_of_plain_passes(architecture: str):
    prompts = [PROMPTS[1], [*PROMPTS[1][:-1], 29], [*PROMPTS[1][:5], 13, *PROMPTS[1][6:]]]
    assert max(differences(PrefixRows, tiny(architecture), SHARED, prompts)) < 1e-4


def test_the_attention_of_the_model_is_as_before():
    model = tiny("llama")
    before = model.config._attn_implementation
    PackedPrefixes(model, SHARED).roots(PROMPTS)
    assert model.config._attn_implementation == before


@torch.no_grad()
def test_a_prompt_that_is_asked_twice_has_two_rows():
    twice = [PROMPTS[0], PROMPTS[1], PROMPTS[0]]
    assert max(differences(PackedPrefixes, tiny("llama"), SHARED, twice)) < 1e-4
    assert max(differences(PackedPrefixes, tiny("llama"), PROMPTS[0][:-1], [PROMPTS[0]] * 3)) < 1e-4
