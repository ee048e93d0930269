"""From a configuration to a learner on its environments, placed on devices."""

import dataclasses
import os
import sys

import jax

from jaxrl_guided.envs import registry
from jaxrl_guided.envs.dataset import load
from jaxrl_guided.envs.types import PyTree, VectorEnv
from jaxrl_guided.learners.job_config import TrainConfig
from jaxrl_guided.learners.placement import Placement
from jaxrl_guided.learners.ppo import PPO, make_ppo
from jaxrl_guided.learners.replay import Replay, nbytes
from jaxrl_guided.learners.sac import SAC, make_sac
from jaxrl_guided.learners.sac.demos import check_origin, demonstrations
from jaxrl_guided.learners.sac.state import SACState
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
      env: the environments of each member.
      learner: on them.
      judged: environments of evaluations, where those are stepped by the host.
      demos: demonstrations, on every device; None without.
    """

    config: TrainConfig
    placement: Placement
    env: VectorEnv
    learner: PPO | SAC
    judged: VectorEnv | None = None
    demos: Replay | None = None

    def close(self) -> None:
        """Ends what the environments run in."""
        for env in (self.env, self.judged):
            if env is not None:
                env.close()


def prepare(config: TrainConfig, members: int, devices: int = 0, train: bool = True) -> Job:
    """A run of a population.

    Args:
      members: of the population.
      devices: that share the work; 0 for as many as divide it. They do not change the result.
      train: whether it will be trained; where it is only judged there are no demonstrations, and
        what training needs may be more than there is.

    Raises:
      UserError: the environment, the learner's options for it, the demonstrations or the devices
        do not fit.
    """
    with validation():
        placement = _place(config, members, devices)
    job = _learner(config, placement, train)
    if not train:
        return job
    _check_memory(job)
    return dataclasses.replace(job, demos=jax.device_put(job.demos, replicated(placement.mesh)))


def _learner(config: TrainConfig, placement: Placement, train: bool) -> Job:
    """The learner on its environments, and the demonstrations that it needs."""
    judged = None
    if config.on_host:
        # As many as there are to train on, at most: processes and memory are not free.
        fewest = min(config.num_envs, config.evaluation.episodes)
        judged = config.make_env(fewest, placement.members)
    if judged is not None and judged.num_envs == config.num_envs and not train:
        env = judged  # one pool of processes is enough
    else:
        env = config.make_env(config.num_envs, placement.members)
    spaces = env.observation_space, env.action_space
    with validation():
        if config.algorithm == "ppo":
            network = make_actor_critic(*spaces, config.network)
            ppo = make_ppo(env, network, config.ppo, mesh=placement.inner)
            return Job(config, placement, env, ppo, judged)
        soft = make_soft_network(*spaces, config.soft)
        sac = make_sac(env, soft, config.sac, mesh=placement.inner)
        demos = None
        if config.demos and train:
            episodes = load(config.demos)
            check_origin(episodes, registry.without_module(config.env), config.env_options())
            demos = demonstrations(episodes, env, soft)
        return Job(config, placement, env, sac, judged, demos)


def _place(config: TrainConfig, members: int, devices: int) -> Placement:
    """On the devices asked for, or on as many as divide the work; those of all processes."""
    if config.on_host:
        if devices > 1 or jax.process_count() > 1:
            raise ValueError(
                f"devices must be 1, in one process: env {config.env} is stepped by the host"
            )
        devices = 1
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


def _check_memory(job: Job) -> None:
    """Raises UserError for what a device cannot hold: allocating it may never end."""
    mesh, members = job.placement.mesh, job.placement.members
    needed = {name: members * nbytes(tree) / mesh.size for name, tree in _parts(job).items()}
    needed["demonstrations"] = nbytes(job.demos)
    device = jax.local_devices()[0]
    limit = (device.memory_stats() or {}).get("bytes_limit")
    if limit is None:  # devices without memory of their own share that of the machine
        limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        limit /= len(mesh.local_devices)
    largest = max(needed, key=needed.__getitem__)
    if needed[largest] > limit:
        raise UserError(
            f"{largest} needs {needed[largest] / 2**30:,.1f} GiB for {members} members on each of "
            f"{mesh.size} devices, {device} has {limit / 2**30:,.1f}"
        )


def _parts(job: Job) -> dict[str, PyTree]:
    """What is large of a member, as shapes, under the names of the sizes that make it so."""
    config = job.config
    key = jax.eval_shape(lambda: jax.random.key(0))
    state = jax.eval_shape(job.learner.init, key)
    _, *collected = jax.eval_shape(job.learner.collect, state)
    episodes = config.evaluation.episodes
    parts: dict[str, PyTree] = {
        f"{config.algorithm}.num_envs {config.num_envs:,}": (state.env_state, collected),
    }
    if job.judged is None:
        judged = jax.eval_shape(config.make_env(episodes).reset, key)
        parts[f"evaluation.episodes {episodes:,}"] = judged
    if isinstance(state, SACState):
        parts[f"sac.replay_capacity {config.sac.replay_capacity:,}"] = state.replay
    return parts
