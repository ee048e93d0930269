"""SAC for vector environments, real or discrete actions (arXiv 1812.05905, 1910.07207).

    sac = make_sac(env, network, SACConfig(replay_capacity=100_000, num_envs=env.num_envs))
    state = jax.jit(sac.init)(jax.random.key(0))
    state = train(make_chunk(sac.iterate), state, sac.config.iterations)

Seeds are an axis, as in PPO. A frozen prior guides the actor's loss alone; what it says of a step
is scored when the step is inserted, once. Batches may be shared with demonstrations (`demos`).
"""

from jaxrl_guided.learners.sac.config import Hyper, SACConfig
from jaxrl_guided.learners.sac.learner import SAC, act, make_sac
from jaxrl_guided.learners.sac.state import Learned, SACState

__all__ = ["SAC", "Hyper", "Learned", "SACConfig", "SACState", "act", "make_sac"]
