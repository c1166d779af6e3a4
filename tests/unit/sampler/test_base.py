from robust_eval.model.base import Request
from robust_eval.prompt.prompt import prompt_for
from robust_eval.prompt.templates import FEW_SHOT
from robust_eval.question import Question
from robust_eval.sampler.base import greedy_requests

QUESTIONS = [Question(f"q{i}", f"Question {i}?", ("yes",), rewrites=("Another?",)) for i in range(2)]


def test_every_question_is_asked_for_one_greedy_answer_as_it_stands():
    assert greedy_requests(QUESTIONS, FEW_SHOT, max_new_tokens=7, seed=3, top_logprobs=10) == [
        Request(question.id, 0, prompt_for(question), (0.0,), 1, 7, 3, 20, 10) for question in QUESTIONS
    ]


def test_more_log_probabilities_are_kept_where_they_are_wanted():
    first, *_ = greedy_requests(QUESTIONS, FEW_SHOT, max_new_tokens=7, seed=3, top_logprobs=30)
    assert first.top_logprobs == 30
