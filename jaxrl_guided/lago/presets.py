"""Named configurations of the LaGO experiment: toy size, demonstration, the reported ones."""

import dataclasses

from jaxrl_guided.backbones.lora import LoraConfig
from jaxrl_guided.lago.artifact import BackboneChoice
from jaxrl_guided.lago.bc import BCConfig
from jaxrl_guided.lago.config import (
    AloneConfig,
    DataConfig,
    LagoConfig,
    OnlineConfig,
    PriorConfig,
)
from jaxrl_guided.lago.guidance import GuidanceConfig
from jaxrl_guided.lago.sft import SFTConfig
from jaxrl_guided.learners.evaluate import EvaluationConfig
from jaxrl_guided.learners.ppo import PPOConfig
from jaxrl_guided.networks.actor_critic import NetworkConfig

SMOKE = LagoConfig(
    pairs=("real:goal",),
    seeds=(0, 1),
    seeds_per_cell=2,
    seeds_per_long_cell=2,
    processes=False,
    quick_compile=True,
    data=DataConfig(episodes=600),
    prior=PriorConfig(
        backbone=BackboneChoice(name="nano", num_layers=2),
        lora=LoraConfig(rank=4, alpha=8.0),
        sft=SFTConfig(max_updates=20, batch_rows=4, row_steps=16, eval_every=10, eval_rows=8),
    ),
    online=OnlineConfig(
        features="hashed",
        feature_size=64,
        horizon=20,
        easy_steps=512,
        ppo=PPOConfig(
            total_steps=1_024,
            num_envs=16,
            rollout_steps=32,
            minibatches=4,
            epochs=2,
            schedule="constant",  # a run of any length is then the same program
        ),
        network=NetworkConfig(hidden=(32,)),
        bc=BCConfig(episodes=500, updates=50),
        eval=EvaluationConfig(episodes=32, curve_points=2, curve_episodes=32),
    ),
    alone=AloneConfig(hidden=(32,)),
)
"""Everything once, in seconds: random backbone of toy size, hashed features."""

TUNED = OnlineConfig(
    network=NetworkConfig(hidden=(256, 256)),
    ppo=PPOConfig(learning_rate=1e-3, entropy_weight=0.0, scale_reward=True),
    # Half of the visited states are scored: the prior is nearly all of a guided run's work.
    guidance=GuidanceConfig(loss="soft", beta=3.0, prior_fraction=0.5),
)
"""Settings of the arms that have a prior or an expert; see `trials.TRIALS`."""

ALONE = AloneConfig(
    hidden=(256, 256),
    learning_rate=1e-3,
    scale_reward=False,
    feature_components=None,
    feature_scale=4.0,
)
"""What PPO alone has instead, the best of its own trials."""

DEMO = LagoConfig(
    pairs=("real:goal", "rephrase:goal"),
    arms=("random", "bc", "prior", "ppo", "ppo_bc", "lago"),  # the others take long
    seeds=tuple(range(5)),
    seeds_per_cell=5,
    data=DataConfig(episodes=20_000),
    prior=PriorConfig(history="none", sft=SFTConfig(max_updates=400, row_steps=32, lr=3e-3)),
    online=dataclasses.replace(
        TUNED,
        bc=BCConfig(episodes=1_280, updates=2_000),
        ppo=dataclasses.replace(TUNED.ppo, total_steps=65_536, num_envs=32),
        eval=EvaluationConfig(episodes=400, curve_points=8, curve_episodes=100),
    ),
    alone=ALONE,
)
"""Real pretrained backbone, two levels, small budgets: under twenty minutes on two cores."""

FULL = LagoConfig(
    pairs=(
        "real:goal",
        "real:distance",
        "rephrase:goal",
        "rephrase:distance",
        "easy:goal",
        "hard:goal",
    ),
    seeds=tuple(range(10)),
    seeds_per_cell=5,
    seeds_per_long_cell=2,
    prior=PriorConfig(
        history="none", sft=SFTConfig(max_updates=4_000, row_steps=32, lr=3e-3, eval_every=200)
    ),
    online=TUNED,
    alone=ALONE,
)
"""The reported experiment, in cells."""

FULL_30 = dataclasses.replace(
    FULL,
    pairs=("real:goal",),
    arms=("random", "prior", "ppo", "lago"),
    seeds=tuple(range(5)),
    seeds_per_cell=2,  # reading the prior takes four times as long
    prior=dataclasses.replace(
        FULL.prior,
        backbone=BackboneChoice(num_layers=None),
        sft=dataclasses.replace(FULL.prior.sft, max_updates=1_000),  # about as long
    ),
)
"""Real alone, guided by all thirty layers of the backbone."""

PRESETS = {"demo": DEMO, "smoke": SMOKE, "full": FULL, "full_30": FULL_30}
