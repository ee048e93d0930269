"""Exports that transformers loads: equal logits, equal greedy tokens, equal merged adapters."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from jaxrl_guided.backbones import decoder, hf, lora
from jaxrl_guided.backbones.config import BackboneConfig, RopeScaling
from jaxrl_guided.backbones.params import init_params
from jaxrl_guided.backbones.sampler import Request, Sampler
from jaxrl_guided.backbones.turns import Rules, Weights
from tests.goldens import make_goldens

pytestmark = pytest.mark.parity

CONFIG = BackboneConfig(
    vocab_size=61,
    hidden_size=32,
    intermediate_size=48,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=12,
    rope_theta=5e6,
)
FEATURES = {
    "llama": {"qkv_bias": True, "o_bias": True, "rope_scaling": RopeScaling(8.0, 1.0, 4.0, 64)},
    "qwen2": {"qkv_bias": True, "tie_embeddings": True},
    "qwen3": {"qk_norm": True},
}


def torch_model(path):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager").eval()


def our_logits(config, params, tokens, **options):
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    x = decoder.embed(params, jnp.asarray(tokens))
    return decoder.logits(config, params, decoder.apply(config, params, x, positions, **options)[0])


def greedy(config, params, tokens, count):
    """Greedy continuation by the sampler."""
    sampler = Sampler(Rules(config, size=tokens.shape[1] + count, max_tokens=count), len(tokens))
    requests = {slot: Request(row, temperature=0.0) for slot, row in enumerate(tokens)}
    done = sampler.answer(Weights(params), requests)
    return np.stack([done[slot].tokens for slot in requests])


@pytest.mark.parametrize("name", FEATURES)
def test_transformers_loads_our_export(name, tmp_path):
    import torch

    config = dataclasses.replace(CONFIG, **FEATURES[name])
    params = init_params(config, 0, std=0.3)
    hf.export_hf(config, params, tmp_path)
    model = torch_model(tmp_path)
    tokens = np.random.default_rng(0).integers(0, 61, (2, 20))
    expected = make_goldens.oracle_logits(model, tokens)
    np.testing.assert_allclose(our_logits(config, params, tokens), expected, atol=1e-4)
    generated = model.generate(
        torch.tensor(tokens),
        attention_mask=torch.ones(2, 20, dtype=torch.long),
        do_sample=False,
        max_new_tokens=12,
        eos_token_id=None,
        pad_token_id=0,
    )
    np.testing.assert_array_equal(greedy(config, params, tokens, 12), generated[:, 20:])


def test_adapter_files_mean_in_torch_what_they_mean_here(tmp_path):
    """W + (α / r) B A, added by PEFT's names to torch's weights."""
    import torch

    params = init_params(CONFIG, 0, std=0.3)
    settings = lora.LoraConfig(rank=3, alpha=6.0)
    adapters = jax.tree.map(
        lambda x: 0.2 * jax.random.normal(jax.random.key(x.size), x.shape),
        lora.init_lora(CONFIG, settings, jax.random.key(1)),
    )
    hf.export_hf(CONFIG, params, tmp_path / "base")
    lora.export_peft(settings, adapters, tmp_path / "adapter")
    model = torch_model(tmp_path / "base")
    tensors = safetensors.numpy.load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    with torch.no_grad():
        for name in [name for name in tensors if "lora_A" in name]:
            up = torch.tensor(tensors[name.replace("lora_A", "lora_B")])
            module = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            model.get_submodule(module).weight += 2.0 * up @ torch.tensor(tensors[name])
    tokens = np.random.default_rng(0).integers(0, 61, (2, 20))
    ours = our_logits(CONFIG, params, tokens, lora=adapters, lora_scale=settings.scale)
    np.testing.assert_allclose(ours, make_goldens.oracle_logits(model, tokens), atol=1e-4)
