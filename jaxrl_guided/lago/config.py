"""Configuration of the LaGO experiment, its arms, and the presets of the main job."""

import dataclasses
from typing import Any, Literal, get_args

from jaxrl_guided.backbones.lora import LoraConfig
from jaxrl_guided.backbones.text_features import MINILM_DIM
from jaxrl_guided.envs import registry
from jaxrl_guided.lago.artifact import BackboneChoice
from jaxrl_guided.lago.bc import BCConfig
from jaxrl_guided.lago.families import Family, family_of
from jaxrl_guided.lago.guidance import GuidanceConfig
from jaxrl_guided.lago.prior import Finetune, Precision, weights_dtype
from jaxrl_guided.lago.sft import SFTConfig
from jaxrl_guided.learners.evaluate import EvaluationConfig
from jaxrl_guided.learners.ppo import PPOConfig
from jaxrl_guided.learners.sac import SACConfig
from jaxrl_guided.networks.actor_critic import NetworkConfig
from jaxrl_guided.networks.soft import SoftNetworkConfig
from jaxrl_guided.runtime.config import added, to_dict
from jaxrl_guided.runtime.ranges import (
    COUNT,
    POSITIVE,
    POSITIVE_SHARE,
    PROPER_SHARE,
    check,
    check_choice,
)

FINETUNE = get_args(Finetune)
Control = Literal["none", "reversed", "random"]
CONTROLS = get_args(Control)
LARGEST_SEED = 999_999_999  # cloning and evaluation draw from keys above it


@dataclasses.dataclass(frozen=True)
class Arm:
    """A row of the result table.

    Attributes:
      title: what the table calls it.
      learns: trains online.
      algorithm: that it trains with, PPO or SAC.
      guided: the learner has the prior loss.
      from_bc: the policy starts from behaviour cloning.
      alone: has the settings that are best for PPO without prior and expert (`AloneConfig`).
      steps_factor: times the budget of environment steps.
      first_seeds: how many of the grid's seeds it runs at most; None: all. For what takes so long
        that its place in the table, not a comparison to a point, is worth the time.
      expert_data: uses expert transitions, of which the table states the number.
    """

    title: str
    learns: bool = True
    algorithm: Literal["ppo", "sac"] = "ppo"
    guided: bool = False
    from_bc: bool = False
    alone: bool = False
    steps_factor: int = 1
    first_seeds: int | None = None
    expert_data: Literal["none", "policy", "prior"] = "none"


