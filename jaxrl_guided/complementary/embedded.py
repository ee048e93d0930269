"""Experience in the observations of environments that run at a high rate.

A copy of the bank lies beside the environments, and an episode that begins is shown the vector of
what it finds there, all inside of one program. The bank itself is asked nothing: what was shown
leaves with each step, and is written down afterwards.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxrl_guided.complementary.bank import Bank
from jaxrl_guided.complementary.bank.bank import Snapshot
from jaxrl_guided.complementary.bank.records import NOBODY
from jaxrl_guided.complementary.retrieval import RetrievalConfig, ages_of, diversified
from jaxrl_guided.envs.population import any_of_all
from jaxrl_guided.envs.types import Box, Dict, PyTree, TimeStep, VectorEnv
from jaxrl_guided.learners.episodes import succeeded
from jaxrl_guided.networks.observations import INSTRUCTION

EXPERIENCE = "experience"
"""Name of what is added to an observation."""

Describe = Callable[[PyTree], jax.Array]
"""`obs [N, …] -> f32[N, d]`, vectors of what episodes with these first observations ask for."""


@struct.dataclass
class Excerpt:
    """The bank at a version, padded to C rows: its shapes stay when entries come and go.

    Attributes:
      version: `i32[]`, of the bank.
      ids: `i32[C]`, of entries, oldest first; −1 behind the last.
      vectors: `f32[C, d]`.
      retrievals: `i32[C]`, times that each was shown.
      ages: `f32[C]`, how long ago it was shown last, in the unit of `recency`; inf for never.
    """

    version: jax.Array
    ids: jax.Array
    vectors: jax.Array
    retrievals: jax.Array
    ages: jax.Array


def excerpt(
    config: RetrievalConfig,
    source: Bank | Snapshot,
    capacity: int,
    now: float = 0.0,
    step: int = 0,
    task: str = "",
    old: Excerpt | None = None,
) -> Excerpt:
    """Copies a bank to the device.

    Args:
      capacity: entries for which there is room, that of the bank.
      now: seconds of the clock.
      step: updates of the actor so far.
      task: scope that is searched, if `config.scope` is `task`.
      old: whose vectors are taken if it has the same entries: they are most of what is sent.

    Raises:
      ValueError: a bank that holds, or may come to hold, more than `capacity` entries.
    """
    view = source.view
    there = view.alive
    if config.scope == "task":
        number = source.task_number(task)
        there = there & (view.tasks == (-1 if number is None else number))
    rows = np.flatnonzero(there)
    most = max(source.capacity if isinstance(source, Bank) else 0, len(rows))
    if most > capacity:
        raise ValueError(f"capacity is {capacity}, but the bank's is {most}: entries have no room")
    room = max(capacity, config.candidates)

    def padded(column: np.ndarray, dtype: type, fill: float) -> np.ndarray:
        found = np.full((room, *column.shape[1:]), fill, dtype)
        found[: len(rows)] = column
        return found

    ids = padded(view.ids[rows], np.int32, NOBODY)
    if old is not None and np.array_equal(ids, old.ids):
        vectors = old.vectors
    else:
        vectors = jnp.asarray(padded(view.vectors[rows], np.float32, 0))
    return Excerpt(
        version=jnp.int32(view.version),
        ids=jnp.asarray(ids),
        vectors=vectors,
        retrievals=jnp.asarray(padded(view.retrievals[rows], np.int32, 0)),
        ages=jnp.asarray(padded(ages_of(config, view, rows, now, step), np.float32, np.inf)),
    )


def retrieve(config: RetrievalConfig, bank: Excerpt, queries: jax.Array) -> jax.Array:
    """Rows `i32[Q, top]` for queries `f32[Q, d]`, as `Retriever` finds them; C stands for none."""
    products = jnp.matmul(queries, bank.vectors.T, precision=jax.lax.Precision.HIGHEST)
    products = jnp.where(bank.ids == NOBODY, -jnp.inf, products)
    best, rows = jax.lax.top_k(products, config.candidates)
    there = best > -jnp.inf
    places = diversified(config, bank.retrievals[rows], bank.ages[rows], there, jnp)
    return jnp.take_along_axis(rows, places, -1, mode="fill", fill_value=len(bank.ids))


def count_shown(bank: Excerpt, rows: jax.Array) -> Excerpt:
    """Rows `i32[…]` have been shown just now; rows of C count nothing."""
    return dataclasses.replace(
        bank,
        retrievals=bank.retrievals.at[rows].add(1, mode="drop"),
        ages=bank.ages.at[rows].set(0.0, mode="drop"),
    )


@struct.dataclass
class ExtendedState:
    """State of N environments with experience.

    Attributes:
      inner: of the environments.
      bank: that episodes find their entries in.
      shown: `i32[N, top]`, ids of entries of the open episodes; −1 for none. They stay when the
        bank is replaced.
      vectors: `f32[N, top · d]`, what the observations show of them.
      solved: `bool[N]`, whether `info["success"]` has been true in the open episode.
    """

    inner: PyTree
    bank: Excerpt
    shown: jax.Array
    vectors: jax.Array
    solved: jax.Array


@dataclasses.dataclass(frozen=True)
class Extended:
    """Environments of which the first ones are guided.

    Attributes:
      env: with `experience`, `f32[top · d]`, in its observations: vectors of the entries that an
        episode was shown, times √d so that their numbers are of size 1; zeros for an episode that
        was shown none, as those that are not guided. `info` has, besides what it had, `solved`,
        `bool[N]`, whether the episode of a step has been solved so far, and `found`,
        `i32[N, top]`, ids for an episode that begins after the step; −1 for none.
      retrieval: how entries are found.
      guided: how many are.
      plain: observations without experience, as they were.
    """

    env: VectorEnv
    retrieval: RetrievalConfig
    guided: int
    plain: Callable[[PyTree], PyTree]


def by_instruction(vectors: np.ndarray) -> Describe:
    """For observations with an `instruction`, an index into texts whose vectors `f32[I, d]` are."""
    table = jnp.asarray(vectors, jnp.float32)
    return lambda obs: table[obs[INSTRUCTION]]


def extend(
    env: VectorEnv,
    describe: Describe,
    retrieval: RetrievalConfig,
    bank: Excerpt,
    guided: int | None = None,
) -> Extended:
    """Shows experience to the first `guided` environments, half of them by default.

    Episodes that begin in the same step see the same counts, later ones see them as shown; the
    clock stands still until the bank in the state is replaced.

    Args:
      env: observations that are no dictionary become its entry `observation`.
      bank: after a reset; the state holds it.

    Raises:
      ValueError: `guided` is not between 0 and the number of environments; on the first step, if
        that does not say whether the task is solved.
    """
    guided = env.num_envs // 2 if guided is None else guided
    if not 0 <= guided <= env.num_envs:
        raise ValueError(f"guided must be between 0 and {env.num_envs} environments, not {guided}")
    dim = bank.vectors.shape[1]
    size = retrieval.top * dim
    space, named = env.observation_space, isinstance(env.observation_space, Dict)

    def extended(obs: PyTree, vectors: jax.Array) -> PyTree:
        parts = obs if named else {"observation": obs}
        return {**parts, EXPERIENCE: vectors * np.float32(np.sqrt(dim))}

    def plain(obs: PyTree) -> PyTree:
        parts = {name: leaf for name, leaf in obs.items() if name != EXPERIENCE}
        return parts if named else parts["observation"]

    def begin(state: ExtendedState, obs: PyTree, begun: jax.Array) -> ExtendedState:
        return _show(retrieval, guided, state, lambda: describe(obs), begun)

    def reset(key: jax.Array) -> tuple[ExtendedState, PyTree]:
        inner, obs = env.reset(key)
        state = ExtendedState(
            inner=inner,
            bank=jax.tree.map(jnp.asarray, bank),
            shown=jnp.full((env.num_envs, retrieval.top), NOBODY, jnp.int32),
            vectors=jnp.zeros((env.num_envs, size)),
            solved=jnp.zeros(env.num_envs, bool),
        )
        state = begin(state, obs, jnp.ones(env.num_envs, bool))
        return state, extended(obs, state.vectors)

    def step(state: ExtendedState, action: jax.Array) -> tuple[ExtendedState, TimeStep]:
        inner, after = env.step(state.inner, action)
        if "success" not in after.info:
            raise ValueError(f"experience is credited with success, which {env.name} does not tell")
        now = dataclasses.replace(state, inner=inner, solved=state.solved | succeeded(after))
        state = begin(now, after.obs, after.done)
        found = jnp.where(after.done[:, None], state.shown, NOBODY)
        return state, dataclasses.replace(
            after,
            obs=extended(after.obs, state.vectors),
            final_obs=extended(after.final_obs, now.vectors),
            info=after.info | {"solved": now.solved, "found": found},
        )

    spaces = space.spaces if isinstance(space, Dict) else {"observation": space}
    # Running statistics would be those of a bank that was empty.
    whole = Dict({**spaces, EXPERIENCE: Box((size,), normalise=False)})
    made = VectorEnv(env.name, env.num_envs, whole, env.action_space, reset, step)
    return Extended(made, retrieval, guided, plain)


def _show(
    config: RetrievalConfig,
    guided: int,
    state: ExtendedState,
    describe: Callable[[], jax.Array],
    begun: jax.Array,
) -> ExtendedState:
    """Shows entries to the guided ones of the episodes that have `begun`, `bool[N]`."""
    bank, envs = state.bank, len(begun)
    none = jnp.full((guided, config.top), len(bank.ids), jnp.int32)
    rows = jax.lax.cond(  # in many steps no episode begins
        any_of_all(begun[:guided]),
        lambda: retrieve(config, bank, describe()[:guided]),
        lambda: none,
    )
    rows = jnp.where(begun[:guided, None], rows, none)
    rows = jnp.pad(rows, ((0, envs - guided), (0, 0)), constant_values=len(bank.ids))
    ids = bank.ids.at[rows].get(mode="fill", fill_value=NOBODY)
    vectors = bank.vectors.at[rows].get(mode="fill", fill_value=0.0).reshape(envs, -1)
    return dataclasses.replace(
        state,
        bank=count_shown(bank, rows),
        shown=jnp.where(begun[:, None], ids, state.shown),
        vectors=jnp.where(begun[:, None], vectors, state.vectors),
        solved=state.solved & ~begun,
    )
