"""Weights go from the learner to the sampler: whose arrays they are, and on which devices."""

import os
import subprocess
import sys
import tempfile

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType

from jaxrl_guided.backbones import sharding
from jaxrl_guided.backbones.params import unstack
from jaxrl_guided.backbones.sampler import Request, Sampler
from jaxrl_guided.backbones.turns import Rules, Weights
from jaxrl_guided.learners.language.hand_over import HandOver
from jaxrl_guided.learners.language.learner import LanguageLearner, init_language
from jaxrl_guided.runtime.checkpoint import Checkpointer
from tests.learners.language.test_language_learner import (
    BACKBONE,
    BASE,
    FULL,
    LORA,
    close,
    samples_of,
    trained_of,
)


def answers(weights, config, mesh=None):
    rules = Rules(BACKBONE, size=32, max_tokens=6, lora_scale=config.lora_scale)
    sampler = Sampler(rules, rows=4, mesh=mesh)
    return sampler.answer(weights, {slot: Request([1, 2 + slot], seed=slot) for slot in range(4)})


def same(ours, others):
    for slot, other in others.items():
        assert np.array_equal(ours[slot].tokens, other.tokens)
        np.testing.assert_allclose(ours[slot].log_probs, other.log_probs, atol=1e-4)


def test_adapters_are_the_learners_own_arrays():
    state = trained_of(LORA)
    weights, version = HandOver(LORA, BASE)(state)
    assert version == 0
    assert jax.tree.all(jax.tree.map(lambda a, b: a is b, weights.lora, state.trained))
    same(answers(weights, LORA), answers(Weights(BASE, state.trained), LORA))


def test_versions_are_optimiser_steps_and_old_weights_stay():
    hand_over, learner = HandOver(FULL, None), LanguageLearner(FULL)
    state = trained_of(FULL)
    old = hand_over(state)
    before = answers(Weights(unstack(state.trained)), FULL)
    for _ in range(2):
        state, _ = learner.update(state, samples_of(), minibatches=2)
    new = hand_over(state)
    assert (old.version, new.version) == (0, 4)
    same(answers(old.weights, FULL), before)
    same(answers(new.weights, FULL), answers(Weights(unstack(state.trained)), FULL))


def test_rows_must_divide_among_devices():
    mesh = AbstractMesh((3, 1), (sharding.FSDP, sharding.TENSOR), (AxisType.Auto,) * 2)
    with pytest.raises(ValueError, match="micro_batch must divide among the 3 devices of fsdp"):
        LanguageLearner(FULL, mesh=mesh)


def eight_devices() -> None:
    """Runs in a process with eight devices: a learner on four, samplers there and on the others."""
    devices = jax.devices()
    learns = sharding.make_model_mesh(2, 2, devices[:4])
    samples = sharding.make_model_mesh(2, 2, devices[4:])
    for config, base in ((FULL, None), (LORA, BASE)):
        alone, divided = LanguageLearner(config, base), LanguageLearner(config, base, learns)
        expected, state = trained_of(config), divided.place(trained_of(config))
        for step in range(3):
            expected, _ = alone.update(expected, samples_of())
            state, _ = divided.update(state, samples_of())
            if not step:
                compiled = divided._add._cache_size(), divided._apply._cache_size()
        assert (divided._add._cache_size(), divided._apply._cache_size()) == compiled
        close(jax.device_get(state.trained), expected.trained, atol=5e-4)
        _check_places(config, state, learns)
        _check_handed_over(config, base, state, learns, samples)
        _check_restored_elsewhere(config, base, state, samples)


def _check_places(config, state, mesh):
    """Moments lie where their weights do, and weights are divided."""
    for tree in (state.trained, state.optimizer):
        expected = sharding.shardings(mesh, BACKBONE, tree)
        wrong = jax.tree.map(lambda x, s: x.sharding.is_equivalent_to(s, x.ndim), tree, expected)
        assert jax.tree.all(wrong)
    leaves = jax.tree.leaves(state.trained)
    assert any(x.addressable_shards[0].data.size < x.size for x in leaves)


def _check_handed_over(config, base, state, learns, samples):
    weights, _ = HandOver(config, base, mesh=learns)(state)
    ours = weights.params if base is None else weights.lora
    assert jax.tree.all(
        jax.tree.map(
            lambda a, b: (
                a.addressable_shards[0].data.unsafe_buffer_pointer()
                == b.addressable_shards[0].data.unsafe_buffer_pointer()
            ),
            ours,
            state.trained,
        )
    )
    elsewhere, _ = HandOver(config, base, mesh=samples)(state)
    assert all(x.devices() == set(samples.devices.flat) for x in jax.tree.leaves(elsewhere))
    plain = jax.device_get(state.trained)
    alone = Weights(plain) if base is None else Weights(base, plain)
    expected = answers(alone, config)
    same(answers(weights, config, learns), expected)
    same(answers(elsewhere, config, samples), expected)


def _check_restored_elsewhere(config, base, state, mesh):
    """A checkpoint of one mesh goes on on another, bit for bit."""
    other = LanguageLearner(config, base, mesh)
    with tempfile.TemporaryDirectory() as folder:
        with Checkpointer(f"{folder}/checkpoints", {}) as checkpoints:
            checkpoints.save(3, state)
        template = other.place(init_language(config, BASE, jax.random.key(9)))
        with Checkpointer(f"{folder}/checkpoints", {}) as checkpoints:
            restored, _ = checkpoints.restore(template)
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(restored), jax.device_get(state))
    assert all(x.devices() <= set(mesh.devices.flat) for x in jax.tree.leaves(restored))
    after, _ = other.update(restored, samples_of())
    assert int(after.step) == 4


@pytest.mark.slow
def test_eight_devices_learn_and_sample_as_one_does():
    code = "from tests.learners.language import test_hand_over as t; t.eight_devices()"
    subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ
        | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"},
        check=True,
        timeout=900,
    )
