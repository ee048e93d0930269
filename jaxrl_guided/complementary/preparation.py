"""From a configuration to what a run needs: two models with their words and lessons. All checks."""

import contextlib
import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from jaxrl_guided.backbones.chat import Chat, first_messages
from jaxrl_guided.backbones.config import BackboneError
from jaxrl_guided.backbones.embedders import Embedder, make_embedder
from jaxrl_guided.backbones.load import Backbone, random_backbone
from jaxrl_guided.backbones.presets import PRESETS
from jaxrl_guided.complementary.advised import Advised
from jaxrl_guided.complementary.arms import settled
from jaxrl_guided.complementary.batching import CachedEmbedder
from jaxrl_guided.complementary.lessons import lessons_of
from jaxrl_guided.complementary.run_config import ComplementaryConfig, ModelConfig
from jaxrl_guided.complementary.warm_up import Taught, extractor_lessons, play_lessons
from jaxrl_guided.envs.text.registry import task_from_options
from jaxrl_guided.learners.language.batches import Sample
from jaxrl_guided.learners.language.demonstrations import Demonstration, encode
from jaxrl_guided.learners.language.preparation import Seeds, divide, make_backbone
from jaxrl_guided.runtime.errors import UserError, validation

_PLAY, _WORDS = range(2)
"""What numbers of a warm-up are drawn for."""


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A model that can begin.

    Attributes:
      config: of the model.
      backbone: as it starts.
      chat: of the backbone.
      samples: lessons to imitate; none without warm-up.
    """

    config: ModelConfig
    backbone: Backbone
    chat: Chat
    samples: Sequence[Sample]


@dataclasses.dataclass(frozen=True)
class ComplementaryJob:
    """A run that can begin.

    Attributes:
      config: of the run, with the settings of its arm.
      seeds: of the task: judged, warm-up and training, disjoint.
      actor, extractor: the two models; no extractor without experience.
      embed: of the bank's vectors.
      taught: share of the lessons' episodes that succeed, or None.
    """

    config: ComplementaryConfig
    seeds: Seeds
    actor: Prepared
    extractor: Prepared | None
    embed: Embedder
    taught: float | None

    def make_task(self) -> Advised:
        """One more task."""
        return _make_task(self.config)


def prepare(config: ComplementaryConfig) -> ComplementaryJob:
    """Loads, plays the lessons, and checks everything.

    Raises:
      UserError: the arm, the task or an option of it is unknown, nobody teaches the task, a model
        cannot be loaded, or a conversation does not fit.
    """
    with validation():
        config = settled(config)
        with contextlib.closing(_make_task(config)) as task:
            seeds = divide(task.instances)
            _check_seeds(config, seeds)
            taught = _play(config, task, seeds)
            actor = _actor(config, task, seeds, taught)
        extractor = _extractor(config, taught) if config.experience else None
        embed = CachedEmbedder(make_embedder(config.embedder))
    share = float(np.mean([each.shown.success for each in taught])) if taught else None
    return ComplementaryJob(config, seeds, actor, extractor, embed, share)


def _make_task(config: ComplementaryConfig) -> Advised:
    task = task_from_options(config.task, config.options)
    return Advised(task, config.acting.questions, config.extractor.compact)


def _check_seeds(config: ComplementaryConfig, seeds: Seeds) -> None:
    for name, wanted, there in (
        ("judge.episodes", config.judge.episodes, len(seeds.judged)),
        ("actor.warm_up.episodes", config.actor.warm_up.episodes, len(seeds.shown)),
    ):
        if wanted > there:
            raise UserError(f"{name} must be at most {there} with task {config.task}, not {wanted}")


def _play(config: ComplementaryConfig, task: Advised, seeds: Seeds) -> list[Taught]:
    """Scripted play, if one of the models wants it; the same for all arms of a seed."""
    models = (config.actor, config.extractor_model)
    if not any(model.warm_up.updates for model in models):
        return []
    random = np.random.default_rng([config.seed, _PLAY])
    chosen = seeds.shown[: config.actor.warm_up.episodes]
    stage = task_from_options(config.task, config.options)
    with contextlib.closing(Advised(stage, compact=config.extractor.compact)) as advised:
        return play_lessons(advised, lessons_of(config.task), chosen, random)


def _actor(
    config: ComplementaryConfig, task: Advised, seeds: Seeds, taught: Sequence[Taught]
) -> Prepared:
    found = _prepared("actor", config.actor, [each.shown for each in taught], config.seed)
    opening = task.reset(seeds.judged[0])
    first = found.chat.opening(first_messages(opening.system, opening.observation))
    _check_length("actor", config.actor, [first, *(s.tokens for s in found.samples)])
    return found


def _extractor(config: ComplementaryConfig, taught: Sequence[Taught]) -> Prepared:
    random, shown = np.random.default_rng([config.seed, _WORDS]), list[Demonstration]()
    if taught:
        lessons = lessons_of(config.task)
        shown = extractor_lessons(taught, lessons, config.extractor, random)
    model = config.extractor_model
    found = _prepared("extractor_model", model, shown, config.seed + 1)
    _check_length("extractor_model", model, [sample.tokens for sample in found.samples])
    return found


def _prepared(
    name: str, config: ModelConfig, shown: Sequence[Demonstration], seed: int
) -> Prepared:
    backbone = _backbone(name, config, shown, seed)
    assert backbone.template is not None  # it was asked for
    chat = Chat(backbone.tokenizer, backbone.template)
    wanted = shown if config.warm_up.updates else []
    samples = [encode(chat, backbone.tokenizer, each) for each in wanted]
    return Prepared(config, backbone, chat, samples)


def _backbone(
    name: str, config: ModelConfig, shown: Sequence[Demonstration], seed: int
) -> Backbone:
    if not config.random_weights:
        return make_backbone(config, shown, seed)
    if config.backbone not in PRESETS:
        raise BackboneError(
            f"{name}.backbone must be one of {', '.join(PRESETS)} with random_weights, not "
            f"{config.backbone}"
        )
    dtype = jnp.dtype(config.dtype if config.finetune == "lora" else "float32")
    return random_backbone(config.backbone, config.num_layers, seed, dtype)


def _check_length(
    name: str, config: ModelConfig, conversations: Sequence[Sequence[int] | np.ndarray]
) -> None:
    """Raises UserError if a conversation is too long."""
    needed = max(map(len, conversations), default=0)
    if needed > config.max_length:
        raise UserError(
            f"{name}.max_length must be at least {needed} for conversations of its lessons, not "
            f"{config.max_length}"
        )
