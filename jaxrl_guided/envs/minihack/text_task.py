"""A task of MiniHack in text, for agents that speak."""

from collections.abc import Mapping, Sequence

from jaxrl_guided.envs.minihack import text
from jaxrl_guided.envs.minihack.family import check_minihack
from jaxrl_guided.envs.minihack.host import Host, HostConfig
from jaxrl_guided.envs.minihack.tasks import MAX_STEPS
from jaxrl_guided.envs.text.answers import numbered, parse
from jaxrl_guided.envs.text.task import TASK, Opening, Reply

_SEEN = ("message", "chars_crop", "symbols_crop")

_GOALS: Mapping[str, str] = {
    "Room": "reach the stairs down, drawn as >, in a room",
    "MazeWalk": "reach the stairs down, drawn as >, through a maze",
    "KeyRoom": "pick up the key, unlock the door with it, and reach the stairs down, drawn as >",
    "River": "push a boulder into the river, and cross it there to reach the stairs down",
    "Sokoban": "push boulders into all pits, drawn as ^, and reach the stairs behind them",
}
_DANGERS: Mapping[str, str] = {
    "Dark": "it is dark: you see only what is next to you",
    "Monster": "monsters attack you",
    "Trap": "hidden traps move you elsewhere",
    "Ultimate": "it is dark, monsters attack you, and hidden traps move you elsewhere",
    "Lava": "lava, drawn as ~, kills you",
}


def goal_of(task: str) -> str:
    """What a task asks for, and what is in the way, in a line."""
    (goal,) = (goal for name, goal in _GOALS.items() if task.startswith(name))
    dangers = [danger for name, danger in _DANGERS.items() if name in task]
    return "; ".join([goal, *dangers])


def system_prompt(task: str, actions: Sequence[str], compact: bool = False) -> str:
    """What an agent is told before an episode.

    Args:
      compact: few words, for models that learn them from scratch.
    """
    if compact:
        return f"{task}. Answers: <answer>{'|'.join(actions)}</answer>"
    return (
        f"You play NetHack. Your task: {goal_of(task)}.\n"
        "In each turn you see the last message and a map of what is around you; you are the @ in "
        "its middle, north is up. Think as briefly as you can, then give one action as "
        "<answer>ACTION</answer>.\n"
        f"Actions: {numbered(actions)}."
    )


class MiniHackText:
    """A game of MiniHack after the other, described in words and drawn in characters.

    The return is 1 for a solved task, else 0.

    Args:
      task: one of `tasks.MAX_STEPS`.
      max_turns: answers in an episode.
      compact: the short form of what is seen.
      actions: names of `tasks.KEYS`; None for those of the task.

    Raises:
      ValueError: an unknown task, a number or name out of range, or minihack is not installed.
    """

    instances = 2**32

    def __init__(
        self,
        task: str,
        max_turns: int = 30,
        compact: bool = False,
        actions: Sequence[str] | None = None,
    ) -> None:
        if task not in MAX_STEPS:
            raise ValueError(f"task: unknown '{task}'; choose one of {', '.join(MAX_STEPS)}")
        if max_turns < 1:
            raise ValueError(f"max_turns must be at least 1, not {max_turns}")
        check_minihack(task)
        self.max_turns, self._task, self._compact = max_turns, task, compact
        # The game's own limit is beyond what can be played in so many turns.
        self._host = Host(task, HostConfig(_SEEN, actions, max_steps=max_turns + 1))

    def reset(self, seed: int) -> Opening:
        """Starts the game of that seed."""
        self._obs, _ = self._host.reset(seed=seed)
        system = system_prompt(self._task, self._host.actions, self._compact)
        return Opening(system, self._render(), f"MiniHack: {goal_of(self._task)}.")

    def step(self, answer: str) -> Reply:
        """One action, or a note that says why there was none."""
        said = parse(answer, self._host.actions)
        if said.action is None:
            return Reply(self._render(said.note), acted=False)
        self._obs, reward, terminated, truncated, info = self._host.step(said.action)
        over = terminated or truncated
        return Reply(
            "" if over else self._render(),
            {TASK: reward},
            terminated=terminated,
            truncated=truncated,
            success=bool(info["success"]),
        )

    def close(self) -> None:
        """Leaves NetHack."""
        self._host.close()

    def _render(self, note: str = "") -> str:
        message, chars, symbols = (self._obs[name] for name in _SEEN)
        if self._compact:
            return text.render_compact(message, chars, symbols, note)
        return text.render(message, chars, symbols, self._host.actions, note)
