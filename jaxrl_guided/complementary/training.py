"""A prepared run of Complementary RL at work: its two models, the bank, steps and judgements."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from jaxrl_guided.backbones.params import Params
from jaxrl_guided.backbones.sampler import Sampler
from jaxrl_guided.backbones.turns import Rules
from jaxrl_guided.complementary.actor import FREE, GUIDED, Guide
from jaxrl_guided.complementary.bank import Bank
from jaxrl_guided.complementary.bank.bank import Snapshot
from jaxrl_guided.complementary.credit import CreditBuffer
from jaxrl_guided.complementary.dual import Background, DualLoop, LanguageModel
from jaxrl_guided.complementary.extractor import Extractor
from jaxrl_guided.complementary.preparation import ComplementaryJob, Prepared
from jaxrl_guided.complementary.requests import Requests
from jaxrl_guided.complementary.retrieval import Retriever
from jaxrl_guided.envs.text.task import Opening, TextTask
from jaxrl_guided.learners.language.hand_over import HandOver
from jaxrl_guided.learners.language.learner import (
    LanguageLearner,
    LanguageLearnerConfig,
    LanguageState,
    init_language,
    restart,
)
from jaxrl_guided.learners.language.rollouts import Episode, Rollouts, Start, Watch
from jaxrl_guided.runtime.checkpoint import content_hash
from jaxrl_guided.runtime.config import config_hash, to_dict
from jaxrl_guided.runtime.files import PathLike
from jaxrl_guided.runtime.kept import kept

T = TypeVar("T")
Progress = Callable[[int, int], None]
"""Told after each update of a warm-up how many there were, and of how many; may raise to stop."""

_MODELS = ("actor", "extractor")


class ComplementaryRun:
    """Programs and slots of both models. `open` gives it a bank; then steps can be made.

    Args:
      job: what is run.
      extractor_device: where the extractor's model is; beside the actor's by default.
      warm_cache: directory that keeps models after their warm-up: a run that begins alike takes
        them from there.

    Attributes:
      playing: the actor's slots.

    Raises:
      ValueError: a setting of a learner or sampler does not fit.
    """

    def __init__(
        self,
        job: ComplementaryJob,
        extractor_device: jax.Device | None = None,
        warm_cache: PathLike | None = None,
    ) -> None:
        self.job, config = job, job.config
        self._warm_cache = warm_cache
        self._requests = Requests()
        self._guide: Guide | None = None  # whose notes an episode is shown
        self._acting = _Model(job.actor, config.actor_learner(job.actor.backbone.config))
        self._source = job.make_source()
        self.playing = self._acting.rollouts(lambda: job.advised(self._source), self._begin)
        self._writing: _Model | None = None
        if job.extractor is not None:
            learner = config.extractor_learner(job.extractor.backbone.config)
            self._writing = _Model(job.extractor, learner, extractor_device)
            self._answering = self._writing.rollouts(self._requests.make_task)

    @property
    def warm_up_updates(self) -> int:
        """Of all models."""
        return sum(model.updates for model in self._models().values())

    def warm_up(self, progress: Progress | None = None) -> dict[str, LanguageState]:
        """Both models after imitation of their lessons."""
        models, total = self._models(), self.warm_up_updates
        states, done = {}, 0
        for place, (name, model) in enumerate(models.items()):
            seed = [self.job.config.seed, place]

            def told(updates: int, before: int = done) -> None:
                if progress is not None:
                    progress(before + updates, total)

            states[name] = model.warm_up(seed, told, self._warm_cache)
            done += model.updates
        return states

    def open(
        self, bank: Bank | None, states: dict[str, LanguageState], buffer: CreditBuffer
    ) -> "Course":
        """Begins or goes on.

        Args:
          bank: None without experience.
          states: of the models, by name.
          buffer: the extractor's; not used where it does not learn.
        """
        job, config = self.job, self.job.config
        actor = self._acting.model(states["actor"])
        retrieve = background = extractor = scribe = None
        if bank is not None and self._writing is not None:
            retrieve = Retriever(config.retrieval, job.embed, bank)
            scribe, learned = self._writing.model(states["extractor"]), buffer
            kept = learned if config.loop.train_extractor else None
            extractor = Extractor(
                config.extractor,
                self._answering,
                self._writing.prepared.config.slots,
                self._requests,
                bank,
                job.embed,
                retrieve,
                kept,
                config.seed,
            )
            background = Background(extractor, scribe, kept, config.loop.chunk)
        ask = None if extractor is None else extractor.ask
        guide = Guide(config.acting, retrieve, ask, job.seeds.part, config.seed)
        loop = DualLoop(
            config.loop,
            config.acting,
            config.improve,
            config.seed,
            job.seeds,
            self.playing,
            guide,
            actor,
            background,
        )
        return Course(self, loop, guide, actor, scribe, extractor, background, bank, buffer)

    def judge(
        self,
        model: LanguageModel,
        snapshot: Snapshot | None,
        step: int,
        watch: Watch | None = None,
    ) -> dict[str, list[Episode]]:
        """The episodes for evaluation `without` experience and, if there is a bank, `with` it.

        Nothing of them reaches bank or buffer; nobody answers questions.

        Args:
          step: of the actor, for what was retrieved a short while ago.
        """
        config = self.job.config
        sources: dict[str, Snapshot | None] = {"without": None}
        if snapshot is not None:
            sources["with"] = snapshot
        found = {}
        for name, source in sources.items():
            retrieve = None
            if source is not None:
                retrieve = Retriever(config.retrieval, self.job.embed, source)
            guide = Guide(config.acting, retrieve, None, self.job.seeds.part, config.seed)
            guide.next_step(step)
            part = FREE if retrieve is None else GUIDED
            starts = [
                Start(seed, draws=seed, temperature=config.acting.temperature, part=part)
                for seed in self.job.seeds.judged[: config.judge.episodes]
            ]
            with_guide, self._guide = self._guide, guide
            found[name] = self.playing.play(starts, *model.weights(), watch)
            self._guide = with_guide
        return found

    def use(self, guide: Guide) -> None:
        """Whose notes are shown from now on."""
        self._guide = guide

    @property
    def requests(self) -> Requests:
        """Those of the extractor."""
        return self._requests

    def templates(self) -> dict[str, LanguageState]:
        """States of the right shapes, to restore into."""
        return {name: model.start(learned=True) for name, model in self._models().items()}

    def close(self) -> None:
        """Closes the tasks."""
        self.playing.close()
        self._source.close()

    def _models(self) -> dict[str, "_Model"]:
        models = (self._acting, self._writing)
        return {name: m for name, m in zip(_MODELS, models, strict=True) if m is not None}

    def _begin(self, start: Start, task: TextTask) -> Opening:
        assert self._guide is not None
        return self._guide.begin(start, task)


class Course:
    """A run that goes on: steps, and what a checkpoint holds.

    Attributes:
      loop, guide, playing, actor, extractor, bank, buffer: its parts; without experience there is
        neither extractor nor bank.
      scribe: the extractor's model.
    """

    def __init__(
        self,
        run: ComplementaryRun,
        loop: DualLoop,
        guide: Guide,
        actor: LanguageModel,
        scribe: LanguageModel | None,
        extractor: Extractor | None,
        background: Background | None,
        bank: Bank | None,
        buffer: CreditBuffer,
    ) -> None:
        self.loop, self.guide, self.actor, self.scribe = loop, guide, actor, scribe
        self.extractor, self.bank, self.buffer = extractor, bank, buffer
        self._run, self._background, self.playing = run, background, run.playing
        run.use(guide)

    def step(self, number: int, watch: Watch | None = None) -> dict[str, float]:
        """See `DualLoop.step`."""
        return self.loop.step(number, watch)

    def judge(self, step: int, watch: Watch | None = None) -> dict[str, list[Episode]]:
        """See `ComplementaryRun.judge`."""
        snapshot = None if self.bank is None else self.bank.snapshot()
        return self._run.judge(self.actor, snapshot, step, watch)

    def drain(self) -> dict[str, float]:
        """The extractor finishes what it has, so that a checkpoint need not hold it."""
        return {} if self._background is None else self._background.drain()

    def states(self) -> dict[str, LanguageState]:
        """Of the models, by name."""
        models = (self.actor, self.scribe)
        return {name: m.state for name, m in zip(_MODELS, models, strict=True) if m is not None}

    def counters(self) -> dict[str, Any]:
        """What goes on counting, as JSON data."""
        found: dict[str, Any] = {"guide": self.guide.number, "requests": self._run.requests.next}
        if self.extractor is not None:
            found |= {"counts": dict(self.extractor.counts), "tokens": self.extractor.tokens}
        return found

    def go_on(self, counters: dict[str, Any]) -> None:
        """Counts on from what `counters` gave."""
        self.guide.number, self._run.requests.next = counters["guide"], counters["requests"]
        if self.extractor is not None:
            self.extractor.counts.update(counters["counts"])
            self.extractor.tokens = counters["tokens"]


class _Model:
    """A model's programs: for imitation, for learning, and to be sampled from."""

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
