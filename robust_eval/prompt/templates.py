"""Prompt templates and exemplars of each scenario, from a built-in file or the user's."""

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from robust_eval.error import UserError, first_line
from robust_eval.question import LETTERS, Scenario
from robust_eval.runtime.files import regular
from robust_eval.runtime.text import enumerated

FOLDER = Path(__file__).parent
BUILTIN = "builtin:"
"""Prefix of the path of a built-in file."""
FEW_SHOT = f"{BUILTIN}few_shot.yaml"
"""Two exemplars for free text and for rewriting, three for multiple choice."""
ZERO_SHOT = f"{BUILTIN}zero_shot.yaml"
"""The question alone, without exemplars."""
REWRITING = "rewriting"
"""Name of the template for rewrites of a question."""
JUDGING = f"{BUILTIN}judge.yaml"
"""Templates for a judge of replies."""
CHALLENGING = f"{BUILTIN}challenge.yaml"
"""Sentences of a user who challenges an answer."""
CHALLENGES = "challenges"
"""Name of the sentences of pushback in a file, by their kind."""
EQUIVALENCE, SUPPORT, RUBRIC, ABSTAINING = "equivalence", "support", "rubric", "abstention"
"""Templates for a judge: a reply means the same as a reference, is supported by a passage, meets a
rubric, or says that it does not know."""
_BUILTIN_FILES = {
    "sampler.prompts": (FEW_SHOT, f"{BUILTIN}physics.yaml", ZERO_SHOT),
    "rewriter.prompts": (FEW_SHOT, ZERO_SHOT),
    "grader.prompts": (JUDGING,),
    "sampler.challenges": (CHALLENGING,),
}
"""Built-in files that fit each setting."""
_NEEDS = {
    Scenario.ABSTRACTIVE.value: [{"question"}],
    Scenario.EXTRACTIVE.value: [{"question", "context"}],
    Scenario.MULTIPLE_CHOICE.value: [{"question", "choices"}, {"question", "options"}],
    REWRITING: [{"question", "rewrites"}],
    EQUIVALENCE: [{"question", "references", "reply"}],
    SUPPORT: [{"question", "context", "reply"}],
    RUBRIC: [{"question", "references", "rubric", "reply"}],
    ABSTAINING: [{"question", "reply"}],
}
"""Placeholders of each template: {choices} are a line each, "A) …", {options} in one line, "A. …, B. …"."""

KIND = re.compile(r"[a-z][a-z_]*")
"""Pattern of the name of a kind of pushback."""
_LISTS = ("choices", "options", "rewrites")


@dataclass(frozen=True)
class Template:
    """Prompt template of one kind of question. ``exemplars`` map placeholders and ``answer`` to texts; those of the
    rewriting have the list ``rewrites`` as the answer.
    """

    template: str
    exemplars: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Templates:
    """Prompt templates by scenario and for rewriting, the system line (may be empty), and sentences of pushback by
    kind; a file may lack some of them.
    """

    setting: str
    """Setting of the file with its value, for errors."""
    system: str
    templates: Mapping[str, Template]
    challenges: Mapping[str, tuple[str, ...]]

    def of(self, kind: str) -> Template:
        """Return the template for a scenario, or for rewriting; UserError if the file of templates has none."""
        if kind not in self.templates:
            raise UserError(f"{self.setting} has no template for {kind}: add one, or choose another file")
        return self.templates[kind]


