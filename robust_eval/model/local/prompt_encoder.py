"""Encoders of prompts as the token ids of a causal language model, with its reasoning.

A model reasons before each answer (``model.thinking_budget``), or its reasoning is a separate trace with answers after
it (``sampler=thinking``, docs/thinking.md).
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from robust_eval.error import UserError, first_line
from robust_eval.model.base import Completion, Reply, Request
from robust_eval.model.local.batching import in_order
from robust_eval.prompt.prompt import Prompt

TEMPLATE_DATE = "26 Jul 2024"
"""Date for chat templates that write one (Llama 3): the current date would change the answers every day."""
_CURRENT_DATE = re.compile(r"""strftime_now\(\s*(['"])(.*?)\1\s*\)""")
"""Call of a function in a chat template, with the form of the current date."""


@dataclass
class ChatTemplate:
    """Parameters of a model's chat template."""

    enable_thinking: bool | None = None
    """For templates that can turn reasoning on and off (Qwen3); null: the template's default."""
    system_role: bool | None = None
    """true: the system line is a separate message; false: it begins the first user message; null: true if the
    template supports system messages."""
    date: str = TEMPLATE_DATE
    """Date for templates that contain today's date; one in a format other than the default's is inserted unchanged."""
    thinking_end: str = "</think>"
    """The tag with which the model ends its reasoning. The reasoning begins with the same tag without the slash."""

    def __post_init__(self) -> None:
        if "/" not in self.thinking_end:
            raise ValueError(f"thinking_end must be a closing tag such as </think>, not {self.thinking_end}")


class PromptEncoder:
    """Encoder of prompts with a tokenizer of transformers, as plain text or (``chat``) by its chat template.

    ``opened`` opens the reasoning of a reasoning model in the text of a conversation.
    """

    def __init__(
        self,
        tokenizer: Any,
        prompt_style: str,
        template: ChatTemplate | None = None,
        opened: Callable[[str], str] = str,
    ) -> None:
        self._tokenizer = tokenizer
        self._chat = prompt_style == "chat"
        self._opened = opened
        template = template or ChatTemplate()
        self._options: dict[str, Any] = {"tokenize": False, "add_generation_prompt": True, "date_string": template.date}
        self._date = template.date
        if template.enable_thinking is not None:
            self._options["enable_thinking"] = template.enable_thinking
        self._system_role = bool(template.system_role)
        if self._chat:
            shown = _shown(tokenizer, Prompt("", (), "QUESTION"))
            if shown is not None and "question" not in shown.lower():  # the first refused prompt ends the run
                raise UserError(
                    "the model's chat template omits the question (perhaps it takes only lists of text and "
                    "images): set model.prompt_style=plain"
                )
            if template.system_role is None:  # some templates refuse a system message, and some drop it silently
                self._system_role = "SYSTEM LINE" in (_shown(tokenizer, Prompt("SYSTEM LINE", (), "question")) or "")

    def __call__(self, prompt: Prompt) -> list[int]:
        return self._encoded([prompt])[0]

    def _encoded(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """Return the token ids of each prompt."""
        if not self._chat:
            texts = [prompt.text() for prompt in prompts]
        else:  # the template writes the special tokens itself
            texts = [self._opened(self._filled_template(prompt)) for prompt in prompts]
        return [list(ids) for ids in self._tokenizer(texts, add_special_tokens=not self._chat).input_ids]

    def _filled_template(self, prompt: Prompt) -> str:
        from jinja2 import TemplateError

        messages = prompt.messages(self._system_role)
        template = _CURRENT_DATE.sub(self._fixed_date, self._tokenizer.get_chat_template())
        try:
            text: str = self._tokenizer.apply_chat_template(messages, chat_template=template, **self._options)
        except (TemplateError, TypeError) as problem:
            raise UserError(
                f"the model's chat template cannot render this prompt ({first_line(problem)}): set "
                "model.chat_template.system_role=false, sampler.prompts=builtin:zero_shot.yaml, which has no "
                "exemplars, or model.prompt_style=plain"
            ) from problem
        return text

    def _fixed_date(self, current: re.Match[str]) -> str:
        """Return the date of the settings in place of the current date of a chat template, in its form."""
        try:
            date = datetime.strptime(self._date, "%d %b %Y").strftime(current[2])
        except ValueError:
            date = self._date
        return json.dumps(date, ensure_ascii=False)

    def in_order(self, requests: Sequence[Request]) -> list[tuple[list[int], Request]]:
        """Return the requests with their encoded prompts (token ids), in the order of evaluation."""
        encoded = self._encoded([request.prompt for request in requests])
        return in_order([*zip(encoded, requests, strict=True)])


def _shown(tokenizer: Any, prompt: Prompt) -> str | None:
    """Return a prompt as the tokenizer's chat template shows it; None if the template refuses it."""
    from jinja2 import TemplateError

    try:
        return str(tokenizer.apply_chat_template(prompt.messages(), tokenize=False))
    except (TemplateError, TypeError):
        return None


_SEPARATOR = "\n\n"
"""Text between the end of the reasoning and the answer, as in chat templates."""
_SEED_STEP = 1_000_003
"""Difference between the seeds of answers to successive traces; otherwise, identical traces give identical answers."""


@dataclass(frozen=True)
class ReasoningFormat:
    """Format of a model's reasoning: at most ``budget`` tokens up to the tag ``end``, which is appended if missing."""

    tokenizer: Any
    budget: int
    end: str

    @property
    def start(self) -> str:
        """Tag that opens the reasoning in a prompt: the end tag without its slash."""
        return self.end.replace("/", "", 1)

    def opened(self, prompt: str) -> str:
        """Return the text of a prompt with the reasoning opened, or closed with a budget of 0.

        Some templates already open it.
        """
        opened = prompt if prompt.rstrip().endswith(self.start) else f"{prompt}{self.start}\n"
        return opened if self.budget else f"{opened}\n{self.end}{_SEPARATOR}"

    def request(self, request: Request) -> Request:
        """Return the request for the reasoning traces before the answers of a request, one for each."""
        return replace(
            request, max_new_tokens=self.budget, top_logprobs=0, matcher=None, first_line=False, stop_on_match=False
        )

    def prompt(self, prompt: Sequence[int], trace: Completion) -> list[int]:
        """Return the tokens before the answer: prompt, trace, and the end of the reasoning."""
        ids = list(trace.token_ids or ())
        if self.end in self._text(ids):
            return [*prompt, *ids]
        if trace.finish_reason == "stop":
            ids = ids[:-1]  # it ended its reply, not its reasoning
        return [*prompt, *ids, *self.tokenizer(f"\n{self.end}{_SEPARATOR}", add_special_tokens=False).input_ids]

    def prompt_after_tokens(self, prompt: Sequence[int], tokens: Sequence[int]) -> list[int]:
        """Return the tokens before the answer: prompt, the tokens of a trace, and the end of the reasoning."""
        line_break = "" if self._text(tokens).endswith("\n") else "\n"
        end = self.tokenizer(f"{line_break}{self.end}{_SEPARATOR}", add_special_tokens=False).input_ids
        return [*prompt, *tokens, *end]

    def as_reply(self, trace: Completion) -> Completion:
        """Return a reasoning trace as a reply; ``answer_tokens`` counts its tokens before the end tag."""
        ids = list(trace.token_ids or ())
        before, ended, _ = self._text(ids).partition(self.end)
        length = len(ids) - (trace.finish_reason == "stop" and not ended)  # it may have ended its reply instead
        while ended and len(self._text(ids[:length])) > len(before):
            length -= 1
        return trace._replace(text=self._text(ids[:length], whole=False), answer_tokens=length)

    def answer(self, request: Request, trace: Completion) -> Request:
        """Return the request for the one answer after a reasoning trace, with its own random numbers."""
        seed = request.seed + _SEED_STEP * (trace.trial + 1)
        one = replace(request, temperatures=(trace.temperature,), trials=1, first_trial=0, seed=seed)
        return replace(one, matcher=None, stop_on_match=False)

    def with_reasoning(self, answer: Completion, tokens: Sequence[int]) -> Completion:
        """Return an answer with the trace of these tokens as its reasoning."""
        text = self._text(tokens, whole=False).strip()
        return answer._replace(reasoning=text, reasoning_tokens=len(tokens)) if tokens else answer

    def with_trace(self, answer: Completion, trace: Completion) -> Completion:
        """Return an answer with the trace before it as its reasoning, and with the trace's trial and prompt tokens."""
        ids = list(trace.token_ids or ())
        return answer._replace(
            trial=trace.trial,
            prompt_tokens=trace.prompt_tokens,
            reasoning=self._text(ids, whole=False).split(self.end)[0].strip(),
            reasoning_tokens=len(ids),
        )

    def _text(self, ids: Sequence[int], whole: bool = True) -> str:
        """Return the text of the tokens of a reasoning trace; ``whole`` includes the special ones."""
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=not whole)
        return text


class ReasoningPrompts:
    """Encoder of requests for reasoning traces, and for answers after finished traces; it adds the reasoning to the
    replies.
    """

    def __init__(self, tokenizer: Any, template: ChatTemplate) -> None:
        self._thinking = ReasoningFormat(tokenizer, 1, template.thinking_end)
        self._open_reasoning, self._skip_reasoning = (
            PromptEncoder(tokenizer, "chat", template, replace(self._thinking, budget=budget).opened)
            for budget in (1, 0)
        )

    @property
    def stop(self) -> tuple[str, ...]:
        """Stop strings of a reasoning trace: its end tag."""
        return (self._thinking.end,)

    def prompt(self, request: Request) -> list[int]:
        """Return the tokens before the reasoning trace, or before the answer after it."""
        tokens = _tokens(request)
        if tokens == ():
            return self._skip_reasoning(request.prompt)
        opened = self._open_reasoning(request.prompt)
        return opened if tokens is None else self._thinking.prompt_after_tokens(opened, tokens)

    def in_order(self, requests: Sequence[Request]) -> list[tuple[list[int], Request]]:
        """Return requests with their encoded prompts and reasoning, in the order of evaluation."""
        return in_order([(self.prompt(request), request) for request in requests])

    def read(self, reply: Reply) -> Reply:
        """Return a reply with reasoning traces cut at their end tag, or with answers that include their reasoning."""
        tokens = _tokens(reply.request)
        if tokens is None:
            return reply._replace(completions=[self._thinking.as_reply(trace) for trace in reply.completions])
        return reply._replace(
            completions=[self._thinking.with_reasoning(answer, tokens) for answer in reply.completions]
        )


def are_traces(requests: Sequence[Request]) -> bool:
    """Return whether requests ask for reasoning traces, not for answers after traces; no block mixes the two."""
    return _tokens(requests[0]) is None


def _tokens(request: Request) -> tuple[int, ...] | None:
    assert request.reasoning is not None
    return request.reasoning.tokens