ARMS = {
    "random": Arm("uniform random", learns=False),
    "bc": Arm("BC", learns=False, from_bc=True, expert_data="policy"),
    "prior": Arm("prior as controller", learns=False, guided=True, expert_data="prior"),
    "ppo": Arm("PPO", alone=True),
    "ppo_10x": Arm("PPO, 10x steps", alone=True, steps_factor=10, first_seeds=4),
    "ppo_same": Arm("PPO, LaGO's settings"),
    "ppo_bc": Arm("PPO from BC", from_bc=True, expert_data="policy"),
    "kickstart": Arm("kickstarting (beta to 0)", guided=True, expert_data="prior"),
    "lago": Arm("LaGO", guided=True, expert_data="prior"),
    "gated": Arm("LaGO gated", guided=True, expert_data="prior"),
    "sac": Arm("SAC", algorithm="sac"),
    "lago_sac": Arm("LaGO with SAC", algorithm="sac", guided=True, expert_data="prior"),
}
PPO_ARMS = tuple(name for name, arm in ARMS.items() if arm.algorithm == "ppo")


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Expert data, always of level Real.

    Attributes:
      level: the level that is collected.
      episodes: rollouts.
      random_fraction: share of random actions in the rollouts.
      seed: of the collection.
    """

    level: str = "real"
    episodes: int = 100_000
    random_fraction: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        check(self, COUNT, "episodes")
        check(self, PROPER_SHARE, "random_fraction")


@dataclasses.dataclass(frozen=True)
class PriorConfig:
    """Stage 1: which backbone, what of it is trained, and how.

    Attributes:
      backbone: the decoder.
      history: `episode` or `none`, what the prior reads beside the instruction and s_t.
      finetune: `lora`, `full` or `frozen`.
      lora: adapters.
      sft: the training.
      dtype: `float32` or `bfloat16`, of the backbone; see `PriorSpec`.
    """

    backbone: BackboneChoice = dataclasses.field(default_factory=BackboneChoice)
    history: Literal["episode", "none"] = "episode"
    finetune: Finetune = "lora"
    lora: LoraConfig = dataclasses.field(default_factory=LoraConfig)
    sft: SFTConfig = dataclasses.field(default_factory=SFTConfig)
    dtype: Precision = added("float32")

    def __post_init__(self) -> None:
        check_choice(self, "history", ("episode", "none"))
        check_choice(self, "finetune", FINETUNE)

    def check_backbone(self) -> None:
        """Raises BackboneError unless the backbone can be loaded."""
        self.backbone.check(weights_dtype(self.finetune, self.dtype))


@dataclasses.dataclass(frozen=True)
class AloneConfig:
    """What PPO without prior and expert has instead of `online`'s own.

    What serves it best is not what serves it beside a prior; each is chosen by trials of its own.
    Arm `ppo_same` keeps `online`'s, so that it differs from `lago` in the loss alone.

    Attributes:
      hidden: of `network`.
      learning_rate, scale_reward: of `ppo`.
      feature_components, feature_scale: as in `OnlineConfig`.
    """

    hidden: tuple[int, ...] = (64, 64)
    learning_rate: float = 5e-4
    scale_reward: bool = False
    feature_components: int | None = 32
    feature_scale: float = 1.0

    def applied(self, online: "OnlineConfig") -> "OnlineConfig":
        """`online` with these settings."""
        return dataclasses.replace(
            online,
            network=dataclasses.replace(online.network, hidden=self.hidden),
            ppo=dataclasses.replace(
                online.ppo, learning_rate=self.learning_rate, scale_reward=self.scale_reward
            ),
            feature_components=self.feature_components,
            feature_scale=self.feature_scale,
        )


@dataclasses.dataclass(frozen=True)
class OnlineConfig:
    """Stage 2: one arm on one level; with the prior's content this decides a cell's result.

    Attributes:
      env: environment family, `clevr` or `metaworld`.
      level: trained on, and evaluated on: `real`, `rephrase`, `easy` or `hard`, or a part of them,
        as `real-heldout` or `hard-sort`, of Meta-World a task, as `reach` or `rephrase-reach`.
      reward: `goal`, or `distance` on CLEVR-Robot.
      arm: `random`, `bc`, `prior`, `ppo`, `ppo_10x`, `ppo_same`, `ppo_bc`, `kickstart`, `lago`,
        `gated`, `sac` or `lago_sac`.
      seeds: run side by side in one program.
      features: sentence vectors of the policy, `minilm` or `hashed`.
      feature_size: numbers in a hashed vector.
      feature_components: whitened principal components of the sentence vectors that the policy
        reads; None for the vectors themselves, which have length 1.
      feature_scale: factor on the features.
      horizon: longest episode.
      easy_steps: environment steps on level Easy at most; those of CLEVR-Robot's are one step
        long.
      kickstart_end: share of the run after which arm `kickstart` has beta zero.
      trial_share: share of the budget that arm `gated` spends on trying guided and plain PPO.
      alone: settings of that plain PPO.
      control: `none`, or how the prior is spoilt, `reversed` or `random` (`controls.spoil`).
      judge_levels: levels of the final evaluation; empty for the training level, or the parts
        that it is judged on (`Family.parts`).
      network, ppo, guidance, bc, eval: the parts.
      soft, sac: what arms with SAC have instead of `network` and `ppo`.
    """

    env: str = "clevr"
    level: str = "real"
    reward: Literal["goal", "distance"] = "goal"
    arm: str = "lago"
    seeds: tuple[int, ...] = (0,)
    features: Literal["minilm", "hashed"] = "minilm"
    feature_size: int = 384
    feature_components: int | None = 32
    feature_scale: float = 1.0
    horizon: int = 50
    easy_steps: int = 100_000
    kickstart_end: float = 0.5
    judge_levels: tuple[str, ...] = ()
    network: NetworkConfig = dataclasses.field(default_factory=NetworkConfig)
    ppo: PPOConfig = dataclasses.field(default_factory=PPOConfig)
    guidance: GuidanceConfig = dataclasses.field(default_factory=GuidanceConfig)
    bc: BCConfig = dataclasses.field(default_factory=BCConfig)
    eval: EvaluationConfig = dataclasses.field(default_factory=EvaluationConfig)
    trial_share: float = added(0.2)
    alone: AloneConfig = added(AloneConfig())
    control: Control = added("none")
    soft: SoftNetworkConfig = added(SoftNetworkConfig())
    sac: SACConfig = added(SACConfig(100_000))

    def __post_init__(self) -> None:
        for level in (self.level, *self.judge_levels):
            check_level(self.env, level)
        check_choice(self, "arm", ARMS)
        check_choice(self, "reward", self.family.rewards)
        check_choice(self, "control", CONTROLS)
        check(self, COUNT, "feature_size", "horizon", "easy_steps")
        check(self, POSITIVE, "feature_scale")
        check(self, POSITIVE_SHARE, "kickstart_end")
        check(self, PROPER_SHARE, "trial_share")
        # Whitening the smallest components would only make noise of them larger.
        most = (self.feature_size if self.features == "hashed" else MINILM_DIM) // 2
        if self.feature_components is not None and not 0 < self.feature_components <= most:
            raise ValueError(
                f"feature_components must be None or lie between 1 and {most}, half of the "
                f"vector, not {self.feature_components}"
            )
        if self.network.gru:
            raise ValueError(
                f"network.gru must be 0, not {self.network.gru}: cloning reads single steps, and "
                "instructions stay in sight"
            )
        if self.arm == "gated" and self.learner.iterations < 2:
            raise ValueError(
                f"ppo.total_steps must be at least {2 * self.ppo.batch} with arm gated, which "
                f"tries first, not {self.total_steps}"
            )
        if self.sac.demo_batch:
            raise ValueError("sac.demo_share must be 0: no arm has demonstrations")
        check_seeds(self.seeds)

    @property
    def family(self) -> Family:
        """Of the environments."""
        return family_of(self.env)

    @property
    def on_host(self) -> bool:
        """Whether the environments are stepped by the host."""
        return registry.on_host(f"{self.env}/{self.level}")

    @property
    def algorithm(self) -> Literal["ppo", "sac"]:
        """That the arm trains with."""
        return ARMS[self.arm].algorithm

    @property
    def learner(self) -> PPOConfig | SACConfig:
        """The algorithm's configuration with the budget of an arm that learns."""
        own: PPOConfig | SACConfig = self.sac if self.algorithm == "sac" else self.ppo
        return dataclasses.replace(own, total_steps=self.total_steps)

    @property
    def total_steps(self) -> int:
        """Environment steps asked for, per seed."""
        if not ARMS[self.arm].learns:
            return 0
        steps = self.sac.total_steps if self.algorithm == "sac" else self.ppo.total_steps
        if self.level == "easy":
            steps = min(steps, self.easy_steps)
        return steps * ARMS[self.arm].steps_factor

    @property
    def arm_guidance(self) -> GuidanceConfig:
        """Guidance as the arm has it: kickstarting's beta falls to zero."""
        if self.arm != "kickstart":
            return self.guidance
        return dataclasses.replace(
            self.guidance, schedule="linear", schedule_end=self.kickstart_end
        )

    def used(self) -> dict[str, Any]:
        """The fields that decide this arm's result, as JSON data.

        What an arm does not use is left out, so that choosing it anew voids no result.
        """
        arm, settings = ARMS[self.arm], to_dict(self)
        with_sac = self.algorithm == "sac"
        parts = {"guidance": arm.guided and arm.learns, "bc": arm.from_bc}
        parts["ppo"] = arm.learns and not with_sac
        parts["network"] = not with_sac
        parts["soft"] = parts["sac"] = with_sac
        parts["kickstart_end"] = self.arm == "kickstart"
        parts["trial_share"] = parts["alone"] = self.arm == "gated"
        parts["control"] = arm.guided
        if with_sac:  # in full: a default that changes later is another one
            settings |= {"soft": to_dict(self.soft), "sac": to_dict(self.sac)}
        return {name: value for name, value in settings.items() if parts.get(name, True)}

    @property
    def eval_levels(self) -> tuple[str, ...]:
        """Levels of the final evaluation."""
        return self.judge_levels or self.family.parts_of(self.level)


