"""Prior logits as a plain agent loop finds them: the whole prefix is read again at every step.

Instruction and history are embedded into one row per environment and run through the decoder
without any cache; rows are padded to the next multiple of `BUCKET`, so that few programs compile.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_guided.backbones import decoder
from jaxrl_guided.lago.prior import Prior, PriorSpec, embed_states, read_actions
from jaxrl_guided.lago.scoring import OpenEpisodes

BUCKET = 16


@functools.partial(jax.jit, static_argnums=(0, 1))
def _read(
    spec: PriorSpec,
    width: int,
    prior: Prior,
    text: jax.Array,
    length: jax.Array,
    state: jax.Array,
    action: jax.Array,
    count: jax.Array,
) -> jax.Array:
    """Logits `f32[N, A]` at the last state of each row.

    Args:
      width: tokens of a row with its padding.
      text: `i32[N, P]`, `length` `i32[N]` of them valid.
      state: `f32[N, H + 1, S]`, action: `i32[N, H + 1]`; the last state is at `count`.
      count: `i32[N]`, steps before it.
    """
    rows, place = jnp.arange(len(count))[:, None], jnp.arange(width)
    own = place - length[:, None]
    step = jnp.clip(own // 2, 0, state.shape[1] - 1)
    words = decoder.embed(prior.base, text)[:, jnp.minimum(place, text.shape[1] - 1)]
    states = embed_states(prior, state)[rows, step]
    actions = prior.heads["action"][action][rows, step]
    steps = jnp.where((own % 2 == 0)[..., None], states, actions)
    hidden, _ = decoder.apply(
        spec.backbone,
        prior.base,
        jnp.where((own < 0)[..., None], words, steps),
        jnp.broadcast_to(place, own.shape),
        segment_ids=(own <= 2 * count[:, None]).astype(jnp.int32),
    )
    return read_actions(prior, hidden[rows[:, 0], length + 2 * count])


def naive_score(
    spec: PriorSpec,
    prior: Prior,
    tokens: np.ndarray,
    length: np.ndarray,
    open_: OpenEpisodes | None,
    rollout: tuple[jax.Array, ...],
) -> np.ndarray:
    """What `scoring.score` gives: logits `f32[T, N, A]`.

    Args:
      prior: with merged adapters and token embeddings.
      tokens: `i32[I, P]`, length: `i32[I]`, the texts.
      open_: episodes that are running, None without history.
      rollout: `(state, action, instruction, done)`, `[T, N, …]`.
    """
    envs: int = rollout[3].shape[1]
    state = np.zeros((envs, spec.horizon + 1, spec.state_size), np.float32)
    action = np.zeros((envs, spec.horizon + 1), np.int32)
    count = np.zeros(envs, np.int32) if open_ is None else np.array(open_.length)
    for env, steps in enumerate(count):
        if open_ is not None and steps:
            state[env, :steps] = open_.state[env, -steps:]
            action[env, :steps] = open_.action[env, -steps:]
    every, found = np.arange(envs), []
    for now, acted, instruction, done in zip(*map(np.asarray, rollout), strict=True):
        state[every, count] = now
        size = int((length[instruction] + 2 * count).max()) + 1
        width = -(-size // BUCKET) * BUCKET
        history = tokens[instruction], length[instruction], state, action, count
        # Waited for: the arrays change in the next step.
        found.append(np.asarray(_read(spec, width, prior, *history)))
        if spec.history == "episode":
            action[every, count] = acted
            count = np.where(done, 0, count + 1)
    return np.stack(found)
