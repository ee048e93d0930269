"""Pictures of CLEVR-Robot episodes: a layout a frame, an arrow for the push that comes."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle
from PIL import Image

from jaxrl_guided.envs.clevr.collect import expert_policy
from jaxrl_guided.envs.clevr.instructions import instruction_set
from jaxrl_guided.envs.clevr.physics import PUSHER_OFFSET
from jaxrl_guided.envs.clevr.table import (
    BALL_RADIUS,
    DIRECTIONS,
    NUM_BALLS,
    WALL_HIGH,
    WALL_LOW,
)
from jaxrl_guided.envs.types import PyTree, VectorEnv
from jaxrl_guided.runtime.plots import picture

COLOURS = ("#d1495b", "#2e6fbb", "#4f9d69", "#8a5fbf", "#3bb5c4")
STRIP_COLUMNS = 4
STRIP_FRAMES = 12


class Frame(NamedTuple):
    """A layout `f32[5, 2]`, the push that is about to come (None at the end), and a caption."""

    positions: np.ndarray
    action: int | None
    caption: str


Act = Callable[[jax.Array, PyTree], jax.Array]
"""`(key, obs [N, …]) -> action [N]`."""


def scripted(level: str, expert: bool) -> Act:
    """The scripted expert of a level, or uniform random actions."""
    policy = expert_policy(instruction_set(level), 0.0 if expert else 1.0)
    return lambda key, obs: policy(key, obs)[0]


def play(env: VectorEnv, texts: Sequence[str], act: Act, seed: int) -> tuple[str, list[Frame]]:
    """The instruction and the frames of one episode of an environment of one.

    Args:
      texts: of the environment's instructions.
      act: who acts.
    """
    act = jax.jit(act)
    reset_key, key = jax.random.split(jax.random.key(seed))
    state, obs = env.reset(reset_key)
    text, total = texts[int(obs["instruction"][0])], 0.0
    frames: list[Frame] = []
    while True:
        key, action_key = jax.random.split(key)
        action = act(action_key, obs)
        caption = f"step {len(frames)}, return {total:.1f}"
        frames.append(Frame(layout(obs), int(action[0]), caption))
        state, result = env.step(state, action)
        total += float(result.reward[0])
        if result.done[0]:
            outcome = "solved" if result.info["success"][0] else "not solved"
            caption = f"step {len(frames)}, return {total:.1f}: {outcome}"
            frames.append(Frame(layout(result.final_obs), None, caption))
            return text, frames
        obs = result.obs


def layout(obs: dict[str, jnp.ndarray]) -> np.ndarray:
    """Ball centres `f32[5, 2]` in an observation of one environment."""
    return np.asarray(obs["state"])[0, : 2 * NUM_BALLS].reshape(NUM_BALLS, 2)


def draw(axes: Axes, frame: Frame) -> None:
    """Table, balls seen from above, and an arrow where the pusher comes from."""
    (left, front), (width, depth) = WALL_LOW, WALL_HIGH - WALL_LOW
    table = Rectangle((left, front), width, depth, facecolor="#f3efe6", edgecolor="#555")
    axes.add_patch(table)
    for centre, colour in zip(frame.positions, COLOURS, strict=True):
        axes.add_patch(Circle(centre, BALL_RADIUS, facecolor=colour, edgecolor="black"))
    if frame.action is not None:
        ball, direction = divmod(frame.action, len(DIRECTIONS))
        centre, way = frame.positions[ball], DIRECTIONS[direction]
        arrow = {"arrowstyle": "-|>", "color": "black", "linewidth": 2.5, "mutation_scale": 18}
        tip, tail = centre + 0.2 * way, centre - PUSHER_OFFSET * way
        axes.annotate("", tip, tail, arrowprops=arrow, annotation_clip=False)
    # An episode may start with balls beyond the walls, which push them in.
    axes.set(xlim=(left - 0.2, WALL_HIGH[0] + 0.2), aspect="equal")
    axes.set(ylim=(front - 0.25, WALL_HIGH[1] + 0.2))
    axes.set_title(frame.caption, fontsize=9)
    axes.axis("off")


def moving(text: str, frames: list[Frame]) -> list[Image.Image]:
    """One picture per frame."""
    pictures = []
    for frame in frames:
        figure = Figure(figsize=(4.6, 4.4), dpi=100, layout="constrained")
        figure.suptitle(text, fontsize=10, wrap=True)
        draw(figure.subplots(), frame)
        pictures.append(picture(figure))
    return pictures


def strip(text: str, frames: list[Frame]) -> Image.Image:
    """Frames in one picture: all, or of a long episode `STRIP_FRAMES` from first to last."""
    if len(frames) > STRIP_FRAMES:
        chosen = np.linspace(0, len(frames) - 1, STRIP_FRAMES).round().astype(int)
        frames = [frames[i] for i in chosen]
    rows = -(-len(frames) // STRIP_COLUMNS)
    figure = Figure(figsize=(2.8 * STRIP_COLUMNS, 2.7 * rows + 0.4), dpi=100, layout="constrained")
    figure.suptitle(text, fontsize=12, wrap=True)
    panels = figure.subplots(rows, STRIP_COLUMNS, squeeze=False).ravel()
    for axes in panels:
        axes.axis("off")
    for axes, frame in zip(panels, frames, strict=False):
        draw(axes, frame)
    return picture(figure)
