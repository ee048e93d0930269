"""From a configuration to a learner on its environments, placed on devices."""

import dataclasses
import os
import sys

import jax

from jaxrl_guided.envs.dataset import load
from jaxrl_guided.learners.job_config import TrainConfig
from jaxrl_guided.learners.placement import Placement
from jaxrl_guided.learners.ppo import PPO, make_ppo
from jaxrl_guided.learners.replay import Replay, nbytes
from jaxrl_guided.learners.sac import SAC, make_sac
from jaxrl_guided.learners.sac.demos import check_origin, demonstrations
from jaxrl_guided.networks.actor_critic import make_actor_critic
from jaxrl_guided.networks.soft import make_soft_network
from jaxrl_guided.runtime.errors import UserError, validation
from jaxrl_guided.runtime.mesh import make_mesh, replicated


@dataclasses.dataclass(frozen=True)
class Job:
    """All that a training run needs.

    Attributes:
      config: of the run.
      placement: of its population.
      learner: on its environments.
      demos: demonstrations, on every device; None without.
    """

    config: TrainConfig
    placement: Placement
    learner: PPO | SAC
    demos: Replay | None = None


def prepare(config: TrainConfig, members: int, devices: int = 0) -> Job:
    """A run of a population.

    Args:
      members: of the population.
      devices: that share the work; 0 for as many as divide it. They do not change the result.

    Raises:
      UserError: the environment, the learner's options for it, the demonstrations or the devices
        do not fit.
    """
    with validation():
        placement = _place(config, members, devices)
    if config.algorithm == "ppo":
        env = config.make_env(config.ppo.num_envs)
        with validation():
            network = make_actor_critic(env.observation_space, env.action_space, config.network)
            ppo = make_ppo(env, network, config.ppo, mesh=placement.inner)
        return Job(config, placement, ppo)
    env = config.make_env(config.sac.num_envs)
    demos = None
    with validation():
        soft = make_soft_network(env.observation_space, env.action_space, config.soft)
        sac = make_sac(env, soft, config.sac, mesh=placement.inner)
        if config.demos:
            episodes = load(config.demos)
            check_origin(episodes, config.env, config.env_options())
            demos = demonstrations(episodes, env, soft)
    _check_memory(sac, demos, placement)
    return Job(config, placement, sac, jax.device_put(demos, replicated(placement.mesh)))


def _place(config: TrainConfig, members: int, devices: int) -> Placement:
    """On the devices asked for, or on as many as divide the work; those of all processes."""
    if devices == 0 and jax.process_count() == 1:
        available = jax.device_count()
        devices = max(n for n in range(1, available + 1) if _divides(config, members, n))
        if devices < available:
            print(
                f"{devices} of {available} devices share the work: more would divide neither "
                f"{members} members nor {config.num_envs} environments and their minibatches",
                file=sys.stderr,
            )
    return Placement(make_mesh(devices), members, config.num_envs)


def _divides(config: TrainConfig, members: int, devices: int) -> bool:
    """Whether so many devices divide the members, or the environments and batches of each."""
    return members % devices == 0 or all(size % devices == 0 for size in config.divisible)


def _check_memory(sac: SAC, demos: Replay | None, placement: Placement) -> None:
    """Raises UserError for a replay that a device cannot hold: allocating it may never end."""
    state = jax.eval_shape(sac.init, jax.random.key(0))
    needed = placement.members * nbytes(state.replay) / placement.mesh.size
    needed += nbytes(demos) if demos is not None else 0
    device = jax.local_devices()[0]
    limit = (device.memory_stats() or {}).get("bytes_limit")
    if limit is None:  # devices without memory of their own share that of the machine
        limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        limit /= len(placement.mesh.local_devices)
    if needed > limit:
        raise UserError(
            f"sac.replay_capacity {sac.config.replay_capacity:,} needs {needed / 2**30:,.1f} GiB "
            f"for {placement.members} members on each of {placement.mesh.size} devices, {device} "
            f"has {limit / 2**30:,.1f}"
        )
