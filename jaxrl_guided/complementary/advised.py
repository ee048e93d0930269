"""Experience in an agent's hands: notes in its system message, and questions instead of actions."""

import dataclasses
import re
from collections.abc import Callable, Sequence

from jaxrl_guided.complementary import prompts
from jaxrl_guided.complementary.bank import Entry
from jaxrl_guided.envs.text.task import Opening, Reply, TextTask, limited
from jaxrl_guided.learners.language.rollouts import Episode

_QUESTION = re.compile(r"<knowledge_search_and_ask>(.*?)</knowledge_search_and_ask>", re.DOTALL)
NO_MORE = "You have asked often enough; act."

Ask = Callable[[str], Callable[[], str | None]]
"""Takes a question; what it returns gives the answer once there is one (`Extractor.ask`)."""


def actions_of(episode: Episode) -> int:
    """Steps of the task in an episode: its answers without questions, and without unread ones."""
    answers = zip(episode.messages, episode.messages[1:], strict=False)  # and what followed
    asked = sum(role == "tool" and bool(_QUESTION.search(said)) for (_, said), (role, _) in answers)
    refused = episode.messages.count(("tool", NO_MORE))
    return episode.turns - asked - (episode.unread - refused)


class Advised:
    """A task in which an agent may ask for advice: a turn, but no step of the task.

    Args:
      task: that is played.
      most: questions of an episode.
      compact: short prompts, for models that learn them from scratch.
    """

    def __init__(self, task: TextTask, most: int = 2, compact: bool = False) -> None:
        self._task, self._most, self._compact = task, most, compact
        self.max_turns, self.instances = task.max_turns + most, task.instances
        self._ask: Ask | None = None
        self._asked = self._acted = 0

    def reset(self, seed: int) -> Opening:
        """Begins an episode without help; see `help`."""
        self._ask, self._asked, self._acted = None, 0, 0
        return self._task.reset(seed)

    def help(self, opening: Opening, entries: Sequence[Entry], ask: Ask | None) -> Opening:
        """Adds notes to what the agent is told, and lets it ask.

        Args:
          opening: of this episode.
          entries: that it is shown; none: nothing is said of notes.
          ask: takes its questions; None: it cannot ask.
        """
        parts = [opening.system]
        if self._most and ask is not None:
            parts.append(prompts.render("ask_tool", self._compact, most=self._most))
        if entries:
            texts = prompts.numbered([entry.text for entry in entries])
            parts.append(prompts.render("inject", self._compact, entries=texts))
        self._ask = ask if self._most else None
        return dataclasses.replace(opening, system="\n".join(parts))

    def step(self, answer: str) -> Reply:
        """A question, or an answer for the task, whose limit of turns counts no questions."""
        asked = _QUESTION.search(answer) if self._ask is not None else None
        if self._ask is None or asked is None:
            self._acted += 1
            return limited(self._task.step(answer), self._acted >= self._task.max_turns)
        self._asked += 1
        if self._asked > self._most:
            return Reply(NO_MORE, role="tool", acted=False)
        answered = self._ask(asked[1].strip())

        def later() -> Reply | None:
            said = answered()
            return None if said is None else Reply(said, role="tool")

        return Reply("", later=later)

    def close(self) -> None:
        """Closes the task."""
        self._task.close()
