"""Ask one question live: ``robust-eval ask "What is the capital of France?"``.

The question is rewritten, each wording is answered in a conversation of its own, and answers that mean the same are
gathered into cohorts. The user may say which cohort is right, and then sees how many raters were right.

Cho & Watson, "Measuring Robustness via Automated Crowdsourcing of Question Perturbations and Answers"
(docs/methods.md, §2).
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from robust_eval.aggregator.base import ENSEMBLE
from robust_eval.answer import NO_ANSWER, NO_REPLY, SCHEMA, rows
from robust_eval.config.config import Config
from robust_eval.config.overrides import checked_overrides, with_own_options
from robust_eval.config.schema import register
from robust_eval.error import UserError
from robust_eval.experiment.models import Models
from robust_eval.metric.agreement_metric import AnswerAgreement
from robust_eval.metric.frs_metric import FactualRobustness
from robust_eval.metric.frs_tables import score_columns
from robust_eval.metric.score import Measured, proportion
from robust_eval.prompt.prompt import refuse_exemplars
from robust_eval.question import LETTERS, Question
from robust_eval.report.terminal import terminal, titled
from robust_eval.runtime.console import log_plainly
from robust_eval.runtime.process import Stopwatch, command, print_error
from robust_eval.runtime.text import number
from robust_eval.sampler.base import greedy_requests
from robust_eval.sampler.temperature_sweep import TemperatureSweep
from robust_eval.store.base import Entries
from robust_eval.store.stored_model import StoredModel

DEFAULTS = {"experiment": "multiqa", "rewriter": "llm"}
"""Options that are chosen where the command line chooses no other."""
_UNSUPERVISED = {
    "certainty": "normalised certainty H_η (1: all raters agree)",
    "m2": "Gibbs' M2 (1: all raters agree)",
    "semantic_entropy": "semantic entropy in nats (0: all raters agree)",
}
_SUPERVISED = {
    "accuracy": "answer to the question as asked (Base)",
    "plurality": "answer that was voted for (Mode)",
    "worst": "every rater right (Worst)",
    "best": "some rater right (Best)",
    "difficulty": "share of raters that are right (μ_D)",
}


class Cohort(NamedTuple):
    """Raters whose answers mean the same. ``voted`` is the answer that was voted for, if it is among theirs."""

    label: str
    texts: list[str]
    wordings: list[int]
    voted: str | None


def main() -> None:
    """Run the command; exit with status 1 and one sentence where something is wrong."""
    parser = argparse.ArgumentParser(
        prog="robust-eval ask",
        description="Ask a question in several wordings, and see which answers are given how often.",
    )
    parser.add_argument("question", help="one of the data set's questions is asked with its choices and context")
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="as for run.py: model=qwen25_3b rewriter.model=qwen25_14b"
    )
    parser.add_argument(
        "--truth", metavar="N", help="the cohort that is right, or several (1,3); asked for in a terminal"
    )
    parser.add_argument(
        "--temperatures", action="store_true", help="also the accuracy at rising temperature, and the FRS of this fact"
    )
    arguments = parser.parse_intermixed_args()
    log_plainly()
    register()
    with command():
        truth = None if arguments.truth is None else _numbers(arguments.truth)
        if arguments.temperatures and truth is None and not _somebody_is_there():
            raise UserError("--temperatures must know what is right: add --truth N")
        config = _composed(arguments.overrides)
        store = config.store
        engine = config.engine
        with store.open() as entries, engine.open():
            _ask(config, arguments.question.strip(), truth, arguments.temperatures, entries)


def _composed(overrides: Sequence[str]) -> Config:
    chosen = {line.partition("=")[0].lstrip("+") for line in overrides}
    defaults = [f"{group}={option}" for group, option in DEFAULTS.items() if group not in chosen]
    checked = checked_overrides(with_own_options([*defaults, *overrides]))
    if checked.jobs > 1:
        raise UserError(f"one configuration at a time: {', '.join(checked.swept)} has several values")
    samplers = list(checked.config.sampler.values())
    if [sampler.axis for sampler in samplers] != ["rewrite"] or len(samplers[0].temperatures) > 1:
        raise UserError("robust-eval ask takes sampler=perturbation, with one temperature")
    return checked.config


def _ask(config: Config, text: str, truth: list[int] | None, temperatures: bool, entries: Entries) -> None:
    """Rewrite the question, answer it, and show the cohorts; with a known truth, also how right the raters were."""
    if not text:
        raise UserError("the question is empty")
    (sampler,) = config.sampler.values()
    questions = config.dataset.load()
    known = [question for question in questions if question.text == text]
    asked = known[0] if known else Question("asked", text)
    refuse_exemplars([asked], sampler.prompts)
    models = Models(config.model, config.rewriter, config.grader, config.engine, entries, Stopwatch())
    config, model = models.with_judge(config), models.measured
    question, drifted = _rewritten(config, replace(asked, answers=(), correct=None), questions, models.writer)
    requests = sampler.requests([question], config.judge, config.seed)
    graded = config.judge.grade([question], model.answers(requests, "answers").table)
    graded = config.aggregator.aggregate([question], graded)
    metric = next((each for each in config.metric.values() if isinstance(each, AnswerAgreement)), AnswerAgreement())

    _show_wordings(question, graded, drifted)
    cohorts = cohorts_of(graded)
    if not cohorts:
        raise UserError("no wording was answered")
    _show_cohorts(question, cohorts, graded)
    figures = metric.by_question(metric.raters([question], graded, sampler.temperatures[0]))
    for name, label in _UNSUPERVISED.items():
        terminal().print(f"{label}: {number(figures[name][0])}")
    right = _choice_of_a_person(cohorts) if truth is None else _chosen(cohorts, truth)
    if right:
        judged = _judged(graded, {cohort.label for cohort in right})
        figures = metric.by_question(metric.raters([question], judged, sampler.temperatures[0]))
        shown = titled(f"If {' or '.join(repr(_name(question, cohort)) for cohort in right)} is right")
        shown.add_column("figure")
        shown.add_column("value", justify="right")
        for name, label in _SUPERVISED.items():
            shown.add_row(label, number(figures[name][0]))
        terminal().print(shown)
        if temperatures:
            _show_temperatures(config, _with_truth(question, right), model)


def _rewritten(
    config: Config, asked: Question, questions: Sequence[Question], writer: StoredModel
) -> tuple[Question, set[str]]:
    """Return the question with its rewrites, and the rewrites whose meaning may have drifted.

    Raises UserError where there is no rewrite.
    """
    rewriter = config.rewriter.within(writer.temperatures)
    # recorded rewrites are those of a whole data set, of which this may be one question
    of_others = [] if rewriter.asks else [each for each in questions if each.id != asked.id]
    found = rewriter.rewrite([asked, *of_others], writer, config.seed)
    question = found.questions[0]
    if not question.rewrites:
        advice = "choose a model that writes some (rewriter.model=…)"
        if not rewriter.asks:
            advice = "have some written (rewriter=llm), or ask a question that has them on record"
        raise UserError(f"the question has no other wording: {advice}")
    return question, {row["text"] for row in found.found.to_pylist() if row["drifted"]}


def cohorts_of(graded: pa.Table) -> list[Cohort]:
    """Return the cohorts of the raters of one question, the largest first; equal ones in the order of their answers."""
    found: dict[str, Cohort] = {}
    for rewrite, text, label, outcome, voted in rows(graded, "rewrite", "text", "label", "outcome", ENSEMBLE):
        if label is None or outcome in NO_REPLY or outcome in NO_ANSWER:
            continue
        cohort = found.setdefault(label, Cohort(label, [], [], None))
        cohort.texts.append(text)
        cohort.wordings.append(rewrite)
        if voted:
            found[label] = cohort._replace(voted=text)
    return sorted(found.values(), key=lambda cohort: -len(cohort.texts))


def _judged(graded: pa.Table, labels: set[str]) -> pa.Table:
    """Grade the answers: right are those with one of the labels; a missing reply is neither right nor wrong."""
    verdicts = [
        None if outcome in NO_REPLY else label in labels and outcome not in NO_ANSWER
        for label, outcome in rows(graded, "label", "outcome")
    ]
    column = graded.schema.get_field_index("correct")
    return graded.set_column(column, SCHEMA.field("correct"), pa.array(verdicts, pa.bool_()))


def _with_truth(question: Question, right: Sequence[Cohort]) -> Question:
    """Return the question with the answers of the right cohorts as its accepted answers."""
    if not question.choices:
        return replace(question, answers=tuple(dict.fromkeys(text for cohort in right for text in cohort.texts)))
    if len(right) > 1:
        raise UserError("--temperatures takes one right letter")
    return replace(question, correct=LETTERS.index(right[0].label))


def _show_wordings(question: Question, graded: pa.Table, drifted: set[str]) -> None:
    shown = titled("Every wording, answered on its own")
    for name in ("", "asked", "answer"):
        shown.add_column(name, overflow="fold")
    for rewrite, text, outcome, form in rows(graded, "rewrite", "text", "outcome", "form"):
        asked = f"{question.text} ({form})" if form else question.rewrites[rewrite - 1] if rewrite else question.text
        asked += " (its meaning may have drifted)" if asked in drifted else ""
        shown.add_row(str(rewrite), asked, text if outcome == "ok" else f"{text} ({outcome})".strip())
    terminal().print(shown)


def _show_cohorts(question: Question, cohorts: Sequence[Cohort], graded: pa.Table) -> None:
    shown = titled("Cohorts: raters whose answers mean the same")
    for name in ("", "answer", "raters", "share", "95 % interval", "wordings"):
        shown.add_column(name, justify="left" if name in ("answer", "wordings") else "right", overflow="fold")
    replies = sum(outcome not in NO_REPLY for outcome in graded["outcome"].to_pylist())
    for place, cohort in enumerate(cohorts, start=1):
        answer = _name(question, cohort) + (" (voted for)" if cohort.voted is not None else "")
        wordings = ", ".join(map(str, sorted(set(cohort.wordings))))
        shown.add_row(str(place), answer, str(len(cohort.texts)), *_share(len(cohort.texts), replies), wordings)
    terminal().print(shown)


def _name(question: Question, cohort: Cohort) -> str:
    """Return the text that stands for a cohort: the choice, or the answer that was voted for."""
    if question.choices:
        return f"{cohort.label}) {question.choices[LETTERS.index(cohort.label)]}"
    return cohort.voted if cohort.voted is not None else cohort.texts[0]


def _show_temperatures(config: Config, question: Question, model: StoredModel) -> None:
    """Show the accuracy of the original question at rising temperature, and the FRS of this fact."""
    (own,) = config.sampler.values()
    sweep = TemperatureSweep(max_new_tokens=own.max_new_tokens, selection="none", prompts=own.prompts)
    judge = config.judge
    metric = FactualRobustness()
    requests = sweep.requests([question], judge, config.seed)
    asked = greedy_requests(
        [question], sweep.prompts, sweep.max_new_tokens, config.seed, metric.top_logprobs, judge.first_line
    )
    greedy = model.answers(asked, "greedy answer").table
    sampled = model.answers(requests, "answers by temperature").table
    baseline, graded = judge.grade([question], greedy), judge.grade([question], sampled)
    shown = titled(f"Right at rising temperature, {sweep.trials} trials each")
    for name in ("t", "right", "share", "95 % interval"):
        shown.add_column(name, justify="right")
    for t in sweep.temperatures:
        verdicts = [
            correct for at, correct in rows(graded, "temperature", "correct") if at == t and correct is not None
        ]
        shown.add_row(f"{t:g}", str(sum(verdicts)), *_share(sum(verdicts), len(verdicts)))
    terminal().print(shown)
    if config.grader.matcher(question) is not None:
        terminal().print("An answer is right here if it contains one of the cohort's answers as whole words.")
    ((text, known),) = rows(baseline, "text", "correct")
    terminal().print(f"greedy answer: {text} ({'right' if known else 'wrong'})")
    if not known:
        terminal().print("FRS is defined for facts that the greedy answer has right, so there is none.")
        return
    table = metric.score([question], Measured(baseline, graded), config.seed).tables["frs"]
    (fact,) = table.to_pylist()
    terminal().print(f"initial entropy H: {number(fact['entropy'])}")
    terminal().print(f"breaking temperature t_b: {number(fact['breaking_temperature'], 'g')}")
    for d, name in score_columns(table).items():
        terminal().print(f"FRS, d = {d:g}: {number(fact[name])}")


def _numbers(truth: str) -> list[int]:
    try:
        return [int(part) for part in truth.split(",")]
    except ValueError as problem:
        raise UserError(f"the truth must be the number of a cohort, or several (1,3), not {truth!r}") from problem


def _chosen(cohorts: Sequence[Cohort], truth: Sequence[int]) -> list[Cohort]:
    if bad := [choice for choice in truth if not 1 <= choice <= len(cohorts)]:
        raise UserError(f"there is no cohort {bad[0]}: they are numbered 1 to {len(cohorts)}")
    return [cohorts[choice - 1] for choice in dict.fromkeys(truth)]


def _somebody_is_there() -> bool:
    """Return whether input and output are a terminal."""
    return bool(sys.stdin and sys.stdin.isatty() and sys.stdout.isatty())


def _choice_of_a_person(cohorts: Sequence[Cohort]) -> list[Cohort]:
    """Ask at the terminal which cohorts are right; return none where there is no terminal."""
    while _somebody_is_there():
        try:
            said = terminal().input("Which cohort is right? Its number, several (1,3), or Enter for none: ").strip()
            return _chosen(cohorts, _numbers(said)) if said else []
        except EOFError:
            return []
        except UserError as problem:
            print_error(problem)
    return []


def _share(count: int, of: int) -> tuple[str, str]:
    """Format a share and its 95 % interval (Wilson)."""
    share = proportion(count, of)
    return number(share.value, ".2f"), f"{number(share.low, '.2f')} to {number(share.high, '.2f')}" if of else ""


if __name__ == "__main__":
    main()
