import pytest

from robust_eval.reader.markup import compatible, plain, without_template


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("Paris<|im_end|>", "Paris"),
        ("Paris</s>", "Paris"),
        ("Paris<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nAnd Spain?", "Paris"),
        ("Paris<|im_end|>\n<|im_start|>user\nAnd Spain?", "Paris"),
        ("Paris [/INST] And Spain? [INST]", "Paris"),
        ("<|im_start|>assistant\nParis", "Paris"),
        ("<s> Paris</s>", "Paris"),
        ("<|start_header_id|>assistant<|end_header_id|>\n\nParis", "Paris"),
        ("<｜Assistant｜>Paris<｜end▁of▁sentence｜>", "Paris"),
        ("<end_of_turn>", ""),
        # a base model asks on
        ("Paris\nQuestion: What is the capital of Germany?\nAnswer: Berlin", "Paris"),
        ("Paris\n\nQ: And Germany?\nA: Berlin", "Paris"),
        ("Paris\nUser: And Germany?", "Paris"),
        # a reply that repeats what it was asked
        (
            "Question: What is the capital of France?\nAnswer: Paris",
            "Question: What is the capital of France?\nAnswer: Paris",
        ),
        ("The question: is it Paris? Yes", "The question: is it Paris? Yes"),
        ("a <b> c", "a <b> c"),
    ],
)
def test_marks_of_a_template_and_further_turns_go(reply: str, said: str):
    assert without_template(reply) == said


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("**Paris**", "Paris"),
        ("__Paris__ is *it*", "Paris is it"),
        ("***Paris***", "Paris"),
        ("`Paris`", "Paris"),
        ("# Paris", "Paris"),
        ("### Answer\n\nParis", "Answer\n\nParis"),
        ("> Paris", "Paris"),
        ("- Paris\n- Lyon", "Paris\nLyon"),
        ("```json\n{}\n```", "{}"),
        ("<b>Paris</b>", "Paris"),
        ("[Paris](https://example.org)", "Paris"),
        ("$\\text{Paris}$", "Paris"),
        ("\\(\\mathrm{kg}\\)", "kg"),
        ("\\textbf{\\text{Paris}}", "Paris"),
        # what is none
        ("2*3*4", "2*3*4"),
        ("snake_case_name", "snake_case_name"),
        ("5 > 3", "5 > 3"),
        ("C#", "C#"),
    ],
)
def test_markup_goes_and_the_text_stays(reply: str, text: str):
    assert plain(reply) == text


def test_full_width_and_circled_letters_are_letters():
    assert compatible("（Ｃ）, Ⓒ or ⒞") == "(C), C or (c)"
