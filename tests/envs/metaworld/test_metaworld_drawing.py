"""Pictures of episodes, drawn without a graphics driver."""

import numpy as np
import pytest
from PIL import ImageColor

pytest.importorskip("metaworld.policies")

from jaxrl_guided.envs.metaworld import drawing
from jaxrl_guided.envs.metaworld.instructions import instruction_set


def pixels(image, colour):
    return int((np.asarray(image) == np.array(ImageColor.getrgb(colour))).all(-1).sum())


def frame(**entities):
    """A state with these entities at (x, y, z), all but `lock` of the scene."""
    state = np.zeros(91, np.float32)
    state[:7] = 0, 0.6, 0.2, 1, 0.1, 0.8, 0.1
    for name, at in entities.items():
        first = 7 + 7 * drawing.ENTITIES.index(name)
        state[first : first + 3] = at
    return drawing.Frame(state, tuple(set(entities) - {"lock"}), "")


def test_an_episode_becomes_pictures():
    text, frames = drawing.play("reach", drawing.scripted("reach", expert=True), seed=0)
    assert text in instruction_set("reach").texts
    assert frames[0].entities == ("target object",)
    assert frames[-1].caption.startswith(f"step {len(frames) - 1}, return ")
    assert frames[-1].caption.endswith(": solved")
    first, last = drawing.moving(text, [frames[0], frames[-1]])
    assert first.size == last.size == (720, 360)
    assert (np.asarray(first) != np.asarray(last)).any()
    strip = drawing.strip(text, frames)
    assert strip.size == (1380, 760)
    for image in (first, last, strip):
        assert pixels(image, drawing.GRIPPER_COLOUR) > 50
        assert pixels(image, drawing.TARGET_COLOUR) > 50


def test_random_actions_are_in_range():
    act = drawing.scripted("reach", expert=False)
    actions = np.array([act({}) for _ in range(100)])
    assert actions.shape == (100, 4)
    assert np.abs(actions).max() <= 1


def test_entities_are_seen_and_distractors_are_hollow():
    (empty,) = drawing.moving("", [frame()])
    for entity, colour in zip(drawing.ENTITIES, drawing.COLOURS, strict=True):
        (image,) = drawing.moving("", [frame(**{entity: (-0.2, 0.5, 0.1)})])
        added = pixels(image, colour) - pixels(empty, colour)
        assert (added > 100) == (entity != "lock"), entity
        assert added > 10, entity


def test_an_open_gripper_is_drawn_wider():
    def width(opening):
        state = frame().state.copy()
        state[3] = opening
        (image,) = drawing.moving("", [drawing.Frame(state, (), "")])
        above = np.asarray(image)[:, :360]
        rows = (above == np.array(ImageColor.getrgb(drawing.GRIPPER_COLOUR))).all(-1).any(1)
        return int(rows.sum())

    assert width(1.0) > 2 * width(0.2)


def test_a_long_episode_has_a_short_strip():
    frames = [frame()] * 101
    assert drawing.strip("", frames).size == drawing.strip("", frames[:9]).size
