import pytest

from robust_eval.dataset.jsonl import JsonLines
from robust_eval.model.local.transformers_model import TransformersModel
from robust_eval.model.workload import prompt_tokens
from robust_eval.prompt.prompt import Prompt, prompt_for


@pytest.mark.parametrize("name", ["facts", "passages", "physics"])
@pytest.mark.parametrize("chat", [False, True], ids=["plain", "chat"])
def test_prompts_have_about_as_many_tokens_as_estimated(embedded: TransformersModel, name: str, chat: bool):
    prompts = [prompt_for(question) for question in JsonLines(name=name, path=f"builtin:{name}.jsonl").load()[:40]]

    def counted(prompt: Prompt) -> int:
        if not chat:
            return len(embedded.tokenizer(prompt.text())["input_ids"])
        text = embedded.tokenizer.apply_chat_template(prompt.messages(), add_generation_prompt=True, tokenize=False)
        return len(embedded.tokenizer(text)["input_ids"])

    estimated = sum(prompt_tokens(prompt, chat) for prompt in prompts)
    assert sum(map(counted, prompts)) == pytest.approx(estimated, rel=0.04)
