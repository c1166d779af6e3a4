"""The probabilities of the answers to one question, as far as a server's log-probabilities tell them, and draws.

Where the bounds of what these show are close, a probability is read off them; elsewhere answers are drawn.
"""

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from robust_eval.model.base import Completion, Curve, Enumeration, Floats, Reply, Request
from robust_eval.model.calls import LEVELS, Call, calls
from robust_eval.model.enumerated import Weighted, balanced
from robust_eval.model.served.admission import EndedError
from robust_eval.model.served.capped_draws import Capped, capped
from robust_eval.model.served.choice_shares import Shares, choice_shares, drawn_shares
from robust_eval.model.served.completions import completions
from robust_eval.model.served.continuation import Ask, Continuation, Sending, Settings
from robust_eval.model.served.seen_draws import ended, mean_and_error, summed_draw
from robust_eval.model.served.seen_tokens import Position
from robust_eval.model.served.seen_tree import Prefix, SeenAnswers, SeenTree
from robust_eval.model.served.seen_vocabulary import SeenVocabulary
from robust_eval.model.served.service import Answered, UnansweredError

BOUNDS, DRAWS, WEIGHTS = "bounds", "draws", "weights"
"""How a point of a curve was got."""
CLOSE, CLOSE_UP_TO_1 = 0.15, 0.7
"""How far apart bounds may be where a probability is read off them. Up to temperature 1 it is known how much is not
seen, and all that is taken for granted is how little of it is right; beyond, nobody knows how much there is."""
LEAST = 0.01
"""What a beginning of answers has to weigh at some temperature for it to be worth a request."""
AT_ONCE = 8
"""Beginnings that are asked for before what came of them is looked at."""
CHANGED = 0.08
"""By how much log-probabilities of one place may be further apart at one time than at another: half precision is not
exact."""
FAR_ENOUGH = 0.5
"""How far apart they have to be for that to be told."""
NORMAL_95 = 1.959963984540054


@dataclass(frozen=True)
class Asking:
    """How the server is asked: with which ``settings``; for draws with which ``body``, with so many ``choices`` in one
    request.
    """

    ask: Ask
    settings: Settings
    body: Callable[[Call], Mapping[str, Any]]
    choices: int

    @property
    def vocabulary(self) -> SeenVocabulary:
        return SeenVocabulary(self.settings.top_logprobs, self.settings.whole_vocabulary)


@dataclass
class Usage:
    """What the service counted."""

    prompt: int = 0
    completion: int = 0
    cached: int | None = None

    def add(self, answered: Answered) -> None:
        self.prompt += answered.prompt_tokens
        listed = sum(map(len, answered.seen))  # some servers count the first of several answers alone
        self.completion += max(answered.completion_tokens, listed)
        if answered.cached_tokens is not None:
            self.cached = (self.cached or 0) + answered.cached_tokens


class Points:
    """The probability of a right answer at T temperatures, by bounds where these are close, by draws where these were
    made; elsewhere it is not known.
    """

    def __init__(
        self, temperatures: Sequence[float], lower: Floats, likely: Floats, upper: Floats, apart: Floats
    ) -> None:
        self.temperatures = list(temperatures)
        self.accuracy, self.lower, self.upper = likely.copy(), lower, upper
        self.error = np.maximum(likely - lower, upper - likely) / NORMAL_95  # its interval reaches to the bounds
        close = np.where(np.asarray(temperatures) <= 1, CLOSE_UP_TO_1, CLOSE)
        self.how: list[str | None] = [BOUNDS if each else None for each in apart <= close]

    @classmethod
    def weighed(cls, temperatures: Sequence[float], told: Capped) -> "Points":
        """Return the points that draws at a higher temperature tell."""
        bounds = told.bounds
        points = cls(temperatures, bounds.lower, told.accuracy, bounds.upper, np.zeros(len(temperatures)))
        points.error, points.how = told.error, [WEIGHTS] * len(temperatures)
        return points

    def draw(self, temperature: float, mean: float, error: float) -> None:
        """Take what draws at a temperature tell, as far as the bounds let it be."""
        place = self.temperatures.index(temperature)
        self.accuracy[place] = np.clip(mean, self.lower[place], self.upper[place])
        self.error[place], self.how[place] = error, DRAWS

    def far(self, wanted: Sequence[float]) -> list[float]:
        """Return the temperatures among those that are wanted at which bounds are not close."""
        return [t for t in wanted if self.how[self.temperatures.index(t)] is None]

    def curve(self) -> Curve:
        """Return what is known."""
        known = [place for place, how in enumerate(self.how) if how is not None]
        return Curve(
            np.array(self.temperatures)[known],
            self.accuracy[known],
            self.error[known],
            self.lower[known],
            self.upper[known],
            [str(self.how[place]) for place in known],
        )


