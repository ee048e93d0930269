"""Single questions to a language model as episodes of one turn, so that `Rollouts` answers them."""

from collections.abc import Mapping

from jaxrl_guided.envs.text.task import Opening, Reply


class Requests:
    """Texts by number; a slot's `OneTurn` reads the one that it is reset to.

    Attributes:
      texts: those that were not answered yet.
    """

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}
        self.next = 0

    def add(self, text: str) -> int:
        """A new request's number."""
        number = self.next
        self.next += 1
        self.texts[number] = text
        return number

    def make_task(self) -> "OneTurn":
        """One more slot's task."""
        return OneTurn(self.texts)


class OneTurn:
    """Shows a text and ends with the first answer."""

    max_turns = 1
    instances = 2**63

    def __init__(self, texts: Mapping[int, str]) -> None:
        self._texts = texts

    def reset(self, seed: int) -> Opening:
        """The request of that number."""
        return Opening("", self._texts[seed], "")

    def step(self, answer: str) -> Reply:
        """Any answer ends it."""
        return Reply("", terminated=True)

    def close(self) -> None:
        """Nothing to free."""
