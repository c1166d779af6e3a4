import pytest

from robust_eval.reader.markup import compatible, plain, without_footnotes, without_template


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
        # footnotes in brackets
        ("Paris[1]", "Paris"),
        ("Paris [1][2].", "Paris."),
        ("Paris [citation needed]", "Paris"),
        ("[Paris](https://example.org)[3]", "Paris"),
        ("f[1](x)", "f1"),  # a link
        ("[1, 2]", "[1, 2]"),
        # LaTeX
        ("$\\frac{1}{2}$", "1/2"),
    ],
)
def test_markup_goes_and_the_text_stays(reply: str, text: str):
    assert plain(reply) == text


def test_full_width_and_circled_letters_are_letters():
    assert compatible("（Ｃ）, Ⓒ or ⒞") == "(C), C or (c)"


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("It is Paris1.", "It is Paris."),
        ("Paris12, France2", "Paris, France"),
        ("signed inParis1", "signed in Paris"),
        ("on April 30, 18032.", "on April 30, 1803."),
        ("It was 1975after that", "It was 1975 after that"),
        # what is none
        ("1945", "1945"),
        ("B12 and H2O", "B12 and H2O"),
        ("Paris 1", "Paris 1"),
        ("in Paris", "in Paris"),
    ],
)
def test_footnote_marks_glued_to_a_word_go(text: str, without: str):
    assert without_footnotes(text) == without
