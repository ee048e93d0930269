"""Expert episodes as a dataset: what is recorded, and the same whatever the processes."""

import json
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("metaworld.policies")

from jaxrl_guided.envs import dataset
from jaxrl_guided.envs.metaworld.collect import collect
from jaxrl_guided.envs.metaworld.env import MetaWorldEnv
from jaxrl_guided.envs.metaworld.instructions import instruction_set
from jaxrl_guided.envs.metaworld.tasks import ACTION_MAP
from tests.envs.processes import status


@pytest.fixture(scope="module")
def episodes():
    return collect("push", 5, seed=3, random_fraction=0.3, workers=0)


def test_episodes_are_those_of_playing_by_hand(episodes):
    env = MetaWorldEnv("push", distractor=False)
    assert episodes.num_episodes == 5
    for number, first in enumerate(episodes.starts):
        last = first + episodes.lengths[number]
        seed = np.random.SeedSequence([3, number]).generate_state(1)[0] >> 1
        obs, _ = env.reset(seed=int(seed))
        assert episodes.instruction[number] == obs["instruction"]
        for step in range(first, last):
            np.testing.assert_array_equal(episodes.observations[step], obs["state"])
            obs, reward, terminated, truncated, _ = env.step(episodes.actions[step])
            assert episodes.rewards[step] == np.float32(reward)
            assert episodes.terminated[step] == terminated
            assert episodes.truncated[step] == truncated
        np.testing.assert_array_equal(episodes.final_observations[number], obs["state"])
    env.close()
    assert 0.15 < (~episodes.is_expert).mean() < 0.45


def test_shapes_types_and_metadata(episodes, tmp_path):
    steps = episodes.num_steps
    assert episodes.observations.shape == (steps, 91)
    assert episodes.actions.shape == (steps, 4)
    for array in (episodes.observations, episodes.actions, episodes.rewards):
        assert array.dtype == np.float32
    assert np.abs(episodes.actions).max() <= 1
    meta = episodes.metadata
    assert meta["env"] == "metaworld/push"
    assert meta["texts"] == list(instruction_set("push").texts)
    assert meta["action_map"] == ACTION_MAP
    assert (meta["seed"], meta["horizon"], meta["random_fraction"]) == (3, 100, 0.3)
    assert meta["success_rate"] == episodes.terminated.sum() / 5 == meta["success_by_task"]["push"]
    assert meta["mean_length"] == steps / 5
    episodes.save(tmp_path / "data")
    loaded = dataset.load(tmp_path / "data", "metaworld")
    np.testing.assert_array_equal(loaded.observations, episodes.observations)
    assert loaded.metadata == json.loads(json.dumps(meta))


def test_processes_change_nothing():
    seen = []
    options = {"seed": 0, "horizon": 3}
    alone = collect("reach", 24, workers=0, **options)
    several = collect("reach", 24, workers=2, progress=lambda *args: seen.append(args), **options)
    assert seen == [(20, 24), (24, 24)]
    for name, array in alone.arrays().items():
        np.testing.assert_array_equal(several.arrays()[name], array)


def test_tasks_take_turns():
    episodes = collect("hard", 9, seed=0, horizon=1, workers=0)
    assert (episodes.instruction // 20).tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    assert episodes.truncated.all()
    tasks = ["make-coffee", "locked-door-open", "hammer", "soccer"]
    assert episodes.metadata["success_by_task"] == dict.fromkeys(tasks, 0.0)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"num_episodes": 0}, "num_episodes: 0"),
        ({"random_fraction": 1.5}, "random_fraction: 1.5 is not within 0 … 1"),
        ({"horizon": 0}, "horizon: must be within"),
        ({"level": "medium"}, "level: unknown 'medium'"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        collect(**({"level": "real", "num_episodes": 1, "seed": 0} | options))


COLLECT = """
from jaxrl_guided.envs.metaworld.collect import collect
if __name__ == "__main__":
    collect("reach", 400, 0, workers=2, progress=lambda *done: print(*done, flush=True))
"""


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_the_parent(sent, tmp_path):
    script = tmp_path / "collects.py"
    script.write_text(COLLECT)
    parent = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout.readline() == "20 400\n"
    children = pathlib.Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    assert len(children) >= 2
    parent.send_signal(sent)
    parent.wait(30)
    parent.stdout.close()
    end = time.monotonic() + 10
    while any(map(status, children)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(status, children))
