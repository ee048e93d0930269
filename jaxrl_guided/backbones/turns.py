"""Generation as pure functions over slots: rows of conversations that keep their keys and values.

A turn of a row is `read` (new tokens in, first token drawn) and then `advance` until it stops. Rows
are independent: reading into some leaves the others as they are, in the middle of their turns, and
what a row draws depends on its own seed alone.

The last token of a completion has been drawn, not read: the next turn begins with it.
"""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from jaxrl_guided.backbones import decoder, kv_cache
from jaxrl_guided.backbones.config import BackboneConfig
from jaxrl_guided.backbones.draw import NOTHING, Cut, draw
from jaxrl_guided.backbones.kv_cache import Cache, init_cache
from jaxrl_guided.backbones.params import Params, unstack
from jaxrl_guided.backbones.stops import MATCHED, StopReason


@dataclasses.dataclass(frozen=True)
class Rules:
    """What is fixed when the programs are compiled.

    Attributes:
      backbone: the decoder.
      size: S, most tokens of a conversation.
      max_tokens: N, most tokens of a completion.
      stop_ids: tokens that end one.
      cut: of the distribution; for evaluation only.
      lora_scale: α / r.
      compute_dtype: of matrix products.
    """

    backbone: BackboneConfig
    size: int
    max_tokens: int
    stop_ids: tuple[int, ...] = ()
    cut: Cut = NOTHING
    lora_scale: float = 1.0
    compute_dtype: jax.typing.DTypeLike = jnp.float32


@struct.dataclass
class Weights:
    """What a row is generated with.

    Attributes:
      params: of the decoder; `params.unstack` saves a copy a call where they do not change.
      lora: adapters or None.
      stops: `i32[states, V]` from `stop_table`, or None.
    """

    params: Params
    lora: Params | None = None
    stops: jax.Array | None = None


@struct.dataclass
class Turn:
    """What rows are doing; every array has B rows.

    Attributes:
      seed: `u32[B]`; draw t of a row takes `fold_in(key(seed), t)`.
      temperature: `f32[B]`; 0 is greedy.
      budget: `i32[B]`, most tokens of the completion, 1 … N.
      tokens, log_probs: `i32[B, N]`, `f32[B, N]`, of what was drawn; zeros after it.
      count: `i32[B]` of them.
      matched: `i32[B]`, state of the stop strings.
      reason: `i32[B]`, a `StopReason`.
    """

    seed: jax.Array
    temperature: jax.Array
    budget: jax.Array
    tokens: jax.Array
    log_probs: jax.Array
    count: jax.Array
    matched: jax.Array
    reason: jax.Array


@struct.dataclass
class Slots:
    """Conversations of B rows and their turns; donated."""

    cache: Cache
    turn: Turn


@struct.dataclass
class Text:
    """Tokens for R rows to read.

    Attributes:
      rows: `i32[R]`, distinct; B or more is padding. None: all rows in order.
      tokens: `i32[R, T]`, right padded.
      count: `i32[R]`, how many there are; 0: the row is left alone.
      fresh: `bool[R]`, the row forgets what it has read before.
      last: `bool[R]`, nothing more to read: the turn begins.
      seed, temperature, budget: of that turn.
    """

    rows: jax.Array | None
    tokens: jax.Array
    count: jax.Array
    fresh: jax.Array
    last: jax.Array
    seed: jax.Array
    temperature: jax.Array
    budget: jax.Array


def init_slots(
    rules: Rules, rows: int, size: int, dtype: jax.typing.DTypeLike = jnp.float32
) -> Slots:
    """Rows that have read nothing and generate nothing, with room for `size` tokens each."""
    shape = (rows, rules.max_tokens)
    turn = Turn(
        seed=jnp.zeros(rows, jnp.uint32),
        temperature=jnp.ones(rows, jnp.float32),
        budget=jnp.ones(rows, jnp.int32),
        tokens=jnp.zeros(shape, jnp.int32),
        log_probs=jnp.zeros(shape, jnp.float32),
        count=jnp.zeros(rows, jnp.int32),
        matched=jnp.zeros(rows, jnp.int32),
        reason=jnp.full(rows, int(StopReason.LENGTH), jnp.int32),
    )
    return Slots(init_cache(rules.backbone, rows, size, dtype), turn)


def grow(slots: Slots, size: int) -> Slots:
    """The same rows with room for `size` tokens each, more than now."""
    room = [(0, 0), (0, 0), (0, size - slots.cache.size), (0, 0)]
    keys, values = (
        tuple(jnp.pad(x, room) for x in layers) for layers in (slots.cache.keys, slots.cache.values)
    )
    return Slots(Cache(keys, values, slots.cache.length), slots.turn)


