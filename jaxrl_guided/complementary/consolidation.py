"""From what the extractor said to writes on the bank: distillation of episodes, periodic merge."""

import dataclasses
from collections.abc import Iterable, Sequence

from jaxrl_guided.backbones.embedders import Embedder
from jaxrl_guided.complementary import prompts
from jaxrl_guided.complementary.bank import Bank, Draft, Entry, Write
from jaxrl_guided.complementary.bank.records import Operation as Origin
from jaxrl_guided.complementary.bank.records import text_of
from jaxrl_guided.complementary.operations import MERGE, Operation, parse
from jaxrl_guided.runtime.ranges import COUNT, check


@dataclasses.dataclass(frozen=True)
class MergeConfig:
    """Periodic merge.

    Attributes:
      every: updates of the actor between two merges.
      chunk: entries that are looked at together.
      shortest: characters of a merged entry's content.
    """

    every: int = 5
    chunk: int = 5
    shortest: int = 30

    def __post_init__(self) -> None:
        check(self, COUNT, "every", "chunk", "shortest", part="merge.")
        if self.chunk < 2:
            raise ValueError(f"merge.chunk must be at least 2, not {self.chunk}")


def transcript_of(messages: Iterable[tuple[str, str]]) -> str:
    """An episode as the extractor reads it: who said what, without the system's message."""
    return "\n".join(f"{role}: {text}" for role, text in messages if role != "system")


def distil_text(
    description: str,
    success: bool,
    messages: Iterable[tuple[str, str]],
    shown: Sequence[str],
    most: int,
    compact: bool,
) -> str:
    """What the extractor is asked of an episode.

    Args:
      messages: of the episode.
      shown: texts of the entries that the actor was shown.
      most: operations of an answer.
    """
    return prompts.render(
        "distil",
        compact,
        description=description,
        outcome="SUCCESS" if success else "FAILURE",
        transcript=transcript_of(messages),
        shown=prompts.numbered(shown),
        most=most,
    )


def write_of(
    operations: Sequence[Operation],
    shown: Sequence[Entry],
    embed: Embedder,
    generation: int,
    task: str = "",
    episode: int = -1,
) -> Write:
    """One write of all operations of an output.

    Args:
      operations: of `parse`.
      shown: the entries that their targets number.
      embed: makes vectors of the new entries' texts.
      generation: that is credited for what it wrote.
      task, episode: of the new entries; one that replaces others is of the first one's task, and
        of the latest episode.
    """
    made = [operation for operation in operations if operation.title]
    vectors = embed([text_of(operation.title, operation.content) for operation in made])
    drafts = tuple(
        Draft(
            operation.title,
            operation.content,
            vector,
            task=shown[operation.targets[0]].task if operation.targets else task,
            operation=_MADE_BY[operation.kind],
            parents=tuple(shown[target].id for target in operation.targets),
            generation=generation,
            episode=max([episode, *(shown[target].episode for target in operation.targets)]),
        )
        for operation, vector in zip(made, vectors, strict=True)
    )
    gone = tuple(shown[target].id for operation in operations for target in operation.targets)
    merging = any(operation.kind in MERGE for operation in operations)
    return Write(drafts, gone, "merge" if merging else "update")


_MADE_BY: dict[str, Origin] = {
    "add": "add",
    "update": "update",
    "merge": "merge",
    "rewrite": "merge",
}


class MergePass:
    """One merge of a bank: chunks in the order in which entries were made.

    What a chunk was merged into is looked at again in the next one, with entries that follow.

    Args:
      config: of the merge.
      bank: that is merged; entries of one task meet only each other if `by_task`.
    """

    def __init__(self, config: MergeConfig, bank: Bank, by_task: bool = False) -> None:
        self._config, self._bank = config, bank
        entries = bank.entries()
        tasks = dict.fromkeys(entry.task if by_task else "" for entry in entries)
        self._left = [
            [entry.id for entry in entries if not by_task or entry.task == task] for task in tasks
        ]
        self._carried: list[int] = []

    def next_chunk(self) -> list[Entry]:
        """Entries to be looked at, two at least; none when the pass is over."""
        while self._left:
            waiting, size = self._left[0], self._config.chunk
            chunk = [e for i in self._carried if (e := self._bank.get(i)) is not None][: size - 1]
            while waiting and len(chunk) < size:
                if (entry := self._bank.get(waiting.pop(0))) is not None:
                    chunk.append(entry)
            self._carried = []
            if not waiting:
                self._left.pop(0)
            if len(chunk) > 1:
                return chunk
        return []

    def apply(
        self, chunk: Sequence[Entry], output: str, embed: Embedder, generation: int, step: int = 0
    ) -> bool:
        """Writes what an extractor said of a chunk; a chunk that fails to parse keeps its entries.

        Returns:
          Whether it was written; not, if an entry has ended in the meantime.

        Raises:
          Rejected: the output is malformed.
          StorageError: nothing has changed.
        """
        operations = parse(output, len(chunk), MERGE, len(chunk), self._config.shortest)
        if not operations:
            return True
        write = write_of(operations, chunk, embed, generation)
        born = self._bank.write(write, step=step)
        if born is None:
            return False
        if self._left:  # else there is nothing that they could be merged with
            merged = {operation.title for operation in operations if operation.kind == "merge"}
            self._carried = [entry.id for entry in born if entry.title in merged]
        return True
