import pytest

from robust_eval.grader.answer_matcher import AnswerMatcher
from robust_eval.grader.matching import Matching
from robust_eval.model.base import Matcher, Request
from robust_eval.prompt.prompt import prompt_for
from robust_eval.question import Question
from robust_eval.sampler.temperature_sweep import TemperatureSweep

QUESTIONS = [Question(f"q{index}", f"Question {index}?", ("yes",)) for index in range(6)]


class Judge(Matching):
    """Hands out one matcher for each question that can be told from the others."""

    def __init__(self) -> None:
        self.matchers = {question.id: AnswerMatcher(["yes"]) for question in QUESTIONS}

    def matcher(self, question: Question) -> Matcher | None:
        return self.matchers[question.id]


def test_the_defaults_are_those_of_the_paper():
    sweep = TemperatureSweep()
    assert sweep.temperatures == [0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0]
    assert (sweep.trials, sweep.max_new_tokens, sweep.selection, sweep.max_questions) == (10, 5, "exact_match", 1000)
    assert (sweep.estimator, sweep.whole_answers) == ("trials", True)


@pytest.mark.parametrize("whole", [True, False])
def test_every_question_is_asked_at_every_temperature(whole: bool):
    judge = Judge()
    sweep = TemperatureSweep(temperatures=[2.0, 0.5], trials=4, whole_answers=whole)
    assert sweep.requests(QUESTIONS, judge, seed=3) == [
        Request(q.id, 0, prompt_for(q), (0.5, 2.0), 4, 5, 3, 0, 0, None if whole else judge.matchers[q.id], whole)
        for q in QUESTIONS
    ]
    assert sweep.repetitions == 4


def test_a_question_whose_answers_can_only_be_graded_whole_brings_no_matcher():
    questions = [
        Question("free", "Capital of Italy?", ("Rome",)),
        Question("choice", "Capital of Italy?", choices=("Rome", "Paris"), correct=0),
        Question("open", "Capital of Italy?"),
        Question("nothing", "Capital of Italy?", ("", " ")),
    ]
    requests = TemperatureSweep(whole_answers=False).requests(questions, Matching(), seed=0)
    assert [request.question_id for request in requests if request.matcher] == ["free"]
    matcher = requests[0].matcher
    assert [matcher.right(reply) for reply in ("It is Rome.", "Paris", "Romeo")] == [True, False, False]
    requests = TemperatureSweep(whole_answers=False).requests(questions, Matching("substring"), seed=0)
    assert [request.matcher for request in requests] == [None] * 4