async def exact_reply(request: Request, asking: Asking, continuation: Continuation | None) -> Reply:
    """Return the answers to a request with their probabilities, and the curve; raises UnansweredError.

    Beginnings of answers are asked for by the ``continuation``. A multiple-choice question, which is answered by one
    token, needs none. Without one, answers to other questions are drawn at the highest temperature of the request, not
    above 1, and weighed for the others.
    """
    enumeration, usage = request.enumeration, Usage()
    assert enumeration is not None

    seen = asking.ask.seen

    async def counting(sending: Sending) -> Answered:
        answered = await seen(sending)
        usage.add(answered)
        return answered

    asking = replace(asking, ask=asking.ask._replace(seen=counting))
    if enumeration.choices is not None:
        found, points = await _choices(request, enumeration, asking)
    elif continuation is not None:
        found, points = await _answers(request, enumeration, asking, continuation)
    else:
        found, points = await _capped(request, enumeration, asking)
    if not found:
        raise UnansweredError("lost", "what the server sent tells of no answer")
    found[0] = replace(
        found[0], prompt_tokens=usage.prompt, completion_tokens=usage.completion, cached_tokens=usage.cached
    )
    return Reply(request, found, points.curve())


def without_answers(request: Request, outcome: str) -> Reply:
    """Return that no answers came."""
    return Reply(request, [_completion(t, 0, "", 1.0, outcome=outcome) for t in request.temperatures])


async def _answers(
    request: Request, enumeration: Enumeration, asking: Asking, continuation: Continuation
) -> tuple[list[Completion], Points]:
    assert request.matcher is not None
    tree = SeenTree(
        request.matcher,
        request.max_new_tokens,
        enumeration.temperatures,
        request.temperatures,
        asking.vocabulary,
        asking.settings.chat,
    )
    root = await _explore(tree, request, enumeration.nodes, asking, continuation)
    bounds = tree.bounds
    apart = bounds.upper - bounds.lower
    points = Points(tree.temperatures, bounds.lower, tree.likely, bounds.upper, apart)
    drawn = await _drawn(request, enumeration.draws, asking, points.far(request.temperatures), root)
    rows: dict[float, list[_Drawn]] = {}
    for t, draws in drawn.items():
        told = [
            summed_draw(request.matcher, each.places, t, tree.depth, asking.settings.chat, each.cut) for each in draws
        ]
        right = [request.matcher.right(each.completion.text) for each in draws]
        # where a server does not list how an answer ended, nothing can be summed
        values = [float(one) for one in right] if None in told else [value for value in told if value is not None]
        points.draw(t, *mean_and_error(values))
        rows[t] = [_Drawn(one, np.ones(1), each.completion) for one, each in zip(right, draws, strict=True)]
    return list(_rows(request, tree, points, rows)), points


async def _capped(request: Request, enumeration: Enumeration, asking: Asking) -> tuple[list[Completion], Points]:
    """Return answers drawn at the highest temperature of a request, as many as there are draws at all of them, with
    what they weigh at each.
    """
    matcher, cap = request.matcher, max(request.temperatures)
    assert matcher is not None
    number = enumeration.draws * len(request.temperatures)
    draws = (await _drawn(request, number, asking, [cap], None))[cap]
    chat = asking.settings.chat
    places = [ended(matcher, each.places, request.max_new_tokens, chat) for each in draws]
    right = [matcher.right(each.completion.text) for each in draws]
    below = [t for t in enumeration.temperatures if t <= cap]
    told = capped(places, right, cap, below, asking.vocabulary)
    points = Points.weighed(below, told)
    found = []
    for t in request.temperatures:
        place = below.index(t)
        sides = [
            _Drawn(one, told.weights[row, place : place + 1], draws[row].completion) for row, one in enumerate(right)
        ]
        for trial, each in enumerate(balanced(sides, points.accuracy[place : place + 1])):
            if each.weight[0] > 0:
                weight = float(each.weight[0])
                found.append(
                    replace(each.completion, temperature=t, trial=trial, weight=weight, top_logprobs=None, **_UNCOUNTED)
                )
    return found, points


