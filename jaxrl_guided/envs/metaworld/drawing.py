"""Pictures of Meta-World episodes: the table from above and from its side, no graphics driver."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from jaxrl_guided.envs.metaworld.env import MetaWorldEnv
from jaxrl_guided.envs.metaworld.expert import expert_action
from jaxrl_guided.envs.metaworld.instructions import instruction_set
from jaxrl_guided.envs.metaworld.tasks import ENTITIES, GRIPPER, TARGET, TASKS, pose
from jaxrl_guided.runtime.plots import picture

COLOURS = (
    "#d1495b", "#e07b39", "#8a5fbf", "#2e6fbb", "#3bb5c4", "#5d7a8c",
    "#9c6644", "#7f4f24", "#c9a227", "#444444", "#a0a0a0", "#111111",
)  # fmt: skip
GRIPPER_COLOUR, TARGET_COLOUR = "#1b1b3a", "#2a9d3f"
STRIP_COLUMNS = 3
STRIP_FRAMES = 9

_VIEWS = (("from above", 0, 1), ("from the right", 1, 2))
"""Title and the two axes of a view."""
_LIMITS = ((-0.5, 0.5), (0.3, 1.1), (-0.05, 0.55))
_OPENING = 0.05
"""Metres between the middle of the fingers and each of them where they are open."""
_FINGERS = 0.045
"""Metres from the hand's middle down to the fingertips."""


class Frame(NamedTuple):
    """A state `f32[91]`, the entities of its scene (others are distractors), and a caption."""

    state: np.ndarray
    entities: tuple[str, ...]
    caption: str


Act = Callable[[dict[str, Any]], np.ndarray]
"""`observation -> action f32[4]`, of one environment."""


def scripted(level: str, expert: bool, seed: int = 0) -> Act:
    """The scripted experts of a level, or uniform random actions."""
    tasks, rng = instruction_set(level).tasks, np.random.default_rng(seed)
    if expert:
        return lambda obs: expert_action(tasks[obs["instruction"]], obs["state"])
    return lambda obs: rng.uniform(-1.0, 1.0, 4).astype(np.float32)


def play(level: str, act: Act, seed: int, horizon: int = 100) -> tuple[str, list[Frame]]:
    """The instruction and the frames of one episode.

    Args:
      act: who acts.
      horizon: longest episode.
    """
    env = MetaWorldEnv(level, horizon=horizon)
    instructions, total = instruction_set(level), 0.0
    obs, _ = env.reset(seed=seed)
    entities = TASKS[instructions.tasks[obs["instruction"]]].entities
    frames = [Frame(obs["state"], entities, "step 0, return 0.0")]
    done = False
    while not done:
        obs, reward, terminated, truncated, info = env.step(act(obs))
        total += reward
        done = terminated or truncated
        outcome = (": solved" if info["success"] else ": not solved") if done else ""
        caption = f"step {len(frames)}, return {total:.1f}{outcome}"
        frames.append(Frame(obs["state"], entities, caption))
    env.close()
    return instructions.texts[obs["instruction"]], frames


def draw(panels: np.ndarray, frame: Frame) -> None:
    """A view on each of two axes: gripper, target, entities; distractors are hollow."""
    for axes, (title, across, along) in zip(panels, _VIEWS, strict=True):
        for entity, colour in zip(ENTITIES, COLOURS, strict=True):
            where = frame.state[pose(entity)]
            if not where.any():
                continue
            face = colour if entity in frame.entities else "none"
            point = where[across], where[along]
            axes.plot(*point, "o", markersize=9, markerfacecolor=face, markeredgecolor=colour)
            axes.annotate(entity, point, (6, 4), textcoords="offset points", fontsize=7)
        target = frame.state[TARGET]
        axes.plot(target[across], target[along], "x", color=TARGET_COLOUR, markersize=11, mew=3)
        x, y, z, opening = frame.state[GRIPPER]
        for side in (-1, 1):
            tip = np.array([x, y + side * _OPENING * opening, z - _FINGERS])
            ends = np.array([[x, y, z], [*tip[:2], z], tip])
            axes.plot(ends[:, across], ends[:, along], color=GRIPPER_COLOUR, linewidth=3)
        axes.set(xlim=_LIMITS[across], ylim=_LIMITS[along], aspect="equal")
        axes.set_title(f"{title}; {frame.caption}", fontsize=7)
        axes.set(xticks=[], yticks=[])


def moving(text: str, frames: Sequence[Frame]) -> list[Image.Image]:
    """One picture per frame."""
    pictures = []
    for frame in frames:
        figure = Figure(figsize=(7.2, 3.6), dpi=100, layout="constrained")
        figure.suptitle(text, fontsize=10, wrap=True)
        draw(figure.subplots(1, 2), frame)
        pictures.append(picture(figure))
    return pictures


def strip(text: str, frames: Sequence[Frame]) -> Image.Image:
    """Frames in one picture: all, or of a long episode `STRIP_FRAMES` from first to last."""
    if len(frames) > STRIP_FRAMES:
        chosen = np.linspace(0, len(frames) - 1, STRIP_FRAMES).round().astype(int)
        frames = [frames[i] for i in chosen]
    rows = -(-len(frames) // STRIP_COLUMNS)
    figure = Figure(figsize=(4.6 * STRIP_COLUMNS, 2.4 * rows + 0.4), dpi=100, layout="constrained")
    figure.suptitle(text, fontsize=12, wrap=True)
    panels = figure.subplots(rows, 2 * STRIP_COLUMNS, squeeze=False)
    for axes in panels.ravel():
        axes.axis("off")
    for panel, frame in zip(panels.reshape(-1, 2), frames, strict=False):
        for axes in panel:
            axes.axis("on")
        draw(panel, frame)
    return picture(figure)
