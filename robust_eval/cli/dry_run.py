"""Requests that a run, or the jobs of a sweep, would send (``dry_run=true``)."""

from collections.abc import Mapping, Sequence

from rich.table import Table

from robust_eval.config.overrides import Checked, jobs, several_values
from robust_eval.experiment.plan import (
    Stage,
    deduplicated,
    expected_interval,
    in_words,
    server_warnings,
    stages_of,
    total,
)
from robust_eval.model.workload import ServiceLimits, Workload
from robust_eval.report.terminal import terminal, titled
from robust_eval.runtime.console import configure_logging
from robust_eval.runtime.text import cost_bound, duration, enumerated


def dry_run(checked: Checked, multirun: bool) -> None:
    """Print the requests of a run, without sending any or writing a file."""
    if checked.swept and not multirun:
        raise several_values(checked)
    configure_logging()
    planned: dict[bytes, set[tuple[float, int]]] = {}
    configs = {", ".join(telling): config for telling, config in jobs(checked.overrides)}
    print_plan({job: deduplicated(stages_of(config), planned) for job, config in configs.items()})
    if len(configs) == 1 and (sentence := expected_interval(*configs.values())):
        terminal().print_sentence(f"{sentence}.")


def print_plan(plans: Mapping[str, Sequence[Stage]]) -> None:
    """Print the plan of a dry run, the requests, stage by stage.

    ``plans`` maps the overrides that distinguish a run to its stages.
    """
    console = terminal()
    stages = [stage for plan in plans.values() for stage in plan]
    workload = total(stages)
    if not workload.answers:
        console.print_sentence("nothing to request: all answers are in the store")
        return
    terms = [stage.model.config.service_limits() for stage in stages if stage.missing]
    served = any(each.max_concurrency for each in terms)
    if len(plans) > 1:
        for number, (job, plan) in enumerate(plans.items()):
            console.print_sentence(f"{job}: {in_words(plan, is_counted_elsewhere=number > 0)}")
        console.print_sentence(f"total: {in_words(stages)}; requests that several jobs share are counted once")
    else:
        console.print(_plan_table(stages, served, bool(workload.cost)))
    complete = sum(stage.requests - len(stage.missing) for stage in stages)
    partial = sum(len(each.conditions) - len(each.pending) for stage in stages for each in stage.missing)
    cached = [f"all answers to {complete:,} other prompts of these stages"] * bool(complete)
    cached += [f"{partial:,} answers to the same prompts"] * bool(partial and len(plans) == 1)
    if cached:
        console.print_sentence(f"In the store, and not counted: {enumerated(cached, 'and')}.")
    console.print_sentence("Prompt tokens are estimated; completion tokens are the maximum.")
    if len(plans) == 1 and any(stage.is_upper_bound for stage in stages):
        console.print_sentence("≤ marks an upper bound: the number depends on answers that are not available yet.")
    for sentence in server_warnings(stages) if len(plans) == 1 else ():
        console.print_sentence(f"{sentence}.")
    if any(each.choices is None for each in terms):
        console.print_sentence(
            "Each answer counts as one request; the run probes whether one request can return several."
        )
    if any(each.batch for each in terms):
        console.print_sentence("Time: a batch takes up to 24 hours, and each stage waits for the previous one.")
    elif workload.seconds:
        console.print_sentence(f"Time: at least {duration(workload.seconds)}, given the per-minute limits.")
    elif served:
        max_concurrency = max(each.max_concurrency or 0 for each in terms)
        console.print_sentence(
            f"Time: no rate limit is set; with {max_concurrency} concurrent requests of one second each, the run takes "
            f"{duration(workload.requests / max_concurrency)}."
        )
    if workload.cost and (sentence := _other_price(workload.cost, terms)):
        console.print_sentence(sentence)
    budgets = {budget for each in terms if (budget := each.spending.budget) is not None}
    for budget in sorted(budget for budget in budgets if (workload.cost or 0) > budget):
        console.print_sentence(f"The run stops when it reaches its budget of {budget:,.10g} USD; you can resume it.")


def _other_price(cost: float, terms: Sequence[ServiceLimits]) -> str:
    """Return a sentence on the cost with batches of a run without them, and the reverse; empty if it is unknown."""
    shares = {each.batch_price_share for each in terms if each.max_concurrency}
    if len(shares) != 1 or not all(each.max_concurrency for each in terms) or len({each.batch for each in terms}) != 1:
        return ""
    share = shares.pop()
    if not terms[0].batch:
        batches = "With batches (model.batch=true, if the service supports them)"
        return f"{batches}, the run costs at most {cost_bound(cost * share)} USD."
    return (
        f"Without batches (model.batch=false), the run costs at most {cost_bound(cost / share)} USD." if share else ""
    )


def _plan_table(stages: Sequence[Stage], served: bool, priced: bool) -> Table:
    columns = [
        "answers",
        *(["requests"] if served else []),
        "prompt\ntokens",
        "completion\ntokens",
        *(["USD"] if priced else []),
    ]
    table = titled("Planned requests", "", *columns, left=[""])

    def add(name: str, workload: Workload, is_upper_bound: bool) -> None:
        requests = [f"{workload.requests:,}"] if served else []
        cost = [cost_bound(workload.cost)] if priced and workload.cost is not None else []
        tokens = [f"{workload.prompt_tokens:,}", f"{workload.completion_tokens:,}"]
        table.add_row(name, f"{'≤ ' if is_upper_bound else ''}{workload.answers:,}", *requests, *tokens, *cost)

    for stage in stages:
        add(stage.name.removeprefix("sampled answers (").rstrip(")"), stage.workload(), stage.is_upper_bound)
    table.add_section()
    add("total", total(stages), any(stage.is_upper_bound for stage in stages))
    return table


def cancel_batches(checked: Checked, multirun: bool) -> None:
    """Cancel the unanswered requests in the batches of a command line's runs; no request is sent.

    Answers that have arrived come with the next run. Raises UserError if no batch can be in progress.
    """
    if checked.swept and not multirun:
        raise several_values(checked)
    configure_logging()
    console = terminal()
    sentences: dict[str, None] = {}
    for _, config in jobs(checked.overrides):
        stages = stages_of(config)
        with config.store.open() as entries:
            for stage in stages:
                if stage.missing and stage.model.config.remote:
                    sentences |= dict.fromkeys(stage.model.cancelled(stage.missing, entries))
    for sentence in sentences:
        console.print_sentence(sentence)
    if not sentences:
        console.print_sentence("this run has no batches in progress")
