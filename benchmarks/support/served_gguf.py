"""llama.cpp's OpenAI-compatible server with a GGUF file, in a process of its own.

    python benchmarks/support/served_gguf.py FILE SLOTS

prints the base URL on one line and serves until stdin closes.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def served_gguf(file: Path, slots: int) -> Iterator[str]:
    """The base URL of a server, which ends with the context; RuntimeError if it cannot start."""
    command = [sys.executable, __file__, str(file), str(slots)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            if not url:
                raise RuntimeError(f"the server ended with status {process.wait()} before it served")
            yield url
        finally:
            process.kill()


def main() -> None:
    import xllamacpp

    file, slots = sys.argv[1], int(sys.argv[2])
    settings = xllamacpp.CommonParams()
    settings.model.path = file
    settings.n_parallel = slots
    settings.n_ctx = slots * 512
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    settings.n_threads_http = 64
    settings.port = 0
    settings.verbosity = 0
    server = xllamacpp.Server(settings)
    print(f"{server.listening_address}/v1", flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