async def _explore(
    tree: SeenTree, request: Request, nodes: int, asking: Asking, continuation: Continuation
) -> Position:
    """Ask for the beginnings of answers that weigh most, until they are so many or weigh too little; return what was
    said of the first place.
    """
    start = await continuation.start(asking.ask, request.prompt)
    prompt_tokens = 0

    async def said(prefix: Prefix, levels: int) -> Answered | UnansweredError | EndedError | None:
        sending = continuation.sending(start, prefix.tokens, levels)
        try:
            return None if sending is None else await asking.ask.seen(sending)
        except (UnansweredError, EndedError) as problem:  # the others are under way, and are paid
            return problem

    together, levels = tree.heaviest(1, 0.0), tree.depth
    root: Position | None = None
    while together:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(said(each, min(levels, tree.depth - len(each.tokens)))) for each in together]
        for prefix, task in zip(together, tasks, strict=True):
            answered = task.result()
            if isinstance(answered, Exception):
                raise answered
            if answered is not None and not prefix.tokens:
                prompt_tokens = answered.prompt_tokens
            places = [] if answered is None else continuation.positions(answered, prefix.tokens, prompt_tokens)
            root = root or (places[0] if places else None)
            tree.grow(prefix, places[: tree.depth - len(prefix.tokens)])
        nodes -= len(together)
        together, levels = tree.heaviest(min(AT_ONCE, nodes), LEAST), LEVELS
    if root is None:
        raise UnansweredError("lost", "the server says nothing of the first token of an answer")
    return root


@dataclass(frozen=True)
class _Draw:
    """One answer that was drawn: what was said of its places, and whether the length ended it."""

    completion: Completion
    places: Sequence[Position]
    cut: bool


@dataclass(frozen=True)
class _Drawn(Weighted):
    completion: Completion


async def _drawn(
    request: Request, draws: int, asking: Asking, temperatures: Sequence[float], root: Position | None
) -> dict[float, list[_Draw]]:
    """Return answers drawn at each of these temperatures; raises UnansweredError, also where the server says otherwise
    of the first place than it did.
    """
    shown = asking.settings.top_logprobs
    plain = replace(request, temperatures=tuple(temperatures), trials=draws, top_logprobs=shown, enumeration=None)
    path, asked = asking.settings.asked(request.prompt)
    style = "chat" if asking.settings.chat else "plain"
    found: dict[float, list[_Draw]] = {}
    for call in calls(plain, asking.choices):
        left = call.trials
        while left:
            part = call._replace(trials=left)
            most = len(left) * request.max_new_tokens
            body = {**asking.body(part), **asked}
            answered = await asking.ask.seen(Sending(asking.settings, path, body, 0, most))
            came = completions(part, left, answered, style)
            for completion, places in zip(came, answered.seen, strict=False):
                root = root or (places[0] if places else None)
                _refuse_change(root, places)
                cut = completion.finish_reason == "length"
                found.setdefault(call.temperature, []).append(_Draw(completion, places, cut))
            left = left[len(came) :]
    return found


def _refuse_change(root: Position | None, places: Sequence[Position]) -> None:
    """UnansweredError where the log-probabilities of the first place are others than they were: those after the
    temperature are closer together, or further apart.
    """
    if not places or root is None:
        raise UnansweredError("lost", "the server sent no log-probabilities, and they are needed")
    before, now = ({token.name: token.logprob for token in each.largest} for each in (root, places[0]))
    both = [name for name in before if name in now and math.isfinite(before[name]) and math.isfinite(now[name])]
    if len(both) < 2:
        return
    apart = before[both[0]] - before[both[-1]]
    if apart > FAR_ENOUGH and abs((now[both[0]] - now[both[-1]]) / apart - 1) > CHANGED:
        raise UnansweredError(
            "lost",
            "the server sent other log-probabilities of the same place than before: are they after the temperature?",
        )


def _rows(
    request: Request, tree: SeenTree, points: Points, drawn: Mapping[float, Sequence["_Drawn"]]
) -> Iterator[Completion]:
    """Yield answers whose weights add up to the accuracy at each temperature where they are right, to the rest
    elsewhere.
    """
    accuracy = np.clip(points.accuracy, 0, 1)
    enumerated = balanced(tree.answers, accuracy)
    one = tree.temperatures.index(1.0) if 1.0 in tree.temperatures else None
    for t in request.temperatures:
        place = points.temperatures.index(t)
        if t in drawn:
            for trial, each in enumerate(_with_both_sides(drawn[t], enumerated, accuracy[place : place + 1], place, t)):
                if each.weight[0] > 0:
                    yield replace(
                        each.completion,
                        trial=trial,
                        weight=float(each.weight[0]),
                        top_logprobs=None,
                        **_UNCOUNTED,
                    )
            continue
        for trial, answers in enumerate(enumerated):
            if answers.weight[place] > 0:
                yield _enumerated(answers, t, trial, place, one)


