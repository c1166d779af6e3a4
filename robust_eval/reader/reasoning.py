"""The reasoning that a model writes before it answers, taken off its reply.

Models mark it in many ways: tags such as ``<think>``, channels, sentences. Servers that know the marks take it off
themselves; others, and models that are loaded here, leave it in the text.
"""

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
_MAY_BE = re.compile(r"[<\[◁]|thinking|here is my|analysis", re.I)
"""What stands in every reply that has any of the marks: nothing else is looked for in the others, which are most."""
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+).*?<\|message\|>(.*?)(?=<\|(?:end|return|start|channel|call)\|>|\Z)", re.S)
_CHANNELS_WITHOUT_MARKS = re.compile(r"\A\s*analysis(?=[A-Z])(?:.*assistantfinal(.*))?", re.S)
"""What is left of channels where special tokens were left out of the text."""


def without_reasoning(reply: str) -> str | None:
    r"""Return what a reply says after its reasoning; None where the reasoning never ends.

    >>> without_reasoning("<think>\nFrance, so…\n</think>\n\nParis"), without_reasoning("so it is Paris</think>Paris")
    ('Paris', 'Paris')
    >>> without_reasoning("<think>France, so Paris") is None
    True
    """
    if not _MAY_BE.search(reply):
        return reply.strip()
    if channels := _CHANNEL.findall(reply):
        said = [text for name, text in channels if name.lower() == "final"]
        return said[-1].strip() if said else None
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
