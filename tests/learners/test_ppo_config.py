"""PPO's configuration: what is refused, counting of steps, and the learning rate."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.learners.ppo.config import PPOConfig, learning_rate_at


def test_minibatches_that_do_not_divide_are_named():
    with pytest.raises(ValueError, match=r"num_envs 6 x .*steps 5 = 30 .*minibatches 4"):
        PPOConfig(num_envs=6, rollout_steps=5, minibatches=4)


def test_minibatches_of_one_step_cannot_be_normalised():
    sizes = {"num_envs": 2, "rollout_steps": 8, "minibatches": 16}
    with pytest.raises(ValueError, match=r"2 x .* 8 = 16 .*minibatches 16 .*normalise_advantage"):
        PPOConfig(**sizes)
    PPOConfig(**sizes, normalise_advantage=False)


@pytest.mark.parametrize(
    "field, value",
    [
        ("total_steps", 0),
        ("num_envs", -1),
        ("epochs", 0),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("max_grad_norm", -1.0),
        ("entropy_weight", -0.1),
        ("value_clip", 0.0),
        ("target_kl", -1.0),
        ("gamma", 1.1),
        ("gae_lambda", -0.1),
        ("schedule", "cosine"),
    ],
)
def test_wrong_values_name_the_field(field, value):
    with pytest.raises(ValueError, match=rf"ppo\.{field} .*{value}"):
        PPOConfig(**{field: value})


def test_steps_done_are_at_least_the_steps_asked_and_never_wrap():
    config = PPOConfig(total_steps=1001, num_envs=4, rollout_steps=25, minibatches=4)
    assert config.iterations == 11
    assert config.steps_at(config.iterations) == 1100
    assert config.steps_at(np.int32(2**31 - 1)) == 100 * (2**31 - 1)


def test_the_linear_schedule_counts_optimiser_steps_from_the_full_rate_to_zero():
    config = PPOConfig(
        total_steps=1000, num_envs=4, rollout_steps=25, epochs=2, minibatches=5, schedule="linear"
    )
    assert config.iterations * config.optimiser_steps == 100
    rates = learning_rate_at(config, jnp.float32(3e-4), jnp.arange(120))
    want = 3e-4 * np.maximum(1 - np.arange(120) / 100, 0)
    np.testing.assert_allclose(rates, want, rtol=1e-5, atol=1e-12)
    assert rates[0] == np.float32(3e-4)
