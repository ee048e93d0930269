"""Episodes of text tasks played by a language model, each in a slot of the sampler.

No episode waits for another's answer: a slot whose answer is complete goes on with its own episode,
or begins the next one, while others are in the middle of theirs. Tasks are stepped one by one; one
that takes long answers `later` and keeps nobody waiting.
"""

import contextlib
import dataclasses
import functools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from jaxrl_guided.backbones.chat import Chat, Conversation, Message, first_messages
from jaxrl_guided.backbones.sampler import Completion, Request, Sampler
from jaxrl_guided.backbones.tokenizer import Tokenizer
from jaxrl_guided.backbones.turns import Weights
from jaxrl_guided.envs.text.task import Opening, Reply, Said, TextTask


@dataclasses.dataclass(frozen=True)
class Start:
    """An episode to be played.

    Attributes:
      seed: of the task.
      draws: of what the model says; with `seed` and the weights it decides the whole episode.
      temperature: 0 is greedy.
      group: rollouts that are compared with each other.
      part: see `Sample.part`.
    """

    seed: int
    draws: int
    temperature: float = 1.0
    group: int = 0
    part: int = 0


_PAUSE = 0.0005
"""Seconds to wait where all episodes wait for their tasks."""

End = Literal["terminated", "truncated", "turns", "room"]
"""Why an episode is over: by itself, by the task's limit, by `max_turns`, or its slot is full."""


@dataclasses.dataclass(frozen=True)
class Episode:
    """A finished episode.

    Attributes:
      start: what was asked for.
      description: of the task, in a line.
      messages: all that was said, roles `system`, `user`, `assistant` and `tool`.
      tokens, spoken, log_probs: `i32[T]`, `bool[T]`, `f32[T]`, the conversation as ids, as in
        `Sample`.
      rewards: sums by name.
      success: the task was solved.
      turns: answers; none if not even the opening had room.
      unread: answers that did nothing.
      end: why it is over.
      version: of the oldest weights that took part in it.
    """

    start: Start
    description: str
    messages: Sequence[tuple[str, str]]
    tokens: np.ndarray
    spoken: np.ndarray
    log_probs: np.ndarray
    rewards: dict[str, float]
    success: bool
    turns: int
    unread: int
    end: End
    version: int

    @property
    def total_reward(self) -> float:
        """The return: sum of all rewards."""
        return sum(self.rewards.values())


Watch = Callable[[int, int], None]
"""Told from time to time how many episodes have ended, and of how many; may raise to stop."""


