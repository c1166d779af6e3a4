"""Time and memory to read a log of inspect_ai with many samples.

    python benchmarks/large_logs.py [--samples 100000] [--quick] [--json FILE]

The log has twenty epochs of each question. inspect_ai writes its first sample, with messages, ten log-probabilities of
a token and a score; the others are the same with another question and epoch. Each log is read in a process of its own,
by robust_eval.load_answers, and all of its answers are held as a table at the end. Memory is the most that the process
took, and what it had taken before it read anything.
"""

import argparse
import json
import tempfile
import time
import zipfile
from pathlib import Path

from rich.console import Console
from rich.table import Table
from support.command import Command, of_its_own, peak_megabytes, write_figures

import robust_eval

EPOCHS = 20
FIRST = "samples/q0_epoch_1.json"


def main() -> None:
    command = Command(__doc__)
    command.add_argument("--samples", type=int, default=100_000)
    command.add_argument("--case", nargs=1, help=argparse.SUPPRESS)
    options = command.options(samples=EPOCHS)
    if options.case:
        print(json.dumps(read(Path(options.case[0]))))
        return
    sizes = sorted({max(EPOCHS, options.samples // 10), options.samples})
    table = Table("samples", "megabytes of the file", "seconds", "megabytes before", "megabytes at most")
    figures: dict[str, float] = {}
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            file = write(Path(folder, "large.eval"), size)
            stored = file.stat().st_size / 2**20
            seconds, before, peak = read(file) if options.quick else of_its_own(__file__, file)
        table.add_row(f"{size:,}", f"{stored:.1f}", f"{seconds:.1f}", f"{before:.0f}", f"{peak:.0f}")
        named = {"samples": size, "megabytes": stored, "seconds": seconds, "before": before, "at most": peak}
        figures |= {f"{size} samples: {name}": value for name, value in named.items()}
    Console(soft_wrap=True).print(table)
    write_figures(options.json, figures)


def write(file: Path, samples: int) -> Path:
    """A log with so many samples, of which inspect_ai has written the first."""
    from inspect_ai.dataset import Sample
    from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalSample, EvalSpec, write_eval_log
    from inspect_ai.model import ChatMessageUser, ModelOutput
    from inspect_ai.model._model_output import Logprob, Logprobs, TopLogprob
    from inspect_ai.scorer import Score

    asked = Sample(id="q0", input="What is the capital of the country with number 0?", target="Rome")
    output = ModelOutput.from_content("mockllm/model", "Rome")
    top = [TopLogprob(token=f"token {rank}", logprob=-0.5 - rank) for rank in range(10)]
    output.choices[0].logprobs = Logprobs(content=[Logprob(token="Rome", logprob=-0.5, top_logprobs=top)])
    first = EvalSample(
        id="q0",
        epoch=1,
        input=asked.input,
        target=asked.target,
        messages=[ChatMessageUser(content=str(asked.input)), output.choices[0].message],
        output=output,
        scores={"includes": Score(value="C", answer="Rome")},
    )
    spec = EvalSpec(
        created="2026-01-01T00:00:00+00:00",
        task="capitals",
        model="mockllm/model",
        dataset=EvalDataset(name="capitals"),
        config=EvalConfig(epochs=EPOCHS),
    )
    write_eval_log(EvalLog(status="success", eval=spec, samples=[first]), str(file))
    with zipfile.ZipFile(file) as written:
        sample = json.loads(written.read(FIRST))
    with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as log:
        for number in range(1, samples):
            question, epoch = divmod(number, EPOCHS)
            name = f"q{question}"
            changed = sample | {"id": name, "epoch": epoch + 1, "input": f"{asked.input[:-2]}{question}?"}
            log.writestr(f"samples/{name}_epoch_{epoch + 1}.json", json.dumps(changed))
    return file


def read(file: Path) -> tuple[float, float, float]:
    """Seconds and megabytes that reading takes, the megabytes before and at most."""
    before, start = peak_megabytes(), time.perf_counter()
    (loaded,) = robust_eval.load_answers(file)
    table = loaded.collected.answers
    seconds = time.perf_counter() - start
    if table.num_rows < EPOCHS:
        raise SystemExit(f"{file} was not read")
    return seconds, before, peak_megabytes()


if __name__ == "__main__":
    main()
