"""Episodes that a scripted player shows, as conversations to imitate."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from jaxrl_guided.backbones.chat import Chat, Conversation, Message, first_messages
from jaxrl_guided.backbones.tokenizer import Tokenizer
from jaxrl_guided.envs.text.task import Demonstrator, Reply, TextTask, awaited
from jaxrl_guided.learners.language.batches import Sample


class Demonstration(NamedTuple):
    """An episode.

    Attributes:
      opening: the messages before the first answer.
      turns: each answer, and the message that follows it (None after the last).
      success: the task was solved.
    """

    opening: Sequence[Message]
    turns: Sequence[tuple[str, Message | None]]
    success: bool

    @property
    def texts(self) -> list[str]:
        """All that was said."""
        after = [message["content"] for _, message in self.turns if message is not None]
        return [*(m["content"] for m in self.opening), *(said for said, _ in self.turns), *after]


def demonstrate(task: TextTask, player: Demonstrator, seeds: Iterable[int]) -> list[Demonstration]:
    """Plays the episodes of some seeds."""
    return [_episode(task, player, seed) for seed in seeds]


def _episode(task: TextTask, player: Demonstrator, seed: int) -> Demonstration:
    opening = awaited(task.reset(seed))
    player.reset(_seed_of_player(seed))
    shown, turns = opening.observation, list[tuple[str, Message | None]]()
    reply = Reply(shown)
    for turn in range(task.max_turns):
        said = player.answer(shown)
        reply = awaited(task.step(said))
        shown = reply.observation
        over = reply.terminated or reply.truncated or turn + 1 == task.max_turns
        turns.append((said, None if over else {"role": reply.role, "content": shown}))
        if over:
            break
    messages = first_messages(opening.system, opening.observation)
    return Demonstration(messages, turns, reply.success)


def _seed_of_player(seed: int) -> int:
    """Another seed: with the task's own a player might draw what the task has drawn."""
    return int(np.random.SeedSequence(seed).generate_state(1)[0])


def encode(chat: Chat, tokenizer: Tokenizer, shown: Demonstration) -> Sample:
    """A demonstration as ids; what the player said is `spoken`.

    Raises:
      ValueError: the chat's answers have no token that ends them.
    """
    if chat.closing is None:
        raise ValueError("the chat template closes answers with no special token to imitate")
    conversation = Conversation()
    conversation.read(chat.opening(shown.opening))
    for said, message in shown.turns:
        ids = [*tokenizer.backend.encode(said, add_special_tokens=False).ids, chat.closing]
        conversation.said(ids, np.zeros(len(ids)))
        if message is not None:
            conversation.read(chat.reply([message], chat.closing))
    return Sample(*conversation.arrays(), advantage=0.0)
