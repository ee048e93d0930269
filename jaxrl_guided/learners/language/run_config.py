"""What a training run of a language model is: task, model, imitation, policy gradients."""

import dataclasses
from typing import Literal, get_args

import jax.numpy as jnp

from jaxrl_guided.backbones.config import BackboneConfig
from jaxrl_guided.backbones.load import NANO
from jaxrl_guided.backbones.lora import LoraConfig
from jaxrl_guided.learners.language.advantages import NORMS, Aggregation, Norm
from jaxrl_guided.learners.language.learner import LanguageLearnerConfig
from jaxrl_guided.learners.language.objectives import GRPOConfig, ImitationConfig, Objective
from jaxrl_guided.runtime.config import added
from jaxrl_guided.runtime.ranges import (
    COUNT,
    INT32,
    INT63,
    NOT_NEGATIVE,
    POSITIVE,
    check,
    check_choice,
)

SCRATCH = "scratch"
"""The backbone of random weights and a tokenizer of its own, both made for the task."""

Comparison = Literal["group", "batch", "none"]
COMPARISONS = get_args(Comparison)


@dataclasses.dataclass(frozen=True)
class ScratchConfig:
    """Shape of a decoder that starts from random weights.

    Attributes:
      hidden_size, intermediate_size, num_layers, num_heads: of the decoder; embeddings are tied.
      vocab_size: ids at most of its tokenizer, learned from demonstrations.
    """

    hidden_size: int = 64
    intermediate_size: int = 128
    num_layers: int = 2
    num_heads: int = 4
    vocab_size: int = 400

    def __post_init__(self) -> None:
        names = ("hidden_size", "intermediate_size", "num_layers", "num_heads", "vocab_size")
        check(self, COUNT, *names, part="scratch.")
        if self.hidden_size % (2 * self.num_heads):
            raise ValueError(
                "scratch.hidden_size must be a multiple of twice scratch.num_heads, got "
                f"{self.hidden_size} and {self.num_heads}"
            )

    def backbone(self, vocab_size: int) -> BackboneConfig:
        """The decoder for so many ids."""
        return dataclasses.replace(
            NANO,
            vocab_size=vocab_size,
            hidden_size=self.hidden_size,
            intermediate_size=self.intermediate_size,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            num_kv_heads=self.num_heads,
            head_dim=self.hidden_size // self.num_heads,
        )


@dataclasses.dataclass(frozen=True)
class WarmUpConfig:
    """Imitation before policy gradients.

    Attributes:
      updates: optimiser steps; 0: none.
      episodes: that the demonstrator plays.
      batch: episodes of an update.
      learning_rate: of AdamW.
    """

    updates: int = 300
    episodes: int = 2000
    batch: int = 64
    learning_rate: float = 2e-3

    def __post_init__(self) -> None:
        check(self, NOT_NEGATIVE, "updates", part="warm_up.")
        check(self, COUNT, "episodes", "batch", part="warm_up.")
        check(self, POSITIVE, "learning_rate", part="warm_up.")


@dataclasses.dataclass(frozen=True)
class LanguageModelConfig:
    """A language model in a run.

    Attributes:
      backbone: `scratch`, or what `load_backbone` takes.
      scratch: its shape.
      num_layers: only the first layers of a loaded backbone; all if None.
      finetune: `full`, or `lora`.
      lora: adapters.
      warm_up: imitation, before anything else.
      max_tokens: of an answer.
      max_length: of a conversation, in tokens.
      micro_batch: rows whose activations are in memory at a time.
      dtype: of matrix products, keys and values, and weights that stay; `float32` or `bfloat16`.
    """

    backbone: str = SCRATCH
    scratch: ScratchConfig = dataclasses.field(default_factory=ScratchConfig)
    num_layers: int | None = None
    finetune: Literal["full", "lora"] = "full"
    lora: LoraConfig = dataclasses.field(default_factory=LoraConfig)
    warm_up: WarmUpConfig = dataclasses.field(default_factory=WarmUpConfig)
    max_tokens: int = 8
    max_length: int = 128
    micro_batch: int = 64
    dtype: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        check_choice(self, "finetune", ("full", "lora"))
        check_choice(self, "dtype", ("float32", "bfloat16"))
        counts = ("max_tokens", "max_length", "micro_batch", "num_layers")
        check(self, COUNT, *counts)
        check(self, INT32, *counts)
        if self.max_tokens >= self.max_length:
            raise ValueError(
                f"max_length must be above max_tokens, got {self.max_length} and {self.max_tokens}"
            )
        if self.backbone != SCRATCH:
            return
        if self.finetune != "full":
            raise ValueError("finetune must be full with backbone scratch: there is no base")
        if self.num_layers is not None:
            raise ValueError(
                "num_layers must be None with backbone scratch: set scratch.num_layers"
            )
        if not self.warm_up.updates:
            raise ValueError(
                "warm_up.updates must be positive with backbone scratch: it knows no words"
            )

    def learner(
        self,
        backbone: BackboneConfig,
        objective: Objective,
        learning_rate: float,
        aggregation: Aggregation = "seq_mean_token_mean",
    ) -> LanguageLearnerConfig:
        """The learner of a part of the run."""
        return LanguageLearnerConfig(
            backbone,
            objective,
            lora=self.lora if self.finetune == "lora" else None,
            aggregation=aggregation,
            learning_rate=learning_rate,
            micro_batch=self.micro_batch,
            lengths=lengths_up_to(self.max_length),
            compute_dtype=jnp.dtype(self.dtype),
        )

    def imitation(self, backbone: BackboneConfig) -> LanguageLearnerConfig:
        """The learner of the warm-up."""
        return self.learner(backbone, ImitationConfig(), self.warm_up.learning_rate)


