"""The scoring pass of LaGO (stage 2): all visited states of a rollout in one forward.

The prior never acts, so it is not queried step by step. One row per environment holds the open
episode's prefix (at most one horizon, carried from the iteration before) and then the rollout's T
steps; segment ids keep episodes apart and positions restart after the instruction. The layout is
static: one program scores every rollout content.
"""

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl_guided.backbones.decoder import Prefix
from jaxrl_guided.lago.prior import Prior, PriorSpec, Steps, action_outputs


@struct.dataclass
class OpenEpisodes:
    """Steps of the N episodes that were still running when the last rollout ended, right-aligned.

    Attributes:
      state: `f32[N, H, S]`.
      action: `[N, H, …]`.
      instruction: `i32[N]`.
      length: `i32[N]`, how many of the H slots (the last ones) are filled.
    """

    state: jax.Array
    action: jax.Array
    instruction: jax.Array
    length: jax.Array


def no_open_episodes(spec: PriorSpec, num_envs: int) -> OpenEpisodes | None:
    """State at the start of a run; None for a prior without history, which carries nothing."""
    if spec.history == "none":
        return None
    return OpenEpisodes(
        state=jnp.zeros((num_envs, spec.horizon, spec.state_size)),
        action=spec.actions.empty((num_envs, spec.horizon)),
        instruction=jnp.zeros(num_envs, jnp.int32),
        length=jnp.zeros(num_envs, jnp.int32),
    )


def layout(
    open_: OpenEpisodes,
    state: jax.Array,
    action: jax.Array,
    instruction: jax.Array,
    done: jax.Array,
) -> tuple[Steps, OpenEpisodes]:
    """Rows of H + T steps for a rollout, and the episodes that are open after it.

    Args:
      open_: what the iteration before left open.
      state: `f32[T, N, S]` raw states that were acted on.
      action: `[T, N, …]`, what the environments received.
      instruction: `i32[T, N]`.
      done: `bool[T, N]`, the episode ended with this step.

    Returns:
      `Steps` with B = N rows, and the new `OpenEpisodes`.
    """
    slots, length = open_.action.shape[1], done.shape[0]
    done_row = done.T
    ended_before = jnp.cumsum(done_row, axis=1) - done_row  # i32[N, T]
    slot = jnp.arange(slots)
    filled = slot >= slots - open_.length[:, None]  # bool[N, H]
    segment = jnp.concatenate([filled.astype(jnp.int32), 1 + ended_before], axis=1)
    steps = Steps(
        state=jnp.concatenate([open_.state, state.swapaxes(0, 1)], axis=1),
        action=jnp.concatenate([open_.action, action.swapaxes(0, 1)], axis=1),
        position=jnp.concatenate(
            [
                jnp.maximum(slot - (slots - open_.length[:, None]), 0),
                _steps_since_reset(done_row, open_.length),
            ],
            axis=1,
        ),
        segment=segment,
        instruction=jnp.concatenate(
            [jnp.repeat(open_.instruction[:, None], slots, axis=1), instruction.T], axis=1
        ),
    )
    last = segment[:, -1]
    still_open = ~done_row[:, -1]
    kept = (segment == last[:, None])[:, length:]
    return steps, OpenEpisodes(
        state=steps.state[:, length:],
        action=steps.action[:, length:],
        instruction=instruction[-1],
        length=jnp.where(still_open, kept.sum(axis=1, dtype=jnp.int32), 0),
    )


def _steps_since_reset(done: jax.Array, open_length: jax.Array) -> jax.Array:
    """Step number within its episode, `i32[N, T]`; the first episode continues `open_length`."""
    time = jnp.arange(done.shape[1])
    started = jnp.where(done, time + 1, 0)[:, :-1]
    start = jnp.pad(jax.lax.cummax(started, axis=1), ((0, 0), (1, 0)))
    first = jnp.cumsum(done, axis=1) - done == 0
    return time - start + jnp.where(first, open_length[:, None], 0)


