"""Named configurations of the LaGO experiment: toy size, demonstration, the reported ones."""

import dataclasses

from jaxrl_guided.backbones.lora import LoraConfig
from jaxrl_guided.lago.artifact import BackboneChoice
from jaxrl_guided.lago.bc import BCConfig
from jaxrl_guided.lago.config import (
    ARMS,
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
from jaxrl_guided.learners.sac import SACConfig
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
"""Settings of the arms that have a prior or an expert; see `tuning.TRIALS`."""

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

TINYLLAMA = dataclasses.replace(
    FULL,
    prior=dataclasses.replace(
        FULL.prior,
        backbone=BackboneChoice(name="tinyllama", num_layers=None),
        dtype="bfloat16",
        sft=dataclasses.replace(FULL.prior.sft, lr=1e-3, remat=True),
    ),
)
"""The smaller backbone of the paper; name the directory of its weights as `prior.backbone.name`."""

LLAMA2 = dataclasses.replace(
    TINYLLAMA,
    prior=dataclasses.replace(
        TINYLLAMA.prior, backbone=BackboneChoice(name="llama2_7b", num_layers=None)
    ),
    # Scoring is nearly all of the work with so large a prior.
    online=dataclasses.replace(
        TUNED, guidance=dataclasses.replace(TUNED.guidance, prior_fraction=0.1)
    ),
)
"""The larger backbone of the paper."""

METAWORLD = LagoConfig(
    # PPO alone has LaGO's settings, and ten times the steps would take an hour a cell.
    arms=tuple(name for name in ARMS if name not in ("ppo_same", "ppo_10x")),
    seeds=tuple(range(5)),
    seeds_per_cell=2,
    data=DataConfig(episodes=10_000),
    prior=dataclasses.replace(
        FULL.prior, sft=dataclasses.replace(FULL.prior.sft, max_updates=1_000, eval_every=100)
    ),
    online=dataclasses.replace(
        TUNED,
        env="metaworld",
        horizon=100,
        easy_steps=500_000,
        ppo=dataclasses.replace(
            TUNED.ppo,
            num_envs=32,
            rollout_steps=64,
            epochs=10,
            learning_rate=5e-4,
        ),
        guidance=GuidanceConfig(loss="soft", beta=1.0, prior_fraction=0.5),
        sac=SACConfig(
            replay_capacity=204_800, total_steps=200_000, num_envs=16, chunk_steps=8, batch=256
        ),
        eval=EvaluationConfig(episodes=20, curve_points=5, curve_episodes=40),
    ),
    alone=AloneConfig(hidden=(256, 256), learning_rate=2e-4, scale_reward=True),
)
"""Meta-World, in cells: twenty episodes of each task and seed."""

METAWORLD_SMOKE = dataclasses.replace(
    SMOKE,
    pairs=("hard:goal",),
    arms=("random", "prior", "ppo", "lago", "lago_sac"),
    seeds=(0,),
    seeds_per_cell=1,
    data=DataConfig(episodes=20),
    online=dataclasses.replace(
        SMOKE.online,
        env="metaworld",
        ppo=dataclasses.replace(SMOKE.online.ppo, total_steps=256, num_envs=8, rollout_steps=16),
        sac=SACConfig(
            replay_capacity=256,
            total_steps=256,
            num_envs=8,
            chunk_steps=8,
            learning_starts=64,
            batch=32,
        ),
        bc=BCConfig(episodes=20, updates=50),
        eval=EvaluationConfig(episodes=2, curve_points=1, curve_episodes=4),
    ),
)
"""Meta-World once, in two minutes."""

PRESETS = {
    "demo": DEMO,
    "smoke": SMOKE,
    "full": FULL,
    "full_30": FULL_30,
    "tinyllama": TINYLLAMA,
    "llama2": LLAMA2,
    "metaworld": METAWORLD,
    "metaworld_smoke": METAWORLD_SMOKE,
}

FIRST_PRESETS = {"clevr": "demo", "metaworld": "metaworld"}
"""What a family of environments has where no preset is named."""
