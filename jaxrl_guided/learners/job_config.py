"""What a training run is: environment, learner, seeds and how policies are judged."""

import dataclasses
from typing import Any, Literal

from jaxrl_guided.envs import registry
from jaxrl_guided.envs.bridge.remote import HostEnvError
from jaxrl_guided.envs.types import VectorEnv
from jaxrl_guided.learners.evaluate import EvaluationConfig
from jaxrl_guided.learners.ppo import PPOConfig
from jaxrl_guided.learners.sac import SACConfig
from jaxrl_guided.networks.actor_critic import NetworkConfig
from jaxrl_guided.networks.soft import SoftNetworkConfig
from jaxrl_guided.runtime.config import added
from jaxrl_guided.runtime.errors import UserError, validation
from jaxrl_guided.runtime.options import parse_options
from jaxrl_guided.runtime.ranges import COUNT, INT32, check

EVALUATION_SEED = 2_000_000_000
"""Episodes of evaluations start from here, those of training never do."""

_BAD_OPTION = (TypeError, ArithmeticError, AttributeError, LookupError, AssertionError)
"""What environments raise for options that they cannot use."""


@dataclasses.dataclass(frozen=True)
class CappedEvaluation(EvaluationConfig):
    """How policies are judged on any environment.

    Attributes:
      max_steps: cap on the length of an episode, for environments that have no limit of their own.
    """

    episodes: int = 100
    curve_points: int = 10
    curve_episodes: int = 20
    max_steps: int = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, COUNT, "max_steps")
        check(self, INT32, "max_steps")


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """A training run.

    Attributes:
      env: name in the registry, as `gymnax/CartPole-v1`.
      options: of the environment, as `NAME=VALUE`, separated by commas; a list is written as in
        Python, `NAME=["A","B"]`, all of it in quotes for the shell.
      seeds: run side by side in one program.
      algorithm: `ppo`, which uses `network` and `ppo`, or `sac`, which uses `soft` and `sac`.
      network, ppo, soft, sac, evaluation: the parts.
      demos: dataset directory of the demonstrations that `sac.demo_share` is of.
    """

    env: str = "gymnax/CartPole-v1"
    options: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    algorithm: Literal["ppo", "sac"] = "ppo"
    network: NetworkConfig = dataclasses.field(default_factory=NetworkConfig)
    ppo: PPOConfig = dataclasses.field(default_factory=PPOConfig)
    soft: SoftNetworkConfig = dataclasses.field(default_factory=SoftNetworkConfig)
    sac: SACConfig = dataclasses.field(default_factory=lambda: SACConfig(100_000))
    evaluation: CappedEvaluation = dataclasses.field(default_factory=CappedEvaluation)
    demos: str = added("")

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise ValueError(f"seeds must be different numbers from 0, not {self.seeds}")
        if max(self.seeds) >= EVALUATION_SEED:
            raise ValueError(f"seeds must be below {EVALUATION_SEED}, not {self.seeds}")
        shares = self.algorithm == "sac" and self.sac.demo_batch > 0
        if shares != bool(self.demos):
            raise ValueError(
                f"demos '{self.demos}' and sac.demo_share {self.sac.demo_share:g} need each other, "
                f"and algorithm sac, not {self.algorithm}"
            )
        self.env_options()

    def env_options(self) -> dict[str, Any]:
        """`options` as keyword arguments.

        Raises:
          ValueError: one of them is not `NAME=VALUE`.
        """
        follows = f"{self.algorithm}.num_envs and the seeds"
        return parse_options(self.options, {"num_envs": follows, "members": follows})

    @property
    def unread(self) -> tuple[str, str]:
        """The parts that belong to the other algorithm."""
        return ("network", "ppo") if self.algorithm == "sac" else ("soft", "sac")

    @property
    def num_envs(self) -> int:
        """Environments of each seed."""
        return self.ppo.num_envs if self.algorithm == "ppo" else self.sac.num_envs

    @property
    def divisible(self) -> tuple[int, int]:
        """What devices may divide within a seed: environments, and the items of a minibatch."""
        if self.algorithm == "sac":
            return self.sac.num_envs, self.sac.batch
        return self.ppo.num_envs, self.ppo.minibatch_items(self.network.gru > 0)

    @property
    def on_host(self) -> bool:
        """Whether the environments are stepped by the host.

        Raises:
          UserError: they are unknown.
        """
        with validation():
            return registry.on_host(self.env)

    def make_env(self, num_envs: int, members: int = 1) -> VectorEnv:
        """The environment.

        Args:
          num_envs: of each member.
          members: under one `vmap`; environments in JAX are the same for any number.

        Raises:
          UserError: it is unknown, or cannot be made with these options.
        """
        options = self.env_options() | ({"members": members} if self.on_host else {})
        told = f"env {self.env}"
        if self.options:
            told += f" with --config.options={','.join(self.options)}"
        with validation():
            try:
                return registry.make(self.env, num_envs, **options)
            except HostEnvError as error:
                raise UserError(f"{told}: {error.told}") from error
            except (ValueError, *_BAD_OPTION) as error:  # from the depths of its own code
                if not self.options:
                    raise
                raise UserError(f"{told}: {error}") from error
