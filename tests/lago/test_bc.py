"""Behaviour cloning: what it learns, which parameters it keeps, and which steps it sees."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.envs.types import Box, Dict, Discrete
from jaxrl_guided.lago.bc import BCConfig, clone, expert_steps
from jaxrl_guided.learners.ppo import act
from jaxrl_guided.networks.actor_critic import NetworkConfig, make_actor_critic
from jaxrl_guided.runtime.errors import UserError
from tests.lago.tiny import expert_episodes

ACTIONS = 5
SPACE = Dict({"state": Box((3,), -1.0, 1.0), "instruction": Discrete(ACTIONS)})
NETWORK = make_actor_critic(
    SPACE, Discrete(ACTIONS), NetworkConfig(hidden=(16,)), jnp.eye(ACTIONS) * 2
)
CONFIG = BCConfig(updates=200, batch=32, learning_rate=0.02)


def batch(seed, shift=0):
    """Observations whose instruction, plus `shift`, is the action."""
    rng = np.random.default_rng(seed)
    instruction = rng.integers(0, ACTIONS, 100)
    state = (rng.normal(size=(100, 3)) * 3 + 1).astype(np.float32)
    obs = {"state": jnp.asarray(state), "instruction": jnp.asarray(instruction, jnp.int32)}
    return obs, jnp.asarray((instruction + shift) % ACTIONS, jnp.int32)


run = jax.jit(lambda train, held_out, key: clone(NETWORK, CONFIG, train, held_out, key))


def loss_of(policy, part, train):
    """Mean cross-entropy in numpy, from the network's logits on states normalised by hand."""
    state = np.asarray(train[0]["state"])
    obs = part[0] | {"state": (part[0]["state"] - state.mean(0)) / state.std(0)}
    logits = np.asarray(NETWORK.step(policy.params, {}, obs)[1].logits, np.float64)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -log_probs[np.arange(len(logits)), np.asarray(part[1])].mean()


def test_it_learns_a_mapping():
    train, held_out = batch(0), batch(1)
    policy, loss = run(train, held_out, jax.random.key(0))
    assert loss < 0.1
    np.testing.assert_allclose(loss, loss_of(policy, held_out, train), rtol=0.02)
    _, greedy = act(NETWORK, policy, {}, jax.random.key(1), held_out[0], greedy=True)
    np.testing.assert_array_equal(greedy, held_out[1])


def test_the_best_held_out_parameters_are_kept():
    """Held-out steps that contradict the others: every update makes them worse."""
    train, against = batch(0), batch(1, shift=1)
    policy, loss = run(train, against, jax.random.key(0))
    fitted, _ = run(train, batch(1), jax.random.key(0))  # the same updates
    assert loss_of(fitted, against, train) > 4
    assert loss < 2.5
    np.testing.assert_allclose(loss, loss_of(policy, against, train), rtol=0.02)


def test_updates_are_at_least_those_asked_for(monkeypatch):
    lengths = []
    scan = jax.lax.scan

    def spy(body, carry, xs, **options):
        if isinstance(xs, jax.Array):
            lengths.append(xs.shape)
        return scan(body, carry, xs, **options)

    monkeypatch.setattr(jax.lax, "scan", spy)
    for updates, shape in ((3, (3, 1)), (39, (20, 2)), (40, (20, 2)), (50, (20, 3))):
        lengths.clear()
        config = dataclasses.replace(CONFIG, updates=updates)
        jax.eval_shape(
            lambda key: clone(NETWORK, config, batch(0), batch(1), key), jax.random.key(0)
        )
        assert lengths[0] == shape


def test_expert_steps_are_split_by_instruction():
    episodes = expert_episodes(200)
    expert = np.random.default_rng(0).random(episodes.num_steps) < 0.5
    episodes = dataclasses.replace(episodes, is_expert=expert)
    instruction = np.repeat(episodes.instruction, episodes.lengths)
    held_out = np.arange(episodes.instruction.max() + 1) % 3 == 0
    train, other = expert_steps(episodes, held_out)
    for (obs, action), chosen in ((train, ~held_out[instruction]), (other, held_out[instruction])):
        rows = np.flatnonzero(chosen & expert)
        np.testing.assert_array_equal(obs["instruction"], instruction[rows])
        np.testing.assert_array_equal(obs["state"], episodes.observations[rows])
        np.testing.assert_array_equal(action, episodes.actions[rows])
    with pytest.raises(UserError, match="no expert steps on held-out instructions"):
        expert_steps(episodes, np.zeros_like(held_out))


@pytest.mark.parametrize("field", ["episodes", "updates", "batch", "learning_rate"])
def test_settings_out_of_range_are_refused(field):
    with pytest.raises(ValueError, match=rf"bc\.{field} must be (at least 1|positive.*), not 0"):
        BCConfig(**{field: 0})


def test_divergence_is_seen_in_the_loss():
    train, held_out = batch(0), batch(1)
    train[0]["state"] = train[0]["state"].at[5, 0].set(jnp.nan)
    assert not jnp.isfinite(run(train, held_out, jax.random.key(0))[1])
