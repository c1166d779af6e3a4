"""Files that are refused, each in one sentence with the file, the line and the remedy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from golden import Golden

from robust_eval.dataset.file_formats import read_records
from robust_eval.dataset.jsonl import JsonLines
from robust_eval.dataset.own_table import OwnTable
from robust_eval.error import UserError

REFUSED = Golden(Path(__file__).with_name("refused_files.jsonl"))
READERS: dict[str, Callable[..., Any]] = {
    "records": lambda path: list(read_records(Path(path))),
    "jsonl": lambda path, **settings: JsonLines(name="mine", path=path, **settings).load(),
    "local": lambda path, **settings: OwnTable(name="quiz", path=path, **settings).load(),
}


@pytest.mark.parametrize("case", REFUSED.cases, ids=lambda case: f"{case['reader']} {case['content']!r:.60}")
def test_a_wrong_file_is_refused_in_one_sentence(case: dict[str, Any], tmp_path: Path):
    file = tmp_path / case["file"]
    file.write_bytes(case["content"].encode(case.get("encoding", "utf-8")))
    with pytest.raises(UserError) as refused:
        READERS[case["reader"]](str(file), **case.get("settings", {}))
    said = str(refused.value).replace(str(tmp_path), "FOLDER")
    assert "\n" not in said
    REFUSED.check(case, message=said)