@dataclasses.dataclass(frozen=True)
class LagoConfig:
    """The whole experiment.

    Attributes:
      pairs: level and reward of each online experiment, as `real:goal`.
      arms: rows of the table.
      seeds: of every arm.
      seeds_per_cell: seeds that one cell trains side by side.
      seeds_per_long_cell: the same for arms with more steps than the others.
      processes: run each cell in a process of its own on one core (all in this one if false).
      quick_compile: compile what runs in this process with few optimisations, in half the time.
      data, prior, online: the stages; `online` is filled in for each cell.
      alone: changes to `online` in arms `ppo` and `ppo_10x`.
    """

    pairs: tuple[str, ...] = ("real:goal", "rephrase:goal", "easy:goal", "hard:goal")
    arms: tuple[str, ...] = PPO_ARMS
    seeds: tuple[int, ...] = (0, 1, 2)
    seeds_per_cell: int = 3
    seeds_per_long_cell: int = 1
    processes: bool = True
    quick_compile: bool = False
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    prior: PriorConfig = dataclasses.field(default_factory=PriorConfig)
    online: OnlineConfig = dataclasses.field(default_factory=OnlineConfig)
    alone: AloneConfig = dataclasses.field(default_factory=AloneConfig)

    def __post_init__(self) -> None:
        try:
            self.alone.applied(self.online)
        except ValueError as error:
            raise ValueError(f"alone: {error}") from error
        check_level(self.online.env, self.data.level)
        check_seeds(self.seeds)
        for name in ("pairs", "arms"):
            if not getattr(self, name):
                raise ValueError(f"{name} must not be empty")
        check(self, COUNT, "seeds_per_cell", "seeds_per_long_cell")
        if self.online.bc.episodes > self.data.episodes:
            raise ValueError(
                f"online.bc.episodes {self.online.bc.episodes} must not be above data.episodes "
                f"{self.data.episodes}"
            )
        self.cells()

    def cells(self) -> dict[str, OnlineConfig]:
        """All online runs by id, as `real-goal-lago-0`; what does not learn has but one."""
        found = {}
        for pair in self.pairs:
            level, _, reward = pair.partition(":")
            for arm in self.arms:
                settings, size = self.settings(arm), self._seeds_together(arm)
                chosen = self.seeds[: ARMS[arm].first_seeds]
                for first in range(0, len(chosen), size):
                    seeds = chosen[first : first + size]
                    changes: dict[str, Any] = {"level": level, "reward": reward}
                    cell = dataclasses.replace(settings, seeds=seeds, **changes)
                    found[f"{level}-{reward}-{arm}-{'_'.join(map(str, seeds))}"] = cell
        return found

    def settings(self, arm: str) -> OnlineConfig:
        """`online` as the arm has it."""
        if arm not in ARMS:
            raise ValueError(f"arms must be out of {', '.join(ARMS)}, not '{arm}'")
        online = self.alone.applied(self.online) if ARMS[arm].alone else self.online
        if arm == "gated":
            online = dataclasses.replace(online, alone=self.alone)
        return dataclasses.replace(online, arm=arm)

    def _seeds_together(self, arm: str) -> int:
        if not ARMS[arm].learns:
            return len(self.seeds)
        return self.seeds_per_long_cell if ARMS[arm].steps_factor > 1 else self.seeds_per_cell


def check_seeds(seeds: tuple[int, ...]) -> None:
    """Raises ValueError unless there are seeds, all different and not negative."""
    if not seeds or len(set(seeds)) != len(seeds) or min(seeds) < 0 or max(seeds) > LARGEST_SEED:
        raise ValueError(f"seeds must be different numbers from 0 to {LARGEST_SEED}, not {seeds}")


def check_level(env: str, level: str) -> None:
    """Raises ValueError, listing what exists, unless `env/level` is an environment."""
    try:
        registry.check(f"{env}/{level}")
    except ValueError as error:
        raise ValueError(f"env and level: {error}") from error
