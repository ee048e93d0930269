"""The program in which the extractor's model draws and learns, for an actor that is elsewhere."""

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from jaxrl_guided.complementary import letters
from jaxrl_guided.complementary.dual import LanguageModel
from jaxrl_guided.complementary.model_programs import ModelPrograms, export
from jaxrl_guided.complementary.pairs import join_pair
from jaxrl_guided.complementary.preparation import Prepared
from jaxrl_guided.complementary.requests import Requests
from jaxrl_guided.complementary.run_config import ComplementaryConfig
from jaxrl_guided.learners.language.batches import Sample
from jaxrl_guided.learners.language.journal import DivergenceCheck
from jaxrl_guided.learners.language.learner import LanguageState
from jaxrl_guided.runtime.checkpoint import Checkpointer
from jaxrl_guided.runtime.files import PathLike
from jaxrl_guided.runtime.metrics import MetricsWriter
from jaxrl_guided.runtime.post import Line, PeerGone
from jaxrl_guided.runtime.progress import ProgressBar
from jaxrl_guided.runtime.rundir import RunDir
from jaxrl_guided.runtime.signals import StopFlag, Stopped

_PAUSE = 0.005

_PLACE = 1
"""Of the extractor among the models: its warm-up draws as in a run of one program."""


class ExtractorProgram(AbstractContextManager["ExtractorProgram"]):
    """Reads letters, draws and learns; `turn` does a little of it.

    Args:
      config: of the run, with the settings of its arm.
      prepared: the extractor's model.
      line: to the actor's program.
      run: this program's own directory, which gets checkpoints, metrics and the model.
      stop: looked at in the warm-up.
      warm_cache: as of `ComplementaryRun`.

    Attributes:
      over: the run is finished.
      saved: step of the last checkpoint that was asked for.
      answers: requests that were answered.
    """

    def __init__(
        self,
        config: ComplementaryConfig,
        prepared: Prepared,
        line: Line,
        run: RunDir,
        stop: StopFlag,
        warm_cache: PathLike | None = None,
    ) -> None:
        self._config, self._line, self._run = config, line, run
        self._stop, self._warm_cache = stop, warm_cache
        learning = config.extractor_learner(prepared.backbone.config)
        self._programs = ModelPrograms(prepared, learning)
        self._checkpoints = Checkpointer(run.checkpoints, run.config)
        self._metrics: MetricsWriter | None = None
        self._check = DivergenceCheck("update of the extractor")
        self._prepared, self._requests = prepared, Requests()
        self._answering = self._programs.rollouts(self._requests.make_task)
        self._model: LanguageModel | None = None
        self._unsent: list[Any] = []
        self.over, self.saved, self.answers = False, 0, 0

    def turn(self) -> bool:
        """Reads what has come, and draws up to `loop.chunk` tokens; returns False if it was idle.

        Raises:
          PeerGone: the actor's program has ended.
          StorageError: a checkpoint cannot be written.
          UserError: there is no checkpoint of the step with which the actor goes on.
        """
        unsent, self._unsent = self._unsent, []
        read = self._line(unsent)
        for letter in read:
            self._read(letter)
        if self._answering.busy:
            assert self._model is not None
            weights, version = self._model.weights()
            if ended := self._answering.run(weights, version, self._config.loop.chunk):
                self._unsent.append(letters.Answered(ended))
                self.answers += len(ended)
                for episode in ended:
                    del self._requests.texts[episode.start.seed]
        return bool(read or self._unsent or self._answering.busy)

    def end(self) -> None:
        """Writes the model for others to read, and lets the actor end."""
        assert self._model is not None
        export(self._prepared, self._model.state, self._run.path / "extractor")
        self._line([letters.Ended()])

    def __exit__(self, *error: object) -> None:
        if self._metrics is not None:
            self._metrics.close()
        self._checkpoints.close()

    def _read(self, letter: Any) -> None:
        if isinstance(letter, letters.Begin):
            self._begin(letter)
            return
        assert self._model is not None  # a Begin comes first
        if isinstance(letter, letters.Asked):
            texts = zip(letter.starts, letter.texts, strict=True)
            self._requests.texts.update({start.seed: text for start, text in texts})
            self._answering.add(letter.starts)
        elif isinstance(letter, letters.Lessons):
            self._learn(self._model, letter.samples)
        elif isinstance(letter, letters.Save):
            self._checkpoints.save(letter.step, {"extractor": self._model.state})
            self.saved = letter.step
            self._unsent.append(letters.Saved(letter.step))
        elif isinstance(letter, letters.End):
            self.over = True

    def _begin(self, letter: letters.Begin) -> None:
        """As it was at a checkpoint, after which no other one is kept; at 0 after the warm-up."""
        join_pair(self._run, letter.pair)
        step = letter.step
        self._checkpoints.go_back(step)
        if step:
            template = {"extractor": self._programs.start(learned=True)}
            state = self._checkpoints.restore(template, step)[0]["extractor"]
        else:
            state = self._warmed()
        self.saved, self._model = step, self._programs.model(state)
        self._metrics = MetricsWriter(self._run.path, resume_step=int(state.step) or -1)
        self._unsent.append(letters.Begun())

    def _warmed(self) -> LanguageState:
        with ProgressBar("warm-up", self._programs.updates, unit="updates") as bar:

            def told(done: int) -> None:
                if self._stop.requested:
                    raise Stopped("nothing was saved yet: the same command begins anew")
                bar.update(done)

            return self._programs.warm_up([self._config.seed, _PLACE], told, self._warm_cache)

    def _learn(self, model: LanguageModel, samples: Sequence[Sample]) -> None:
        metrics, step = model.learn(samples), int(model.state.step)
        self._check(step, metrics.get("loss", 0.0), metrics.get("skipped", 0.0))
        assert self._metrics is not None
        self._metrics.write(step, metrics)


def serve(program: ExtractorProgram, steps: int, stop: StopFlag) -> None:
    """Serves an actor's program until its run of so many steps is finished.

    Raises:
      FloatingPointError: the extractor has diverged.
      Stopped: asked to stop.
      PeerGone, StorageError, UserError: see `ExtractorProgram.turn`.
    """
    print("at the actor's service", file=sys.stderr)
    with ProgressBar("saved with the actor's", steps) as bar:
        shown = -1
        while not program.over:
            idle = not program.turn()
            if stop.requested:
                raise Stopped("start both programs again to go on from the last checkpoint")
            if program.saved != shown:
                shown = program.saved
                bar.update(shown, answers=program.answers)
            if idle:
                time.sleep(_PAUSE)
    program.end()


@contextlib.contextmanager
def failures_told(line: Line) -> Iterator[None]:
    """Tells the actor's program why this one ends before the run does."""
    try:
        yield
    except PeerGone:
        raise
    except BaseException as error:
        with contextlib.suppress(PeerGone):
            line([letters.Failed(" ".join(str(error).split()) or type(error).__name__)])
        raise
