"""Toy priors with large random weights, so that a wrong mask shows, toy data, and a slow oracle."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_guided.backbones.config import BackboneConfig
from jaxrl_guided.backbones.decoder import Prefix
from jaxrl_guided.backbones.lora import LoraConfig
from jaxrl_guided.backbones.params import init_params, param_shapes
from jaxrl_guided.envs.dataset import Episodes
from jaxrl_guided.lago.guidance import FrozenPrior
from jaxrl_guided.lago.prior import (
    Prior,
    PriorSpec,
    init_cache,
    init_prior,
    step_action,
    step_outputs,
)

STATE, ACTIONS, TEXTS, HORIZON = 4, 6, 5, 7
TEXT_LENGTHS = (9, 4, 7, 1, 5)


def small_prior(history, finetune="lora", state_size=STATE, num_actions=ACTIONS, action_size=0):
    """(spec, prior) of two layers and 24 units."""
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
        state_size=state_size,
        num_actions=num_actions,
        horizon=HORIZON,
        history=history,
        finetune=finetune,
        lora=LoraConfig(rank=3, targets=("q", "v", "down")),
        action_size=action_size,
    )

    def fill(path, leaf):
        name = path[-1].key if hasattr(path[-1], "key") else path[-1].name
        constants = {"mean": 0.1, "std": 2.0} | ({name: 1.0} if name.endswith("norm") else {})
        if name in constants:
            return jnp.full(leaf.shape, constants[name], jnp.float32)
        return jnp.asarray(0.3 * rng.normal(size=leaf.shape), jnp.float32)

    rng = np.random.default_rng(0)
    build = functools.partial(init_prior, spec)
    base = init_params(config, 0)
    statistics = np.zeros(state_size)
    shapes = jax.eval_shape(build, base, statistics, statistics, jax.random.key(0))
    return spec, jax.tree.map_with_path(fill, shapes)


def saying_prior(actions, num_actions, state_size, history="none"):
    """(spec, FrozenPrior) that says `actions[i]` to instruction i, with logit 8, all others 0.

    One layer that passes on what the texts' values hold, a one-hot vector of 64: with keys, states
    and actions of zero a share of it is left, and the final norm makes it 8 times the one-hot.
    """
    width = 64
    config = BackboneConfig(
        vocab_size=2,
        hidden_size=width,
        intermediate_size=1,
        num_layers=1,
        num_heads=4,
        num_kv_heads=4,
        head_dim=width // 4,
        tie_embeddings=True,
    )
    spec = PriorSpec(config, state_size, num_actions, HORIZON, history, "frozen")
    base = jax.tree.map(
        lambda shape: jnp.zeros(shape, jnp.float32),
        param_shapes(config),
        is_leaf=lambda x: isinstance(x, tuple),
    )
    base["layers"]["o"]["kernel"] = jnp.eye(width)[None]
    base["layers"]["attn_norm"] = base["layers"]["attn_norm"] + 1
    base["final_norm"] = base["final_norm"] + 1
    heads = {
        "state": {"kernel": jnp.zeros((state_size, width)), "bias": jnp.zeros(width)},
        "action": jnp.zeros((num_actions + 1, width)),
        "policy": {"kernel": jnp.eye(width, num_actions), "bias": jnp.zeros(num_actions)},
    }
    prior = Prior(base, {}, heads, jnp.zeros(state_size), jnp.ones(state_size))
    values = jax.nn.one_hot(jnp.asarray(actions), width).reshape(1, -1, 1, 4, width // 4)
    count = values.shape[1]
    length, index = jnp.ones(count, jnp.int32), jnp.arange(count, dtype=jnp.int32)[:, None]
    return spec, FrozenPrior(prior, Prefix(jnp.zeros_like(values), values, length, index))


def aiming_prior(answers, aims, state_size, history="none"):
    """(spec, FrozenPrior) that says `aims[answers[i]]` to instruction i, almost surely."""
    spec, frozen = saying_prior(answers, len(aims), state_size, history)
    size, width = aims.shape[1], spec.backbone.hidden_size
    zeros = jnp.zeros(width)
    kernel = np.zeros((width, 2 * size), np.float32)
    kernel[: len(aims), :size] = np.arctanh(np.clip(aims, -0.98, 0.98)) / 8
    bias = jnp.repeat(jnp.array([0.0, -5.0]), size)
    heads = {
        **frozen.prior.heads,
        "action": {"kernel": jnp.zeros((size, width)), "bias": zeros, "not_shown": zeros},
        "policy": {"kernel": jnp.asarray(kernel), "bias": bias},
    }
    prior = dataclasses.replace(frozen.prior, heads=heads)
    spec = dataclasses.replace(spec, num_actions=0, action_size=size)
    return spec, dataclasses.replace(frozen, prior=prior)


def toy_texts():
    """(tokens i32[5, 9], length i32[5])."""
    tokens = np.random.default_rng(3).integers(0, 32, (TEXTS, max(TEXT_LENGTHS)))
    return jnp.asarray(tokens, jnp.int32), jnp.array(TEXT_LENGTHS, jnp.int32)


@functools.partial(jax.jit, static_argnums=0)
def step_by_step(spec, prior, texts, state, action, instruction, done):
    """Outputs [T, N, K] by decoding one state and one action at a time."""

    def step(cache, xs):
        state, action, instruction, done = xs
        outputs, cache = step_outputs(spec, prior, texts, cache, instruction, state)
        return step_action(spec, prior, texts, cache, instruction, action, done), outputs

    cache = init_cache(spec, done.shape[1])
    return jax.lax.scan(step, cache, (state, action, instruction, done))[1]


def make_episodes(lengths, instruction, seed=0, action=None):
    """Random `Episodes`; a fifth of the steps is not the expert's.

    Args:
      action: `(states [n, S], instruction) -> actions [n, …]` of one episode; None is random
        discrete ones.
    """
    rng = np.random.default_rng(seed)
    lengths, total = np.asarray(lengths), int(np.sum(lengths))
    states = rng.normal(size=(total, STATE)).astype(np.float32)
    ends = np.cumsum(lengths) - 1
    last = np.isin(np.arange(total), ends)
    actions = rng.integers(0, ACTIONS, total)
    if action is not None:
        parts = zip(np.split(states, ends[:-1] + 1), instruction, strict=True)
        actions = np.concatenate([action(part, int(text)) for part, text in parts])
    return Episodes(
        observations=states,
        actions=actions.astype(np.float32 if actions.ndim > 1 else np.int32),
        rewards=np.zeros(total, np.float32),
        terminated=last,
        truncated=np.zeros(total, bool),
        is_expert=rng.random(total) < 0.8,
        final_observations=states[ends],
        instruction=np.asarray(instruction, np.int32),
        lengths=lengths,
        metadata={"env": "toy"},
    )
