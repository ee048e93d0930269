"""Live comparison of the decoder with transformers' torch models, through the loader."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.backbones import decoder, hf
from tests.goldens import make_goldens

pytestmark = pytest.mark.parity

ROPE = {
    "1e4": {"rope_theta": 1e4},
    "1e5": {"rope_theta": 1e5},
    "5e6": {"rope_theta": 5e6},
    "llama3": {"rope_theta": 5e5, "rope_scaling": make_goldens.LLAMA3_SCALING},
}
MATRIX = [
    case
    for case in itertools.product(
        ("llama", "qwen2", "qwen3"), ROPE, (4, 2, 1), (False, True), (False, True), (8, 12)
    )
    if case[0] != "qwen2" or case[4]  # Qwen2 always has its biases
]


def our_logits(config, params, tokens):
    tokens = jnp.asarray(tokens)
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    hidden, _ = decoder.apply(config, params, decoder.embed(params, tokens), positions)
    return decoder.logits(config, params, hidden)


@pytest.mark.parametrize("family,rope,kv_heads,tied,bias,head_dim", MATRIX)
def test_logits_equal_torch(tmp_path, family, rope, kv_heads, tied, bias, head_dim):
    changes = {**ROPE[rope], "num_key_value_heads": kv_heads, "tie_word_embeddings": tied}
    if family != "qwen2":
        changes["attention_bias"] = bias
    raw = make_goldens.tiny_config(model_type=family, head_dim=head_dim, **changes)
    model = make_goldens.random_model(raw)
    model.save_pretrained(tmp_path)
    tokens = np.random.default_rng(1).integers(0, raw["vocab_size"], (2, 33))
    expected = make_goldens.oracle_logits(model, tokens)
    config, params = hf.load_hf(tmp_path)
    np.testing.assert_allclose(our_logits(config, params, tokens), expected, atol=1e-4, rtol=1e-5)
