"""Logs of one quiz that inspect_ai and lm-eval write."""

import json
from pathlib import Path

import yaml

QUESTIONS = [
    {"id": "fr", "question": "What is the capital of France?", "answers": ["Paris"]},
    {"id": "it", "question": "What is the capital of Italy?", "answers": ["Rome", "Roma"]},
    {"id": "no", "question": "What is the capital of Norway?", "answers": ["Oslo"]},
]
GRID = [0.0, 0.2, 0.8, 1.4, 1.6, 2.0]
EPOCHS = 10
CHOICES = ["Rome", "Paris", "Oslo"]


def reply(question: str, temperature: float, epoch: int, model: str) -> str:
    """What the scripted model says: right at temperature 0, and less and less often above."""
    right = next(each["answers"][0] for each in QUESTIONS if each["question"] in question)
    wrong_below = {"Paris": 1, "Rome": 4, "Oslo": 6}[right] + (model == "mockllm/small")
    return right if epoch > temperature * wrong_below else "I am not sure"


def make_inspect(folder: Path) -> None:
    """Write a log for each temperature of two models, one of them as JSON."""
    import inspect_ai
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import get_model
    from inspect_ai.model._model_output import Logprob, Logprobs, TopLogprob
    from inspect_ai.scorer import includes
    from inspect_ai.solver import generate
    from inspect_scorers import scripted_output

    samples = [Sample(id=each["id"], input=each["question"], target=each["answers"]) for each in QUESTIONS]
    for model in ("mockllm/large", "mockllm/small"):
        for number, temperature in enumerate(GRID):
            asked = [0]

            def say(input, tools, choice, config, temperature=temperature, asked=asked, model=model):  # noqa: A002
                asked[0] += 1
                text = reply(input[-1].text, temperature, -(-asked[0] // len(QUESTIONS)), model)
                output = scripted_output(model, text)
                top = [TopLogprob(token=str(rank), logprob=-0.5 - rank) for rank in range(10)]
                first = Logprob(token=text, logprob=-0.5, top_logprobs=top)
                output.choices[0].logprobs = Logprobs(content=[first])
                return output

            logs = inspect_ai.eval(
                inspect_ai.Task(dataset=MemoryDataset(samples, name="capitals"), solver=generate(), scorer=includes()),
                model=get_model(model, custom_outputs=say),
                epochs=1 if temperature == 0 else EPOCHS,
                temperature=temperature,
                max_tokens=5,
                stop_seqs=["\n\n"],
                max_samples=1,
                max_connections=1,
                log_dir=str(folder / model.split("/")[1]),
                log_format="json" if number == len(GRID) - 1 else "eval",
                display="none",
            )
            assert logs[0].status == "success", logs[0].error
            file = Path(logs[0].location)
            file.rename(
                file.with_stem(f"{model.split('/')[1]}-{temperature:.1f}")
            )  # two of one second would stand in any order


def make_lm_eval(folder: Path) -> None:
    """Write the samples of a generating task with repeats and two filters, and of a multiple-choice task."""
    from lm_eval_families import evaluate

    tasks = folder / "tasks"
    tasks.mkdir(parents=True)
    with_choices = [
        {**each, "choices": CHOICES, "answer": CHOICES.index(each["answers"][0])} for each in QUESTIONS
    ]  # fmt: skip
    filters = {"first": ["take_first"], "vote": ["majority_vote", "take_first"]}
    own = {
        "capitals": {
            "output_type": "generate_until",
            "doc_to_target": "{{answers}}",
            "repeats": 5,
            "generation_kwargs": {"until": ["\n"], "do_sample": True, "temperature": 0.7, "max_gen_toks": 8},
            "metric_list": [{"metric": "exact_match"}],
            "filter_list": [
                {"name": name, "filter": [{"function": each} for each in functions]}
                for name, functions in filters.items()
            ],
        },
        "chosen": {
            "output_type": "multiple_choice",
            "doc_to_choice": "{{choices}}",
            "doc_to_target": "answer",
            "metric_list": [{"metric": "acc"}],
        },
    }
    for name, task in own.items():
        (tasks / f"{name}.json").write_text(json.dumps(with_choices if name == "chosen" else QUESTIONS))
        data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(tasks / f"{name}.json")}}}
        whole = {"task": name, "test_split": "test", "doc_to_text": "Question: {{question}}\nAnswer:", **data, **task}
        (tasks / f"{name}.yaml").write_text(yaml.safe_dump(whole))
    evaluate(folder / "out", list(own), tasks, model="dummy")
