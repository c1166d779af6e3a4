"""Ends of replies: the words of every dialect for why a reply ended, sorted into five."""

import re
from collections.abc import Mapping

STOP, LENGTH, FILTER, TOOL, ERROR = "stop", "length", "filter", "tool", "error"

_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    STOP: (
        *("stop", "end", "eos", "eos_token", "end_id", "end_turn", "endoftext", "done", "complete", "completed"),
        *("finish", "finished", "normal", "stop_sequence", "stop_words", "stop_string", "stop_criteria_met", "word"),
        *("matched_stop", "stopped_eos", "stopped_word", "eos_found", "stop_string_found", "reason_stop"),
    ),
    LENGTH: (
        *("length", "limit", "max_length", "max_tokens", "max_output_tokens", "max_new_tokens", "token_limit"),
        *("max_predicted_tokens_reached", "context_length_reached", "stopped_limit", "error_limit"),
        *("model_length", "model_context_window_exceeded", "context_length_exceeded", "context"),
        *("reason_max_len", "reason_max_context", "reason_time_limit", "time_limit"),
    ),
    FILTER: (
        *("filter", "content_filter", "content_filtered", "guardrail_intervened", "refusal", "sensitive", "moderation"),
        *("safety", "recitation", "blocklist", "prohibited_content", "spii", "language", "error_toxic"),
        *("image_safety", "image_prohibited_content", "image_recitation", "model_armor"),
    ),
    TOOL: (
        *("tool", "tool_call", "tool_calls", "tool_use", "function_call", "pause_turn", "reason_tool_calls"),
        *("malformed_function_call", "malformed_tool_use", "unexpected_tool_call", "too_many_tool_calls"),
    ),
    ERROR: (
        *("error", "network_error", "server_error", "insufficient_system_resource", "failed", "malformed_model_output"),
        *("abort", "aborted", "cancel", "cancelled", "canceled", "user_cancel", "user_stopped", "timeout"),
        *("load", "unload", "model_unloaded", "not_finished", "incomplete", "other", "malformed_response"),
        *("image_other", "no_image"),
    ),
}
"""Spellings of each, by the documentation of OpenAI, Anthropic, Google, Mistral, DeepSeek, Zhipu, Cohere, Bedrock,
xAI, OpenRouter, Together, Fireworks, vLLM, SGLang, TGI, TensorRT-LLM, llama.cpp, LM Studio, Ollama and watsonx.
``load`` and ``unload`` are Ollama's, of a request that the model was not there for."""


def _bare(spelling: str) -> str:
    """Return the letters of a spelling, without the name of the enumeration that it belongs to."""
    letters = re.sub("[^a-z0-9]", "", spelling.casefold())
    return letters.removeprefix("finishreason").removeprefix("stopreason") or letters


_ENDS = {_bare(spelling): end for end, spellings in _SPELLINGS.items() for spelling in spellings}


def end_of(reason: object) -> str | None:
    """Return ``stop``, ``length``, ``filter``, ``tool`` or ``error`` for a server's word, however it is spelled; None
    for any other word.
    """
    return _ENDS.get(_bare(reason)) if isinstance(reason, str) and len(reason) <= 100 else None