def read(rules: Rules, reach: int, weights: Weights, slots: Slots, text: Text) -> Slots:
    """Reads new tokens into rows, and draws the first token where `last` says so.

    The caller sees to it that none of the rows generates, and that all tokens have room.

    Args:
      reach: tokens that no row in question goes beyond; no more of the cache is read.
    """
    rows, taken = text.rows, text.count > 0
    near = kv_cache.part(slots.cache, rows, reach)
    before = jnp.where(text.fresh & taken, 0, near.length)
    steps = jnp.arange(text.tokens.shape[1])
    hidden, cache = decoder.apply(
        rules.backbone,
        weights.params,
        decoder.embed(weights.params, text.tokens),
        before[:, None] + steps,
        segment_ids=(steps < text.count[:, None]).astype(jnp.int32),
        lora=weights.lora,
        lora_scale=rules.lora_scale,
        cache=Cache(near.keys, near.values, before),
        compute_dtype=rules.compute_dtype,
    )
    assert cache is not None
    at = jnp.maximum(text.count - 1, 0)[:, None, None]
    hidden = jnp.take_along_axis(hidden, at, axis=1)[:, 0]
    begun = _begin(rules, text)
    begun = _drawn(rules, weights, begun, hidden, before + text.count, jnp.full_like(taken, True))
    turn = slots.turn
    kept = turn if rows is None else jax.tree.map(lambda x: x[rows], turn)
    begun = jax.tree.map(lambda new, old: _where(taken & text.last, new, old), begun, kept)
    turn = jax.tree.map(lambda x, new: _put(x, rows, new), turn, begun)
    return Slots(kv_cache.put_part(slots.cache, rows, reach, cache), turn)


def advance(rules: Rules, reach: int, weights: Weights, slots: Slots, steps: jax.Array) -> Slots:
    """Up to `steps` (i32) more tokens for the rows that generate.

    Args:
      reach: tokens that none of these rows goes beyond; no more of the cache is read.
    """

    def unfinished(carry: tuple[jax.Array, Slots]) -> jax.Array:
        step, slots = carry
        return (step < steps) & (slots.turn.reason == StopReason.RUNNING).any()

    def one(carry: tuple[jax.Array, Slots]) -> tuple[jax.Array, Slots]:
        step, slots = carry
        turn, length = slots.turn, slots.cache.length
        running = turn.reason == StopReason.RUNNING
        at = jnp.maximum(turn.count - 1, 0)[:, None]
        pending = jnp.take_along_axis(turn.tokens, at, axis=1)
        hidden, cache = decoder.apply(
            rules.backbone,
            params,
            decoder.embed(params, pending),
            length[:, None],
            segment_ids=running[:, None].astype(jnp.int32),
            lora=weights.lora,
            lora_scale=rules.lora_scale,
            cache=slots.cache,
            compute_dtype=rules.compute_dtype,
        )
        assert cache is not None
        turn = _drawn(rules, weights, turn, hidden[:, 0], cache.length, running)
        return step + 1, Slots(cache, turn)

    params = weights.params
    if not isinstance(params["layers"], tuple):
        params = unstack(params)  # once, not in every step
    near = Slots(kv_cache.part(slots.cache, None, reach), slots.turn)
    near = lax.while_loop(unfinished, one, (jnp.int32(0), near))[1]
    return Slots(kv_cache.put_part(slots.cache, None, reach, near.cache), near.turn)


def _begin(rules: Rules, text: Text) -> Turn:
    rows = text.count.shape[0]
    none = jnp.zeros(rows, jnp.int32)
    return Turn(
        seed=text.seed,
        temperature=text.temperature,
        budget=text.budget,
        tokens=jnp.zeros((rows, rules.max_tokens), jnp.int32),
        log_probs=jnp.zeros((rows, rules.max_tokens), jnp.float32),
        count=none,
        matched=none,
        reason=none,
    )


def _drawn(
    rules: Rules,
    weights: Weights,
    turn: Turn,
    hidden: jax.Array,
    length: jax.Array,
    running: jax.Array,
) -> Turn:
    """The running rows with one more token, drawn from `hidden` f32[R, D].

    `length` i32[R] is how much a row has read.
    """
    logits = decoder.logits(rules.backbone, weights.params, hidden)
    uniform = jax.vmap(_uniform)(turn.seed, turn.count)
    token, log_prob = draw(logits, uniform, turn.temperature, rules.cut)
    at = jnp.where(running, turn.count, rules.max_tokens)  # nowhere
    rows, count = jnp.arange(at.shape[0]), turn.count + running
    matched, found = turn.matched, jnp.zeros_like(running)
    if weights.stops is not None:
        state = weights.stops[matched, token]
        found = state == MATCHED
        matched = jnp.where(running & ~found, state, matched)
    stopped = jnp.isin(token, jnp.array(rules.stop_ids, jnp.int32))
    reason = jnp.select(
        [~running, stopped, found, count >= turn.budget, length >= rules.size],
        [
            turn.reason,
            *(StopReason.STOP_ID, StopReason.STOP_STRING, StopReason.LENGTH, StopReason.FULL),
        ],
        StopReason.RUNNING,
    )
    return dataclasses.replace(
        turn,
        tokens=turn.tokens.at[rows, at].set(token, mode="drop"),
        log_probs=turn.log_probs.at[rows, at].set(log_prob, mode="drop"),
        count=count,
        matched=matched,
        reason=reason.astype(jnp.int32),
    )


def _uniform(seed: jax.Array, number: jax.Array) -> jax.Array:
    return jax.random.uniform(jax.random.fold_in(jax.random.key(seed), number))


def _put(x: jax.Array, rows: jax.Array | None, new: jax.Array) -> jax.Array:
    return new if rows is None else x.at[rows].set(new, mode="drop")


def _where(chosen: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    return jnp.where(chosen.reshape(-1, *[1] * (new.ndim - 1)), new, old)
