"""Batches of OpenAI, HELM and Every Eval Ever: small files of ours in the layouts that their packages write."""

import json
from pathlib import Path

import pytest
from json_lines import cases

from robust_eval.error import UserError
from robust_eval.interop.harness_logs import collect, harness_of


def written(file: Path, *records: object) -> Path:
    if file.suffix == ".json":
        file.write_text(json.dumps(records[0]))
    else:
        file.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return file


def request(key: str, text: str, **body: object) -> dict:
    whole = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": text}], **body}
    return {"custom_id": key, "method": "POST", "url": "/v1/chat/completions", "body": whole}


def output(key: str, *texts: str | None, **choice: object) -> dict:
    choices = [
        {"index": number, "finish_reason": "stop", "message": {"role": "assistant", "content": text}, **choice}
        for number, text in enumerate(texts)
    ]
    body = {"object": "chat.completion", "model": "gpt-4o-mini", "choices": choices, "usage": {"prompt_tokens": 9}}
    return {"id": f"r-{key}", "custom_id": key, "response": {"status_code": 200, "body": body}, "error": None}


def test_batches_are_joined_by_custom_id_and_prompts_are_questions(tmp_path: Path):
    logprobs = {"content": [{"token": "Rome", "logprob": -0.25, "top_logprobs": [{"token": "a", "logprob": -0.25}]}]}
    asked = written(
        tmp_path / "in.jsonl",
        request("it-1", "Capital of Italy?", temperature=0.7, n=2),
        request("it-2", "Capital of Italy?", temperature=0.7),
        request("fr-1", "Capital of France?"),
        request("fr-2", "Capital of France?", temperature=0),
        request("no-1", "Capital of Norway?", temperature=0.7),
    )
    failed = {"custom_id": "fr-1", "response": None, "error": {"code": "batch_expired", "message": "…"}}
    came = written(
        tmp_path / "out.jsonl",
        failed,
        output("it-2", "Rome.", logprobs=logprobs),
        output("it-1", "Rome", "Milan"),
        output("fr-2", "Par", finish_reason="length"),
    )
    (found,) = collect([came, asked])
    assert [(each.id, each.text, each.answers) for each in found.questions] == [
        ("fr", "Capital of France?", ()),
        ("it", "Capital of Italy?", ()),
        ("no-1", "Capital of Norway?", ()),
    ]
    names = ["question_id", "trial", "text", "outcome", "finish_reason", "prompt_tokens", "token_logprobs"]
    rows = found.answers.select(names).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("fr", 0, None, "error", None, None, None),
        ("it", 0, "Rome.", None, "stop", 9, [-0.25]),
        ("it", 1, "Rome", None, "stop", 9, None),
        ("it", 2, "Milan", None, "stop", None, None),
        ("fr", 0, "Par", None, "length", 9, None),
        ("no-1", 0, None, "error", None, None, None),
    ]
    assert [str(t) for t in found.answers["temperature"].to_pylist()] == ["nan", "0.7", "0.7", "0.7", "0.0", "0.7"]


def test_ends_of_replies_are_sorted_whatever_a_batch_calls_them(tmp_path: Path):
    asked = written(
        tmp_path / "in.jsonl", *(request(f"q-{end}", f"{end}?") for end in ("MAX_TOKENS", "abort", "SAFETY"))
    )
    came = written(
        tmp_path / "out.jsonl",
        *(output(f"q-{end}", "Par", finish_reason=end) for end in ("MAX_TOKENS", "abort", "SAFETY")),
    )
    (found,) = collect([came, asked])
    ends = found.answers.select(["outcome", "finish_reason"]).to_pylist()
    assert [tuple(row.values()) for row in ends] == [(None, "length"), ("error", "error"), ("filtered_reply", "filter")]


def state(named: str, text: str, *replies: str, perturbed: bool = False, **request: object) -> dict:
    instance = {
        "id": named,
        "input": {"text": text},
        "references": [
            {"output": {"text": "Rome"}, "tags": ["correct"]},
            {"output": {"text": "Paris"}, "tags": []},
        ],
        **({"perturbation": {"name": "typos"}} if perturbed else {}),
    }
    return {
        "instance": instance,
        "output_mapping": {"A": "Rome", "B": "Paris"},
        "request": {"prompt": f"{text} A. Rome B. Paris", "temperature": 0.5, "max_tokens": 1, **request},
        "result": {"success": True, "completions": [{"text": reply, "tokens": []} for reply in replies]},
        "train_trial_index": 0,
        "num_train_instances": 0,
        "prompt_truncated": False,
    }


