"""Reasoning in the text of a reply, and the answer after it."""

import re

_PAIRS = [
    (re.compile(opening, re.I), re.compile(closing, re.I))
    for opening, closing in (
        (r"<(?:seed:)?think(?:ing)?\b[^<>]*>", r"</(?:seed:)?think(?:ing)?>"),
        (
            r"<(?:thoughts?|reasoning|reflection|scratchpad|rationale)>",
            r"</(?:thoughts?|reasoning|reflection|scratchpad|rationale)>",
        ),
        (r"\[THINK\]", r"\[/THINK\]"),
        (r"◁think▷", r"◁/think▷"),
        (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),
        (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),
        (r"<unused94>", r"<unused95>"),
        (r"\A\s*Thinking(?: Process)?(?:\.\.\.|…)\s*\n", r"(?:\.\.\.|…)\s*done thinking\.?"),
        (r"\A\s*Here is my thought process:", r"Here is my response:"),
    )
]
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+).*?<\|message\|>(.*?)(?=<\|(?:end|return|start|channel|call)\|>|\Z)", re.S)
_CHANNELS_WITHOUT_MARKS = re.compile(r"\A\s*analysis(?=[A-Z])(?:.*assistantfinal(.*))?", re.S)
"""Remains of channels in a text without special tokens."""


def without_reasoning(reply: str) -> str | None:
    r"""Return what a reply says after its reasoning; None where the reasoning never ends.

    >>> without_reasoning("<think>\nFrance, so…\n</think>\n\nParis"), without_reasoning("so it is Paris</think>Paris")
    ('Paris', 'Paris')
    >>> without_reasoning("<think>France, so Paris") is None
    True
    """
    if channels := _CHANNEL.findall(reply):
        finals = [text for name, text in channels if name.lower() == "final"]
        return finals[-1].strip() if finals else None
    if bare := _CHANNELS_WITHOUT_MARKS.match(reply):
        return None if bare[1] is None else bare[1].strip()
    for opening, closing in _PAIRS:
        ends = list(closing.finditer(reply))
        if ends and not opening.match(reply.lstrip()) and len(opening.findall(reply)) < len(ends):
            reply = reply[ends[-1].end() :]  # the prompt itself opened it
            continue
        while begun := opening.search(reply):
            ended = closing.search(reply, begun.end())
            if ended is None:
                return None
            reply = f"{reply[: begun.start()]}{reply[ended.end() :]}"
    return reply.strip()
