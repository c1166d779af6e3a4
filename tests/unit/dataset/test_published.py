"""The configured data sets, and the real files in the folder shared/data beside the project, where it is there."""

import ast
from collections import Counter
from pathlib import Path

import pytest
from experiments import configuration
from json_lines import cases
from omegaconf import OmegaConf

from robust_eval.config.groups import CONF, PROJECT
from robust_eval.dataset.published import LAYOUTS, Published
from robust_eval.error import UserError
from robust_eval.question import Scenario

REAL = PROJECT.parent / "shared" / "data"
real = pytest.mark.skipif(not REAL.is_dir(), reason="the real data are not on this machine")
NAMES = sorted(
    file.stem for file in (CONF / "dataset").glob("*.yaml") if "/schema/dataset/published@_here_" in file.read_text()
)


def configured(name: str, *overrides: str) -> Published:
    dataset = configuration(f"dataset={name}", *(f"dataset.{line}" for line in overrides)).dataset
    assert isinstance(dataset, Published)
    return dataset


def test_every_data_set_of_the_papers_is_configured_and_every_layout_is_used():
    assert [
        *("arc_challenge", "arc_easy", "boolq", "hotpot_qa", "hotpot_qa_kilt", "math_qa", "mlphys101", "mmlu"),
        *("nq_open", "openbook_qa", "piqa", "pop_qa", "sciq", "sciq_abstractive", "squad", "squad_v2"),
        *("squad_v2_abstractive", "trec", "trivia_qa", "truthful_qa", "truthful_qa_abstractive", "wiki_qa"),
    ] == NAMES
    written = {name: OmegaConf.load(CONF / "dataset" / f"{name}.yaml") for name in NAMES}
    assert {str(entry["layout"]) for entry in written.values()} == set(LAYOUTS)
    assert {name: entry["name"] for name, entry in written.items()} == {name: name for name in NAMES}
    assert {entry["scenario"] for entry in written.values()} == set(Scenario)
    assert {entry.get("revision") for entry in written.values()} == {None}
    assert configured("squad", "path=x").revision == "refs/convert/parquet"


def test_a_file_of_another_data_set_is_refused_with_the_columns_that_it_has(tmp_path):
    file = tmp_path / "mine.jsonl"
    file.write_text('{"prompt": "Who?", "gold": "Ann"}\n' * 3)
    with pytest.raises(UserError) as caught:
        configured("nq_open", f"path={file}").load()
    assert str(caught.value) == (
        f"3 of the 3 records of {file} are unusable: 3 × no question (the first is record 1); "
        "the first has the columns prompt, gold; fix the records, or raise dataset.max_invalid_fraction (now 0.05)"
    )


def test_a_file_says_where_its_questions_are_from(tmp_path):
    file = tmp_path / "mine.jsonl"
    file.write_text('{"question": "Who?", "answer": ["Ann"]}\n')
    dataset = configured("nq_open", f"path={file}")
    assert (dataset.source, dataset.load().edition) == (str(file), "")
    assert configured("nq_open").source == "https://huggingface.co/datasets/google-research-datasets/nq_open"


@real
@pytest.mark.parametrize(
    ("name", "file", "questions", "unusable"), cases(__file__, "the_real_file_has_as_many_questions_as_its_readme_says")
)
def test_the_real_file_has_as_many_questions_as_its_readme_says(name, file, questions, unusable):
    loaded = configured(name, f"path={REAL / file}").load()
    assert (len(loaded), loaded.unusable) == (questions, unusable)
    assert len({question.id for question in loaded}) == questions


@real
def test_squad_questions_that_are_asked_twice_have_ids_of_their_own():
    loaded = configured("squad", f"path={REAL / 'squad/dev-v1.1.json'}").load()
    times = Counter(Counter(question.text for question in loaded).values())
    assert times == {1: 10_496, 2: 37}  # in the file 31, because of white space around others
    assert len({question.group for question in loaded}) == 2_067


@real
def test_the_labels_of_real_choices():
    arc = configured("arc_challenge", f"path={REAL / 'arc/ARC-Challenge-Test.RECONSTRUCTED.jsonl'}").load()
    assert Counter(len(question.choices) for question in arc) == {4: 1_165, 3: 4, 5: 3}
    boolq = configured("boolq", f"path={REAL / 'boolq/dev.first1000.jsonl'}").load()
    assert Counter(question.answers[0] for question in boolq) == {"yes": 625, "no": 375}
    truthful = configured("truthful_qa", f"path={REAL / 'truthfulqa/mc_task.json'}").load()
    assert Counter(question.correct for question in truthful)[0] < 803 / 3  # the first of every record in the file
    piqa = configured("piqa", f"path={REAL / 'piqa/valid.jsonl'}").load()
    labels = (REAL / "piqa/valid-labels.lst").read_text().split()
    assert [str(question.correct) for question in piqa] == labels


@real
def test_the_keys_of_the_physics_study_are_questions_that_cannot_be_asked():
    loaded = configured("mlphys101", f"path={REAL / 'physics_mcq/mlphys101_gt_answers.jsonl'}").load()
    assert [question.category for question in loaded] == ast.literal_eval(
        (REAL / "physics_mcq/mlphys101_categories.txt").read_text()
    )
    assert Counter(question.category for question in loaded) == {"D": 153, "F": 138, "C": 238, "S": 223, "M": 71}
    assert {(question.text, question.choices) for question in loaded} == {("", tuple("ABCDE"))}
    keys = {question.id: question.correct for question in loaded}
    asked = configured("mlphys101", f"path={REAL / 'physics_mcq/mlphys101_en.jsonl'}").load()
    assert [keys[question.id] for question in asked] == [question.correct for question in asked]


@real
def test_trec_has_its_six_types():
    loaded = configured("trec", f"path={REAL / 'trec_qc/TREC_10.label'}").load()
    assert Counter(question.type for question in loaded) == {
        "DESC": 138,
        "NUM": 113,
        "ENTY": 94,
        "LOC": 81,
        "HUM": 65,
        "ABBR": 9,
    }


@real
def test_what_the_real_folder_holds_is_all_tried():
    tried = Path(__file__).read_text() + Path(__file__).with_suffix(".jsonl").read_text()
    others = {"replies", "logs", "tables", "human_verdicts.jsonl"}  # no data sets
    files = [file for file in REAL.rglob("*") if file.relative_to(REAL).parts[0] not in others]
    data = [file for file in files if file.suffix in (".json", ".jsonl", ".csv", ".tsv", ".label")]
    untried = {file.name for file in data if file.name not in tried}
    assert {name for name in untried if not name.endswith(("_test.csv", "_dev.csv"))} == set()
