"""The latent action prior pi_K(a_t | x, s_0 a_0 ... s_t) of LaGO (stage 1): parts and one forward.

Instruction tokens, states and actions form one causal sequence with one RoPE index. States enter
by a linear projector E_s, actions by an embedding E_a; the action head G reads the hidden state at
s_t. What E_a and G are depends on the kind of actions (module `actions`). Instruction texts are
encoded once into a table of keys and values; sequences of steps attend to the table's row of their
instruction.
"""

import dataclasses
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxrl_guided.backbones import decoder, kv_cache
from jaxrl_guided.backbones.config import BackboneConfig
from jaxrl_guided.backbones.decoder import Prefix
from jaxrl_guided.backbones.kv_cache import Cache
from jaxrl_guided.backbones.lora import LoraConfig, init_lora
from jaxrl_guided.envs.types import PyTree
from jaxrl_guided.lago.actions import Actions, ContinuousActions, DiscreteActions, linear
from jaxrl_guided.learners.normaliser import CLIP
from jaxrl_guided.runtime.config import added
from jaxrl_guided.runtime.ranges import COUNT, check, check_choice

History = Literal["episode", "none"]
Finetune = Literal["lora", "full", "frozen"]
Precision = Literal["float32", "bfloat16"]

HEADS, BATCHES = range(2)
"""Purposes for which a prior's seed is used; see `seed_key`."""


@dataclasses.dataclass(frozen=True)
class PriorSpec:
    """What is fixed about a prior: shapes and the meaning of its inputs and outputs.

    Attributes:
      backbone: the decoder's configuration.
      state_size: S, numbers in a state.
      num_actions: A, discrete actions; 0 for continuous ones.
      history: `episode` reads every state and action since reset, `none` reads s_t alone.
      horizon: H, the longest episode in steps.
      finetune: what of the backbone is trained.
      lora: adapters, for `finetune="lora"`.
      action_size: numbers in a continuous action; 0 for discrete ones.
      dtype: of the backbone's products and residual stream, and of its weights where they are not
        trained. Projectors, head, adapters, norms and the softmax are float32.
    """

    backbone: BackboneConfig
    state_size: int
    num_actions: int
    horizon: int
    history: History = "episode"
    finetune: Finetune = "lora"
    lora: LoraConfig = dataclasses.field(default_factory=LoraConfig)
    action_size: int = added(0)
    dtype: Precision = added("float32")

    def __post_init__(self) -> None:
        check(self, COUNT, "state_size", "horizon")
        check(self, COUNT, "action_size" if self.action_size else "num_actions")
        if self.action_size and self.num_actions:
            raise ValueError(f"num_actions must be 0 beside action_size, not {self.num_actions}")
        check_choice(self, "history", get_args(History))
        check_choice(self, "finetune", get_args(Finetune))
        check_choice(self, "dtype", get_args(Precision))

    @property
    def actions(self) -> Actions[Any]:
        """The kind of actions."""
        if self.action_size:
            return ContinuousActions(self.action_size)
        return DiscreteActions(self.num_actions)

    @property
    def tokens_per_step(self) -> int:
        """Positions that one step takes in the sequence."""
        return 2 if self.history == "episode" else 1


@struct.dataclass
class Prior:
    """Weights of a prior.

    Attributes:
      base: the backbone's parameters.
      adapters: LoRA adapters, an empty dict without.
      heads: `state` {kernel f32[S, D], bias f32[D]}, `action` (discrete: f32[A + 1, D], the last
        row for an action that is not shown; continuous: {kernel f32[action size, D], bias f32[D],
        not_shown f32[D]}), `policy` {kernel f32[D, K], bias f32[K]}, K outputs.
      mean, std: `f32[S]`, the prior's own statistics of raw states.
    """

    base: PyTree
    adapters: PyTree
    heads: PyTree
    mean: jax.Array
    std: jax.Array


