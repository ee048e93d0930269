"""The host's side of training: iterations compiled into chunks, and the loop around them."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_guided.envs.types import PyTree
from jaxrl_guided.runtime.mesh import agree, replicated

_OF_EVERY_ITERATION = ("learned", "reward")
"""Metrics that do not come from updates."""

HostMetrics = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Iterations one after the other, as one program or by a loop on the host.

    Attributes:
      run: `(state, frozen, count i32[]) -> (state, metrics [at least count, …])`, with the first
        `count` rows filled. `state` is donated, `frozen` is not. The metric `nonfinite_params`
        counts the broken numbers of `state.trained` after the last iteration: parameters that break
        earlier break the metrics of the next one.
      max_iterations: the longest chunk.
    """

    run: Callable[[Any, PyTree, jax.Array | np.int32], tuple[Any, dict[str, jax.Array]]]
    max_iterations: int


def make_chunk(
    iterate: Callable[[Any, PyTree], tuple[Any, dict[str, jax.Array]]],
    max_iterations: int = 256,
    shardings: Any = None,
) -> Chunk:
    """Compile `iterate`, a function `(state, frozen) -> (state, metrics)`, into a loop.

    The length is an argument: one program serves every chunk, the host may choose lengths by the
    clock, and a run does not depend on how it was cut.

    Args:
      shardings: of the state, on one mesh (`Placement.init`); metrics are then on every device.
    """

    def run(state: Any, frozen: PyTree, count: jax.Array) -> tuple[Any, dict[str, jax.Array]]:
        shapes = jax.eval_shape(iterate, state, frozen)[1]
        empty = {
            name: jnp.zeros((max_iterations, *leaf.shape), leaf.dtype)
            for name, leaf in shapes.items()
        }

        def body(row: jax.Array, carry: PyTree) -> PyTree:
            state, rows = carry
            state, metrics = iterate(state, frozen)
            return state, {name: rows[name].at[row].set(metrics[name]) for name in rows}

        state, rows = jax.lax.fori_loop(0, count, body, (state, empty))
        broken = count_nonfinite(state.trained)
        last = jnp.arange(max_iterations) == count - 1
        rows["nonfinite_params"] = jnp.where(last, broken, 0.0)
        return state, rows

    outputs = None
    if shardings is not None:
        outputs = (shardings, replicated(jax.tree.leaves(shardings)[0].mesh))
    return Chunk(jax.jit(run, donate_argnums=0, out_shardings=outputs), max_iterations)


def train(
    chunk: Chunk,
    state: Any,
    iterations: int,
    frozen: PyTree = None,
    *,
    chunk_seconds: float = 5.0,
    on_chunk: Callable[[Any, HostMetrics, int], None] = lambda state, metrics, iteration: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Any:
    """Go on until `state.iteration` is `iterations`; the host regains control between chunks.

    Args:
      state: of the learner; its buffers are donated. Seeds may be its first axis.
      frozen: the guidance's prior.
      chunk_seconds: aim for the length of a chunk; the first is one iteration (and compilation).
      on_chunk: `(state, metrics, iteration)` after each chunk, to log, evaluate and save. Metrics
        are `[iterations of the chunk, …]`. The state must not be kept: the next chunk consumes it.
      should_stop: asked after each chunk.

    Returns:
      The last state.

    Raises:
      FloatingPointError: a metric is not finite, or parameters are not; `on_chunk` does not see
        that chunk.
    """
    done = iteration_of(state)
    count, limit = 1, 1
    while done < iterations:
        count = min(limit, iterations - done, chunk.max_iterations)
        start = time.monotonic()
        state, rows = chunk.run(state, frozen, np.int32(count))
        metrics = {name: np.asarray(leaf)[:count] for name, leaf in rows.items()}
        seconds = time.monotonic() - start
        check_finite(metrics, done)
        done += count
        on_chunk(state, metrics, done)
        # At most doubled: the first chunk's time says little, since it includes compilation.
        limit = max(1, min(2 * count, int(count * chunk_seconds / max(seconds, 1e-9))))
        limit, stops = agree(limit, should_stop())
        if stops:
            break
    return state


def iteration_of(state: Any) -> int:
    """Iterations that a state has done; the same for all seeds."""
    shard = state.iteration.addressable_shards[0].data
    return int(np.asarray(shard).reshape(-1)[0])


def count_nonfinite(params: PyTree) -> jax.Array:
    """`f32[]`: how many of the numbers are broken."""
    broken = [jnp.sum(~jnp.isfinite(leaf), dtype=jnp.float32) for leaf in jax.tree.leaves(params)]
    return sum(broken, jnp.float32(0))


def check_finite(metrics: HostMetrics, first: int) -> None:
    """Raise if training broke in one of the iterations `first`, `first` + 1, …"""
    broken = {name: ~np.isfinite(rows) for name, rows in metrics.items()}
    if "nonfinite_params" in metrics:
        broken["nonfinite_params"] |= metrics["nonfinite_params"] > 0
    found = [
        (int(bad.reshape(len(bad), -1).any(axis=1).argmax()), name)
        for name, bad in broken.items()
        if bad.any()
    ]
    if found:
        row = min(row for row, _ in found)
        names = ", ".join(sorted(name for at, name in found if at == row))
        raise FloatingPointError(f"iteration {first + row}: not finite: {names}")


def summarise(metrics: HostMetrics) -> dict[str, np.ndarray]:
    """Reduce the rows of a chunk: sums over episodes become means per episode, others are averaged.

    Where there is `learned`, the share of each iteration in which anything was learned, it weights
    what learning reports, which is left out of a chunk without any. `episodes` stays a count;
    `return`, `length` and `success` are left out where no episode of any seed ended, and nan for a
    seed without one.

    Returns:
      Arrays without the first axis.
    """
    episodes = metrics["episodes"].sum(axis=0)
    summary = {"episodes": episodes}
    for name, rows in metrics.items():
        if name.endswith("_sum"):
            if episodes.any():
                with np.errstate(invalid="ignore"):
                    summary[name.removesuffix("_sum")] = rows.sum(axis=0) / episodes
        elif name in ("episodes", "nonfinite_params"):
            continue
        elif name in _OF_EVERY_ITERATION or "learned" not in metrics:
            summary[name] = rows.mean(axis=0)
        elif metrics["learned"].any():
            weight = metrics["learned"]
            summary[name] = (rows * weight).sum(axis=0) / weight.sum(axis=0)
    return summary