def _with_both_sides(
    drawn: Sequence["_Drawn"], enumerated: Sequence[SeenAnswers], accuracy: Floats, place: int, temperature: float
) -> list["_Drawn"]:
    """Return draws with weights by the accuracy (1,); beside them what is likeliest of the right, or the wrong answers,
    where no draw is one and they weigh something.
    """
    answers = list(drawn)
    for side in (True, False):
        weighs = accuracy[0] if side else 1 - accuracy[0]
        others = [each for each in enumerated if each.right == side]
        if weighs > 0 and others and not any(each.right == side for each in drawn):
            likeliest = max(others, key=lambda each: float(each.weight[place]))
            answers.append(_Drawn(side, np.ones(1), _enumerated(likeliest, temperature, 0, place, None)))
    return balanced(answers, accuracy)


_UNCOUNTED: dict[str, Any] = {
    "prompt_tokens": 0,
    "completion_tokens": 0,
    "reasoning_tokens": None,
    "cached_tokens": None,
}


def _enumerated(answers: SeenAnswers, temperature: float, trial: int, place: int, one: int | None) -> Completion:
    carried = b"".join(token.text for token in answers.tokens)
    line = carried.lstrip().split(b"\n", 1)[0].decode("utf-8", "replace").strip() if carried.strip() else ""
    carrying = [token for token in answers.tokens if token.text.split(b"\n", 1)[0].strip()]
    return _completion(
        temperature,
        trial,
        line,
        float(answers.weight[place]),
        finish_reason=answers.finish_reason,
        token_logprobs=[token.logprob for token in answers.tokens],
        sampling_logprobs=answers.logprobs[:, place].tolist(),
        answer_tokens=len(carrying),
    )


async def _choices(request: Request, enumeration: Enumeration, asking: Asking) -> tuple[list[Completion], Points]:
    """Return the choices of a multiple-choice question, and what chooses none, with their probabilities."""
    choices = enumeration.choices
    assert choices is not None
    path, asked = asking.settings.asked(request.prompt)
    answered = await asking.ask.seen(asking.settings.sending(path, asked, 1, {}, 0))
    if not answered.seen[0]:
        raise UnansweredError("lost", "the server says nothing of the first token of an answer")
    root = answered.seen[0][0]
    shares = choice_shares(choices, root.largest, enumeration.temperatures, asking.vocabulary)
    apart = (shares.upper - shares.lower).max(axis=0)
    correct = choices.correct
    unknown = np.full(len(enumeration.temperatures), np.nan)
    lower, right, upper = (
        unknown if correct is None else each[correct] for each in (shares.lower, shares.likely, shares.upper)
    )
    points = Points(enumeration.temperatures, lower, right, upper, apart)
    drawn = await _drawn(request, enumeration.draws, asking, points.far(request.temperatures), root)
    likely = shares.likely.copy()
    for t, draws in drawn.items():
        told = np.stack([drawn_shares(choices, each.places[0], t) for each in draws])
        place = points.temperatures.index(t)
        mean = np.clip(told.mean(axis=0), shares.lower[:, place], shares.upper[:, place])
        likely[:, place] = mean / mean.sum()
        error = 0.0 if correct is None else mean_and_error(told[:, correct].tolist())[1]
        for each in draws:  # a choice that only a draw shows is called by what was drawn
            for index in np.flatnonzero(drawn_shares(choices, each.places[0], t)):
                if shares.tokens[index] is None:
                    shares.tokens[index] = each.places[0].chosen
        points.draw(t, math.nan if correct is None else float(likely[correct, place]), error)
    return list(_choice_rows(request, shares, likely, points)), points


def _choice_rows(request: Request, shares: Shares, likely: Floats, points: Points) -> Iterator[Completion]:
    for t in request.temperatures:
        place = points.temperatures.index(t)
        for trial, token in enumerate(shares.tokens):
            if likely[trial, place] > 0:
                text = token.text.decode("utf-8", "replace").split("\n", 1)[0].strip() if token else ""
                known = token is not None
                yield _completion(
                    t,
                    trial,
                    text,
                    float(likely[trial, place]),
                    finish_reason="length",
                    token_logprobs=[token.logprob] if token else None,
                    sampling_logprobs=[math.log(likely[trial, place])] if known else None,
                    answer_tokens=1 if known else None,
                )


def _completion(temperature: float, trial: int, text: str, weight: float, **more: Any) -> Completion:
    nothing = dict.fromkeys(("token_ids", "token_logprobs", "sampling_logprobs", "top_logprobs"))
    rest = {"answer_tokens": None, "finish_reason": None, "prompt_tokens": 0, "completion_tokens": 0}
    return Completion(temperature, trial, text, weight, **{**nothing, **rest, **more})