@struct.dataclass
class Steps:
    """Rows of T environment steps, each row holding whole or partial episodes one behind another.

    Attributes:
      state: `f32[B, T, S]` raw states.
      action: `i32[B, T]`, or `f32[B, T, action size]`; see `Actions.hide` for what is not shown.
      position: `i32[B, T]`, step number within its episode.
      segment: `i32[B, T]`, episode number within its row from 1; 0 is padding.
      instruction: `i32[B, G]`, row of the text table for each of G equal groups of steps.
    """

    state: jax.Array
    action: jax.Array
    position: jax.Array
    segment: jax.Array
    instruction: jax.Array


def weights_dtype(finetune: str, dtype: str) -> str:
    """Of the backbone's weights in memory: small updates would be lost in bfloat16."""
    return "float32" if finetune == "full" else dtype


def seed_key(seed: int, purpose: int) -> jax.Array:
    """The key of a seed for one purpose: no two purposes draw the same numbers."""
    return jax.random.fold_in(jax.random.key(seed), purpose)


def init_prior(
    spec: PriorSpec, base: PyTree, mean: np.ndarray, std: np.ndarray, key: jax.Array
) -> Prior:
    """New projectors, head and adapters around backbone parameters `base`.

    Projected states and actions start with the root mean square of token embeddings, so that the
    pretrained layers see inputs of the size that they know.
    """
    k_state, k_action, k_policy, k_lora = jax.random.split(key, 4)
    width = spec.backbone.hidden_size
    rms = jnp.sqrt(jnp.mean(jnp.square(base["embed"].astype(jnp.float32))))
    heads = {
        "state": {
            "kernel": jax.random.normal(k_state, (spec.state_size, width))
            * rms
            / np.sqrt(spec.state_size),
            "bias": jnp.zeros(width),
        },
        "action": spec.actions.init_embedding(k_action, width, rms),
        "policy": {
            "kernel": jax.random.normal(k_policy, (width, spec.actions.outputs)) * 0.01,
            "bias": jnp.zeros(spec.actions.outputs),
        },
    }
    adapters = {}
    if spec.finetune == "lora":
        adapters = init_lora(spec.backbone, spec.lora, k_lora)
    return Prior(base, adapters, heads, jnp.asarray(mean), jnp.asarray(std))


def split_trainable(spec: PriorSpec, prior: Prior) -> tuple[PyTree, PyTree]:
    """`(trainable, fixed)`: two pytrees for `merge_trainable`; optimisers see the first only."""
    trainable = {"heads": prior.heads, "adapters": prior.adapters}
    if spec.finetune == "full":
        trainable["base"] = prior.base
        return trainable, dataclasses.replace(prior, base=None, adapters=None, heads=None)
    return trainable, dataclasses.replace(prior, adapters=None, heads=None)


def merge_trainable(trainable: PyTree, fixed: Prior) -> Prior:
    """Inverse of `split_trainable`."""
    return dataclasses.replace(fixed, **trainable)


def encode_texts(
    spec: PriorSpec,
    prior: Prior,
    tokens: jax.Array,
    length: jax.Array,
    chunk: int | None = None,
    remat: bool = False,
) -> Prefix:
    """Text table: keys and values of I instructions, to be indexed by instruction id.

    The table's `index[:, 0]` is the row of each id: 0, 1, … here; `select_texts` makes others.

    Args:
      tokens: `i32[I, P]` right-padded.
      length: `i32[I]`.
      chunk: texts encoded at once, to bound memory; None is all at once (and differentiable).
      remat: recompute activations in the backward pass (without `chunk`).
    """
    options: dict[str, Any] = {"lora": prior.adapters or None, "lora_scale": spec.lora.scale}
    options["compute_dtype"] = spec.dtype
    if chunk is None:
        x = decoder.embed(prior.base, tokens)
        return decoder.prefix_from_embeddings(
            spec.backbone, prior.base, x, length, remat=remat, **options
        )
    return decoder.prefix_from_tokens(
        spec.backbone, prior.base, tokens, length, chunk=chunk, **options
    )


def select_texts(texts: Prefix, rows: jax.Array) -> Prefix:
    """The same table for instruction ids of which id i has the text of row `rows[i]`, `i32[I]`."""
    return dataclasses.replace(texts, index=rows[:, None])


