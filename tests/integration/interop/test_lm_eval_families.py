"""Logs of lm-eval's own tasks, made with their real YAML: the error rate is that of the log's exact scorer."""

import json
import math
import shutil
from pathlib import Path

import pytest

import robust_eval
from robust_eval.error import UserError

FAMILIES = json.loads(Path(__file__).with_name("lm_eval_families.json").read_text(encoding="utf-8"))
READ = [family["family"] for family in FAMILIES if "metric" in family]
REFUSED = [family["family"] for family in FAMILIES if "refused" in family]


@pytest.fixture(scope="module")
def logs(lm_eval_folder: Path) -> dict[str, Path]:
    """Return the samples of each family."""
    found = {}
    for number, family in enumerate(FAMILIES):
        (found[family["family"]],) = (lm_eval_folder / "families" / str(number) / "scripted").glob("samples_*.jsonl")
    return found


def own_error_rate(samples: Path, metric: str) -> float:
    """Return one minus the metric that lm-eval itself reports for the task."""
    date = samples.stem.rpartition("_")[2]
    (results,) = json.loads(samples.with_name(f"results_{date}.json").read_text())["results"].values()
    return 1 - results[metric]


@pytest.mark.parametrize("name", READ)
def test_the_error_rate_is_that_of_the_log_s_own_exact_scorer(logs: dict[str, Path], name: str):
    family = next(each for each in FAMILIES if each["family"] == name)
    (loaded,) = robust_eval.load_answers(logs[name])
    assert loaded.ungraded == []
    run = loaded.score(["certainty"], tracking="none")
    figures = run.metrics.set_index("name")["value"]
    generated = "replies" in family
    ours = figures["certainty.error_rate.t0.7"] if generated else 1 - figures["accuracy.greedy"]
    theirs = own_error_rate(logs[name], family["metric"])
    assert ours == pytest.approx(theirs, abs=1e-12)
    assert 0 < ours < 1
    assert f"the log's scorer {family['metric']} and the run's grader agree on 3 of 3 answers" in loaded.agreement(run)


@pytest.mark.parametrize("name", REFUSED)
def test_a_task_without_an_exact_target_is_refused_by_its_name(logs: dict[str, Path], name: str):
    family = next(each for each in FAMILIES if each["family"] == name)
    with pytest.raises(UserError) as caught:
        robust_eval.load_answers(logs[name])[0].score(["certainty"], tracking="none")
    assert family["refused"] in str(caught.value)


def test_without_the_results_beside_it_an_index_is_left_ungraded_and_a_letter_is_not(logs, tmp_path):
    alone = tmp_path / "alone"
    alone.mkdir()
    for name in ("boolq, generative", "mmlu_pro"):
        shutil.copy(logs[name], alone)
    boolq, mmlu_pro = sorted(robust_eval.load_answers(alone), key=lambda each: each.task)
    assert mmlu_pro.ungraded == []
    assert mmlu_pro.questions["correct"].tolist() == [1, 9, 3]
    assert (
        repr(boolq) == "alone on boolq-seq2seq: 6 answers to 3 questions at temperature 0.7; 3 of 3 questions ungraded"
    )
    with pytest.raises(UserError, match=r"put the file results_\*\.json of the run in the same folder as the samples"):
        boolq.score(["certainty"], tracking="none")


def test_a_conversation_s_messages_are_read_and_the_last_of_the_user_is_the_prompt(logs):
    (loaded,) = robust_eval.load_answers(logs["gsm8k in a conversation"])
    ((role, text),) = loaded.collected.request.messages
    assert (role, text[:23], loaded.collected.request.chat) == ("user", "Question: Ada fills 6 j", True)


def test_documents_that_share_an_id_are_questions_of_their_own(logs):
    (loaded,) = robust_eval.load_answers(logs["triviaqa"])
    assert loaded.questions["id"].tolist() == ["tc_1", "tc_2", "tc_2 (2)"]


def test_a_greedy_log_names_the_settings_that_repeat(logs, tmp_path):
    greedy = tmp_path / logs["nq_open"].name
    text = logs["nq_open"].read_text().replace('"temperature": 0.7', '"temperature": 0.0')
    greedy.write_text(text.replace('"do_sample": true', '"do_sample": false'))
    (loaded,) = robust_eval.load_answers(greedy)
    assert not any(math.isnan(t) or t for t in loaded.answers["temperature"])
    with pytest.raises(UserError, match=r"--gen_kwargs do_sample=True,temperature=0\.7 and repeats: 5"):
        loaded.score(tracking="none")
