"""What is compiled of one model of a run, and its warm-up."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import jax
import numpy as np
from etils import epath

from jaxrl_guided.backbones.params import Params
from jaxrl_guided.backbones.sampler import Sampler
from jaxrl_guided.backbones.turns import Rules
from jaxrl_guided.complementary.dual import LanguageModel
from jaxrl_guided.complementary.preparation import Prepared
from jaxrl_guided.envs.text.task import Opening, TextTask
from jaxrl_guided.learners.language.export import save_model
from jaxrl_guided.learners.language.hand_over import HandOver
from jaxrl_guided.learners.language.learner import (
    LanguageLearner,
    LanguageLearnerConfig,
    LanguageState,
    init_language,
    restart,
)
from jaxrl_guided.learners.language.rollouts import Rollouts, Start
from jaxrl_guided.runtime.checkpoint import content_hash
from jaxrl_guided.runtime.config import config_hash, to_dict
from jaxrl_guided.runtime.files import PathLike
from jaxrl_guided.runtime.kept import kept

T = TypeVar("T")


class ModelPrograms:
    """A model's programs: for imitation, for learning, and to be sampled from.

    Args:
      prepared: the model.
      learning: how it learns after its warm-up.
      device: where it is; None: JAX's first one.

    Raises:
      ValueError: a setting of a learner or sampler does not fit.
    """

    def __init__(
        self,
        prepared: Prepared,
        learning: LanguageLearnerConfig,
        device: jax.Device | None = None,
    ) -> None:
        backbone = prepared.backbone
        self.prepared, self._learning, self._device = prepared, learning, device
        self._imitating = prepared.config.imitation(backbone.config)
        base: Params | None = self._placed(backbone.params) if learning.lora else None
        self._teacher = LanguageLearner(self._imitating, base)
        self._learner = LanguageLearner(learning, base)
        self._hand_over = HandOver(learning, base)

    @property
    def updates(self) -> int:
        """Of the warm-up."""
        return self.prepared.config.warm_up.updates

    def start(self, learned: bool = False) -> LanguageState:
        """New adapters or the backbone's weights, before the warm-up or after it."""
        key = jax.random.key(0)
        state = init_language(self._imitating, self.prepared.backbone.params, key)
        return self._placed(restart(self._learning, state) if learned else state)

    def _placed(self, tree: T) -> T:
        return tree if self._device is None else jax.device_put(tree, self._device)

    def warm_up(
        self, seed: Sequence[int], told: Callable[[int], None], cache: PathLike | None = None
    ) -> LanguageState:
        """Imitates the lessons, unless a run that began alike has kept what comes of it."""
        if cache is None or not self.updates:
            return restart(self._learning, self._imitated(seed, told))

        def imitated() -> tuple[Params, jax.Array]:
            state = self._imitated(seed, told)
            return state.trained, state.step

        begun, samples = self.start(), self.prepared.samples
        content = content_hash([begun.trained, [(s.tokens, s.spoken) for s in samples]])
        name = config_hash([content, repr(self._imitating), to_dict(self.prepared.config), *seed])
        like = begun.trained, begun.step
        trained, step = kept(Path(cache) / f"{name}.npz", like, imitated)
        told(self.updates)
        state = LanguageState(trained, begun.optimizer, step)
        return restart(self._learning, self._placed(state))

    def _imitated(self, seed: Sequence[int], told: Callable[[int], None]) -> LanguageState:
        random, samples = np.random.default_rng(seed), self.prepared.samples
        state = self.start()
        for number in range(self.updates):
            chosen = random.integers(len(samples), size=self.prepared.config.warm_up.batch)
            state, _ = self._teacher.update(state, [samples[i] for i in chosen])
            told(number + 1)
        return state

    def model(self, state: LanguageState) -> LanguageModel:
        """It, with a state that learns."""
        minibatches = self.prepared.config.minibatches
        return LanguageModel(self._learner, self._hand_over, state, minibatches)

    def rollouts(
        self,
        make_task: Callable[[], TextTask],
        begin: Callable[[Start, TextTask], Opening] | None = None,
    ) -> Rollouts:
        """Its slots."""
        config, prepared = self.prepared.config, self.prepared
        rules = Rules(
            prepared.backbone.config,
            size=config.max_length - 1,  # what was drawn last is never read
            max_tokens=config.max_tokens,
            stop_ids=prepared.chat.stop_ids,
            lora_scale=self._learning.lora_scale,
            compute_dtype=self._learning.compute_dtype,
        )
        sampler = Sampler(rules, config.slots, cache_dtype=self._learning.compute_dtype)
        return Rollouts(sampler, prepared.chat, prepared.backbone.tokenizer, make_task, begin)


def export(prepared: Prepared, state: LanguageState, root: epath.Path) -> None:
    """Writes a model as files that others read, see `save_model`."""
    config = prepared.config
    lora = config.lora if config.finetune == "lora" else None
    stop_ids = prepared.chat.stop_ids
    save_model(prepared.backbone, state.trained, root, lora, config.backbone, stop_ids)
