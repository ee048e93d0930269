"""Micro-benchmarks: both sides of a part do the same, and every part runs."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import micro
from benchmarks.micro import OURS, Part

SMALL = {
    "GAE": lambda: micro.advantages(3, 5),
    "shuffle": lambda: micro.shuffle(16),
    "insert": lambda: micro.insertion(8),
    "draw": lambda: micro.drawing(512),
    "tanh": lambda: micro.log_probability(2, 4),
    "callback": lambda: micro.round_trip(3),
}


@pytest.mark.parametrize("make", SMALL.values(), ids=SMALL)
def test_each_step_keeps_the_form_of_its_carry(make):
    fixed, start, steps = make()
    assert OURS in steps
    for step in steps.values():
        after = jax.eval_shape(step, fixed, jnp.int32(0), start)
        same = jax.tree.map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype), start, after)
        assert jax.tree.all(same)


@pytest.mark.parametrize("name", ["GAE", "tanh", "callback"])
def test_the_peer_finds_the_same_numbers(name):
    fixed, start, steps = SMALL[name]()
    wanted = steps[OURS](fixed, jnp.int32(0), start)
    for step in steps.values():
        np.testing.assert_allclose(step(fixed, jnp.int32(0), start), wanted, rtol=1e-4, atol=1e-6)


def test_both_shuffle_everything():
    fixed, start, steps = SMALL["shuffle"]()
    for step in steps.values():
        assert sorted(step(fixed, jnp.int32(3), start).tolist()) == list(range(16))


def test_a_row(monkeypatch):
    times = {
        OURS: micro.common.Timing(2e-3, 2e-3, 2.01e-3),
        "rlax": micro.common.Timing(3e-3, 2e-3, 4e-3),
    }
    monkeypatch.setattr(micro.common, "measure_interleaved", lambda calls, repeats: times)
    monkeypatch.setattr(micro.common, "QUICK", types.SimpleNamespace(value=False))
    row = micro.measure(Part("GAE", SMALL["GAE"], 100))
    assert (row.ours, row.peers) == (pytest.approx(20), {"rlax": pytest.approx(30)})
    assert row.note == "ours 20 to 20.1; rlax 20 to 40 (void: repeats spread by 67 %)"
