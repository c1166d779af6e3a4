"""Logs of inspect_ai's own scorers.

A scripted model replies to each sample; a reply of null is an error. A log is left in a folder of the case's name.
"""

from pathlib import Path
from typing import Any

import inspect_ai
from inspect_ai import scorer as scorers
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.solver import generate, multiple_choice

EPOCHS = 2
TEMPERATURE = 0.7


def make(case: dict[str, Any], folder: Path) -> None:
    """Evaluate a case; leave its log in a folder."""
    replies = {sample["input"]: text for sample, text in zip(case["samples"], case["replies"], strict=True)}

    def say(input: Any, tools: Any, choice: Any, config: Any) -> ModelOutput:  # noqa: A002
        text = next(text for asked, text in replies.items() if asked in input[-1].text)
        if text is None:
            raise RuntimeError("the provider is down")
        return scripted_output("mockllm/scripted", text)

    grade = get_model("mockllm/grader", custom_outputs=lambda *asked: scripted_output("mockllm/grader", "GRADE: C"))
    options = case.get("options", {}) | ({"model": grade} if case["scorer"].startswith("model_graded") else {})
    samples = [Sample(id=number, **each) for number, each in enumerate(case["samples"], start=1)]
    chosen = multiple_choice(multiple_correct=case.get("multiple_correct", False))
    inspect_ai.eval(
        inspect_ai.Task(
            name=case["name"],
            dataset=MemoryDataset(samples),
            solver=chosen if case["scorer"] == "choice" else generate(),
            scorer=getattr(scorers, case["scorer"])(**options),
        ),
        model=get_model("mockllm/scripted", custom_outputs=say),
        epochs=EPOCHS,
        temperature=TEMPERATURE,
        fail_on_error=False,
        log_dir=str(folder),
        display="none",
    )


def scripted_output(model: str, text: str) -> ModelOutput:
    """Return a reply with its token usage, without which inspect_ai fetches a tokenizer."""
    output = ModelOutput.from_content(model, text, stop_reason="stop")
    output.usage = ModelUsage(input_tokens=9, output_tokens=1, total_tokens=10)
    return output
