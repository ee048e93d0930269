"""Episodes of different lengths as arrays of few shapes."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct


@dataclasses.dataclass(frozen=True)
class Sample:
    """One episode to learn from, on the host.

    Attributes:
      tokens: `i32[T]`, the whole conversation.
      spoken: `bool[T]`, what the model drew; never the first token.
      log_probs: `f32[T]`, with which it was drawn; anything elsewhere.
      advantage: of all its tokens.
      temperature: positive; that of the draws.
      part: the loss is the mean over the parts (`token_weights`).

    Raises:
      ValueError: lengths differ, the first token is spoken, or a number is not finite.
    """

    tokens: np.ndarray
    spoken: np.ndarray
    log_probs: np.ndarray
    advantage: float
    temperature: float = 1.0
    part: int = 0

    def __post_init__(self) -> None:
        sizes = {len(self.tokens), len(self.spoken), len(self.log_probs)}
        if len(sizes) != 1 or not len(self.tokens):
            raise ValueError(
                "tokens, spoken and log_probs must have one length of at least 1, got "
                f"{len(self.tokens)}, {len(self.spoken)} and {len(self.log_probs)}"
            )
        if self.spoken[0]:
            raise ValueError("the first token of a sample cannot be spoken: it follows nothing")
        drawn = np.asarray(self.log_probs)[np.asarray(self.spoken, bool)]
        if not np.isfinite([*drawn, self.advantage]).all() or not 0 < self.temperature < np.inf:
            raise ValueError(
                f"log_probs and advantage must be finite and temperature positive, got an "
                f"advantage of {self.advantage}, a temperature of {self.temperature}, and "
                f"{int((~np.isfinite(drawn)).sum())} log_probs that are not finite"
            )


@struct.dataclass
class MicroBatch:
    """R samples of about the same length, right padded.

    Attributes:
      tokens: `i32[R, T]`.
      spoken: `bool[R, T]`.
      behaviour: `f32[R, T]`, log-probabilities with which they were drawn.
      advantage, temperature: `f32[R]`.
      weight: `f32[R, T]`, what each token counts in the loss of the whole batch; zero for none.
      old: `f32[R, T]`, of the policy before the batch's first optimiser step, from the trainer;
        None in that step itself, whose own log-probabilities they are.
      reference: `f32[R, T]` of the reference policy, or None without a KL penalty.
    """

    tokens: jax.Array
    spoken: jax.Array
    behaviour: jax.Array
    advantage: jax.Array
    temperature: jax.Array
    weight: jax.Array
    old: jax.Array | None = None
    reference: jax.Array | None = None


def micro_batches(
    samples: Sequence[Sample], weights: Sequence[np.ndarray], rows: int, lengths: Sequence[int]
) -> list[MicroBatch]:
    """Sorts samples by length, so that few tokens are padding.

    Args:
      samples: at least one.
      weights: `f32[T]` of each sample's tokens.
      rows: R of every micro-batch; the last ones are filled with empty rows.
      lengths: ascending; a micro-batch has the first length that holds its samples.

    Raises:
      ValueError: there is no sample, or one is longer than all lengths.
    """
    if not samples:
        raise ValueError("there is no sample to learn from")
    longest = max(len(sample.tokens) for sample in samples)
    if longest > lengths[-1]:
        raise ValueError(f"a sample of {longest} tokens is longer than {lengths[-1]}, the longest")
    order = sorted(range(len(samples)), key=lambda i: len(samples[i].tokens))
    found = []
    for first in range(0, len(order), rows):
        chosen = order[first : first + rows]
        needed = len(samples[chosen[-1]].tokens)
        width = next(length for length in lengths if length >= needed)
        found.append(
            _padded([samples[i] for i in chosen], [weights[i] for i in chosen], rows, width)
        )
    return found


def _padded(
    samples: Sequence[Sample], weights: Sequence[np.ndarray], rows: int, width: int
) -> MicroBatch:
    tokens, spoken = np.zeros((rows, width), np.int32), np.zeros((rows, width), bool)
    behaviour, weight = np.zeros((2, rows, width), np.float32)
    advantage, temperature = np.zeros(rows, np.float32), np.ones(rows, np.float32)
    for row, (sample, each) in enumerate(zip(samples, weights, strict=True)):
        size = len(sample.tokens)
        tokens[row, :size], spoken[row, :size] = sample.tokens, sample.spoken
        behaviour[row, :size] = np.where(sample.spoken, sample.log_probs, 0.0)
        weight[row, :size] = each
        advantage[row], temperature[row] = sample.advantage, sample.temperature
    arrays = (tokens, spoken, behaviour, advantage, temperature, weight)
    return MicroBatch(*map(jnp.asarray, arrays))
