"""From a configuration to what a run needs: two models with their words and lessons. All checks."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxrl_guided.backbones.chat import Chat
from jaxrl_guided.backbones.config import BackboneError
from jaxrl_guided.backbones.embedders import Embedder, make_embedder
from jaxrl_guided.backbones.load import Backbone, random_backbone
from jaxrl_guided.backbones.presets import PRESETS
from jaxrl_guided.complementary.advised import Advised
from jaxrl_guided.complementary.arms import settled
from jaxrl_guided.complementary.batching import CachedEmbedder
from jaxrl_guided.complementary.lessons import Lesson, lessons_of
from jaxrl_guided.complementary.run_config import ComplementaryConfig, ModelConfig
from jaxrl_guided.complementary.warm_up import Taught, extractor_lessons, play_lessons
from jaxrl_guided.envs.text.source import TaskSource
from jaxrl_guided.learners.language.batches import Sample
from jaxrl_guided.learners.language.demonstrations import Demonstration, encode
from jaxrl_guided.learners.language.preparation import first_openings, make_backbone
from jaxrl_guided.learners.language.seeds import Seeds, check_whole, divide
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


class _School(NamedTuple):
    """What is taught of one task."""

    lessons: Sequence[Lesson]
    taught: Sequence[Taught]


@dataclasses.dataclass(frozen=True)
class ComplementaryJob:
    """A run that can begin.

    Attributes:
      config: of the run, with the settings of its arm.
      seeds: of the task: judged, warm-up and training, disjoint.
      actor, extractor: the two models; no extractor without experience, or if it is elsewhere.
      embed: of the bank's vectors.
      taught: share of the lessons' episodes that succeed, or None.
    """

    config: ComplementaryConfig
    seeds: Seeds
    actor: Prepared
    extractor: Prepared | None
    embed: Embedder
    taught: float | None

    def make_source(self) -> TaskSource:
        """What makes its tasks."""
        return TaskSource(self.config.task, self.config.options, self.config.workers)

    def advised(self, source: TaskSource) -> Advised:
        """One more task, with help."""
        return _advised(self.config, source)


class _Begun(NamedTuple):
    config: ComplementaryConfig
    task: Advised
    seeds: Seeds
    schools: Sequence[_School]


def prepare(config: ComplementaryConfig, extractor: bool = True) -> ComplementaryJob:
    """Loads, plays the lessons, and checks everything.

    Args:
      extractor: whether its model is in this program, if there is to be one.

    Raises:
      UserError: the arm, the task or an option of it is unknown, nobody teaches the task, a model
        cannot be loaded, or a conversation does not fit.
    """
    with _beginning(config) as (config, task, seeds, schools):
        actor = _actor(config, task, seeds, schools)
        writer = _extractor(config, schools) if config.experience and extractor else None
        embed = CachedEmbedder(make_embedder(config.embedder))
    won = [each.shown.success for school in schools for each in school.taught]
    share = float(np.mean(won)) if won else None
    return ComplementaryJob(config, seeds, actor, writer, embed, share)


def prepare_extractor(config: ComplementaryConfig) -> tuple[ComplementaryConfig, Prepared]:
    """The extractor's model alone, and the configuration with the settings of its arm.

    Raises:
      UserError: as `prepare`, or the arm has no extractor.
    """
    with _beginning(config) as (config, _, _, schools):
        if not config.experience:
            raise UserError(f"arm {config.arm} has no extractor; name another one")
        return config, _extractor(config, schools)


@contextlib.contextmanager
def _beginning(config: ComplementaryConfig) -> Iterator[_Begun]:
    """What all models of a run begin with."""
    with validation():
        config = settled(config)
    with (
        validation(),
        contextlib.closing(TaskSource(config.task, config.options)) as source,
        contextlib.closing(_advised(config, source)) as task,
    ):
        seeds = divide(task.instances, source.labels)
        _check_seeds(config, seeds)
        yield _Begun(config, task, seeds, _play(config, source, seeds))


def _advised(config: ComplementaryConfig, source: TaskSource) -> Advised:
    return Advised(source.make(), config.acting.questions, config.extractor.compact)


def _check_seeds(config: ComplementaryConfig, seeds: Seeds) -> None:
    for name, wanted, there in (
        ("judge.episodes", config.judge.episodes, len(seeds.judged)),
        ("actor.warm_up.episodes", config.actor.warm_up.episodes, len(seeds.shown)),
    ):
        if wanted > there:
            raise UserError(f"{name} must be at most {there} with task {config.task}, not {wanted}")
    judged, played = config.judge.episodes, config.acting.instances
    check_whole(seeds.parts, {"acting.instances": played, "judge.episodes": judged})


def _play(config: ComplementaryConfig, source: TaskSource, seeds: Seeds) -> list[_School]:
    """Scripted play, if one of the models wants it; the same for all arms of a seed."""
    models = (config.actor, config.extractor_model)
    if not any(model.warm_up.updates for model in models):
        return []
    random = np.random.default_rng([config.seed, _PLAY])
    chosen, schools = seeds.shown[: config.actor.warm_up.episodes], []
    with contextlib.closing(Advised(source.make(), compact=config.extractor.compact)) as stage:
        for number, part in enumerate(source.parts):
            lessons = lessons_of(part.name)
            taught = play_lessons(stage, lessons, chosen[number :: len(source.parts)], random)
            schools.append(_School(lessons, taught))
    return schools


def _actor(
    config: ComplementaryConfig, task: Advised, seeds: Seeds, schools: Sequence[_School]
) -> Prepared:
    shown = [each.shown for school in schools for each in school.taught]
    found = _prepared("actor", config.actor, shown, config.seed)
    firsts = first_openings(found.chat, task, seeds)
    _check_length("actor", config.actor, [*firsts, *(s.tokens for s in found.samples)])
    return found


def _extractor(config: ComplementaryConfig, schools: Sequence[_School]) -> Prepared:
    random, shown = np.random.default_rng([config.seed, _WORDS]), list[Demonstration]()
    for school in schools:
        shown += extractor_lessons(school.taught, school.lessons, config.extractor, random)
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
