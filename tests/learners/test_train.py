"""The host's loop over compiled chunks, on a learner that only counts."""

import dataclasses
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from jaxrl_guided.learners.train import check_finite, make_chunk, summarise, train


@struct.dataclass
class Counter:
    iteration: jax.Array
    total: jax.Array

    @property
    def trained(self):
        return self.total


def count(state, frozen):
    total = state.total * frozen + state.iteration
    state = dataclasses.replace(state, iteration=state.iteration + 1, total=total)
    return state, {"total": total}


def start():
    return Counter(jnp.int32(0), jnp.float32(0))


def test_a_run_does_not_depend_on_how_it_is_cut_and_compiles_once():
    chunk = make_chunk(count, max_iterations=8)
    frozen, rows, seen = jnp.float32(0.9), [], []

    def keep(state, metrics, iteration):
        rows.extend(metrics["total"])
        seen.append(iteration)

    state = train(chunk, start(), 5, frozen, chunk_seconds=0.0, on_chunk=keep)
    assert seen == [1, 2, 3, 4, 5]
    state = train(chunk, state, 40, frozen, on_chunk=keep)
    want, total = [], np.float32(0)
    for i in range(40):
        total = total * np.float32(0.9) + np.float32(i)
        want.append(total)
    np.testing.assert_allclose(rows, want, rtol=1e-5)
    assert state.iteration == 40
    assert max(np.diff(seen)) == 8
    assert chunk.run._cache_size() == 1

    whole, _ = chunk.run(start(), frozen, np.int32(40))
    assert whole.total == state.total


def test_the_state_is_donated_and_the_prior_is_not():
    chunk = make_chunk(count)
    state, frozen = start(), jnp.float32(1)
    chunk.run(state, frozen, np.int32(1))
    assert state.total.is_deleted()
    assert not frozen.is_deleted()


def test_metrics_do_not_grow_with_the_run():
    chunk = make_chunk(count, max_iterations=4)
    _, rows = chunk.run(start(), jnp.float32(1), np.int32(1000))
    assert rows["total"].shape == (4,)


def test_stopping_leaves_the_loop_after_the_chunk():
    flags = iter([False, True])
    state = train(make_chunk(count), start(), 100, jnp.float32(1), should_stop=lambda: next(flags))
    assert state.iteration == 3


def test_a_broken_number_stops_the_run_naming_iteration_and_metric():
    def breaks(state, frozen):
        state, metrics = count(state, frozen)
        return state, metrics | {"loss": jnp.where(state.iteration > 5, jnp.nan, 0.0)}

    calls = []
    with pytest.raises(FloatingPointError, match=r"iteration 5: not finite: loss"):
        train(
            make_chunk(breaks, 4),
            start(),
            20,
            jnp.float32(1),
            on_chunk=lambda state, metrics, iteration: calls.append(iteration),
        )
    assert calls[-1] <= 5


def test_parameters_that_break_in_a_chunks_last_iteration_are_found():
    def breaks(state, frozen):
        state, metrics = count(state, frozen)
        total = jnp.where(state.iteration == 4, jnp.nan, state.total)
        return dataclasses.replace(state, total=total), {"loss": metrics["total"]}

    chunk = make_chunk(breaks, 4)
    with pytest.raises(FloatingPointError, match="iteration 3: not finite: nonfinite_params"):
        train(chunk, start(), 4, jnp.float32(1))
    _, rows = chunk.run(start(), jnp.float32(1), np.int32(4))
    np.testing.assert_array_equal(rows["nonfinite_params"], [0, 0, 0, 1])


def test_broken_parameters_and_seeds_are_found():
    rows = {"nonfinite_params": np.array([[0, 0], [0, 3]]), "loss": np.array([[0, 0], [0, np.inf]])}
    with pytest.raises(FloatingPointError, match="iteration 8: not finite: loss, nonfinite_params"):
        check_finite(rows, 7)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_memory_is_flat_over_a_thousand_iterations(algorithm, tmp_path):
    """In a process of its own: memory of the process, and arrays that are alive."""
    script = textwrap.dedent(
        """
        import dataclasses, gc, sys
        import jax, numpy as np
        from jaxrl_guided.learners.build import prepare
        from jaxrl_guided.learners.presets import SMOKE
        from jaxrl_guided.learners.train import make_chunk, train

        config = dataclasses.replace(SMOKE, algorithm=sys.argv[1])
        job = prepare(config, 2)
        learner, placement = job.learner, job.placement
        init = lambda seed: learner.init(jax.random.key(seed))
        state, shardings = placement.init(init, np.arange(2, dtype=np.uint32))
        chunk = make_chunk(jax.vmap(learner.iterate, in_axes=(0, None)), 4, shardings)
        for iterations in (200, 1200):
            state = train(chunk, state, iterations)
            gc.collect()
            pages = int(open("/proc/self/statm").read().split()[1])
            print(pages * 4096 / 2**20, len(jax.live_arrays()))
        """
    )
    result = subprocess.run(
        [sys.executable, "-c", script, algorithm], capture_output=True, text=True, check=True
    )
    (before, arrays), (after, later) = (map(float, x.split()) for x in result.stdout.splitlines())
    assert later == arrays
    assert after - before < 8  # MiB


def test_summaries_weight_episodes_equally():
    rows = {
        "episodes": np.array([1.0, 3.0]),
        "return_sum": np.array([10.0, 2.0]),
        "loss": np.array([1.0, 2.0]),
    }
    assert summarise(rows) == {"episodes": 4, "return": 3, "loss": 1.5}
    none = {name: np.zeros(2) for name in rows}
    assert summarise(none) == {"episodes": 0, "loss": 0}
