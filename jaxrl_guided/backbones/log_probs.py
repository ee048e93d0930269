"""Log-probabilities of given tokens: the trainer's side of what the sampler draws."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxrl_guided.backbones import decoder
from jaxrl_guided.backbones.config import BackboneConfig
from jaxrl_guided.backbones.params import Params

CHUNK = 64  # positions whose logits exist at the same time


class Scores(NamedTuple):
    """Of tokens that follow others.

    Attributes:
      log_prob: `f32[B, T]`, of token t after those before it; 0 where it is not asked for.
      entropy: `f32[B, T]`, of the distribution that it was drawn from, without gradient; likewise.
    """

    log_prob: jax.Array
    entropy: jax.Array


def score_tokens(
    config: BackboneConfig,
    params: Params,
    tokens: jax.Array,
    asked: jax.Array,
    temperature: jax.Array,
    *,
    lora: Params | None = None,
    lora_scale: float = 1.0,
    remat: bool = True,
    compute_dtype: jax.typing.DTypeLike = jnp.float32,
) -> Scores:
    """Reads conversations whole and scores some of their tokens.

    Args:
      config: of the decoder.
      params: its parameters, stacked.
      tokens: `i32[B, T]`, right padded with any ids of the vocabulary. One outside it makes its
        row NaN: hosts check what they are given.
      asked: `bool[B, T]`, the tokens to score; never the first of a row, which follows nothing.
      temperature: `f32[B]`, positive, divides the logits as in the sampler.
      lora, lora_scale, remat, compute_dtype: as in `decoder.apply`.

    Returns:
      Scores; gradients flow through `log_prob`. The logits of `CHUNK` positions at a time exist,
      in the backward pass too, which computes them again.
    """
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    hidden, _ = decoder.apply(
        config,
        params,
        decoder.embed(params, tokens),
        positions,
        lora=lora,
        lora_scale=lora_scale,
        remat=remat,
        compute_dtype=compute_dtype,
    )
    scores = score_hidden(config, params, hidden[:, :-1], tokens[:, 1:], temperature)
    wanted = asked[:, 1:]
    masked = (jnp.where(wanted, x, 0.0) for x in scores)
    return Scores(*(jnp.pad(x, [(0, 0), (1, 0)]) for x in masked))


def score_hidden(
    config: BackboneConfig,
    params: Params,
    hidden: jax.Array,
    targets: jax.Array,
    temperature: jax.Array,
) -> Scores:
    """Scores `targets` i32[B, T] under the distributions of `hidden` f32[B, T, D]."""
    rows, length = targets.shape
    room = -length % CHUNK

    def chunks(x: jax.Array) -> jax.Array:
        x = jnp.pad(x, [(0, 0), (0, room)] + [(0, 0)] * (x.ndim - 2))
        return jnp.moveaxis(x.reshape(rows, -1, CHUNK, *x.shape[2:]), 1, 0)

    @jax.checkpoint
    def score(part: tuple[jax.Array, jax.Array]) -> Scores:
        logits = decoder.logits(config, params, part[0])
        # As in the sampler: under a small temperature logits themselves would be infinite.
        top = lax.stop_gradient(logits.max(-1, keepdims=True))
        apart = (logits - top) / temperature[:, None, None]
        log_probs = apart - jnp.log(jnp.exp(apart).sum(-1, keepdims=True))
        chosen = jnp.take_along_axis(log_probs, part[1][..., None], axis=-1)[..., 0]
        share = jnp.exp(log_probs)
        entropy = -jnp.where(share > 0, share * log_probs, 0.0).sum(-1)
        return Scores(chosen, lax.stop_gradient(entropy))

    scores = lax.map(score, (chunks(hidden), chunks(targets)))
    return Scores(*(jnp.moveaxis(x, 0, 1).reshape(rows, -1)[:, :length] for x in scores))
