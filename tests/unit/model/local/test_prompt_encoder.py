import pytest
from tiny_model import CHAT_TEMPLATE, byte_tokenizer

from robust_eval.error import UserError
from robust_eval.model.local.prompt_encoder import TEMPLATE_DATE, ChatTemplate, PromptEncoder
from robust_eval.prompt.prompt import Prompt

PROMPT = Prompt("Be brief.", (("One?", "1"),), "Two?")
DROPS_SYSTEM = "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}"
REFUSES_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + DROPS_SYSTEM
)
WITHOUT_SYSTEM = "<user>Be brief.\n\nOne?<assistant>1<user>Two?"
LAST = " {{ messages[-1].content }}"


@pytest.mark.parametrize(
    ("template", "settings", "shown"),
    [
        (CHAT_TEMPLATE, {}, "<system>Be brief.<user>One?<assistant>1<user>Two?<bot>"),
        (DROPS_SYSTEM, {}, WITHOUT_SYSTEM),
        (REFUSES_SYSTEM, {}, WITHOUT_SYSTEM),
        ("{{ enable_thinking }} " + DROPS_SYSTEM, {"enable_thinking": False}, f"False {WITHOUT_SYSTEM}"),
        (CHAT_TEMPLATE, {"system_role": False}, f"{WITHOUT_SYSTEM}<bot>"),
        ("{{ date_string or strftime_now('%d %b %Y') }}" + LAST, {}, f"{TEMPLATE_DATE} Two?"),
        ("{{ date_string }}" + LAST, {"date": "1 Jan 2030"}, "1 Jan 2030 Two?"),
        ("{{ strftime_now('%Y-%m-%d') }}" + LAST, {}, "2024-07-26 Two?"),
        ("{{ strftime_now('%d %B %Y') }}" + LAST, {"date": "1 Jan 2030"}, "01 January 2030 Two?"),
        ("{{ strftime_now('%Y-%m-%d') }}" + LAST, {"date": "2030-01-01"}, "2030-01-01 Two?"),
    ],
)
def test_a_chat_prompt_follows_the_template_and_its_settings(template: str, settings: dict, shown: str):
    tokenizer = byte_tokenizer(template)
    encode = PromptEncoder(tokenizer, "chat", ChatTemplate(**settings))
    assert tokenizer.decode(encode(PROMPT)) == shown


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (
            "{% for m in messages %}{{ m.content if m.role == 'user' else raise_exception('no ex') }}{% endfor %}",
            "no ex",
        ),
        ("{{ messages[0].content.text.lower() }}", "'str object' has no attribute 'text'"),
        ("{{ messages[0].content + 1 }}", "can only concatenate str"),
        ("{% for m in messages %}", "Unexpected end of template"),
    ],
)
def test_a_template_that_refuses_the_prompt_ends_the_run_in_one_sentence(template: str, reason: str):
    encode = PromptEncoder(byte_tokenizer(template), "chat")
    with pytest.raises(
        UserError, match=rf"^the model's chat template cannot render this prompt \({reason}.*\): set mod"
    ):
        encode(PROMPT)


def test_a_template_that_drops_the_question_is_refused():
    parts = "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}<bot>{% endfor %}"
    with pytest.raises(UserError, match=r"^the model's chat template omits the question .*: set model\.prom"):
        PromptEncoder(byte_tokenizer(parts), "chat")