def action_outputs(
    spec: PriorSpec, prior: Prior, texts: Prefix, steps: Steps, *, remat: bool = False
) -> jax.Array:
    """G's outputs `f32[B, T, K]` at every step in one teacher-forced forward.

    They are the parameters of pi_K, which `Actions.distribution` makes of them. The causal mask
    makes one pass give every t: those at s_t depend on the text, on the states and actions before
    t in the same episode, and on s_t.
    """
    batch, length = steps.segment.shape
    groups = steps.instruction.shape[1]
    text = texts.index[steps.instruction, 0]
    text_length = jnp.repeat(texts.length[text], length // groups, axis=1)
    tokens = embed_states(prior, steps.state)
    position = text_length + spec.tokens_per_step * steps.position
    segment = steps.segment
    window = 0
    if spec.history == "episode":
        actions = spec.actions.embed(prior.heads["action"], steps.action)
        tokens = jnp.stack([tokens, actions], axis=2).reshape(batch, 2 * length, -1)
        position = jnp.stack([position, position + 1], axis=2).reshape(batch, 2 * length)
        segment = jnp.repeat(segment, 2, axis=1)
        window = 2 * spec.horizon
    else:
        position = text_length
    hidden, _ = decoder.apply(
        spec.backbone,
        prior.base,
        tokens,
        position,
        segment_ids=segment,
        lora=prior.adapters or None,
        lora_scale=spec.lora.scale,
        prefix=dataclasses.replace(texts, index=text),
        window=window,
        remat=remat,
        compute_dtype=spec.dtype,
    )
    return read_actions(prior, hidden[:, :: spec.tokens_per_step])


def embed_states(prior: Prior, state: jax.Array) -> jax.Array:
    """E_s: raw states `f32[..., S]` to embeddings `f32[..., D]`; clipped, as learners' are."""
    normal = jnp.clip((state - prior.mean) / prior.std, -CLIP, CLIP)
    return linear(prior.heads["state"], normal)


def read_actions(prior: Prior, hidden: jax.Array) -> jax.Array:
    """G: hidden states `f32[..., D]` to outputs `f32[..., K]`."""
    return linear(prior.heads["policy"], hidden)


def init_cache(spec: PriorSpec, num_envs: int) -> Cache:
    """Empty key-value cache for `step_outputs`, one row an environment."""
    size = spec.tokens_per_step * spec.horizon if spec.history == "episode" else 1
    return kv_cache.init_cache(spec.backbone, num_envs, size, spec.dtype)


def step_outputs(
    spec: PriorSpec,
    prior: Prior,
    texts: Prefix,
    cache: Cache,
    instruction: jax.Array,
    state: jax.Array,
) -> tuple[jax.Array, Cache]:
    """G's outputs `f32[N, K]` for the next state of N running episodes, and the cache after it.

    Args:
      instruction: `i32[N]`.
      state: `f32[N, S]` raw.
    """
    hidden, cache = _decode(spec, prior, texts, cache, instruction, embed_states(prior, state))
    return read_actions(prior, hidden), cache


def step_action(
    spec: PriorSpec,
    prior: Prior,
    texts: Prefix,
    cache: Cache,
    instruction: jax.Array,
    action: jax.Array,
    done: jax.Array,
) -> Cache:
    """The cache after the actions `[N, …]` taken; rows whose episode is `done` start empty."""
    if spec.history == "none":
        return dataclasses.replace(cache, length=jnp.zeros_like(cache.length))
    token = spec.actions.embed(prior.heads["action"], action)
    _, cache = _decode(spec, prior, texts, cache, instruction, token)
    return dataclasses.replace(cache, length=jnp.where(done, 0, cache.length))


def _decode(
    spec: PriorSpec,
    prior: Prior,
    texts: Prefix,
    cache: Cache,
    instruction: jax.Array,
    token: jax.Array,
) -> tuple[jax.Array, Cache]:
    index = texts.index[instruction]
    hidden, advanced = decoder.apply(
        spec.backbone,
        prior.base,
        token[:, None],
        texts.length[index] + cache.length[:, None],
        lora=prior.adapters or None,
        lora_scale=spec.lora.scale,
        prefix=dataclasses.replace(texts, index=index),
        cache=cache,
        compute_dtype=spec.dtype,
    )
    assert advanced is not None  # a cache was given
    return hidden[:, 0], advanced