@dataclasses.dataclass(frozen=True)
class ImproveConfig:
    """Policy gradients on one's own episodes.

    Attributes:
      steps: rounds of play and learning.
      instances: episodes of the task in a step.
      rollouts: K, times that each is played.
      temperature: of the draws.
      compare: what a return is compared with: `group`, those of the same episode (GRPO); `batch`,
        all of the step (REINFORCE with a mean as its baseline); `none`.
      norm: of groups, see `group_advantages`.
      shuffle_rewards: a control: returns are handed out at random among the step's episodes.
      objective: the loss.
      minibatches: optimiser steps in a step.
      learning_rate: of AdamW.
    """

    steps: int = 200
    instances: int = 16
    rollouts: int = 8
    temperature: float = 1.0
    compare: Comparison = "group"
    norm: Norm = "std"
    shuffle_rewards: bool = False
    objective: GRPOConfig = dataclasses.field(default_factory=GRPOConfig)
    minibatches: int = 1
    learning_rate: float = 2e-4

    def __post_init__(self) -> None:
        check_choice(self, "compare", COMPARISONS, part="improve.")
        check_choice(self, "norm", NORMS, part="improve.")
        check(self, NOT_NEGATIVE, "steps", part="improve.")
        check(self, COUNT, "instances", "rollouts", "minibatches", part="improve.")
        check(self, POSITIVE, "temperature", "learning_rate", part="improve.")
        if self.compare == "group" and self.rollouts < 2:
            raise ValueError(
                "improve.rollouts must be at least 2 with compare group: alone, a rollout has "
                "nothing to be compared with"
            )
        if self.minibatches > self.episodes:
            raise ValueError(
                f"improve.minibatches must be at most the {self.episodes} episodes of a step, "
                f"got {self.minibatches}"
            )

    @property
    def episodes(self) -> int:
        """Of a step."""
        return self.instances * self.rollouts


@dataclasses.dataclass(frozen=True)
class JudgeConfig:
    """How a policy is judged, on episodes that nothing has learned from.

    Attributes:
      episodes: number of them, the same each time.
      every: steps between points of the curve.
    """

    episodes: int = 256
    every: int = 25

    def __post_init__(self) -> None:
        check(self, COUNT, "episodes", "every", part="judge.")


@dataclasses.dataclass(frozen=True)
class LanguageRunConfig(LanguageModelConfig):
    """A run.

    Attributes:
      task: name of a text task, or of a mix: `mix3`, `mix6`, `mix8`, or names with + between.
      options: of the task, as `NAME=VALUE`, separated by commas; of one task of a mix, as
        `TASK.NAME=VALUE`.
      improve, judge: the parts after the warm-up.
      slots: conversations side by side; as many as the step has episodes if 0.
      seed: of weights, draws and episodes.
      workers: processes for each task, so that nobody waits for its steps; 0: in this process.
    """

    task: str = "route"
    options: tuple[str, ...] = ()
    improve: ImproveConfig = dataclasses.field(default_factory=ImproveConfig)
    judge: JudgeConfig = dataclasses.field(default_factory=JudgeConfig)
    slots: int = 0
    seed: int = 0
    workers: int = added(0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, NOT_NEGATIVE, "slots", "seed", "workers")
        check(self, INT32, "slots")
        check(self, INT63, "seed")
        if self.improve.objective.kl_weight and self.finetune != "lora":
            raise ValueError(
                "improve.objective.kl_weight must be 0 unless finetune is lora: the reference is "
                "the base without adapters"
            )

    def learners(
        self, backbone: BackboneConfig
    ) -> tuple[LanguageLearnerConfig, LanguageLearnerConfig]:
        """That of the warm-up, and that of the policy gradients."""
        return (
            self.imitation(backbone),
            self.learner(backbone, self.improve.objective, self.improve.learning_rate),
        )


def lengths_up_to(longest: int) -> tuple[int, ...]:
    """Lengths of micro-batches, each at most half as long again as the one before."""
    lengths = [64]
    while lengths[-1] < longest:
        lengths.append(
            lengths[-1] * 3 // 2 if lengths[-1].bit_count() == 1 else lengths[-1] * 4 // 3
        )
    return (*(length for length in lengths if length < longest), longest)
