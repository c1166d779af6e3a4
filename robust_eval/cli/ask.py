"""Ask one question live: ``robust-eval ask "What is the capital of France?" rewriter=recorded``.

A model rewrites the question, each wording gets an answer in its own conversation, and answers that mean the same form
clusters.

Cho & Watson, "Measuring Robustness via Automated Crowdsourcing of Question Perturbations and Answers"
(docs/methods.md, §2).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from robust_eval.aggregator.base import ENSEMBLE
from robust_eval.answer import ABSTENTION, NO_ANSWER, NO_REPLY, rows
from robust_eval.cli.arguments import command_parser
from robust_eval.config.config import Config
from robust_eval.config.overrides import checked_overrides, with_own_options
from robust_eval.config.schema import register
from robust_eval.error import UserError
from robust_eval.experiment.models import Models
from robust_eval.metric.agreement_metric import AnswerAgreement
from robust_eval.prompt.prompt import refuse_exemplars
from robust_eval.question import LETTERS, Question
from robust_eval.report.terminal import terminal, titled
from robust_eval.runtime.console import configure_logging
from robust_eval.runtime.process import Stopwatch, command
from robust_eval.runtime.text import number
from robust_eval.stats.estimate import proportion
from robust_eval.store.base import Entries
from robust_eval.store.stored_model import StoredModel

DEFAULTS = {"experiment": "multiqa", "rewriter": "llm"}
"""Default options of groups that the command line does not choose."""
_METRICS = {
    "certainty": "normalised certainty H_η (1: all raters agree)",
    "m2": "Gibbs' M2 (1: all raters agree)",
    "semantic_entropy": "semantic entropy in nats (0: all raters agree)",
}


class AnswerCluster(NamedTuple):
    """Answer cluster: raters whose answers mean the same; ``voted`` is the winner of the vote, if it is among them."""

    label: str
    texts: list[str]
    wordings: list[int]
    voted: str | None


def main() -> None:
    """Ask one question in several wordings; print the answers and their clusters."""
    parser = command_parser("ask", "Ask a question in several wordings and count the answers.")
    parser.add_argument("question", help="the question; if the data set contains it, its choices and context are added")
    parser.add_argument(
        "overrides",
        nargs="*",
        default=[],  # without it, argparse calls the settings required
        metavar="KEY=VALUE",
        help="settings as for a run: model=qwen25_3b rewriter.model=qwen25_14b",
    )
    arguments = parser.parse_intermixed_args()
    configure_logging()
    register()
    with command():
        config = _composed(arguments.overrides)
        with config.store.open() as entries, config.engine.open():
            _ask(config, arguments.question.strip(), entries)


def _composed(overrides: Sequence[str]) -> Config:
    chosen = {line.partition("=")[0].lstrip("+") for line in overrides}
    defaults = [f"{group}={option}" for group, option in DEFAULTS.items() if group not in chosen]
    checked = checked_overrides(with_own_options([*defaults, *overrides]))
    if checked.jobs > 1:
        raise UserError(f"one configuration at a time: {', '.join(checked.swept)} has several values")
    samplers = list(checked.config.sampler.values())
    received = ""
    if [sampler.axis for sampler in samplers] != ["rewrite"]:
        received = f"sampler={','.join(checked.config.sampler)}"
    elif len(samplers[0].temperatures) > 1:
        received = f"sampler.temperatures=[{','.join(f'{t:g}' for t in samplers[0].temperatures)}]"
    if received:
        raise UserError(f"robust-eval ask needs sampler=perturbation with one temperature, not {received}")
    return checked.config


def _ask(config: Config, text: str, entries: Entries) -> None:
    """Rewrite the question, answer each wording, and print the clusters of the answers."""
    if not text:
        raise UserError("the question is empty")
    (sampler,) = config.sampler.values()
    questions = config.dataset.load()
    same_text = [question for question in questions if question.text == text]
    asked = same_text[0] if same_text else Question("asked", text)
    refuse_exemplars([asked], sampler.prompts)
    models = Models(config, entries, Stopwatch())
    reply_grader, aggregator = models.with_judge()
    question, drifted = _rewritten(config, replace(asked, answers=(), correct=None), questions, models.writer)
    requests = sampler.requests([question], reply_grader, config.seed)
    graded = reply_grader.grade([question], models.measured.answers(requests, "answers").table)
    graded = aggregator.aggregate([question], graded)
    metric = next((each for each in config.metric.values() if isinstance(each, AnswerAgreement)), AnswerAgreement())

    _show_wordings(question, graded, drifted)
    clusters = clusters_of(graded)
    if not clusters:
        raise UserError("no wording was answered")
    _show_clusters(question, clusters, graded)
    metrics = metric.by_question(metric.raters([question], graded, sampler.temperatures[0]))
    for name, label in _METRICS.items():
        terminal().print(f"{label}: {number(metrics[name][0])}")


def _rewritten(
    config: Config, asked: Question, questions: Sequence[Question], writer: StoredModel
) -> tuple[Question, set[str]]:
    """Return the question with its rewrites, and the rewrites whose meaning may have drifted; UserError without any."""
    rewriter = config.rewriter.within(writer.temperatures)
    # recorded rewrites cover a whole data set
    other_questions = [] if rewriter.asks else [each for each in questions if each.id != asked.id]
    rewritten = rewriter.rewrite([asked, *other_questions], writer, config.seed)
    question = rewritten.questions[0]
    if not question.rewrites:
        advice = "choose another rewriter.model"
        if not rewriter.asks:
            advice = "let a model write some (rewriter=llm), or ask a question that has recorded rewrites"
        raise UserError(f"the question has no rewrites: {advice}")
    return question, {row["text"] for row in rewritten.model_rewrites.to_pylist() if row["drifted"]}


def clusters_of(graded: pa.Table) -> list[AnswerCluster]:
    """Return the clusters of answers to one question, the largest first, ties in the order of answers."""
    clusters: dict[str, AnswerCluster] = {}
    for rewrite, text, label, outcome, voted in rows(graded, "rewrite", "text", "label", "outcome", ENSEMBLE):
        if label is None or outcome in NO_REPLY or outcome in NO_ANSWER:
            continue
        cluster = clusters.setdefault(label, AnswerCluster(label, [], [], None))
        cluster.texts.append(text)
        cluster.wordings.append(rewrite)
        if voted:
            clusters[label] = cluster._replace(voted=text)
    return sorted(clusters.values(), key=lambda cluster: -len(cluster.texts))


def _show_wordings(question: Question, graded: pa.Table, drifted: set[str]) -> None:
    columns = ("", "asked", "answer")
    shown = titled("Each wording, answered separately", *columns, left=columns)
    for rewrite, text, outcome, form in rows(graded, "rewrite", "text", "outcome", "form"):
        asked = f"{question.text} ({form})" if form else question.rewrites[rewrite - 1] if rewrite else question.text
        asked += " (its meaning may have drifted)" if asked in drifted else ""
        shown.add_row(str(rewrite), asked, text if outcome == "ok" else f"{text} ({outcome})".strip())
    terminal().print(shown)


def _show_clusters(question: Question, clusters: Sequence[AnswerCluster], graded: pa.Table) -> None:
    columns = ("", "answer", "raters", "share", "95 % interval", "wordings")
    shown = titled("Clusters of answers with the same meaning", *columns, left=("answer", "wordings"))
    replies = sum(outcome not in NO_REPLY for outcome in graded["outcome"].to_pylist())
    for place, cluster in enumerate(clusters, start=1):
        if question.choices and cluster.label != ABSTENTION:
            answer = f"{cluster.label}) {question.choices[LETTERS.index(cluster.label)]}"
        else:
            answer = cluster.voted if cluster.voted is not None else cluster.texts[0]
        answer += " (majority vote)" if cluster.voted is not None else ""
        wordings = ", ".join(map(str, sorted(set(cluster.wordings))))
        share, low, high = (number(value, ".2f") for value in proportion(len(cluster.texts), replies))
        shown.add_row(str(place), answer, str(len(cluster.texts)), share, f"{low} to {high}", wordings)
    terminal().print(shown)
