"""Logs of other harnesses as answers of ours: what they hold, which metrics they serve, and their runs.

import robust_eval

for loaded in robust_eval.load_answers("logs/a.eval", "logs/b.eval"):
    print(loaded.metrics, loaded.score())
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.compute as pc

from robust_eval.answer import temperatures_of
from robust_eval.api import Evaluation, run
from robust_eval.config.log_as_answers import logs, no_key, scored_by, ungraded_sentences
from robust_eval.config.overrides import as_override, composed_run
from robust_eval.config.schema import SCHEMAS, register
from robust_eval.error import UserError
from robust_eval.experiment.schedule import refuse_early_stopping
from robust_eval.harness.collected import SCORE, Collected, collect
from robust_eval.prompt.prompt import prompt_for
from robust_eval.runtime.text import printable

_PLACE = ["question_id", "rewrite", "temperature", "trial"]


class LoadedAnswers:
    """The answers of one model to one task, out of logs of another harness.

    ``answers`` has a row for each answer (docs/recorded_answers.md) with the scores of the harness's own scorers
    (``score.NAME``), ``questions`` one for each question with its key, as far as the logs have it.
    """

    def __init__(self, collected: Collected) -> None:
        self.collected = collected
        self.model, self.task = collected.model, collected.task

    @cached_property
    def answers(self) -> pd.DataFrame:
        """The answers."""
        return self.collected.answers.to_pandas()

    @cached_property
    def questions(self) -> pd.DataFrame:
        """The questions."""
        return pd.DataFrame([vars(question) for question in self.collected.questions])

    @cached_property
    def differences(self) -> list[str]:
        """Differences from our sampling: prompt, stop strings, truncation; a sentence each."""
        return _differences(self.collected)

    @cached_property
    def ungraded(self) -> list[str]:
        """Number of answers that are left ungraded, a sentence for each reason; empty where all can be graded."""
        return ungraded_sentences(self.collected)

    @property
    def metrics(self) -> list[str]:
        """The metrics that these answers serve."""
        lacking = self.lacking()
        return [name for name in SCHEMAS["metric"] if name not in lacking]

    def score(self, metrics: Sequence[str] | None = None, **settings: Any) -> Evaluation:
        """Grade and score the answers, by default with all metrics that they serve; nothing is asked.

        ``settings`` are those of :func:`robust_eval.run`. Raises UserError before anything is scored where the logs
        lack what a metric needs, with the metrics that would work.
        """
        lacking = self.lacking(**settings)
        working = [name for name in SCHEMAS["metric"] if name not in lacking]
        wanted = list(metrics or working)
        if missing := [name for name in wanted if name in lacking] or ([] if wanted else list(lacking)):
            works = f"metric=[{','.join(working)}] would work" if working else "no metric would work"
            raise UserError(f"{self.model} on {self.task}: {lacking[missing[0]]}; {works}")
        return run(["sampler=recorded"], metric=wanted, **self._settings(settings))

    def agreement(self, evaluation: Evaluation) -> list[str]:
        """Say of each scorer of the harness how often its verdict is that of a run of ours, a sentence each."""
        theirs, ours = self.answers.fillna({"temperature": -1.0}), evaluation.answers.fillna({"temperature": -1.0})
        if "rewrite" not in theirs:
            theirs["rewrite"] = 0
        both = ours[[*_PLACE, "correct"]].dropna(subset=["correct"]).merge(theirs, on=_PLACE)
        said = []
        for name in self.collected.scorers:
            scored = both.dropna(subset=[SCORE + name])
            same = int(((scored[SCORE + name] >= 0.5) == scored["correct"].astype(bool)).sum())
            said.append(f"their scorer {printable(name)} and ours agree on {same:,} of {len(scored):,} answers")
        return said

    def _settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        mlruns = Path(settings.get("paths.mlruns", "mlruns")).absolute()
        own = scored_by(self.collected, mlruns)
        if "dataset" in settings:
            own = {key: value for key, value in own.items() if key.split(".")[0] != "dataset"}
        elif "dataset" not in own:
            raise no_key(self.collected, f"the log of {self.model}")
        return own | dict(settings)

    def lacking(self, **settings: Any) -> dict[str, str]:
        """Return why a metric cannot score these answers, for each that cannot; ``settings`` as of :meth:`score`."""
        register()
        found = {}
        whole = self._settings(settings)
        for name in SCHEMAS["metric"]:
            lines = ["sampler=recorded", f"metric=[{name}]", *(as_override(key, value) for key, value in whole.items())]
            try:
                config, _ = composed_run(lines)
                if config.recorded is not None:
                    refuse_early_stopping(config, config.recorded)
            except UserError as problem:
                if f"metric={name}" not in str(problem):  # the answers cannot be scored by any
                    raise
                found[name] = str(problem).replace(whole["sampler.recorded.file"], f"the log of {self.model}")
        return found

    def __repr__(self) -> str:
        answers = self.collected.answers
        if not answers.num_rows:
            return f"{self.model} on {self.task}: no answers"
        at = ", ".join("own" if t != t else f"{t:g}" for t in temperatures_of(answers))
        number = f"{answers.num_rows:,} answers to {len(self.collected.questions):,} questions"
        ungraded = sum(map(len, self.collected.ungraded.values()))
        without = f"; {ungraded:,} of {len(self.collected.questions):,} questions left ungraded" if ungraded else ""
        left = self.collected.left_out
        out = f"; {left:,} more at temperature 0 left out, where one is the greedy answer" if left else ""
        return printable(f"{self.model} on {self.task}: {number} at temperature {at}{out}{without}")


def load_answers(*files: str | Path) -> list[LoadedAnswers]:
    """Read logs of inspect_ai, lm-eval, OpenAI batches, HELM and Every Eval Ever, or folders of them.

    Those of one model and task are one, whatever their temperatures. Raises UserError, which names file and sample,
    where one is broken or not known.

    >>> load_answers("logs/capitals.eval")[0].score()  # doctest: +SKIP
    """
    found = [log for file in files for log in (logs(Path(file)) if Path(file).is_dir() else [Path(file)])]
    if not found:
        raise UserError(f"there are no logs in {', '.join(map(str, files))}" if files else "name at least one log")
    return [LoadedAnswers(each) for each in collect(found)]


def _differences(collected: Collected) -> list[str]:
    """Compare how the first answer was asked for with how we ask, and count the answers that were cut off."""
    asked, question = collected.asked, collected.questions[0]
    prompt = prompt_for(question)
    ours = prompt.messages() if asked.chat else [{"role": "user", "content": prompt.text()}]
    said = []
    if asked.messages and [{"role": role, "content": text} for role, text in asked.messages] != ours:
        theirs = " ⏎ ".join(f"{role}: {text}" if asked.chat else text for role, text in asked.messages)
        shown = theirs if len(theirs) <= 160 else f"…{theirs[-160:]}"
        said.append(printable(f"their prompt is not ours, it is {shown!r} ({question.id})"))
    lines = not asked.chat and asked.reader != "reply"
    ends = "the first line ends" if lines else "no string ends"
    if asked.stop and not (lines and asked.stop == ("\n",)):
        said.append(printable(f"a reply ended at {list(asked.stop)!r}, where with us {ends} one"))
    answers = collected.answers
    if "finish_reason" in answers.column_names:
        cut = pc.sum(pc.equal(answers["finish_reason"], "length")).as_py() or 0
        if cut:
            most = f"{asked.max_tokens} tokens" if asked.max_tokens else "a limit"
            said.append(f"{cut:,} of {answers.num_rows:,} replies were cut off at {most}")
    elif asked.max_tokens:
        said.append(f"replies had at most {asked.max_tokens} tokens, and the log does not say which were cut off")
    return said
