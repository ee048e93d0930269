"""A prepared run of Complementary RL at work: its two models, the bank, steps and judgements."""

from collections.abc import Callable
from typing import Any

import jax

from jaxrl_guided.complementary.actor import Guide
from jaxrl_guided.complementary.bank import Bank
from jaxrl_guided.complementary.bank.bank import Snapshot
from jaxrl_guided.complementary.credit import FREE, GUIDED, CreditBuffer
from jaxrl_guided.complementary.distant import DistantExtractor
from jaxrl_guided.complementary.dual import Background, DualLoop, LanguageModel, Model
from jaxrl_guided.complementary.extractor import Extractor, Playing
from jaxrl_guided.complementary.model_programs import ModelPrograms
from jaxrl_guided.complementary.preparation import ComplementaryJob
from jaxrl_guided.complementary.requests import Requests
from jaxrl_guided.complementary.retrieval import Retriever
from jaxrl_guided.envs.text.task import Opening, TextTask
from jaxrl_guided.learners.language.learner import LanguageState
from jaxrl_guided.learners.language.rollouts import Episode, Start, Watch
from jaxrl_guided.runtime.files import PathLike
from jaxrl_guided.runtime.post import Line

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
      line: to the program that has the extractor's model, if the job has none.

    Attributes:
      playing: the actor's slots.
      distant: the extractor's model, if it is elsewhere.

    Raises:
      ValueError: a setting of a learner or sampler does not fit.
    """

    def __init__(
        self,
        job: ComplementaryJob,
        extractor_device: jax.Device | None = None,
        warm_cache: PathLike | None = None,
        line: Line | None = None,
    ) -> None:
        self.job, config = job, job.config
        self._warm_cache = warm_cache
        self._requests = Requests()
        self._guide: Guide | None = None  # whose notes an episode is shown
        self._acting = ModelPrograms(job.actor, config.actor_learner(job.actor.backbone.config))
        self._source = job.make_source()
        self.playing = self._acting.rollouts(lambda: job.advised(self._source), self._begin)
        self.distant = None if line is None else DistantExtractor(line, self._requests)
        self._writing: ModelPrograms | None = None
        if job.extractor is not None:
            learner = config.extractor_learner(job.extractor.backbone.config)
            self._writing = ModelPrograms(job.extractor, learner, extractor_device)
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
        models = {name: self._models()[name].model(state) for name, state in states.items()}
        retrieve = background = extractor = None
        if bank is not None:
            retrieve = Retriever(config.retrieval, job.embed, bank)
            kept = buffer if config.loop.train_extractor else None
            answering, scribe = self._scribe(models)
            extractor = Extractor(
                config.extractor,
                answering,
                config.extractor_model.slots,
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
            models["actor"],
            background,
        )
        return Course(self, loop, guide, models, extractor, background, bank, buffer)

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

    def _scribe(self, models: dict[str, LanguageModel]) -> tuple[Playing, Model]:
        """Slots and weights of the extractor."""
        if self.distant is not None:
            return self.distant, self.distant
        return self._answering, models["extractor"]

    def _models(self) -> dict[str, ModelPrograms]:
        models = (self._acting, self._writing)
        return {name: m for name, m in zip(_MODELS, models, strict=True) if m is not None}

    def _begin(self, start: Start, task: TextTask) -> Opening:
        assert self._guide is not None
        return self._guide.begin(start, task)


class Course:
    """A run that goes on: steps, and what a checkpoint holds.

    Attributes:
      loop, guide, playing, extractor, bank, buffer: its parts; without experience there is neither
        extractor nor bank.
      models: by name; without the extractor's if that is elsewhere.
    """

    def __init__(
        self,
        run: ComplementaryRun,
        loop: DualLoop,
        guide: Guide,
        models: dict[str, LanguageModel],
        extractor: Extractor | None,
        background: Background | None,
        bank: Bank | None,
        buffer: CreditBuffer,
    ) -> None:
        self.loop, self.guide, self.models = loop, guide, models
        self.extractor, self.bank, self.buffer = extractor, bank, buffer
        self._run, self._background, self.playing = run, background, run.playing
        run.use(guide)

    def step(self, number: int, watch: Watch | None = None) -> dict[str, float]:
        """See `DualLoop.step`."""
        return self.loop.step(number, watch)

    def judge(self, step: int, watch: Watch | None = None) -> dict[str, list[Episode]]:
        """See `ComplementaryRun.judge`."""
        snapshot = None if self.bank is None else self.bank.snapshot()
        return self._run.judge(self.models["actor"], snapshot, step, watch)

    def drain(self) -> dict[str, float]:
        """The extractor finishes what it has, so that a checkpoint need not hold it."""
        return {} if self._background is None else self._background.drain()

    def states(self) -> dict[str, LanguageState]:
        """Of the models, by name."""
        return {name: model.state for name, model in self.models.items()}

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
