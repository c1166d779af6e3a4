import pytest

from robust_eval.reader.markup import without_reasoning


@pytest.mark.parametrize(
    ("reply", "spoken"),
    [
        ("Paris", "Paris"),
        ("  Paris\n", "Paris"),
        ("<think>France…</think>Paris", "Paris"),
        ("<think>\nFrance…\n</think>\n\nParis", "Paris"),
        ("<think></think>Paris", "Paris"),
        ("<THINK>France</THINK> Paris", "Paris"),
        ("<thinking>France</thinking>\nParis", "Paris"),
        ("<seed:think>France</seed:think>Paris", "Paris"),
        ("<thought>France</thought>Paris", "Paris"),
        ("<reasoning>France</reasoning>Paris", "Paris"),
        ("[THINK]France[/THINK]Paris", "Paris"),
        ("◁think▷France◁/think▷Paris", "Paris"),
        ("<|begin_of_thought|>France<|end_of_thought|>Paris", "Paris"),
        ("<|START_THINKING|>France<|END_THINKING|>Paris", "Paris"),
        ("Thinking...\nFrance it is.\n...done thinking.\n\nParis", "Paris"),
        ("Here is my thought process: France. Here is my response: Paris", "Paris"),
        # two thoughts, and one in the middle
        ("<think>a</think><think>b</think>Paris", "Paris"),
        ("It is <think>which?</think> Paris", "It is  Paris"),
        # the prompt opened the thought
        ("France, so Paris.\n</think>\n\nParis", "Paris"),
        ("a</think>b</think>Paris", "Paris"),
        # channels
        (
            "<|channel|>analysis<|message|>France<|end|><|start|>assistant<|channel|>final<|message|>Paris<|return|>",
            "Paris",
        ),
        ("<|channel|>final<|message|>Paris", "Paris"),
        ("analysisThe user asks about France.assistantfinalParis", "Paris"),
        # what only looks like it
        ("An analysis of France: Paris", "An analysis of France: Paris"),
        ("I think Paris", "I think Paris"),
        ("a < b > c", "a < b > c"),
        ("", ""),
        ("<think>France</think>", ""),
    ],
)
def test_what_is_said_after_the_reasoning_is_left(reply: str, spoken: str):
    assert without_reasoning(reply) == spoken


@pytest.mark.parametrize(
    "reply",
    [
        "<think>France, so Paris",
        "<think>",
        "<think>a</think><think>b",
        "[THINK]France",
        "<|channel|>analysis<|message|>France, so",
        "<|channel|>analysis<|message|>France<|end|><|start|>assistant<|channel|>commentary<|message|>tool",
        "analysisThe user asks",
        "Thinking...\nFrance",
    ],
)
def test_reasoning_that_does_not_end_leaves_nothing(reply: str):
    assert without_reasoning(reply) is None
