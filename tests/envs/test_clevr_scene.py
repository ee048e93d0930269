"""Initial layouts: their rules, their distribution, and which of them are replaced."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_guided.envs.clevr.scene import sample_scenes

sample_jit = jax.jit(sample_scenes)


def fresh(num_envs, seed=0):
    keys = jax.random.split(jax.random.key(seed), num_envs)
    return np.asarray(sample_jit(keys, jnp.zeros((num_envs, 5, 2)), jnp.ones(num_envs, bool)))


def numpy_scene(rng):
    """The rule, ball by ball and try by try."""
    placed = []
    while len(placed) < 5:
        for _ in range(10):
            candidate = rng.uniform([-0.5, -0.3], [0.5, 0.5])
            gaps = [np.abs(candidate - other) for other in placed]
            if all(np.hypot(*g) >= 0.36 and not np.any((g > 0) & (g < 0.01)) for g in gaps):
                placed.append(candidate)
                break
        else:
            placed = []
    return np.array(placed)


def distances(scenes):
    first, second = np.triu_indices(5, 1)
    return np.linalg.norm(scenes[:, first] - scenes[:, second], axis=-1)


def test_layouts_keep_the_rules():
    scenes = fresh(2000)
    assert (scenes > [-0.501, -0.301]).all()
    assert (scenes < 0.501).all()
    assert distances(scenes).min() >= 0.36 - 1e-6
    first, second = np.triu_indices(5, 1)
    gaps = np.abs(scenes[:, first] - scenes[:, second])
    assert not np.any((gaps > 0) & (gaps < 0.01 - 1e-6))


def test_layouts_are_distributed_as_by_the_plain_rule():
    rng = np.random.default_rng(0)
    expected, actual = np.array([numpy_scene(rng) for _ in range(1500)]), fresh(6000)
    np.testing.assert_allclose(actual.mean(0), expected.mean(0), atol=0.03)
    np.testing.assert_allclose(actual.std(0), expected.std(0), atol=0.02)
    quantiles = np.linspace(0.05, 0.95, 10)
    np.testing.assert_allclose(
        np.quantile(distances(actual), quantiles),
        np.quantile(distances(expected), quantiles),
        atol=0.015,
    )


def test_only_the_needed_layouts_change():
    keys = jax.random.split(jax.random.key(3), 20)
    old = jax.random.uniform(jax.random.key(4), (20, 5, 2))
    needed = np.arange(20) % 3 == 0
    new = np.asarray(sample_jit(keys, old, jnp.asarray(needed)))
    np.testing.assert_array_equal(new[~needed], old[~needed])
    assert (new[needed] != np.asarray(old)[needed]).all()
    # A layout depends on its own key alone, whatever is sampled beside it.
    everywhere = sample_jit(jax.random.clone(keys), old, jnp.ones(20, bool))
    np.testing.assert_array_equal(new[needed], np.asarray(everywhere)[needed])


def test_keys_decide():
    np.testing.assert_array_equal(fresh(50), fresh(50))
    assert (fresh(50) != fresh(50, seed=1)).all(axis=(1, 2)).all()
