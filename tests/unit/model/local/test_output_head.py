import pytest
import torch
from architectures import tiny
from transformers import AutoModelForCausalLM, Gemma2Config, GraniteConfig

from robust_eval.model.local.prefixes import OutputHead

SIZES = {
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@torch.inference_mode()
@pytest.mark.parametrize("name", ["llama", "gpt2", "capped", "scaled"])
def test_some_rows_are_those_of_the_whole_model_with_what_it_does_after_its_head(name: str):
    torch.manual_seed(0)
    if name == "capped":
        model = AutoModelForCausalLM.from_config(Gemma2Config(**SIZES, head_dim=8, final_logit_softcapping=0.05)).eval()
    elif name == "scaled":
        model = AutoModelForCausalLM.from_config(GraniteConfig(**SIZES, logits_scaling=7.0)).eval()
    else:
        model = tiny(name)
    ids = torch.tensor([[5, 9, 31, 7, 12, 40]])
    expected = model(input_ids=ids, use_cache=False).logits[0]
    layers = model.base_model
    head = OutputHead(model, model.base_model(input_ids=ids, use_cache=False), 5)  # the last token only fills a gap
    assert len(head) == 5
    assert torch.allclose(torch.cat([head[0:4], head[4:8]]), expected[:5], atol=1e-6)
    if name in ("capped", "scaled"):
        hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state[0]
        assert not torch.allclose(model.get_output_embeddings()(hidden), expected, atol=1e-3)
    assert model.base_model is layers
