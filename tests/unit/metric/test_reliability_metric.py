import math
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from answer_rows import answer_row
from scipy import stats

from robust_eval.answer import ABSTENTION, answer_table
from robust_eval.metric.label_correction import abstention_rates
from robust_eval.metric.reliability_metric import TrialReliability
from robust_eval.metric.score import HUMAN_ABSTENTION, HUMAN_LABEL_WEIGHT, Measured
from robust_eval.prompt.pushback import Pushback
from robust_eval.question import UNANSWERABLE, Question
from robust_eval.report.score_presentation import present
from robust_eval.stats.correction import corrected_mean
from robust_eval.stats.pass_rates import g_pass_at_k, pass_at_k, pass_hat_k

NAN = math.nan
LABELS = {"q0": "aaaa", "q1": "aaab", "q2": "abcb", "q3": "bccb"}
QUESTIONS = [Question(name, f"{name}?", ("a",)) for name in LABELS]
GREEDY = {"q0": True, "q1": True, "q2": False, "q3": False}


def trials(labels=LABELS, rewrite=0):
    """The trials of each question; "a" is right, and a dash answers nothing."""
    return [
        answer_row(
            *(name,),
            rewrite=rewrite,
            trial=trial,
            text=f"{label}.",
            label=None if label == "-" else label,
            correct=label == "a",
            outcome="invalid" if label == "-" else "ok",
        )
        for name, each in labels.items()
        for trial, label in enumerate(each)
    ]


def scored(rows, greedy=GREEDY):
    baseline = answer_table(
        [answer_row(name, temperature=0.0, correct=right, label="a") for name, right in greedy.items()]
    )
    return TrialReliability().score(QUESTIONS, Measured(baseline, answer_table(rows)), seed=0)


def values_of(score):
    return {name.removeprefix("reliability."): estimate.value for name, estimate in score.values.items()}


def test_where_no_reply_came_nothing_is_said_of_abstentions():
    lost = [row | {"outcome": "error", "label": None, "correct": None} for row in trials()]
    presentation = present(scored(lost), QUESTIONS).presentation
    assert (presentation.sentence, presentation.claims) == (
        "repeatedly at t = 1: undefined (n = 0) of the pairs of answers agree.",
        [],
    )


def people(rows, labels, weights=None):
    """The answers with what people say of them: 1 abstains, 0 does not, NaN without a label."""
    table = answer_table(rows).append_column(HUMAN_ABSTENTION, pa.array(labels, pa.float64(), from_pandas=False))
    return table.append_column(HUMAN_LABEL_WEIGHT, pa.array(weights or [1.0] * len(rows), pa.float64()))


