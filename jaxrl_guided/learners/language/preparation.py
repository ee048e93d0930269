"""From a configuration to what a run needs: task, backbone, chat, demonstrations. All checks."""

import contextlib
import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import jax.numpy as jnp
import numpy as np

from jaxrl_guided.backbones.chat import NANO_TEMPLATE, Chat, first_messages
from jaxrl_guided.backbones.config import BackboneError
from jaxrl_guided.backbones.load import Backbone, load_backbone
from jaxrl_guided.backbones.params import init_params
from jaxrl_guided.backbones.tokenizer import train_tokenizer
from jaxrl_guided.envs.text.source import TaskSource
from jaxrl_guided.envs.text.task import TextTask, awaited
from jaxrl_guided.learners.language.batches import Sample
from jaxrl_guided.learners.language.demonstrations import Demonstration, demonstrate, encode
from jaxrl_guided.learners.language.run_config import (
    SCRATCH,
    LanguageRunConfig,
    ScratchConfig,
)
from jaxrl_guided.learners.language.seeds import Seeds, check_whole, divide
from jaxrl_guided.runtime.checkpoint import content_hash
from jaxrl_guided.runtime.errors import UserError, validation

_INIT_STD = 0.05
"""Of random weights: at the decoder's own .02 small ones learn slowly at first."""


@dataclasses.dataclass(frozen=True)
class LanguageJob:
    """A run that can begin.

    Attributes:
      config: of the run.
      backbone: as it starts.
      chat: of the backbone.
      seeds: of the task.
      samples: demonstrations to imitate; none without warm-up.
      demonstrated: share of them that succeed, or None.
    """

    config: LanguageRunConfig
    backbone: Backbone
    chat: Chat
    seeds: Seeds
    samples: list[Sample]
    demonstrated: float | None

    @functools.cached_property
    def origin(self) -> Mapping[str, str]:
        """Hashes of what the run began with, by part: a resumed run must begin with the same."""
        backbone = self.backbone
        assert backbone.template is not None  # else there were no chat
        texts = {
            "tokenizer": backbone.tokenizer.backend.to_str(),
            "template": backbone.template.source,
        }
        hashes = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
        return {"weights": content_hash(backbone.params), **hashes}

    def make_source(self) -> TaskSource:
        """What makes its tasks."""
        return TaskSource(self.config.task, self.config.options, self.config.workers)


def prepare(config: LanguageRunConfig) -> LanguageJob:
    """Loads and checks everything.

    Raises:
      UserError: the task or an option of it is unknown, the backbone cannot be loaded or has no
        chat template, or a conversation does not fit.
    """
    with (
        validation(),
        contextlib.closing(TaskSource(config.task, config.options)) as source,
        contextlib.closing(source.make()) as task,
    ):
        seeds = divide(task.instances, source.labels)
        _check_seeds(config, seeds)
        shown: list[Demonstration] = []
        if config.warm_up.updates:
            chosen, parts = seeds.shown[: config.warm_up.episodes], len(source.parts)
            for number in range(parts):
                shown += demonstrate(task, source.player(number), chosen[number::parts])
        backbone = make_backbone(config, shown, config.seed)
        assert backbone.template is not None  # it was asked for
        chat = Chat(backbone.tokenizer, backbone.template)
        samples = [encode(chat, backbone.tokenizer, episode) for episode in shown]
        _check_lengths(config, chat, task, samples, seeds)
    demonstrated = float(np.mean([episode.success for episode in shown])) if shown else None
    return LanguageJob(config, backbone, chat, seeds, samples, demonstrated)


def _check_seeds(config: LanguageRunConfig, seeds: Seeds) -> None:
    if not seeds.judged:
        raise UserError(
            f"task {config.task} must have at least 8 instances, an eighth of which is kept for "
            f"evaluation; it has {seeds.played.stop}"
        )
    judged, played = config.judge.episodes, config.improve.instances
    check_whole(seeds.parts, {"improve.instances": played, "judge.episodes": judged})
    for name, wanted, there in (
        ("judge.episodes", config.judge.episodes, len(seeds.judged)),
        ("warm_up.episodes", config.warm_up.episodes, len(seeds.shown)),
    ):
        if wanted > there:
            raise UserError(f"{name} must be at most {there} with task {config.task}, not {wanted}")


class BackboneChoice(Protocol):
    """The part of a configuration that says which model it is; see `LanguageRunConfig`."""

    @property
    def backbone(self) -> str: ...
    @property
    def scratch(self) -> ScratchConfig: ...
    @property
    def num_layers(self) -> int | None: ...
    @property
    def finetune(self) -> str: ...
    @property
    def dtype(self) -> str: ...


def make_backbone(choice: BackboneChoice, shown: Iterable[Demonstration], seed: int) -> Backbone:
    """The one that is named, or random weights and words learned from demonstrations.

    Raises:
      BackboneError: it cannot be loaded, or has no chat template.
      ValueError: too few ids for a tokenizer.
    """
    if choice.backbone == SCRATCH:
        texts = [text for episode in shown for text in episode.texts]
        roles = "system\nuser\nassistant\ntool\n"  # the template's own words
        tokenizer = train_tokenizer([*texts, roles], choice.scratch.vocab_size)
        shape = choice.scratch.backbone(tokenizer.vocab_size)
        return Backbone(shape, init_params(shape, seed, _INIT_STD), tokenizer, NANO_TEMPLATE)
    fixed = choice.finetune == "lora"  # what is trained stays in float32
    dtype = jnp.dtype(choice.dtype if fixed else "float32")
    backbone = load_backbone(choice.backbone, choice.num_layers, dtype)
    if backbone.template is None:
        raise BackboneError(
            f"backbone {choice.backbone} has no chat template (chat_template.jinja, or "
            "chat_template in tokenizer_config.json): take an instruct model or add one"
        )
    return backbone


def first_openings(chat: Chat, task: TextTask, seeds: Seeds) -> list[Sequence[int]]:
    """Ids with which the first judged episode begins, of each task of a mix."""
    found: list[Sequence[int]] = []
    for seed in seeds.judged[: len(seeds.parts)]:
        opening = awaited(task.reset(seed))
        found.append(chat.opening(first_messages(opening.system, opening.observation)))
    return found


def _check_lengths(
    config: LanguageRunConfig, chat: Chat, task: TextTask, samples: list[Sample], seeds: Seeds
) -> None:
    """Raises UserError if demonstrations, or an opening and an answer, are too long."""
    first = max(map(len, first_openings(chat, task, seeds)))
    needed = max([first + config.max_tokens, *(len(sample.tokens) for sample in samples)])
    if needed > config.max_length:
        raise UserError(
            f"max_length must be at least {needed} for the conversations of task {config.task}, "
            f"not {config.max_length}"
        )