def score(
    spec: PriorSpec,
    prior: Prior,
    texts: Prefix,
    open_: OpenEpisodes | None,
    rollout: tuple[jax.Array, jax.Array, jax.Array, jax.Array],
    *,
    chunk_tokens: int,
    fraction: float = 1.0,
    key: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array, OpenEpisodes | None]:
    """The prior's outputs for the states of a rollout.

    Args:
      rollout: `(state, action, instruction, done)` as in `layout`.
      chunk_tokens: bound on the tokens in one forward; memory follows it.
      fraction: share of rows that is scored, drawn anew by `key` each time: environments with
        history, single states without.

    Returns:
      Outputs of G `f32[T, N, K]` (zero where not scored), `bool[T, N]` what was scored, and the new
      open episodes.
    """
    num_steps, num_envs = rollout[3].shape
    if open_ is None:
        steps = _single_steps(*rollout)
    else:
        steps, open_ = layout(open_, *rollout)
    rows, length = steps.segment.shape
    if fraction < 1.0:
        assert key is not None
        chosen = jax.random.permutation(key, rows)[: max(1, round(fraction * rows))]
        scored = jnp.zeros(rows, bool).at[chosen].set(True)
        values = _score_rows(spec, prior, texts, _take(steps, chosen), chunk_tokens)
        outputs = jnp.zeros((rows, *values.shape[1:])).at[chosen].set(values)
    else:
        scored = jnp.ones(rows, bool)
        outputs = _score_rows(spec, prior, texts, steps, chunk_tokens)
    scored = jnp.broadcast_to(scored[:, None], (rows, length)).reshape(num_envs, -1)
    outputs = outputs.reshape(num_envs, -1, spec.actions.outputs)
    return outputs[:, -num_steps:].swapaxes(0, 1), scored[:, -num_steps:].T, open_


def _single_steps(
    state: jax.Array, action: jax.Array, instruction: jax.Array, done: jax.Array
) -> Steps:
    """Without history every state is a row of its own, environment after environment."""
    first = jnp.zeros(done.size, jnp.int32)
    flat = Steps(
        state=state.swapaxes(0, 1).reshape(-1, state.shape[-1]),
        action=action.swapaxes(0, 1).reshape(-1, *action.shape[2:]),
        position=first,
        segment=first + 1,
        instruction=instruction.T.reshape(-1),
    )
    return jax.tree.map(lambda x: x[:, None], flat)


def _score_rows(
    spec: PriorSpec, prior: Prior, texts: Prefix, steps: Steps, chunk_tokens: int
) -> jax.Array:
    """Outputs `f32[B, T, K]`, as many rows at once as `chunk_tokens` allows."""
    rows, length = steps.segment.shape
    per_chunk = rows_per_chunk(rows, length * spec.tokens_per_step, chunk_tokens)
    short = -rows % per_chunk

    def cut(x: jax.Array) -> jax.Array:
        """Chunks, the last one filled up with zeros: padding by its segment, said by text 0."""
        filled = jnp.pad(x, [(0, short)] + [(0, 0)] * (x.ndim - 1))
        return filled.reshape(-1, per_chunk, *x.shape[1:])

    outputs = jax.lax.map(
        lambda chunk: action_outputs(spec, prior, texts, chunk), jax.tree.map(cut, steps)
    )
    return outputs.reshape(rows + short, length, -1)[:rows]


def _take(steps: Steps, rows: jax.Array) -> Steps:
    return jax.tree.map(lambda x: x[rows], steps)


def rows_per_chunk(rows: int, row_tokens: int, chunk_tokens: int) -> int:
    """Size of as few chunks as possible, all alike, of at most `chunk_tokens` tokens or one row.

    The last chunk lacks fewer rows than there are chunks.
    """
    chunks = -(-rows // max(1, chunk_tokens // row_tokens))
    return -(-rows // chunks)
