"""What runs of language models share: judged episodes for people to read, a check of gradients."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from jaxrl_guided.learners.language.rollouts import Episode
from jaxrl_guided.runtime.files import write_text

EPISODES = "episodes"
"""Directory of judged episodes within a run, a file of JSON lines for each point of the curve."""

_WRITTEN = 8
_MOST_SKIPPED = 3


def write_episodes(
    run: epath.Path,
    step: int,
    kind: str,
    judged: Mapping[str, Sequence[Episode]],
    task: str,
    options: Sequence[str],
) -> None:
    """Writes the first episodes of each way of judging; `experiments.play --replay` plays them.

    Args:
      run: directory of the run.
      kind: name of what the ways differ in.
      judged: by way.
      task, options: as of `TaskSource`.
    """
    (run / EPISODES).mkdir(exist_ok=True)
    played = {"task": task, "options": list(options)}
    lines = [
        json.dumps({"step": step, kind: way, **played, **as_record(episode)}, ensure_ascii=False)
        for way, episodes in judged.items()
        for episode in episodes[:_WRITTEN]
    ]
    write_text(run / EPISODES / f"{step:06}.jsonl", "".join(f"{line}\n" for line in lines))


def as_record(episode: Episode) -> dict[str, Any]:
    """An episode as JSON data, for people to read and for `envs.text.record`."""
    said = episode.messages
    answers = [place for place, (role, _) in enumerate(said) if role == "assistant"]
    return {
        "seed": episode.start.seed,
        "description": episode.description,
        "success": episode.success,
        "rewards": dict(episode.rewards),
        "turns": episode.turns,
        "unread": episode.unread,
        "end": episode.end,
        "messages": [{"role": role, "content": text} for role, text in said],
        "answers": [said[place][1] for place in answers],
        "observations": [said[place + 1][1] for place in answers if place + 1 < len(said)],
    }


class DivergenceCheck:
    """An odd batch whose gradient is not finite changes nothing; several in a row are no chance.

    Args:
      unit: what is counted, as `round`.
    """

    def __init__(self, unit: str) -> None:
        self._unit, self._in_a_row = unit, 0

    def __call__(self, number: int, loss: float, skipped: float) -> None:
        """Looks at a unit: its loss, and the share of its updates that changed nothing.

        Raises:
          FloatingPointError: the run has diverged.
        """
        self._in_a_row = self._in_a_row + 1 if skipped == 1 else 0
        if not math.isfinite(loss) or self._in_a_row == _MOST_SKIPPED:
            raise FloatingPointError(
                f"at {self._unit} {number:,} the loss is {loss:g} and no gradient of the last "
                f"{self._in_a_row} {self._unit}s was finite; a smaller learning rate may help"
            )