class Rollouts:
    """Plays episodes in all slots of a sampler.

    Whatever is raised while episodes are played, by a task or otherwise, drops all that were not
    returned yet: what is played next is as in new slots.

    Args:
      sampler: its slots are used for nothing else.
      chat: of the same backbone.
      tokenizer: of the same backbone.
      make_task: one task a slot.
      begin: resets a task for an episode and returns what the agent is told; others may add to it.

    Raises:
      ValueError: the sampler does not stop where the chat's answers end, or cuts conversations.
    """

    def __init__(
        self,
        sampler: Sampler,
        chat: Chat,
        tokenizer: Tokenizer,
        make_task: Callable[[], TextTask],
        begin: Callable[[Start, TextTask], Opening] | None = None,
    ) -> None:
        if sampler.overlong != "error":
            raise ValueError(
                "rollouts end episodes that have no room; take a sampler with overlong='error'"
            )
        if missing := set(chat.stop_ids) - set(sampler.rules.stop_ids):
            raise ValueError(
                f"the sampler does not stop at the chat's ids {sorted(missing)}: give Rules "
                "stop_ids=chat.stop_ids"
            )
        self._sampler, self._chat, self._tokenizer = sampler, chat, tokenizer
        self._tasks = [make_task() for _ in range(sampler.rows)]
        self._reset = begin or (lambda start, task: task.reset(start.seed))
        self._queue: deque[Start] = deque()
        self._open: dict[int, _Open] = {}
        self._awaited: dict[int, Callable[[], list[Episode] | None]] = {}
        self._ended: list[Episode] = []

    @property
    def busy(self) -> bool:
        """Some episode is not over."""
        return bool(self._queue or self._open)

    def add(self, starts: Iterable[Start]) -> None:
        """More episodes to play, after those that wait already."""
        self._queue.extend(starts)

    def run(self, weights: Weights, version: int = 0, steps: int = 32) -> list[Episode]:
        """Begins what has a free slot, and plays on until `steps` more tokens are drawn in each.

        Args:
          version: of the weights.

        Returns:
          The episodes that ended.

        Raises:
          FloatingPointError: as `finish`.
        """
        self.begin(weights, version, steps)
        return self.finish()

    def begin(self, weights: Weights, version: int = 0, steps: int = 32) -> None:
        """Starts what `run` does; the device works on while the host does something else."""
        with self._dropping():
            self._ended += self._look_for_replies()
            for slot in range(self._sampler.rows):
                while self._queue and slot not in self._open:
                    self._ended += self._begin(slot, self._queue.popleft(), version)
            for episode in self._open.values():
                episode.version = min(episode.version, version)
            if self._awaited and not self._sampler.busy:
                time.sleep(_PAUSE)  # only others work
            self._sampler.begin(weights, steps)

    def finish(self) -> list[Episode]:
        """Waits for what was begun; returns the episodes that ended.

        Raises:
          FloatingPointError: the model's log-probabilities are not finite.
        """
        with self._dropping():
            for slot, completion in sorted(self._sampler.finish().items()):
                self._ended += self._heard(slot, completion)
        ended, self._ended = self._ended, []
        return ended

    def play(
        self,
        starts: Sequence[Start],
        weights: Weights,
        version: int = 0,
        watch: Watch | None = None,
    ) -> list[Episode]:
        """Plays episodes to their ends; in the order of `starts`, which must differ.

        Raises:
          FloatingPointError: as `finish`.
        """
        place = {start: index for index, start in enumerate(starts)}
        done: list[Episode] = []
        with self._dropping():
            self.add(starts)
            while self.busy:
                done += self.run(weights, version)
                if watch is not None:
                    watch(len(done), len(starts))
        return sorted(done, key=lambda episode: place[episode.start])

    def close(self) -> None:
        """Closes the tasks."""
        for task in self._tasks:
            task.close()

    @contextlib.contextmanager
    def _dropping(self) -> Iterator[None]:
        """Half of an episode is of no use: after an exception nothing is left of any."""
        try:
            yield
        except BaseException:
            self._queue.clear()
            self._open.clear()
            self._awaited.clear()
            self._ended.clear()
            self._sampler.reset()
            raise

    def _begin(self, slot: int, start: Start, version: int) -> list[Episode]:
        """Opens an episode; returns it if it is over already."""
        self._open[slot] = _Open(start, version)
        return self._when_known(slot, self._reset(start, self._tasks[slot]), self._opened)

    def _opened(self, slot: int, opening: Opening) -> list[Episode]:
        """Goes on after an opening; returns the episode if it is over."""
        messages = first_messages(opening.system, opening.observation)
        ids = self._chat.opening(messages)
        episode = self._open[slot]
        episode.description = opening.description
        episode.messages += [(message["role"], message["content"]) for message in messages]
        if not self._has_room(slot, ids):
            episode.conversation.read(ids[: self._sampler.rules.size])  # in which nothing is said
            return self._over(slot, "room")
        self._ask(slot, ids)
        return []

    def _has_room(self, slot: int, ids: Sequence[int]) -> bool:
        """For these tokens and an answer."""
        rules = self._sampler.rules
        length = len(self._open[slot].conversation) + len(ids)
        return length + rules.max_tokens - 1 <= rules.size

    def _ask(self, slot: int, ids: Sequence[int]) -> None:
        episode = self._open[slot]
        episode.conversation.read(ids)
        request = Request(
            ids,
            _seed_of(episode.start.draws, episode.turns),
            episode.start.temperature,
            fresh=not episode.turns,
        )
        self._sampler.submit(slot, request)

    def _heard(self, slot: int, completion: Completion) -> list[Episode]:
        """Goes on after an answer; returns the episode if it is over."""
        episode = self._open[slot]
        tokens = completion.tokens
        if not np.isfinite(completion.log_probs).all():
            raise FloatingPointError(
                f"the model's log-probabilities are not finite in turn {episode.turns + 1} of the "
                f"episode of seed {episode.start.seed}"
            )
        episode.conversation.said(tokens, completion.log_probs)
        said = self._tokenizer.decode(tokens[:-1] if tokens[-1] in self._chat.stop_ids else tokens)
        followed = functools.partial(self._followed, said=said, last=int(tokens[-1]))
        return self._when_known(slot, self._tasks[slot].step(said), followed)

    def _when_known(
        self, slot: int, told: Said, then: Callable[[int, Said], list[Episode]]
    ) -> list[Episode]:
        """Goes on with what a task says, now or as soon as it does."""
        if (later := told.later) is None:
            return then(slot, told)

        def look() -> list[Episode] | None:
            found = later()
            return None if found is None else self._when_known(slot, found, then)

        self._awaited[slot] = look
        return []

    def _look_for_replies(self) -> list[Episode]:
        """Goes on with episodes whose tasks were at work; returns those that are over."""
        ended = []
        for slot, look in sorted(self._awaited.items()):
            if (found := look()) is not None:
                ended += found
                if self._awaited[slot] is look:
                    del self._awaited[slot]
        return ended

    def _followed(self, slot: int, reply: Reply, said: str, last: int) -> list[Episode]:
        """Goes on after a reply to an answer with that last token."""
        episode = self._open[slot]
        episode.add(said, reply)
        if reply.terminated:
            return self._over(slot, "terminated")
        if reply.truncated:
            return self._over(slot, "truncated")
        if episode.turns >= self._tasks[slot].max_turns:
            return self._over(slot, "turns")
        message: Message = {"role": reply.role, "content": reply.observation}
        ids = self._chat.reply([message], last)
        if not self._has_room(slot, ids):
            return self._over(slot, "room")
        episode.messages.append((reply.role, reply.observation))
        self._ask(slot, ids)
        return []

    def _over(self, slot: int, end: End) -> list[Episode]:
        return [self._open.pop(slot).ended(end)]


