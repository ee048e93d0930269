"""What a run of Complementary RL is: task, two models, bank, and how they go together."""

import dataclasses

from jaxrl_guided.backbones.config import BackboneConfig
from jaxrl_guided.complementary.actor import ActorConfig
from jaxrl_guided.complementary.credit import CreditConfig
from jaxrl_guided.complementary.dual import LoopConfig
from jaxrl_guided.complementary.extractor import ExtractorConfig
from jaxrl_guided.complementary.retrieval import RetrievalConfig
from jaxrl_guided.learners.language.advantages import NORMS, Norm
from jaxrl_guided.learners.language.learner import LanguageLearnerConfig
from jaxrl_guided.learners.language.objectives import (
    CISPOConfig,
    GRPOConfig,
)
from jaxrl_guided.learners.language.run_config import (
    SCRATCH,
    ImproveConfig,
    JudgeConfig,
    LanguageModelConfig,
)
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


@dataclasses.dataclass(frozen=True)
class ModelConfig(LanguageModelConfig):
    """A language model and how it learns; its warm-up is imitation of scripted lessons.

    Attributes:
      random_weights: `backbone` names a shape, which gets random weights, with bytes as tokens; for
        trials of large models.
      learning_rate: of AdamW, after the warm-up.
      minibatches: optimiser steps of an update.
      slots: conversations side by side.
    """

    random_weights: bool = False
    learning_rate: float = 2e-4
    minibatches: int = 1
    slots: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, COUNT, "minibatches", "slots")
        check(self, INT32, "minibatches", "slots")
        check(self, POSITIVE, "learning_rate")
        if self.backbone == SCRATCH and self.random_weights:
            raise ValueError("random_weights must be false with backbone scratch, which has them")


@dataclasses.dataclass(frozen=True)
class ComplementaryConfig:
    """A run.

    Attributes:
      task: name of a text task, or of a mix: `mix3`, `mix6`, `mix8`, or names with + between.
      options: of the task, as `NAME=VALUE`, separated by commas; of one task of a mix, as
        `TASK.NAME=VALUE`.
      arm: what is left out or exchanged for comparison; `settled` has the settings that follow.
      experience: whether there is a bank.
      actor, extractor_model: the two models.
      grpo, norm, cispo: how they learn.
      acting: the actor's episodes.
      extractor: how it works.
      credit: what it learns from.
      retrieval: what an episode is shown.
      embedder: what entries are found by, see `make_embedder`.
      capacity: entries of the bank at most.
      loop: how the two go together.
      steps: of the actor, those included that fill the bank first.
      offline_steps: of them, that fill the bank of the arm `offline_bank`.
      save_every: steps between checkpoints. The extractor has nothing left to do at one.
      judge: how the actor is judged.
      seed: of weights, draws and episodes.
      workers: processes for each task, so that nobody waits for its steps; 0: in this process.
    """

    task: str = "minihack/Room-Ultimate-5x5"
    options: tuple[str, ...] = ("compact=true", "max_turns=16")
    arm: str = "complementary"
    experience: bool = True
    actor: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    extractor_model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    grpo: GRPOConfig = dataclasses.field(default_factory=GRPOConfig)
    norm: Norm = "std"
    cispo: CISPOConfig = dataclasses.field(default_factory=CISPOConfig)
    acting: ActorConfig = dataclasses.field(default_factory=ActorConfig)
    extractor: ExtractorConfig = dataclasses.field(default_factory=ExtractorConfig)
    credit: CreditConfig = dataclasses.field(default_factory=CreditConfig)
    retrieval: RetrievalConfig = dataclasses.field(default_factory=RetrievalConfig)
    embedder: str = "hashed-128"
    capacity: int = 20_000
    loop: LoopConfig = dataclasses.field(default_factory=LoopConfig)
    steps: int = 150
    offline_steps: int = 30
    save_every: int = 5
    judge: JudgeConfig = dataclasses.field(default_factory=JudgeConfig)
    seed: int = 0
    workers: int = added(0)

    def __post_init__(self) -> None:
        check_choice(self, "norm", NORMS)
        check(self, COUNT, "capacity", "steps", "save_every", "offline_steps")
        check(self, NOT_NEGATIVE, "seed", "workers")
        check(self, INT63, "seed")
        if not self.experience and (self.acting.guided or self.acting.questions):
            raise ValueError("acting.guided and acting.questions must be 0 without experience")
        if self.credit.reward == "relative" and self.acting.guided == self.acting.rollouts:
            raise ValueError(
                "credit.reward must be outcome where all rollouts are guided: there is no free half"
            )
        if max(self.acting.warm_up, self.offline_steps) >= self.steps:
            raise ValueError(
                f"steps must be above acting.warm_up {self.acting.warm_up} and offline_steps "
                f"{self.offline_steps}, in which the actor does not learn; not {self.steps}"
            )
        if self.grpo.kl_weight and self.actor.finetune != "lora":
            raise ValueError(
                "grpo.kl_weight must be 0 unless actor.finetune is lora: the reference is the base "
                "without adapters"
            )

    @property
    def improve(self) -> ImproveConfig:
        """How the actor's advantages are made."""
        return ImproveConfig(norm=self.norm, objective=self.grpo)

    def actor_learner(self, backbone: BackboneConfig) -> LanguageLearnerConfig:
        """GRPO."""
        return self.actor.learner(backbone, self.grpo, self.actor.learning_rate)

    def extractor_learner(self, backbone: BackboneConfig) -> LanguageLearnerConfig:
        """CISPO."""
        model = self.extractor_model
        return model.learner(backbone, self.cispo, model.learning_rate, "token_mean")
