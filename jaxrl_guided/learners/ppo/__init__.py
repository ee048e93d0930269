"""PPO for vector environments, with an optional frozen prior that guides it (arXiv 1707.06347).

    ppo = make_ppo(env, network, PPOConfig(num_envs=env.num_envs))
    state = jax.jit(ppo.init)(jax.random.key(0))
    state = train(make_chunk(ppo.iterate), state, ppo.config.iterations)

Seeds are an axis: `jax.vmap(ppo.init)(keys)` and `jax.vmap(ppo.iterate, in_axes=(0, None))`; so are
the hyper-parameters in `state.hyper`.
"""

from jaxrl_guided.learners.ppo.config import Hyper, PPOConfig
from jaxrl_guided.learners.ppo.learner import PPO, act, make_ppo
from jaxrl_guided.learners.ppo.state import Policy, PPOState, Rollout

__all__ = ["PPO", "Hyper", "PPOConfig", "PPOState", "Policy", "Rollout", "act", "make_ppo"]
