"""Named training runs for `experiments.train`."""

from jaxrl_guided.learners.job_config import CappedEvaluation, TrainConfig
from jaxrl_guided.learners.ppo import PPOConfig
from jaxrl_guided.learners.sac import SACConfig
from jaxrl_guided.networks.actor_critic import NetworkConfig
from jaxrl_guided.networks.soft import SoftNetworkConfig

CARTPOLE = TrainConfig(env="gymnax/CartPole-v1", ppo=PPOConfig(normalise_obs=False))
"""64 environments, 32 minibatches."""

PENDULUM = TrainConfig(
    env="gymnax/Pendulum-v1",
    algorithm="sac",
    soft=SoftNetworkConfig(hidden=(64, 64)),
    sac=SACConfig(replay_capacity=100_000, total_steps=20_000),
    ppo=PPOConfig(
        num_envs=16,
        minibatches=16,
        epochs=10,
        learning_rate=1e-3,
        gamma=0.9,
        entropy_weight=0.0,
        scale_reward=True,
    ),
)
"""Real actions; `--config.algorithm=ppo` works as well, with more steps."""

BREAKOUT = TrainConfig(
    env="gymnax/Breakout-MinAtar",
    network=NetworkConfig(hidden=(128,), activation="relu", conv=(16,), shared=True),
    ppo=PPOConfig(total_steps=2_000_000, minibatches=16, learning_rate=1e-3, normalise_obs=False),
)
"""Images."""

MINIHACK = TrainConfig(
    env="minihack/Room-Random-5x5",
    network=NetworkConfig(activation="relu"),
    ppo=PPOConfig(
        total_steps=200_000, num_envs=16, rollout_steps=64, minibatches=8, normalise_obs=False
    ),
    evaluation=CappedEvaluation(max_steps=1_000),
)
"""NetHack on the host, its map as symbols around the agent."""

BRAX = TrainConfig(
    env="brax/inverted_pendulum",
    options=("backend=spring",),
    ppo=PPOConfig(total_steps=500_000, rollout_steps=32, minibatches=8, gamma=0.97),
    evaluation=CappedEvaluation(max_steps=1_000),
)
"""A robot in JAX."""

GYM = TrainConfig(
    env="gym/CartPole-v1",
    ppo=PPOConfig(
        total_steps=100_000, num_envs=16, rollout_steps=64, minibatches=8, normalise_obs=False
    ),
)
"""An environment of gymnasium, on the host."""

SMOKE = TrainConfig(
    env="gymnax/CartPole-v1",
    soft=SoftNetworkConfig(hidden=(16,)),
    sac=SACConfig(replay_capacity=256, total_steps=256, num_envs=2, learning_starts=32, batch=16),
    seeds=(0, 1),
    network=NetworkConfig(hidden=(16,)),
    ppo=PPOConfig(total_steps=512, num_envs=4, rollout_steps=16, epochs=2, minibatches=4),
    evaluation=CappedEvaluation(episodes=8, curve_points=2, curve_episodes=4),
)
"""Everything once, in seconds."""

PRESETS = {
    "cartpole": CARTPOLE,
    "pendulum": PENDULUM,
    "breakout": BREAKOUT,
    "brax": BRAX,
    "gym": GYM,
    "minihack": MINIHACK,
    "smoke": SMOKE,
}
