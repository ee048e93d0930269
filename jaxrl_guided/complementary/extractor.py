"""The experience extractor at work: what it is asked, what it says, what that does to the bank.

It never blocks: `begin` starts a few tokens in each of its slots, `finish` handles what has ended.
Questions of actors come first, because an episode waits for them; then a merge; then episodes.
"""

import dataclasses
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, Protocol

from jaxrl_guided.backbones.embedders import Embedder
from jaxrl_guided.backbones.turns import Weights
from jaxrl_guided.complementary import prompts
from jaxrl_guided.complementary.bank import Bank, Entry
from jaxrl_guided.complementary.bank.records import NOBODY
from jaxrl_guided.complementary.consolidation import (
    MergeConfig,
    MergePass,
    distil_text,
    write_of,
)
from jaxrl_guided.complementary.credit import GUIDED, CreditBuffer, Generation, Outcome, credit
from jaxrl_guided.complementary.operations import Rejected, parse
from jaxrl_guided.complementary.requests import Requests
from jaxrl_guided.complementary.retrieval import Question, Retriever
from jaxrl_guided.learners.language.rollouts import Episode, Start
from jaxrl_guided.runtime.ranges import COUNT, POSITIVE, check, check_choice

Full = Literal["drop", "block"]
Distilled = Literal["all", "guided"]

_SPOKEN = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
NO_ADVICE = "No advice."


@dataclasses.dataclass(frozen=True)
class ExtractorConfig:
    """How the extractor works.

    Attributes:
      distil: episodes that it reads: `all`, or those that were shown something.
      queue: episodes that may wait.
      full: what a full queue does: `drop` the oldest, counted, or `block` the one who adds.
      most: operations of an answer.
      temperature: of its draws.
      compact: short prompts, for models that learn them from scratch.
      merge: periodic merge; None: never.
      by_task: entries are found and merged among those of their own task alone.
    """

    distil: Distilled = "all"
    queue: int = 256
    full: Full = "drop"
    most: int = 3
    temperature: float = 1.0
    compact: bool = False
    merge: MergeConfig | None = dataclasses.field(default_factory=MergeConfig)
    by_task: bool = False

    def __post_init__(self) -> None:
        check_choice(self, "distil", ("all", "guided"), part="extractor.")
        check_choice(self, "full", ("drop", "block"), part="extractor.")
        check(self, COUNT, "queue", "most", part="extractor.")
        check(self, POSITIVE, "temperature", part="extractor.")


class Playing(Protocol):
    """What plays episodes: `Rollouts`, of a task or of the `OneTurn`s of requests."""

    @property
    def busy(self) -> bool: ...

    def add(self, starts: Sequence[Start]) -> None: ...

    def begin(self, weights: Weights, version: int = 0, steps: int = 32) -> None: ...

    def finish(self) -> list[Episode]: ...


@dataclasses.dataclass(frozen=True)
class Experience:
    """A finished episode as the extractor gets it.

    Attributes:
      episode: as it was played.
      number: of the episode in the run; credit is by it.
      task: scope of what is learned.
      shown: entries that the actor was shown.
      credited: its outcome has been credited already, together with those of others.
    """

    episode: Episode
    number: int
    task: str = ""
    shown: Sequence[Entry] = ()
    credited: bool = False


@dataclasses.dataclass
class _Question:
    text: str
    description: str
    task: str
    number: int
    answer: str | None = None


@dataclasses.dataclass
class _Advice:
    """What the questions of an episode have used."""

    entries: list[Entry] = dataclasses.field(default_factory=list)
    generations: list[int] = dataclasses.field(default_factory=list)


