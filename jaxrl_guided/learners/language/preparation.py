"""From a configuration to what a run needs: task, backbone, chat, demonstrations. All checks."""

import contextlib
import dataclasses

import jax.numpy as jnp
import numpy as np

from jaxrl_guided.backbones.chat import NANO_TEMPLATE, Chat, first_messages
from jaxrl_guided.backbones.load import Backbone, load_backbone
from jaxrl_guided.backbones.params import init_params
from jaxrl_guided.backbones.tokenizer import train_tokenizer
from jaxrl_guided.envs.text.registry import make_demonstrator, make_text_task
from jaxrl_guided.envs.text.task import TextTask
from jaxrl_guided.learners.language.batches import Sample
from jaxrl_guided.learners.language.demonstrations import Demonstration, demonstrate, encode
from jaxrl_guided.learners.language.run_config import SCRATCH, LanguageRunConfig
from jaxrl_guided.runtime.errors import UserError, validation
from jaxrl_guided.runtime.options import parse_options

_INIT_STD = 0.05
"""Of random weights: at the decoder's own .02 small ones learn slowly at first."""


@dataclasses.dataclass(frozen=True)
class Seeds:
    """Seeds of a task, divided so that nothing is judged on what it has learned from.

    Attributes:
      judged: for evaluation, the first eighth.
      shown: for demonstrations, the second.
      played: for training, the rest.
    """

    judged: range
    shown: range
    played: range


def divide(instances: int) -> Seeds:
    """Divides the seeds of a task."""
    part = instances // 8
    return Seeds(range(part), range(part, 2 * part), range(2 * part, instances))


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

    def make_task(self) -> TextTask:
        """One more task."""
        return make_text_task(self.config.task, **parse_options(self.config.options, {}))


def prepare(config: LanguageRunConfig) -> LanguageJob:
    """Loads and checks everything.

    Raises:
      UserError: the task or an option of it is unknown, the backbone cannot be loaded or has no
        chat template, or a conversation does not fit.
    """
    with validation():
        try:
            task = make_text_task(config.task, **parse_options(config.options, {}))
        except TypeError as error:
            raise UserError(f"options: {error}") from error
        with contextlib.closing(task):
            seeds = divide(task.instances)
            _check_seeds(config, seeds)
            shown: list[Demonstration] = []
            if config.warm_up.updates:
                player = make_demonstrator(config.task)
                shown = demonstrate(task, player, seeds.shown[: config.warm_up.episodes])
            backbone = _backbone(config, shown)
            if backbone.template is None:
                raise UserError(
                    f"backbone {config.backbone} has no chat template (chat_template.jinja, or "
                    "chat_template in tokenizer_config.json): take an instruct model or add one"
                )
            chat = Chat(backbone.tokenizer, backbone.template)
            samples = [encode(chat, backbone.tokenizer, episode) for episode in shown]
            _check_lengths(config, chat, task, samples, seeds)
    demonstrated = float(np.mean([episode.success for episode in shown])) if shown else None
    return LanguageJob(config, backbone, chat, seeds, samples, demonstrated)


def _check_seeds(config: LanguageRunConfig, seeds: Seeds) -> None:
    for name, wanted, there in (
        ("judge.episodes", config.judge.episodes, len(seeds.judged)),
        ("warm_up.episodes", config.warm_up.episodes, len(seeds.shown)),
    ):
        if wanted > there:
            raise UserError(f"{name} must be at most {there} with task {config.task}, not {wanted}")


def _backbone(config: LanguageRunConfig, shown: list[Demonstration]) -> Backbone:
    """The one that was named, or random weights and words learned from demonstrations."""
    if config.backbone != SCRATCH:
        fixed = config.finetune == "lora"  # what is trained stays in float32
        dtype = jnp.dtype(config.dtype if fixed else "float32")
        return load_backbone(config.backbone, config.num_layers, dtype)
    texts = [text for episode in shown for text in episode.texts]
    roles = "system\nuser\nassistant\ntool\n"  # the template's own words
    tokenizer = train_tokenizer([*texts, roles], config.scratch.vocab_size)
    shape = config.scratch.backbone(tokenizer.vocab_size)
    params = init_params(shape, config.seed, _INIT_STD)
    return Backbone(shape, params, tokenizer, NANO_TEMPLATE)


def _check_lengths(
    config: LanguageRunConfig, chat: Chat, task: TextTask, samples: list[Sample], seeds: Seeds
) -> None:
    """Raises UserError if demonstrations, or an opening and an answer, are too long."""
    opening = task.reset(seeds.judged[0])
    first = chat.opening(first_messages(opening.system, opening.observation))
    needed = max([len(first) + config.max_tokens, *(len(sample.tokens) for sample in samples)])
    if needed > config.max_length:
        raise UserError(
            f"max_length must be at least {needed} for the conversations of task {config.task}, "
            f"not {config.max_length}"
        )
