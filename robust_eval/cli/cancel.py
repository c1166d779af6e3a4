"""Cancel the batches of a run that is no more (``cancel_batches=true``)."""

from robust_eval.config.overrides import Checked, jobs, several_values
from robust_eval.experiment.plan import stages_of
from robust_eval.report.terminal import terminal
from robust_eval.runtime.console import log_plainly


def cancel_batches(checked: Checked, multirun: bool) -> None:
    """Cancel what the runs of a command line have sent, as far as it has not come; nothing is asked.

    What was answered by then comes with the next run. Raises UserError where nothing can be under way.
    """
    if checked.swept and not multirun:
        raise several_values(checked)
    log_plainly()
    console = terminal()
    said: dict[str, None] = {}
    for _, config in jobs(checked.overrides):
        stages = stages_of(config)
        with config.store.open() as entries:
            for stage in stages:
                if stage.missing and stage.model.config.remote:
                    said |= dict.fromkeys(stage.model.cancelled(stage.missing, entries))
    for sentence in said:
        console.print(sentence)
    if not said:
        console.print("no batch of this run is under way")
