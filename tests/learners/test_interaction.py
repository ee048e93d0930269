"""A witness of a rollout sees each step, and changes nothing."""

import jax
import numpy as np

from jaxrl_guided.learners.interaction import collect, witnessed
from jaxrl_guided.learners.ppo import PPOConfig, make_ppo
from jaxrl_guided.networks.actor_critic import NetworkConfig, make_actor_critic
from tests.learners.counting_env import make_counting_env


def test_a_witness_sees_what_was_done_and_what_followed():
    env = make_counting_env((2, 3), actions_are_rewards=True)
    network = make_actor_critic(env.observation_space, env.action_space, NetworkConfig(hidden=(4,)))
    ppo = make_ppo(env, network, PPOConfig(num_envs=2, rollout_steps=7, minibatches=2))
    state = ppo.init(jax.random.key(0))
    interaction = witnessed(
        ppo.interaction, lambda action, after: (action, after.reward, after.info["success"])
    )
    after, rollout, (action, reward, success) = collect(env, interaction, state)
    plain, without = ppo.collect(state)
    ends = [(found.obs, found.env_state, found.episodes) for found in (after, plain)]
    jax.tree.map(np.testing.assert_array_equal, (ends[0], rollout), (ends[1], without))
    assert action.shape == (7, 2)
    np.testing.assert_array_equal(action, rollout.raw_action)
    np.testing.assert_array_equal(action, reward)
    steps = np.arange(7)[:, None] % np.array([2, 3]) + 1
    np.testing.assert_array_equal(success, steps == 2)