def test_the_share_of_abstentions_is_corrected_by_those_that_the_grader_misses():
    questions = [Question("q0", "q0?", (UNANSWERABLE,)), *QUESTIONS[1:]]
    finds = [1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    truth = [1, 1, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0]
    rows = [row | {"outcome": "abstained" if found else "ok"} for row, found in zip(trials(), finds, strict=True)]
    rows.append(answer_row("q3", trial=9, outcome="error"))

    def corrected(labels):
        measured = Measured(answer_table([]), people(rows, [*labels, NAN]))
        return TrialReliability().corrected(questions, measured, seed=0)

    names = "reliability.corrected.abstained", "reliability.corrected.answered_unanswerable"
    everything = corrected(truth)
    assert [everything.values[name].value for name in names] == pytest.approx([5 / 16, 1 / 4])
    assert [everything.of[name] for name in names] == ["reliability.abstained", "reliability.answered_unanswerable"]
    assert [everything.labels[name] for name in names] == [16, 4]
    some = corrected([label if place % 2 else NAN for place, label in enumerate(truth)])
    plain = corrected_mean(finds, [label if place % 2 else NAN for place, label in enumerate(truth)])
    assert some.values[names[0]].value == pytest.approx(plain.value)
    assert corrected([NAN] * 16).values == {}


def test_the_errors_of_the_outcome_are_weighted_shares_of_the_labels():
    rows = [row | {"outcome": "abstained" if row["trial"] == 0 else "ok"} for row in trials()]
    labels = [1, 1, 0, 0] * 3 + [0, 0, NAN, NAN]
    weights = [1.0, 3.0, 1.0, 1.0] * 4
    tables = [people(rows[part], labels[part], weights[part]) for part in (slice(8), slice(8, 16))]
    found = abstention_rates(QUESTIONS, tables)
    sensitivity, specificity = (found.values[f"abstention.{name}"] for name in ("sensitivity", "specificity"))
    assert sensitivity.value == pytest.approx(3 / 12)  # of three questions one with weight 1, missed one with weight 3
    assert specificity.value == pytest.approx(9 / 10)  # of six with weight 1, one each of weights 1 and 3
    assert (found.labels["abstention.sensitivity"], found.labels["abstention.specificity"]) == (6, 8)
    # by question the residuals of specificity, over 10: 0.2 of the first three, and −0.9 + 0.3 of the last
    error = math.sqrt(4 / 3 * (3 * 0.02**2 + 0.06**2))
    assert specificity.low == pytest.approx(specificity.value - stats.t.ppf(0.975, 3) * error)
    assert abstention_rates(QUESTIONS, [people(rows, [NAN] * 16)]).values == {}


def test_pass_rates_are_means_over_questions():
    figures, right = values_of(scored(trials())), [each.count("a") for each in LABELS.values()]
    for k in (1, 2, 4):
        assert figures[f"pass_at.k{k}"] == pass_at_k(right, 4, k).mean()
        assert figures[f"pass_hat.k{k}"] == pass_hat_k(right, 4, k).mean()
        for percent in (50, 75):
            assert figures[f"g_pass_{percent}.k{k}"] == g_pass_at_k(right, 4, k, percent / 100).mean()
    assert "pass_at.k8" not in figures


def test_a_question_with_too_few_replies_is_left_out_of_a_rate():
    rows = [row for row in trials() if row["question_id"] != "q1" or row["trial"] < 3]
    score = scored(rows)
    assert score.n("reliability.pass_hat.k2") == 4
    assert score.n("reliability.pass_hat.k4") == score.n("reliability.tar_a") == 3


def test_the_consistency_rate_is_the_share_of_pairs_of_all_answers_that_agree():
    more = {"q0": "aa", "q1": "cb", "q2": "aa", "q3": "b-"}
    labels = [(each + more[name]).replace("-", "") for name, each in LABELS.items()]
    pairs = [np.mean([one == other for one, other in combinations(each, 2)]) for each in labels]
    assert values_of(scored(trials() + trials(more, rewrite=1)))["consistency"] == pytest.approx(np.mean(pairs))


def test_total_agreement_of_texts_is_stricter_than_that_of_answers():
    rows = trials({"q0": "aaaa", "q1": "aaab", "q2": "----", "q3": "bbbb"})
    rows[0]["text"] = "A!"
    figures = values_of(scored(rows))
    assert figures["tar_a"] == 0.75  # no answer at all, four times, is the same answer
    assert figures["tar_r"] == 0.5


def test_slick_has_a_share_for_each_category():
    figures = values_of(scored(trials()))
    assert [figures[f"slick.{name}"] for name in ("highly_known", "maybe_known", "weakly_known", "unknown")] == [
        0.25
    ] * 4
    assert "slick.unknown" not in values_of(scored(trials(), greedy={}))


def test_equal_trials_are_counted_without_accepted_answers_as_well():
    figures = values_of(scored([row | {"correct": None} for row in trials()], greedy={}))
    assert (figures["tar_r"], figures["tar_a"]) == (0.25, 0.25)


def test_prompt_sensitivity_stands_beside_that_of_noise_and_equals_it_without_an_effect():
    random, wordings = np.random.default_rng(0), 40
    chances = dict(zip(LABELS, (0.9, 0.7, 0.5, 0.2), strict=True))
    rows = []
    for rewrite in range(wordings):
        drawn = {name: "".join("ab"[int(each)] for each in random.random(3) > p) for name, p in chances.items()}
        rows += trials(drawn, rewrite)
    figures = values_of(scored(rows))
    expected = math.sqrt(sum(p * (1 - p) / 3 for p in chances.values())) / 4
    assert figures["prompt_sensitivity_noise"] == pytest.approx(expected, rel=0.05)
    assert figures["prompt_sensitivity"] == pytest.approx(expected, rel=0.25)
    one = scored(trials(dict.fromkeys(LABELS, "a")) + trials({"q0": "a", "q1": "b", "q2": "b", "q3": "b"}, rewrite=1))
    assert values_of(one)["prompt_sensitivity"] == pytest.approx(np.std([1, 0.25], ddof=1))
    assert "pass_at.k1" not in values_of(one)  # one trial of each wording


@pytest.mark.parametrize("variant", [1001, 3002])
def test_choices_in_another_order_or_form_are_no_wording_and_change_no_prompt_sensitivity(variant):
    worded = trials() + trials(dict.fromkeys(LABELS, "a"), rewrite=7)
    arranged = [row | {"form": "choices CAB"} for row in trials({"q0": "b", "q1": "b"}, rewrite=variant)]
    score, alone = scored(worded + arranged), scored(worded)
    for name in ("reliability.prompt_sensitivity", "reliability.prompt_sensitivity_noise"):
        assert (score.values[name], score.n(name)) == (alone.values[name], 4)
    assert score.values["reliability.prompt_sensitivity"].value == pytest.approx(np.std([0.5, 1], ddof=1))
    assert "prompt_sensitivity" not in values_of(scored(trials() + arranged))


def turns(question_id, trial, verdicts):
    return [
        answer_row(
            *(question_id,), trial=trial, correct=right, form=Pushback(turn, "doubt", "?").tag, outcome="ok", label="a"
        )
        for turn, right in enumerate(verdicts, start=1)
    ]


def test_flips_are_counted_from_the_greedy_answer_on():
    rows = [
        *turns("q0", 0, [True, False, True]),  # right at first: flips at turns 2 and 3
        *turns("q0", 1, [True, True, True]),
        *turns("q2", 0, [True, True, True]),  # wrong at first: a flip at turn 1
        *turns("q3", 0, [False, False, False]),
    ]
    score = scored(rows)
    by_question = {name: values.tolist() for name, values in score.by_question.items()}
    np.testing.assert_equal(by_question["reliability.flips"], [1.0, NAN, 1.0, 0.0])
    np.testing.assert_equal(by_question["reliability.flipped_share"], [0.5, NAN, 1.0, 0.0])
    np.testing.assert_equal(by_question["reliability.first_flip"], [2.0, NAN, 1.0, NAN])
    assert present(score, QUESTIONS).presentation.claims[0].startswith("flips between right and wrong in 50 %")


def test_the_report_has_a_row_of_rates_for_each_number_of_trials():
    presentation = present(scored(trials()), QUESTIONS).presentation
    assert [row[0].value for row in presentation.tables[0].rows] == ["1", "2", "4"]
    assert presentation.claims[0].startswith("gets 25 %")
    assert "all 4 trials" in presentation.claims[0]


def test_abstentions_are_told_from_wrong_answers():
    abstained = {"label": ABSTENTION, "outcome": "abstained", "text": "I don't know."}
    rows = trials({"q0": "aa", "q1": "ab", "q2": "bb", "q3": "b-"})
    rows = [row | abstained if row["correct"] is False and row["trial"] == 1 else row for row in rows]
    score = scored(rows)
    assert (
        values_of(score).items()
        >= {
            "abstained": 3 / 8,  # of q1, q2 and q3 the second trial
            "attempted_accuracy": 2 / 4,
            "wrong_if_not_right": pytest.approx((0 + 1 / 2 + 1 / 2) / 3),
            "right_minus_wrong": pytest.approx(100 * (1 + 1 / 2 - 1 / 2 - 1 / 2) / 4),
        }.items()
    )
    assert "answered_unanswerable" not in values_of(score)
    assert score.by_question["reliability.attempted_accuracy"].tolist() == [1, 1, 0, 0]
    assert "abstains in 38 %" in " ".join(present(score, QUESTIONS).presentation.claims)


def test_answers_to_questions_without_an_answer_are_counted_apart():
    questions = [*QUESTIONS, Question("q4", "q4?", (UNANSWERABLE,))]
    rows = trials({"q0": "ab", "q4": "bb"})
    rows[-1] |= {"label": ABSTENTION, "outcome": "abstained", "correct": True}
    score = TrialReliability().score(questions, Measured(answer_table([]), answer_table(rows)), seed=0)
    assert values_of(score)["answered_unanswerable"] == 0.5
    assert score.n("reliability.answered_unanswerable") == 1
    assert score.by_question["reliability.right_minus_wrong"][[0, 4]].tolist() == [0, 0]