class Extractor:
    """Reads episodes, merges the bank, answers questions.

    Args:
      config: how.
      answering: a language model's slots, used for nothing else.
      slots: how many there are; so much is asked at a time.
      requests: of these slots.
      bank: that is written.
      embed: of the bank's vectors.
      retriever: finds the entry that a question is answered with.
      buffer: gets its generations; None: they are not learned from.
      seed: of its draws.

    Attributes:
      counts: answers by kind, operations as `operation …`, rejections as `rejected …`, and
        `dropped`, `late` (an entry had ended), `too long`.
      tokens: that it has said.
      step: updates of the actor so far; the owner sets it.
    """

    def __init__(
        self,
        config: ExtractorConfig,
        answering: Playing,
        slots: int,
        requests: Requests,
        bank: Bank,
        embed: Embedder,
        retriever: Retriever,
        buffer: CreditBuffer | None = None,
        seed: int = 0,
    ) -> None:
        self.config, self.counts, self.step = config, Counter[str](), 0
        self.tokens = 0
        self._answering, self._slots, self._requests, self._bank = answering, slots, requests, bank
        self._embed, self._retriever, self._buffer, self._seed = embed, retriever, buffer, seed
        self._episodes: deque[Experience] = deque()
        self._questions: deque[_Question] = deque()
        self._merge: MergePass | None = None
        self._merging = False  # a chunk is being looked at
        self._asked: dict[int, Callable[[str, int], None]] = {}
        self._advice: dict[int, _Advice] = {}  # by episode

    @property
    def busy(self) -> bool:
        """Something waits or is being answered."""
        waiting = self._episodes or self._questions or self._asked
        return bool(waiting or self._merge is not None)

    @property
    def full(self) -> bool:
        """No episode may be added before more are read."""
        return self.config.full == "block" and len(self._episodes) >= self.config.queue

    def add(self, experience: Experience) -> None:
        """An episode has ended: credits what it used unless that was done, and keeps it.

        Raises:
          StorageError: the credit was not written down.
        """
        if not experience.credited:
            self.credit([self._outcome(experience)])
        if self.config.distil == "guided" and not experience.shown:
            return
        if len(self._episodes) >= self.config.queue:
            self._episodes.popleft()
            self.counts["dropped"] += 1
        self._episodes.append(experience)

    def _outcome(self, experience: Experience) -> Outcome:
        advice = self._advice.pop(experience.number, _Advice())
        entries, start = (*experience.shown, *advice.entries), experience.episode.start
        return Outcome(
            experience.number,
            experience.episode.success,
            entries,
            advice.generations,
            guided=start.part == GUIDED,
            group=start.group,
        )

    def credit(self, outcomes: Iterable[Outcome]) -> None:
        """Outcomes of episodes go to what they used.

        Raises:
          StorageError: they were not written down.
        """
        credit(self._bank, self._buffer, outcomes, self.step)

    def ask(
        self, text: str, description: str, number: int, task: str = ""
    ) -> Callable[[], str | None]:
        """A question of episode `number`; what is returned gives the answer once there is one."""
        question = _Question(text, description, task, number)
        self._questions.append(question)
        return lambda: question.answer

    def begin_merge(self) -> None:
        """Merges the bank as it is now, beside other work; one merge at a time."""
        if self._merge is None and self.config.merge is not None:
            self._merge = MergePass(self.config.merge, self._bank, self.config.by_task)

    def begin(self, weights: Weights, version: int = 0, steps: int = 32) -> None:
        """Starts up to `steps` tokens in each slot; the device works on while the host goes on."""
        self._submit()
        self._answering.begin(weights, version, steps)

    def finish(self) -> int:
        """Waits for what was begun, and does what answers that ended say; returns their number.

        Raises:
          StorageError: the bank cannot be written.
        """
        ended = self._answering.finish()
        for episode in ended:
            self._requests.texts.pop(episode.start.seed)
            self.tokens += int(episode.spoken.sum())
            handle = self._asked.pop(episode.start.seed)
            if not episode.turns:
                self.counts["too long"] += 1
                handle("", NOBODY)
                continue
            handle(episode.messages[-1][1], self._keep(episode))
        return len(ended)

    def _submit(self) -> None:
        """Gives the model what waits, the most urgent first, as far as there are slots."""
        while len(self._asked) < self._slots:
            if self._questions:
                self._submit_question(self._questions.popleft())
            elif self._merge is not None and not self._merging:
                self._submit_chunk(self._merge)
            elif self._episodes:
                self._submit_episode(self._episodes.popleft())
            else:
                return

    def _request(self, text: str, handle: Callable[[str, int], None]) -> None:
        number = self._requests.add(text)
        self._asked[number] = handle
        draws = (self._seed << 64) + number
        self._answering.add([Start(number, draws, self.config.temperature)])

    def _keep(self, episode: Episode) -> int:
        if self._buffer is None:
            return NOBODY
        temperature = episode.start.temperature
        return self._buffer.add(
            Generation(episode.tokens, episode.spoken, episode.log_probs, temperature)
        )

    def _submit_episode(self, experience: Experience) -> None:
        episode, shown = experience.episode, experience.shown
        text = distil_text(
            episode.description,
            episode.success,
            episode.messages,
            [entry.text for entry in shown],
            self.config.most,
            self.config.compact,
        )

        def handle(output: str, generation: int) -> None:
            self.counts["distilled"] += 1
            try:
                operations = parse(output, len(shown), most=self.config.most)
            except Rejected as rejected:
                self.counts[f"rejected {rejected.reason}"] += 1
                return
            self.counts.update(f"operation {operation.kind}" for operation in operations)
            self.counts["operation return"] += not operations
            write = write_of(
                operations, shown, self._embed, generation, experience.task, experience.number
            )
            if operations and self._bank.write(write, step=self.step) is None:
                self.counts["late"] += 1

        self._request(text, handle)

    def _submit_chunk(self, merge: MergePass) -> None:
        chunk = merge.next_chunk()
        if not chunk:
            self._merge = None
            return
        self._merging = True
        entries = prompts.numbered([entry.text for entry in chunk])

        def handle(output: str, generation: int) -> None:
            self._merging = False
            self.counts["merged"] += 1
            try:
                if not merge.apply(chunk, output, self._embed, generation, self.step):
                    self.counts["late"] += 1
            except Rejected as rejected:
                self.counts[f"rejected {rejected.reason}"] += 1

        self._request(prompts.render("merge", self.config.compact, entries=entries), handle)

    def _submit_question(self, question: _Question) -> None:
        asked = Question(question.text, question.number, question.task)
        (found,) = self._retriever([asked], self.step)
        advice = self._advice.setdefault(question.number, _Advice())
        advice.entries.extend(found)
        text = prompts.render(
            "ask",
            self.config.compact,
            description=question.description,
            question=question.text,
            entry=found[0].text if found else "none",
        )

        def handle(output: str, generation: int) -> None:
            self.counts["answered"] += 1
            said = _SPOKEN.search(output)
            question.answer = said[1].strip() if said else NO_ADVICE
            if said is None:
                self.counts["rejected no answer"] += 1
            advice.generations.append(generation)

        self._request(text, handle)