def test_helm_states_are_read_with_choices_completions_and_perturbations(tmp_path: Path):
    file = written(
        tmp_path / "scenario_state.json",
        {
            "adapter_spec": {"method": "multiple_choice_joint", "model": "org/m"},
            "request_states": [
                state("id1", "Capital of Italy?", "A", "B"),
                state("id1", "Capitol of Itly?", "A", perturbed=True),
            ],
        },
    )
    (found,) = collect([file])
    assert (found.model, [(each.choices, each.correct) for each in found.questions]) == (
        "org/m",
        [(("Rome", "Paris"), 0)],
    )
    names = ["question_id", "rewrite", "temperature", "trial", "text"]
    assert [tuple(row.values()) for row in found.answers.select(names).to_pylist()] == [
        ("id1", 0, 0.5, 0, "A"),
        ("id1", 0, 0.5, 1, "B"),
        ("id1", 1, 0.5, 0, "A"),
    ]


def instance(sample: str, reply: str, metric: str = "m/exact", **others: object) -> dict:
    return {
        "schema_version": "0.3.0",
        "evaluation_id": "capitals/m/1",
        "model_id": "org/m",
        "evaluation_name": "capitals",
        "evaluation_result_id": metric,
        "sample_id": sample,
        "interaction_type": "single_turn",
        "input": {"raw": "Capital of Italy?", "reference": ["Rome"]},
        "output": {"raw": [reply]},
        "answer_attribution": [],
        "evaluation": {"score": 1.0, "is_correct": True},
        **others,
    }


def test_instances_of_every_eval_ever_are_taken_once_at_the_temperature_of_their_record(tmp_path: Path):
    settings = {"generation_config": {"generation_args": {"temperature": 0.3}}}
    record = {"evaluation_id": "capitals/m/1", "evaluation_results": [settings]}
    written(tmp_path / "run.json", record)
    lines = [instance("it", "Rome"), instance("it", "Rome", "m/f1"), instance("it", "Milan")]
    (found,) = collect([written(tmp_path / "run_samples.jsonl", *lines)])
    names = ["question_id", "temperature", "trial", "text"]
    assert [tuple(row.values()) for row in found.answers.select(names).to_pylist()] == [
        ("it", 0.3, 0, "Rome"),
        ("it", 0.3, 1, "Milan"),
    ]
    assert found.scorers == ["m/exact"]


@pytest.mark.parametrize(("lines", "said"), cases(__file__, "broken_lines_are_named"))
def test_broken_lines_are_named(tmp_path: Path, lines: list[object], said: str):
    with pytest.raises(UserError) as caught:
        collect([written(tmp_path / "log.jsonl", *lines)])
    assert said in str(caught.value)


def test_a_completion_of_helm_that_is_no_object_is_named(tmp_path: Path):
    broken = state("id1", "Capital of Italy?")
    broken["result"]["completions"] = [None]
    scenario = {"adapter_spec": {"model": "org/m"}, "request_states": [broken]}
    with pytest.raises(UserError, match="instance id1 must be an object with 'text', not None"):
        collect([written(tmp_path / "scenario_state.json", scenario)])


def test_a_record_of_every_eval_ever_may_name_a_version_and_a_split_that_is_called_eval(tmp_path: Path):
    library, data = {"name": "own", "version": "1.0"}, {"additional_details": {"split": "eval"}}
    record = {"evaluation_id": "1", "eval_library": library, "evaluation_results": [{"source_data": data}]}
    (tmp_path / "record.json").write_text(json.dumps(record))
    assert harness_of(tmp_path / "record.json") == "every_eval_ever"


def test_files_of_no_harness_are_none(tmp_path: Path):
    answers = written(tmp_path / "answers.jsonl", {"question_id": "a", "text": "b"})
    assert harness_of(answers) is None
    assert harness_of(tmp_path) is None
    with pytest.raises(UserError, match="is not a supported log"):
        collect([answers])
