import torch
from architectures import tiny
from support.shape import Shape
from support.widened import widened

SHAPE = Shape(layers=3, hidden=96, heads=12, groups=4, size=16, inner=100, vocabulary=70)
TOKENS = torch.tensor([[5, 7, 11, 13, 17, 19, 23], [2, 3, 2, 3, 2, 3, 2]])


@torch.inference_mode()
def test_a_widened_model_has_the_shape_and_computes_the_same():
    small = tiny("llama")
    large = widened(small, SHAPE)
    expected, found = small(TOKENS).logits, large(TOKENS).logits
    torch.testing.assert_close(found[..., : small.config.vocab_size], expected, atol=1e-5, rtol=1e-5)
    assert (found[..., small.config.vocab_size :] < -50).all()
    layers = sum(weight.numel() for name, weight in large.named_parameters() if "proj" in name)
    assert layers == SHAPE.weights
    assert large.lm_head.weight.numel() == SHAPE.head
