"""Small files that unpack to gigabytes, and what reading each costs: ``python tests/support/bombs.py FOLDER``."""

import json
import os
import resource
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

MILLION = 1_000_000
ZSTANDARD = 93
"""What ZIP archives call it; Python does not yet, and zipfile_zstd adds it."""
_CONFIG = {"seed": 3, "model": {"name": "small"}, "dataset": {"name": "facts"}, "sampler": {}, "metric": {}}
_QUESTION = {"question_id": ["a"], "question": ["A?"], "scenario": ["abstractive"], "kept": [True]}
_QUESTION |= {name: [""] for name in ("type", "category", "group", "key")}
_ANSWER = {"question_id": ["a"], "rewrite": [0], "temperature": [0.0], "trial": [0], "text": ["A"], "correct": [True]}
_ANSWER |= {"outcome": ["ok"], "sampler": ["greedy"]}


def table(file: Path, columns: dict[str, object], **settings: object) -> Path:
    pq.write_table(pa.table(columns), file, compression="zstd", store_schema=False, **settings)
    return file


def written(file: Path, content: bytes) -> Path:
    file.write_bytes(content)
    return file


def run_folder(folder: Path, **files: Callable[[Path], object]) -> Path:
    """A finished run of one question, in which these files are others."""
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump(_CONFIG))
    (folder / "summary.json").write_text("{}")
    (folder / "metrics.json").write_text("[]")
    (folder / "loaded.json").write_text("{}")
    table(folder / "questions.parquet", _QUESTION)
    table(folder / "graded.parquet", _ANSWER)
    for name, write in files.items():
        (file,) = folder.glob(f"{name}.*")
        write(file)
    return folder


def repeated(columns: dict[str, list[object]], rows: int, **others: object) -> dict[str, object]:
    """Columns in which one row stands so many times, and once in the file."""
    places = pa.array(np.zeros(rows, dtype=np.int32))
    return {
        name: pa.DictionaryArray.from_arrays(places, pa.array(values)) for name, values in (columns | others).items()
    }


def lists(rows: int, length: int) -> pa.Array:
    """Lists of so many numbers, all zero."""
    return pa.ListArray.from_arrays(np.arange(0, rows * length + 1, length, dtype=np.int32), np.zeros(rows * length))


def log(file: Path, kind: int = ZSTANDARD, member: str = "samples/a_epoch_1.json", lies: bool = False) -> Path:
    """A log of inspect_ai with a member of 250 MB, which may say that it has 2 bytes."""
    with zipfile.ZipFile(file, "w", kind) as archive:
        if member != "header.json":
            archive.writestr("header.json", json.dumps(HEADER))
        with archive.open(member, "w") as opened:
            opened.write(b'{"input": "')
            for _ in range(250):
                opened.write(b"x" * MILLION)
            opened.write(b'"}')
        if lies:
            archive.getinfo(member).file_size = 2
    return file


HEADER = {
    "version": 2,
    "status": "success",
    "eval": {
        "created": "2026-01-01T00:00:00+00:00",
        "task": "t",
        "dataset": {"name": "d", "sample_ids": ["a"]},
        "model": "m/m",
        "config": {},
    },
    "plan": {},
    "stats": {},
}


def bombs(folder: Path) -> dict[str, tuple[Callable[[Path], object], Path]]:
    """Each file with what reads it."""
    import inspect_ai.log  # noqa: F401 once, and not in the process of each log
    import zipfile_zstd  # noqa: F401 registers the compression of inspect_ai's newer logs

    from robust_eval.dataset.answer_file import AnswerFile
    from robust_eval.dataset.own_table import OwnTable
    from robust_eval.experiment.scoring import LabelledRun
    from robust_eval.gate.measured_run import read_measured
    from robust_eval.interop.inspect_log import read_inspect
    from robust_eval.labels.label_records import read_labels
    from robust_eval.runs.finished_runs import read_run

    def data(file: Path) -> object:
        return OwnTable(name="d", path=str(file)).load()

    def answers(file: Path) -> object:
        return AnswerFile(file, {}).read(None)

    def gated(run: Path) -> object:
        return read_measured(run, "the baseline")

    def logged(file: Path) -> object:
        return list(read_inspect(file))

    million = ["x" * MILLION]
    asked = {"question": ["A?"], "answers": ["A"]}
    wide = repeated(_QUESTION, 600, category=million)
    long = repeated(_QUESTION, 3 * MILLION)
    said = repeated(_ANSWER, 600, text=million)
    empty = b"[" + b"[]," * (6 * MILLION) + b"[]]"
    hundred = b'{"a": ' + b"1" * (100 * MILLION) + b"}"
    return {
        "texts of a run": (read_run, run_folder(folder / "1", questions=lambda file: table(file, wide))),
        "rows of a run": (read_run, run_folder(folder / "2", questions=lambda file: table(file, long))),
        "greedy answers": (read_run, run_folder(folder / "3", graded=lambda file: table(file, said))),
        "answers to be gated": (gated, run_folder(folder / "4", graded=lambda file: table(file, said))),
        "answers to be labelled": (LabelledRun.read, folder / "4"),
        "a summary": (read_run, run_folder(folder / "5", summary=lambda file: file.write_bytes(hundred))),
        "metric specs": (read_run, run_folder(folder / "6", metrics=lambda file: file.write_bytes(hundred))),
        "texts of a data set": (data, table(folder / "7.parquet", repeated(asked, 600, question=million))),
        "rows of a data set": (data, table(folder / "8.parquet", repeated(asked, 3 * MILLION))),
        "one text": (
            data,
            table(
                folder / "9.parquet",
                asked | {"question": ["x" * (400 * MILLION)]},
                use_dictionary=False,
                write_statistics=False,
            ),
        ),
        "lists of a data set": (
            data,
            table(folder / "10.parquet", {"question": ["A?"] * 1_000, "answers": lists(1_000, 20_000)}),
        ),
        "values of a data set": (data, written(folder / "11.json", empty)),
        "recorded answers": (answers, table(folder / "12.parquet", said)),
        "labels": (
            read_labels,
            table(folder / "13.parquet", repeated({"question_id": ["a"], "label": ["right"]}, 600, text=million)),
        ),
        "a sample": (logged, log(folder / "14.eval", zipfile.ZIP_DEFLATED)),
        "a sample in zstd": (logged, log(folder / "15.eval")),
        "a sample that lies": (logged, log(folder / "16.eval", lies=True)),
        "a header": (logged, log(folder / "17.eval", member="header.json")),
        "a header that lies": (logged, log(folder / "18.eval", member="header.json", lies=True)),
    }


def most_memory() -> float:
    """The most megabytes that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def cost(read: Callable[[Path], object], file: Path) -> dict[str, object]:
    """Read a file in a process of its own: what is said, how much the most memory grew, and the processor's time."""
    from robust_eval.error import UserError

    there, here = os.pipe()
    if (child := os.fork()) == 0:
        before, began = most_memory(), sum(os.times()[:2])
        try:
            read(file)
            said = "read"
        except UserError as problem:
            said = str(problem)
        except BaseException as problem:
            said = repr(problem)
        found = {"said": said, "megabytes": most_memory() - before, "seconds": sum(os.times()[:2]) - began}
        os.write(here, json.dumps(found).encode())
        os._exit(0)
    os.close(here)
    with open(there) as opened:
        found = json.loads(opened.read())
    os.waitpid(child, 0)
    return found


if __name__ == "__main__":
    for name, (read, file) in bombs(Path(sys.argv[1])).items():
        print(json.dumps({"name": name} | cost(read, file)), flush=True)
