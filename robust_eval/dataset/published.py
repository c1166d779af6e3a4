"""The data sets of the papers: from the hub, or from a file as their authors published it or as the hub exports it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from robust_eval.dataset import free_text, multiple_choice
from robust_eval.dataset.file_formats import data_files, read_records
from robust_eval.dataset.hub import commit, read_hub
from robust_eval.dataset.layout import Layout
from robust_eval.dataset.record import MALFORMED, Record, Unusable
from robust_eval.dataset.selection import Selection
from robust_eval.question import Question

LAYOUTS = {
    "squad": Layout(free_text.squad, free_text.squad_records),
    "trivia_qa": Layout(free_text.trivia_qa, free_text.trivia_qa_records, header=("question", "answer")),
    "hotpot_qa": Layout(free_text.hotpot_qa),
    "nq_open": Layout(free_text.nq_open),
    "pop_qa": Layout(free_text.pop_qa),
    "wiki_qa": Layout(free_text.wiki_qa, free_text.wiki_qa_records, quoted=False),
    "truthful_qa_answers": Layout(free_text.truthful_qa_answers),
    "truthful_qa_choices": Layout(multiple_choice.truthful_qa_choices),
    "lettered": Layout(multiple_choice.lettered),
    "mmlu": Layout(
        multiple_choice.mmlu,
        multiple_choice.mmlu_records,
        header=multiple_choice.MMLU_HEADER,
        subsets=multiple_choice.SUBJECTS,
    ),
    "sciq": Layout(multiple_choice.sciq),
    "piqa": Layout(multiple_choice.piqa, multiple_choice.piqa_records),
    "math_qa": Layout(multiple_choice.math_qa),
    "boolq": Layout(multiple_choice.boolq),
    "mlphys101": Layout(multiple_choice.mlphys101),
    "trec": Layout(multiple_choice.trec, encoding="latin-1"),
}
"""How the data sets that are known are laid out."""
ALL = "all"
"""The subset that holds all others."""


@dataclass
class Published(Selection):
    """A data set that others published, in one of the :data:`LAYOUTS`."""

    layout: str
    """How its records are read: one of LAYOUTS in robust_eval/dataset/published.py."""
    path: str | None = None
    """A file, or a folder of files (or of folders, one for each split), as published or as exported from the hub; null:
    the hub."""
    hub: str | None = None
    """Its name on the hub; null: it is not there."""
    subsets: list[str] = field(default_factory=lambda: ["default"])
    """Parts that the hub tells apart, read one after the other."""
    split: str = "test"
    """Which split of it."""
    revision: str = "refs/convert/parquet"
    """The commit, tag or branch of the hub's repository. A commit can never change; the branch refs/convert/parquet
    holds every data set as Parquet files."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout not in LAYOUTS:
            raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, not {self.layout}")
        if self.path is None and self.hub is None:
            raise ValueError(f"path must be given, because {self.name} is not on the hub: add dataset.path=…")
        if not self.subsets or not self.split or not self.revision:
            raise ValueError("subsets, split and revision must not be empty")
        there = LAYOUTS[self.layout].subsets
        if there and (unknown := [subset for subset in self.subsets if subset not in (*there, ALL)]):
            raise ValueError(f"{unknown[0]} is no subset of {self.name}; there are {ALL}, {', '.join(there)}")

    @property
    def source(self) -> str:
        """The file or folder, or the address on the hub."""
        return self.path if self.path is not None else f"https://huggingface.co/datasets/{self.hub}"

    def edition(self) -> str:
        """Say where on the hub the questions stand: subsets, split, and the commit."""
        if self.path is not None or self.hub is None:
            return ""
        return f"{self.hub}, {'+'.join(self.subsets)}, {self.split}, {commit(self.hub, self.revision)}"

    def read(self) -> Iterator[Question | Unusable]:
        """Yield a question, or why there is none, for each record."""
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
