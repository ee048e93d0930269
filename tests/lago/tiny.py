"""The whole pipeline in seconds: toy environment, random backbone of one layer, few steps."""

import dataclasses

import numpy as np

from jaxrl_guided.envs.clevr.env import ACTION_MAP
from jaxrl_guided.envs.clevr.instructions import instruction_set
from jaxrl_guided.envs.dataset import Episodes
from jaxrl_guided.envs.metaworld.tasks import ACTION_MAP as METAWORLD_ACTIONS
from jaxrl_guided.lago.actions import from_map
from jaxrl_guided.lago.artifact import (
    BackboneChoice,
    PriorCard,
    TrainedPrior,
    new_prior,
    save_prior,
)
from jaxrl_guided.lago.bc import BCConfig
from jaxrl_guided.lago.config import OnlineConfig, PriorConfig
from jaxrl_guided.lago.guidance import GuidanceConfig
from jaxrl_guided.lago.sft import SFTConfig
from jaxrl_guided.learners.evaluate import EvaluationConfig
from jaxrl_guided.learners.ppo import PPOConfig
from jaxrl_guided.networks.actor_critic import NetworkConfig
from tests.lago.toy_env import STATE, right_action

HORIZON = 4
REAL_TEXTS = len(instruction_set("real").texts)
BACKBONE = BackboneChoice(name="nano", num_layers=1)
PRIOR = PriorConfig(
    backbone=BACKBONE,
    finetune="frozen",
    sft=SFTConfig(max_updates=6, batch_rows=2, row_steps=8, eval_every=2, eval_rows=4),
)


def online_config(**changes):
    """Four PPO iterations of 8 environments, two of them before the first evaluation."""
    config = OnlineConfig(
        env="toy",
        level="hard-sort",
        seeds=(0, 1),
        features="hashed",
        feature_size=16,
        feature_components=4,
        horizon=HORIZON,
        easy_steps=64,
        network=NetworkConfig(hidden=(8,)),
        ppo=PPOConfig(total_steps=128, num_envs=8, rollout_steps=4, minibatches=2, epochs=1),
        guidance=GuidanceConfig(loss="soft", beta=1.0),
        bc=BCConfig(episodes=40, updates=20, batch=16),
        eval=EvaluationConfig(episodes=32, curve_points=2, curve_episodes=16),
    )
    return dataclasses.replace(config, **changes)


def metaworld_episodes():
    """Episodes in the form of Meta-World's: ten tasks of twenty texts, an aim for each task."""
    aims = np.random.default_rng(5).uniform(-1, 1, (10, 4)).astype(np.float32)
    return expert_episodes(
        env="metaworld/real",
        right=lambda instruction: aims[instruction // 20],
        action_map=METAWORLD_ACTIONS,
        num_texts=200,
    )


def expert_episodes(
    count=60,
    env="toy/real",
    seed=0,
    right=right_action,
    action_map=ACTION_MAP,
    num_texts=REAL_TEXTS,
):
    """Episodes of one to four right actions on Real."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, HORIZON + 1, count)
    instruction = rng.integers(0, num_texts, count).astype(np.int32)
    total, ends = lengths.sum(), np.cumsum(lengths) - 1
    last = np.isin(np.arange(total), ends)
    states = rng.uniform(size=(total, STATE)).astype(np.float32)
    return Episodes(
        observations=states,
        actions=right(np.repeat(instruction, lengths)),
        rewards=last.astype(np.float32),
        terminated=last,
        truncated=np.zeros(total, bool),
        is_expert=np.ones(total, bool),
        final_observations=states[ends],
        instruction=instruction,
        lengths=lengths.astype(np.int32),
        metadata={"env": env, "level": "real", "horizon": HORIZON, "action_map": action_map},
    )


def prior_card(action_map=None, horizon=HORIZON, history="episode"):
    """(card, prior, tokenizer) of an untrained prior."""
    action_map = ACTION_MAP if action_map is None else action_map
    fields = {
        "state_size": STATE,
        "horizon": horizon,
        "history": history,
        "finetune": "frozen",
    } | from_map(action_map).fields
    mean, std = np.zeros(STATE, np.float32), np.ones(STATE, np.float32)
    spec, prior, tokenizer, backbone_hash = new_prior(BACKBONE, fields, mean, std, 0)
    return (
        PriorCard(BACKBONE, spec, action_map, backbone_hash, 0, {"expert_steps": 7}),
        prior,
        tokenizer,
    )


def trained_prior(**fields):
    """A prior in memory."""
    card, prior, tokenizer = prior_card(**fields)
    return TrainedPrior(card.spec, prior, tokenizer, card.training["expert_steps"])


def write_prior(path, **fields):
    """A prior on disk; its path."""
    card, prior, _ = prior_card(**fields)
    save_prior(path, card, prior)
    return path
