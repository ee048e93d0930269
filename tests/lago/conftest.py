"""A small prior with large random weights, so that a wrong mask or position shows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.backbones import decoder
from jaxrl_guided.backbones.config import BackboneConfig
from jaxrl_guided.backbones.lora import LoraConfig
from jaxrl_guided.lago.prior import Prior, PriorSpec, encode_texts, init_prior

STATE, ACTIONS, TEXTS, HORIZON = 4, 6, 5, 7


def small_prior(history: str, finetune: str = "lora") -> tuple[PriorSpec, Prior]:
    config = BackboneConfig(
        vocab_size=32,
        hidden_size=24,
        intermediate_size=32,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=6,
        tie_embeddings=True,
    )
    spec = PriorSpec(
        backbone=config,
        state_size=STATE,
        num_actions=ACTIONS,
        horizon=HORIZON,
        history=history,
        finetune=finetune,
        lora=LoraConfig(rank=3),
    )
    base = decoder.init_params(config, jax.random.key(0), std=0.3)
    prior = init_prior(spec, base, np.zeros(STATE) + 0.1, np.ones(STATE) * 2, jax.random.key(1))
    noise = jax.random.key(2)
    prior = prior.replace(
        adapters=jax.tree.map(
            lambda x: x + 0.2 * jax.random.normal(jax.random.fold_in(noise, x.size), x.shape),
            prior.adapters,
        ),
        heads=jax.tree.map(
            lambda x: x + 0.3 * jax.random.normal(jax.random.fold_in(noise, x.size), x.shape),
            prior.heads,
        ),
    )
    return spec, prior


@pytest.fixture(params=["episode", "none"])
def scored_prior(request):
    """(spec, prior, text table) of both kinds of history."""
    spec, prior = small_prior(request.param)
    tokens = jax.random.randint(jax.random.key(3), (TEXTS, 9), 0, 32)
    length = jnp.array([9, 4, 7, 1, 5])
    return spec, prior, encode_texts(spec, prior, tokens, length)
