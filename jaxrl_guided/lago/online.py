"""Stage 2 of LaGO for one arm, level and set of seeds: build, train, evaluate."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from jaxrl_guided.backbones import weights
from jaxrl_guided.envs.dataset import Episodes
from jaxrl_guided.envs.types import Dict, PyTree
from jaxrl_guided.lago.artifact import TrainedPrior
from jaxrl_guided.lago.bc import clone, expert_steps
from jaxrl_guided.lago.config import ARMS, OnlineConfig
from jaxrl_guided.lago.controls import spoil
from jaxrl_guided.lago.gate import run_gated
from jaxrl_guided.lago.judge import (
    judge_policy,
    judge_prior,
    judge_random,
    make_network,
    make_soft,
    spaces_of,
)
from jaxrl_guided.lago.training import freeze_prior, train_policies
from jaxrl_guided.learners.normaliser import init_normaliser
from jaxrl_guided.learners.ppo import Policy
from jaxrl_guided.learners.segments import Clock
from jaxrl_guided.runtime import files
from jaxrl_guided.runtime.checkpoint import Checkpointer, save_alone
from jaxrl_guided.runtime.config import from_dict
from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.files import PathLike
from jaxrl_guided.runtime.rundir import RunDir
from jaxrl_guided.runtime.signals import StopFlag

POLICY = "policy"
"""Directory of the final policy within a run."""

CLONING_SEED = 1_000_000_000
"""Behaviour cloning draws from keys of its own, from here on."""


def check_inputs(config: OnlineConfig, prior: TrainedPrior | None, expert: Episodes | None) -> None:
    """Raises UserError where an arm lacks something or its inputs do not fit its configuration."""
    arm = ARMS[config.arm]
    if arm.guided and prior is None:
        raise UserError(f"arm '{config.arm}' needs a prior, --prior")
    if arm.from_bc and expert is None:
        raise UserError(f"arm '{config.arm}' needs expert data, --data")
    if prior is not None:
        check_horizon(config, prior.spec.horizon, "the prior was trained for")
    if expert is not None and config.bc.episodes > expert.num_episodes:
        raise UserError(
            f"bc.episodes is {config.bc.episodes}, but the dataset has {expert.num_episodes}"
        )
    _check_sizes(config, prior, expert)
    if config.features == "minilm":
        weights.find("all-minilm-l6-v2")


def _check_sizes(config: OnlineConfig, prior: TrainedPrior | None, expert: Episodes | None) -> None:
    """Raises UserError where states are not those of the environment."""
    found = {}
    if prior is not None:
        found["the prior"] = prior.spec.state_size
    if expert is not None:
        found["the dataset"] = np.asarray(expert.observations).shape[-1]
    for what, theirs in found.items():
        name = f"{config.env}/{config.level}"
        if theirs != (size := _state_size(name)):
            raise UserError(f"{what} is of states of {theirs} numbers, {name} has {size}")


def _state_size(name: str) -> int:
    """Numbers in a state of the environment."""
    space, _ = spaces_of(name)
    assert isinstance(space, Dict)
    state = space.spaces["state"]
    assert not isinstance(state, Dict)
    return int(state.shape[-1])


def check_horizon(config: OnlineConfig, longest: int, what: str) -> None:
    """Raises UserError where episodes would be longer than those of the prior."""
    if config.horizon > longest:
        raise UserError(
            f"horizon is {config.horizon}, but {what} episodes of {longest} steps; shorten it, or "
            "train a prior on longer episodes"
        )


def run_arm(
    config: OnlineConfig,
    run: RunDir,
    stop: StopFlag,
    prior: TrainedPrior | None = None,
    expert: Episodes | None = None,
) -> dict[str, Any]:
    """Everything a table needs of one cell.

    Args:
      config: what to run.
      run: its directory, for metrics and checkpoints.
      stop: looked at between chunks.
      prior: needed by guided arms.
      expert: Real's episodes for behaviour cloning, needed by arms that start from it; the first
        `bc.episodes` are used.

    Returns:
      JSON data: `final` results by evaluation level and kind, `curve`, `steps`, and the cost.

    Raises:
      UserError: see `check_inputs`.
      Stopped: asked to stop; the same call goes on from the last checkpoint.
    """
    check_inputs(config, prior, expert)
    arm, clock = ARMS[config.arm], Clock()
    results: dict[str, Any] = {"steps": 0, "curve": {"steps": [], "success": []}}
    results["expert_steps"] = prior.expert_steps if prior is not None else 0
    if prior is not None:
        prior = spoil(prior, config.control)
    if expert is not None:
        expert = expert.select(np.arange(config.bc.episodes))
        results["expert_steps"] = int(expert.is_expert.sum())
    judge: Callable[[str], dict[str, Any]]
    if config.arm == "random":
        judge = functools.partial(judge_random, config)
    elif config.arm == "prior":
        assert prior is not None
        judge = functools.partial(judge_trained_prior, config, prior)
    elif config.arm == "gated":
        assert prior is not None
        gated = run_gated(config, run, stop, prior, clock)
        judge = gated.judge
        results |= gated.results
    else:
        policy = _cloned_policy(config, expert) if expert is not None and arm.from_bc else None
        if arm.learns:
            guide = prior if arm.guided else None
            policy, trained = train_policies(config, run, stop, policy, guide, clock)
            results |= trained
        assert policy is not None
        save_alone(run.path / POLICY, config.used(), policy)
        judge = functools.partial(judge_policy, config, policy)
    results["final"] = {level: judge(level) for level in config.eval_levels}
    results["seeds"] = list(config.seeds)
    results["minutes"] = round(clock.seconds / 60, 2)
    return results


def judge_trained_prior(
    config: OnlineConfig, prior: TrainedPrior, level: str
) -> dict[str, list[float]]:
    """The prior as controller on a level."""
    return judge_prior(config, prior.spec, freeze_prior(config, level, prior), level)


def _cloned_policy(config: OnlineConfig, expert: Episodes) -> Policy:
    """Behaviour cloning on Real for every seed."""
    level = expert.metadata["level"]
    network = make_network(config, level)
    train_part, held_out = expert_steps(expert, config.family.instructions(level).held_out)
    keys = jnp.stack([jax.random.key(CLONING_SEED + seed) for seed in config.seeds])
    run = jax.jit(jax.vmap(functools.partial(clone, network, config.bc), in_axes=(None, None, 0)))
    policy, loss = run(train_part, held_out, keys)
    if not np.isfinite(loss).all():
        raise FloatingPointError(f"behaviour cloning has diverged, its held-out loss is {loss}")
    return policy


def load_settings(path: PathLike) -> OnlineConfig:
    """The configuration of a finished run of `train_online` that has left a policy.

    Raises:
      UserError: `path` is none, or is damaged.
    """
    summary = epath.Path(path) / "summary.json"
    if not summary.exists() or not (epath.Path(path) / POLICY).exists():
        raise UserError(
            f"--run={path} holds no policy: it is no run of train_online, is not finished, "
            "or its arm has none"
        )
    record = files.read_json(summary)
    if not isinstance(record, dict) or "config" not in record:
        raise UserError(
            f"{summary} has no config: --run={path} is a run of another script than "
            "train_online, or is damaged"
        )
    return from_dict(OnlineConfig, record["config"], str(summary))


def load_policy(config: OnlineConfig, path: PathLike) -> PyTree:
    """The final policies of a run, seeds first, as `run_arm` left them in its directory."""
    template: PyTree
    if config.algorithm == "sac":
        template, _ = make_soft(config, config.level).init(jax.random.key(0))
    else:
        network = make_network(config, config.level)
        keeps = config.ppo.normalise_obs or ARMS[config.arm].from_bc
        normaliser = init_normaliser(network.observation_space) if keeps else None
        template = Policy(network.init(jax.random.key(0)), normaliser)
    template = jax.tree.map(lambda x: jnp.stack([x] * len(config.seeds)), template)
    with Checkpointer(epath.Path(path) / POLICY, config.used(), read_only=True) as policies:
        return policies.restore(template)[0]
