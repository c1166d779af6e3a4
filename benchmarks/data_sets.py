"""Cost of loading a data set: seconds and peak memory for 100,000 questions, and for streaming a million.

    python benchmarks/data_sets.py [--quick] [--json FILE]

The files are made up, in the layouts of the hub (SQuAD with its paragraphs, MMLU) and as tables of one's own. Each case
runs in a process of its own; seconds are without, memory is with what Python and its libraries take. Streaming is
measured at a tenth of the way as well, after which the memory should not grow; a seeded sample is drawn from a stream.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from support.command import Command, of_its_own, peak_megabytes, write_figures

from robust_eval.dataset.own_table import OwnTable
from robust_eval.dataset.published import Published
from robust_eval.dataset.selection import Selection

LOADED, STREAMED, SAMPLE = 100_000, 1_000_000, 1_000
CASES = (
    *(("load", kind, LOADED) for kind in ("squad.parquet", "squad.jsonl", "mmlu.parquet", "table.csv", "table.jsonl")),
    *((way, kind, STREAMED) for way in ("stream", "sample") for kind in ("squad.parquet", "table.csv")),
)
QUICK = (("load", "mmlu.parquet", 40), ("stream", "table.csv", 40))


def records(kind: str, number: int) -> Iterator[dict[str, Any]]:
    """Made-up records of about the length of real ones."""
    for index in range(number):
        asked = f"Which of the {index} rivers of the old kingdom flows through the town of the millers?"
        if kind.startswith("squad"):
            context = f"Paragraph {index // 5} tells of rivers, mills and bridges. " * 12
            spans = {"text": [f"River {index}", f"the River {index}"], "answer_start": [10, 6]}
            yield {"id": f"q{index}", "title": "Rivers", "context": context, "question": asked, "answers": spans}
        elif kind.startswith("mmlu"):
            choices = [f"River {index + number}" for number in range(4)]
            yield {"question": asked, "subject": "anatomy", "choices": choices, "answer": index % 4}
        else:
            yield {"question": asked, "answers": json.dumps([f"River {index}", f"the River {index}"])}


def write(file: Path, number: int) -> None:
    """Blocks of records in a file of the kind that its name says."""
    found = records(file.name, number)
    if file.suffix == ".parquet":
        blocks = iter(lambda: list(islice(found, 10_000)), [])
        first = pa.Table.from_pylist(next(blocks))
        with pq.ParquetWriter(file, first.schema) as writer:
            writer.write_table(first)
            for block in blocks:
                writer.write_table(pa.Table.from_pylist(block))
        return
    with file.open("w", encoding="utf-8") as lines:
        if file.suffix == ".csv":
            lines.write("question,answers\n")
        for record in found:
            if file.suffix == ".csv":
                lines.write(",".join('"' + text.replace('"', '""') + '"' for text in record.values()) + "\n")
            else:
                lines.write(json.dumps(record) + "\n")


def dataset(file: Path, **more: Any) -> Selection:
    if file.name.startswith("table"):
        return OwnTable(name="table", path=str(file), **more)
    return Published(name="made up", layout=file.stem, path=str(file), subsets=["all"], **more)


def measured(way: str, file: Path, number: int) -> dict[str, float]:
    start, before = time.perf_counter(), peak_megabytes()
    early = before
    if way == "stream":
        count = 0
        for count, _ in enumerate(dataset(file).read(), start=1):
            if count == number // 10:
                early = peak_megabytes()
        assert count == number
    else:
        limit = SAMPLE if way == "sample" else None
        assert len(dataset(file, limit=limit, shuffle=way == "sample").load()) == (limit or number)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "megabytes": peak_megabytes(), "before": before, "at_a_tenth": early}


def main() -> None:
    command = Command(__doc__)
    command.add_argument("--case", nargs=3, help=argparse.SUPPRESS)
    options = command.options()
    if options.case:
        way, file, number = options.case
        print(json.dumps(measured(way, Path(file), int(number))))
        return
    figures: dict[str, float] = {}
    print(f"{'':34}{'seconds':>10}{'MB in all':>12}{'MB before':>12}{'MB at a tenth':>16}")
    for way, kind, number in QUICK if options.quick else CASES:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / kind
            write(file, number)
            found = of_its_own(__file__, way, file, number)
        early = f"{found['at_a_tenth']:16.0f}" if way == "stream" else ""
        print(
            f"{way:8}{kind:16}{number:>10,}{found['seconds']:10.1f}{found['megabytes']:12.0f}{found['before']:12.0f}{early}"
        )
        figures |= {f"{way}.{kind}.{name}": value for name, value in (found | {"questions": number}).items()}
    write_figures(options.json, figures)


if __name__ == "__main__":
    main()