class _Open:
    """An episode in a slot."""

    def __init__(self, start: Start, version: int) -> None:
        self.start, self.description, self.version = start, "", version
        self.conversation, self.messages = Conversation(), list[tuple[str, str]]()
        self.rewards: dict[str, float] = {}
        self.turns = self.unread = 0
        self.success = False

    def add(self, said: str, reply: Reply) -> None:
        """An answer and what it led to."""
        self.messages.append(("assistant", said))
        self.turns += 1
        self.unread += not reply.acted
        self.success |= reply.success
        for name, reward in reply.rewards.items():
            self.rewards[name] = self.rewards.get(name, 0.0) + reward

    def ended(self, end: End) -> Episode:
        """What is reported of it."""
        return Episode(
            self.start,
            self.description,
            tuple(self.messages),
            *self.conversation.arrays(),
            self.rewards,
            self.success,
            self.turns,
            self.unread,
            end,
            self.version,
        )


def _seed_of(draws: int, turn: int) -> int:
    """The sampler's seed for a turn; of independent turns and episodes."""
    return int(np.random.SeedSequence(draws, spawn_key=(turn,)).generate_state(1)[0])


class Outcomes(NamedTuple):
    """Means over episodes.

    Attributes:
      success, reward, turns: as in `Episode`.
      unread: share of the answers that did nothing.
      cut: share of the episodes that ended for want of turns or room.
      answer_tokens: of an answer.
    """

    success: float
    reward: float
    turns: float
    unread: float
    cut: float
    answer_tokens: float


def outcomes_of(episodes: Sequence[Episode]) -> Outcomes:
    """Sums up at least one episode."""
    turns = sum(episode.turns for episode in episodes)
    answers = max(turns, 1)
    return Outcomes(
        success=float(np.mean([episode.success for episode in episodes])),
        reward=float(np.mean([episode.total_reward for episode in episodes])),
        turns=turns / len(episodes),
        unread=sum(episode.unread for episode in episodes) / answers,
        cut=float(np.mean([episode.end in ("turns", "room") for episode in episodes])),
        answer_tokens=sum(int(episode.spoken.sum()) for episode in episodes) / answers,
    )
