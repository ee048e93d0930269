"""The actor's episodes of a step: which are guided, what they are shown, who learns from them."""

import dataclasses
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np

from jaxrl_guided.complementary.advised import Advised, Ask
from jaxrl_guided.complementary.bank import Entry
from jaxrl_guided.complementary.credit import FREE, GUIDED
from jaxrl_guided.complementary.extractor import Experience
from jaxrl_guided.complementary.retrieval import Question, Retriever
from jaxrl_guided.envs.text.task import Opening, TextTask, changed
from jaxrl_guided.learners.language.rollouts import Episode, Start
from jaxrl_guided.learners.language.seeds import Seeds
from jaxrl_guided.runtime.ranges import COUNT, NOT_NEGATIVE, POSITIVE, check, check_choice

Placebo = Literal["none", "other", "shuffled"]
EntryPer = Literal["rollout", "group"]


@dataclasses.dataclass(frozen=True)
class ActorConfig:
    """Episodes of a step.

    Attributes:
      instances: episodes of the task.
      rollouts: K, times that each is played.
      guided: of these, that are shown experience.
      temperature: of the draws.
      entry_per: whether each guided rollout retrieves for itself, or a group shares its entries.
      placebo: `other` shows any entry in place of the one that was found, `shuffled` the one that
        was found with its words in random order; for comparison.
      questions: that a guided episode may ask the extractor; 0: none.
      max_staleness: versions of the weights that an episode may be behind when it is learned from.
      warm_up: steps that fill the bank, in which the actor is not trained and nothing is shown.
    """

    instances: int = 16
    rollouts: int = 8
    guided: int = 4
    temperature: float = 0.99
    entry_per: EntryPer = "rollout"
    placebo: Placebo = "none"
    questions: int = 2
    max_staleness: int = 4
    warm_up: int = 5

    def __post_init__(self) -> None:
        check(self, COUNT, "instances", "rollouts", part="actor.")
        check(self, POSITIVE, "temperature", part="actor.")
        names = ("guided", "questions", "max_staleness", "warm_up")
        check(self, NOT_NEGATIVE, *names, part="actor.")
        check_choice(self, "entry_per", ("rollout", "group"), part="actor.")
        check_choice(self, "placebo", ("none", "other", "shuffled"), part="actor.")
        if self.guided > self.rollouts:
            raise ValueError(
                f"actor.guided must be at most actor.rollouts {self.rollouts}, not {self.guided}"
            )
        if 1 in (self.guided, self.rollouts - self.guided):
            raise ValueError(
                f"actor.guided must leave no half of one rollout, which has nothing to be compared "
                f"with: not {self.guided} of {self.rollouts}"
            )


def starts_of(
    config: ActorConfig, seed: int, step: int, seeds: Seeds, guide: bool = True
) -> list[Start]:
    """The episodes of a step; the same for the same step, whatever was played before.

    Args:
      seed: of the run.
      seeds: of the task, that are drawn from.
      guide: whether there is experience to show; else all rollouts are free.
    """
    chosen = seeds.draw(np.random.default_rng([seed, step]), config.instances)
    guided = config.guided if guide else 0
    return [
        Start(
            instance,
            draws=(seed << 64) + (step << 32) + group * config.rollouts + rollout,
            temperature=config.temperature,
            group=group,
            part=GUIDED if rollout < guided else FREE,
        )
        for group, instance in enumerate(chosen)
        for rollout in range(config.rollouts)
    ]


def fresh(
    episodes: Iterable[Episode], version: int, max_staleness: int
) -> tuple[list[Episode], int]:
    """Episodes that are not too far behind the weights, and how many are."""
    found = list(episodes)
    kept = [episode for episode in found if version - episode.version <= max_staleness]
    return kept, len(found) - len(kept)


class Guide:
    """Shows experience to guided episodes as they begin, and remembers to which.

    Args:
      config: of the actor.
      retrieve: finds entries; None: nothing is shown.
      ask: a question of an episode (text, description, number, scope) to the extractor, or None.
      scope: of what is asked and learned, by the episode's seed.
      seed: of the placebos.

    Attributes:
      step: updates of the actor so far; the owner sets it.
      number: of the next episode.
    """

    def __init__(
        self,
        config: ActorConfig,
        retrieve: Retriever | None,
        ask: Callable[[str, str, int, str], Callable[[], str | None]] | None = None,
        scope: Callable[[int], str] = lambda seed: "",
        seed: int = 0,
    ) -> None:
        self._config, self._retrieve, self._ask_extractor = config, retrieve, ask
        self._scope, self._seed = scope, seed
        self.step = self.number = 0
        self._numbers: dict[Start, int] = {}
        self._shown: dict[int, list[Entry]] = {}
        self._of_group: dict[int, list[Entry]] = {}

    def begin(self, start: Start, task: TextTask) -> Opening:
        """Resets an `Advised` task for `Rollouts`, with help if the episode is guided."""
        assert isinstance(task, Advised)
        number = self._numbers[start] = self.number
        self.number += 1
        self._shown[number] = []

        def helped(opening: Opening) -> Opening:
            entries = self._entries(start, opening, number)
            self._shown[number] = entries
            ask = self._ask(start, opening, number)
            return task.help(opening, self._as_shown(entries, number), ask)

        opening = task.reset(start.seed)
        guided = start.part == GUIDED and self._retrieve is not None
        return changed(opening, helped) if guided else opening

    def ended(self, episode: Episode) -> Experience:
        """What the extractor gets of a finished episode; once."""
        number = self._numbers.pop(episode.start)
        scope = self._scope(episode.start.seed)
        return Experience(episode, number, scope, self._shown.pop(number))

    def next_step(self, step: int) -> None:
        """Another step of the actor begins."""
        self.step = step
        self._of_group.clear()

    def _entries(self, start: Start, opening: Opening, number: int) -> list[Entry]:
        assert self._retrieve is not None
        if self._config.entry_per == "group" and start.group in self._of_group:
            return self._of_group[start.group]
        question = Question(opening.description, number, self._scope(start.seed))
        (found,) = self._retrieve([question], self.step)
        if self._config.placebo == "other" and found:
            found = self._random(number).sample(self._retrieve.entries(), len(found))
        self._of_group[start.group] = found
        return found

    def _as_shown(self, entries: Sequence[Entry], number: int) -> list[Entry]:
        if self._config.placebo != "shuffled":
            return list(entries)
        draw = self._random(number)
        return [
            dataclasses.replace(entry, content=_shuffled(entry.content, draw)) for entry in entries
        ]

    def _ask(self, start: Start, opening: Opening, number: int) -> Ask | None:
        ask = self._ask_extractor
        if ask is None or not self._config.questions:
            return None
        return lambda text: ask(text, opening.description, number, self._scope(start.seed))

    def _random(self, number: int) -> random.Random:
        return random.Random(f"{self._seed} {number}")


def _shuffled(text: str, draw: random.Random) -> str:
    words = text.split()
    draw.shuffle(words)
    return " ".join(words)