@cache
def read_templates(path: str, setting: str = "sampler.prompts") -> Templates:
    """Return the prompt templates of a YAML file, the value of this setting; UserError for an invalid one."""
    file = FOLDER / path.removeprefix(BUILTIN) if path.startswith(BUILTIN) else Path(path)
    try:
        read = yaml.safe_load(regular(file).read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        mark = getattr(problem, "problem_mark", None)
        reason = getattr(problem, "problem", None) or getattr(problem, "strerror", None) or first_line(problem)
        where = f" (line {mark.line + 1})" if mark else ""
        names = enumerated([*_BUILTIN_FILES[setting], "your own file"])
        raise UserError(f"{setting}={path} cannot be read: {reason}{where}; choose {names}") from problem
    setting = f"{setting}={path}"
    names = f"system, {', '.join(_NEEDS)}, {CHALLENGES}"
    if not isinstance(read, dict):
        raise UserError(f"{setting} must map names to templates; valid names are {names}")
    if unknown := sorted({str(name) for name in read} - {"system", CHALLENGES, *_NEEDS}):
        raise UserError(f"{setting} has an unknown name {unknown[0]!r}; valid names are {names}")
    system = read.pop("system", "")
    if not isinstance(system, str):
        raise UserError(f"{setting}: system must be a string, not {system!r}")
    challenges = _challenges(read.pop(CHALLENGES, {}), f"{setting}, {CHALLENGES}")
    templates = {kind: _template(entry, kind, f"{setting}, {kind}") for kind, entry in read.items()}
    return Templates(setting, system, templates, challenges)


def _challenges(read: Any, where: str) -> dict[str, tuple[str, ...]]:
    if not isinstance(read, dict) or not all(isinstance(texts, list) and texts for texts in read.values()):
        raise UserError(f"{where}: each kind of pushback must have a list of sentences")
    for kind, texts in read.items():
        if not isinstance(kind, str) or not KIND.fullmatch(kind):
            raise UserError(f"{where}: the name of a kind may contain only lowercase letters and _, not {kind!r}")
        for text in texts:
            if not isinstance(text, str) or not text.strip():
                raise UserError(f"{where}, {kind}: a sentence must be a string, not {text!r}")
            if not fields_of(text, where) <= {"answer", "alternative"}:
                raise UserError(f"{where}, {kind}: placeholders must be {{answer}} or {{alternative}}, not {text!r}")
    return {kind: tuple(texts) for kind, texts in read.items()}


def _template(read: Any, kind: str, where: str) -> Template:
    template = read.get("template") if isinstance(read, dict) and read.keys() <= {"template", "exemplars"} else None
    if not isinstance(template, str):
        raise UserError(f"{where} must have a 'template', and optionally 'exemplars'")
    placeholders = fields_of(template, where)
    if placeholders not in _NEEDS[kind]:
        expected = ", or ".join(" and ".join(f"{{{name}}}" for name in sorted(needs)) for needs in _NEEDS[kind])
        raise UserError(f"{where}: the placeholders of the template must be {expected}, not {template!r}")
    exemplars = read.get("exemplars") or []
    fields = placeholders | (set() if kind == REWRITING else {"answer"})
    if not isinstance(exemplars, list) or not all(isinstance(e, dict) and set(e) == fields for e in exemplars):
        keys = enumerated(sorted(fields), "and")
        raise UserError(f"{where}: exemplars must be a list of mappings, each with the keys {keys}")
    for exemplar in exemplars:
        for name, value in exemplar.items():
            _refuse_shape(f"{where}: {name} of an exemplar", value, several=name in _LISTS)
    return Template(template, tuple(exemplars))


def fields_of(template: str, where: str) -> set[str]:
    """Return the placeholders of a template, with format and conversion; UserError for invalid braces."""
    try:
        placeholders = [part for part in string.Formatter().parse(template) if part[1] is not None]
    except ValueError as problem:
        raise UserError(f"{where}: {template!r} is not a template: {problem}") from problem
    return {f"{name}{form or ''}{conversion or ''}" for _, name, form, conversion in placeholders}


def _refuse_shape(what: str, value: Any, several: bool) -> None:
    """Raise UserError unless a value of an exemplar is a text or number or, if ``several``, a list of them, one for
    each letter.
    """
    if several and not (isinstance(value, list) and 0 < len(value) <= len(LETTERS)):
        raise UserError(f"{what} must be a list of 1 to {len(LETTERS)} strings, not {value!r}")
    for text in value if several else [value]:
        if not isinstance(text, str | int | float) or isinstance(text, bool):
            raise UserError(f"{what} must be a string or a number, not {text!r}")
