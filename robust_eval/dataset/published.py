"""Published data sets: their layouts, from a file or the Hugging Face hub."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from robust_eval.dataset import published_records as readers
from robust_eval.dataset.file_formats import data_files, read_records
from robust_eval.dataset.hub import PARQUET, commit, read_hub
from robust_eval.dataset.record import MALFORMED, Record, Unusable
from robust_eval.dataset.selection import Selection
from robust_eval.question import Question
from robust_eval.runtime.text import enumerated


@dataclass(frozen=True)
class Layout:
    """Layout of a published data set, on the hub and as its authors published it."""

    question: Callable[[Record], Question]
    """Question of a record, with an empty id if the source has none; raises Unusable for a record without one."""
    arrange: Callable[[Iterator[Record], Path | None], Iterator[Record]] = lambda records, file: records
    """Records of the data set from those of a source: nested ones unfolded, rows of one question joined. The file is
    None for the hub."""
    header: tuple[str, ...] = ()
    """Names of the columns of a CSV or TSV file without a header."""
    quoted: bool = True
    """True if cells of a CSV or TSV file may be in quotes."""
    encoding: str = "utf-8"
    """Encoding of text files."""
    subsets: tuple[str, ...] = ()
    """Names of the subsets, if they are the categories of the questions; a run may select several."""


LAYOUTS = {
    "squad": Layout(readers.squad, readers.squad_records),
    "trivia_qa": Layout(readers.trivia_qa, readers.trivia_qa_records, header=("question", "answer")),
    "hotpot_qa": Layout(readers.hotpot_qa),
    "nq_open": Layout(readers.nq_open),
    "pop_qa": Layout(readers.pop_qa),
    "wiki_qa": Layout(readers.wiki_qa, readers.wiki_qa_records, quoted=False),
    "truthful_qa_answers": Layout(readers.truthful_qa_answers),
    "truthful_qa_choices": Layout(readers.truthful_qa_choices),
    "lettered": Layout(readers.lettered),
    "mmlu": Layout(
        readers.mmlu,
        readers.mmlu_records,
        header=readers.MMLU_HEADER,
        subsets=readers.SUBJECTS,
    ),
    "sciq": Layout(readers.sciq),
    "piqa": Layout(readers.piqa, readers.piqa_records),
    "math_qa": Layout(readers.math_qa),
    "boolq": Layout(readers.boolq),
    "mlphys101": Layout(readers.mlphys101),
    "trec": Layout(readers.trec, encoding="latin-1"),
}
"""Layouts of the published data sets, by name."""
ALL = "all"
"""Name of the subset with all others."""


@dataclass
class Published(Selection):
    """Published data set in one of the :data:`LAYOUTS`."""

    layout: str
    """Layout of its records: one of LAYOUTS in robust_eval/dataset/published.py."""
    path: str | None = None
    """File, or folder of files (or of folders, one for each split), as published or as exported from the hub; null: the
    hub."""
    hub: str | None = None
    """Name on the hub; null: not on the hub."""
    subsets: list[str] = field(default_factory=lambda: ["default"])
    """Subsets of the hub's data set, read one after the other."""
    split: str = "test"
    """The split."""
    revision: str = PARQUET
    """Commit, tag or branch of the hub's repository. A commit never changes; the branch refs/convert/parquet contains
    the data set as Parquet files."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout not in LAYOUTS:
            raise ValueError(f"layout must be {enumerated(LAYOUTS)}, not {self.layout}")
        if self.path is None and self.hub is None:
            raise ValueError(f"path must be set, because {self.name} is not on the hub: add dataset.path=…")
        for name, example in (("subsets", f"[{ALL}]"), ("split", "test"), ("revision", PARQUET)):
            if not getattr(self, name):
                raise ValueError(f"{name} must not be empty: set for example {example}")
        subsets = LAYOUTS[self.layout].subsets
        if subsets and (unknown := [subset for subset in self.subsets if subset not in (*subsets, ALL)]):
            raise ValueError(f"{unknown[0]} is not a subset of {self.name}; subsets are {ALL}, {', '.join(subsets)}")

    @property
    def source(self) -> str:
        """The file or folder of a published data set, or the address on the hub."""
        return self.path if self.path is not None else f"https://huggingface.co/datasets/{self.hub}"

    def edition(self) -> str:
        """Return the edition of the data: the hub's name, subsets, split and commit; empty for a file."""
        if self.path is not None or self.hub is None:
            return ""
        return f"{self.hub}, {'+'.join(self.subsets)}, {self.split}, {commit(self.hub, self.revision)}"

    def read(self) -> Iterator[Question | Unusable]:
        """Yield a question, or the reason why it is unusable, for each published record."""
        layout = LAYOUTS[self.layout]
        for record in self._records(layout):
            try:
                if not record:
                    raise Unusable(MALFORMED)
                question = layout.question(record)
            except Unusable as problem:
                yield Unusable(problem.reason, record)
                continue
            if not layout.subsets or ALL in self.subsets or question.category in self.subsets:
                yield question

    def _records(self, layout: Layout) -> Iterator[Record]:
        if self.path is not None:
            for file in data_files(Path(self.path), self.split):
                records = read_records(file, layout.encoding, layout.header, layout.quoted)
                yield from layout.arrange(records, file)
        elif self.hub is not None:
            for subset in self.subsets:
                yield from layout.arrange(read_hub(self.hub, subset, self.split, self.revision), None)
