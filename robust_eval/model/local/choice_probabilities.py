"""The probability of each choice of a multiple-choice question at every temperature, from one row of logits."""

from collections.abc import Sequence

import numpy as np
import torch

from robust_eval.model.base import Curve, Request
from robust_eval.model.enumerated import EnumeratedAnswers
from robust_eval.model.generation import Generation
from robust_eval.model.local.answer_tree import Prefixes
from robust_eval.model.local.exact_tree import Enumerated
from robust_eval.model.local.tempered import tempered_logprobs, tempered_masses
from robust_eval.model.local.transfers import to_device
from robust_eval.model.local.vocabulary import Vocabulary


@torch.inference_mode()
def enumerate_choices(
    prefixes: Prefixes,
    requests: Sequence[Request],
    prompts: Sequence[Sequence[int]],
    vocabulary: Vocabulary,
    generation: Generation,
) -> list[Enumerated]:
    """Return the replies of one token to a block of multiple-choice questions, gathered by what they choose.

    Each choice is an answer, and what chooses none of them is another, for which its likeliest token stands.
    """
    assert requests[0].enumeration is not None
    temperatures = requests[0].enumeration.temperatures
    sets = [request.enumeration.choices.tokens(vocabulary.texts) for request in requests]  # type: ignore[union-attr]
    most = max(map(len, sets))
    padded = [choices + [np.empty(0, dtype=np.intp)] * (most - len(choices)) for choices in sets]
    logits = generation.penalized(prefixes.roots(prompts)[:], [list(prompt) for prompt in prompts])
    log_total, all_shares = tempered_masses(logits, temperatures, padded, generation).arrays()
    found = []
    for row, (request, choices) in enumerate(zip(requests, sets, strict=True)):
        others = np.setdiff1d(np.arange(len(vocabulary.ends)), np.concatenate(choices))
        shares = all_shares[row, : len(choices)]
        answers: list[EnumeratedAnswers[int]] = []
        correct = request.enumeration.choices.correct  # type: ignore[union-attr]
        for index, ids in enumerate([*choices, others]):
            share = shares[index] if index < len(choices) else np.maximum(1 - shares.sum(axis=0), 0)
            token = ids[int(logits[row, to_device(ids, logits.device)].argmax())]
            logprobs = tempered_logprobs(
                logits, np.array([row]), np.array([token]), log_total, temperatures, generation
            )
            answers.append(EnumeratedAnswers(index == correct, share, (int(token),), "length", logprobs))
        accuracy = shares[correct] if correct is not None else np.full(len(temperatures), np.nan)
        exact = np.zeros(len(temperatures))
        curve = Curve(np.array(temperatures), accuracy, exact, accuracy, accuracy)
        found.append(Enumerated(answers, curve))
    return found
