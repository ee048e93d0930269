"""Meta-World's tasks: transitions as by hand, seeds that decide an episode, limits, distractors."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

pytest.importorskip("metaworld.policies")

from jaxrl_guided.envs.metaworld.distractors import load_distractors
from jaxrl_guided.envs.metaworld.env import MetaWorldEnv
from jaxrl_guided.envs.metaworld.expert import expert_action
from jaxrl_guided.envs.metaworld.instructions import instruction_set
from tests.envs.metaworld.upstream import OBJECTS, POSES, ByHand, placed

SOME = ("reach", "button-press", "door-unlock", "coffee-push", "window-close", "hammer")


def task_of(level, obs):
    return instruction_set(level).tasks[obs["instruction"]]


def noisy(name, state, rng):
    return np.clip(expert_action(name, state) + rng.normal(0, 0.3, 4), -1, 1).astype(np.float32)


def compare(name, steps, seed):
    """Episodes of a task beside Meta-World's own environment, made anew for each."""
    env, rng, endings = MetaWorldEnv(name, distractor=False), np.random.default_rng(seed), []
    done = True
    for _ in range(steps):
        if done:
            obs, _ = env.reset(seed=int(rng.integers(2**31)))
            hand = ByHand(name, placed(env))
            np.testing.assert_array_equal(obs["state"][hand.numbers[1]], hand.numbers[0])
        action = noisy(name, obs["state"], rng)
        obs, reward, terminated, truncated, info = env.step(action)
        expected, success = hand.step(action)
        np.testing.assert_array_equal(obs["state"][hand.numbers[1]], hand.numbers[0])
        assert (reward, terminated, info["success"]) == (expected, success, success)
        done = terminated or truncated
        if done:
            endings.append(terminated)
    env.close()
    return endings


@pytest.mark.parametrize("name", SOME)
def test_transitions_are_those_of_stepping_by_hand(name):
    compare(name, 170, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", OBJECTS)
def test_transitions_of_all_tasks(name):
    endings = compare(name, 600, 1)
    assert any(endings)


def test_a_step_changes_nothing_for_the_episode_of_another_slot():
    """Environments that share a model in one process are as if each had its own."""
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (60, 4)).astype(np.float32)

    def episode(env, seed):
        yield env.reset(seed=seed)[0]["state"]
        for action in actions:
            yield env.step(action)[0]["state"]

    names = ("coffee-push", "coffee-button", "coffee-push")
    envs = [MetaWorldEnv(name, distractor=False) for name in names]
    alone = [list(episode(env, seed)) for seed, env in enumerate(envs)]
    together = zip(*(episode(env, seed) for seed, env in enumerate(envs)), strict=True)
    for expected, found in zip(zip(*alone, strict=True), together, strict=True):
        np.testing.assert_array_equal(found, expected)
    for env in envs:
        env.close()


EPISODE = """
import sys
import numpy as np
from jaxrl_guided.envs.metaworld.distractors import load_distractors
from jaxrl_guided.envs.metaworld.env import MetaWorldEnv
env = MetaWorldEnv("easy", tasks=("door-close", "faucet-close"))
rng = np.random.default_rng(0)
for seed in map(int, sys.argv[1:]):
    obs, _ = env.reset(seed=seed)
    for _ in range(30):
        obs, *_ = env.step(rng.uniform(-1, 1, 4).astype(np.float32))
    print(obs["instruction"], obs["state"].tobytes().hex())
print("jax" in sys.modules)
"""


def test_an_episode_is_decided_by_its_seed_in_any_process():
    command = [sys.executable, "-c", EPISODE, "5", "6", "5"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    assert lines[3] == "False"  # workers do not import JAX
    env = MetaWorldEnv("easy", tasks=("door-close", "faucet-close"))
    rng = np.random.default_rng(0)
    env.reset(seed=77)  # what was before does not matter
    env.step(np.ones(4, np.float32))
    found = []
    for seed in (5, 6, 5):
        first, _ = env.reset(seed=seed)
        for _ in range(30):
            obs, *_ = env.step(rng.uniform(-1, 1, 4).astype(np.float32))
        found.append((seed, first["state"].tobytes()))
        assert lines[len(found) - 1] == f"{obs['instruction']} {obs['state'].tobytes().hex()}"
    assert found[0] == found[2]
    assert found[0] != found[1]
    env.close()


def test_placements_are_drawn_as_meta_world_draws_them():
    env = MetaWorldEnv("push", distractor=False)
    drawn = []
    for seed in range(40):
        env.reset(seed=seed)
        drawn.append(placed(env))
    env.close()
    low, high = [-0.1, 0.6, 0.02, -0.1, 0.8, 0.01], [0.1, 0.7, 0.02, 0.1, 0.9, 0.02]
    drawn = np.array(drawn)
    assert (drawn >= low).all()
    assert (drawn <= high).all()
    assert (np.hypot(*(drawn[:, :2] - drawn[:, 3:5]).T) >= 0.15).all()
    middle = np.mean([low, high], axis=0)
    np.testing.assert_allclose(drawn.mean(0), middle, atol=0.03)


def test_tasks_and_sentences_come_up_equally_often():
    """Ten tasks in 3,000 draws: 300 each, give or take four standard deviations."""
    env = MetaWorldEnv("real", distractor=False)
    drawn = []
    for seed in range(3000):
        super(MetaWorldEnv, env).reset(seed=seed)
        drawn.append(env.np_random.choice(env._choices))
    tasks = np.array(instruction_set("real").tasks)[drawn]
    counts = np.unique(tasks, return_counts=True)[1]
    assert len(counts) == 10
    assert abs(counts - 300).max() < 4 * np.sqrt(3000 * 0.1 * 0.9)
    assert len(set(drawn)) == 200


def test_some_tasks_of_a_level_keep_the_levels_instructions():
    env = MetaWorldEnv("rephrase", tasks=("reach", "push"), distractor=False)
    assert env.observation_space["instruction"].n == 200
    for seed in range(4):
        obs, _ = env.reset(seed=seed)
        assert obs["instruction"] < 40
        assert env.observation_space.contains(obs)
    env.close()


def test_the_limit_truncates():
    env = MetaWorldEnv("push", horizon=7)
    env.reset(seed=0)
    flags = [env.step(np.zeros(4, np.float32))[2:4] for _ in range(7)]
    assert flags == [(False, False)] * 6 + [(False, True)]
    env.close()


def finish(env, name, seed):
    obs, _ = env.reset(seed=seed)
    steps = []
    while not steps or not (steps[-1][2] or steps[-1][3]):
        steps.append(env.step(expert_action(name, obs["state"])))
        obs = steps[-1][0]
    return steps


def test_success_terminates_with_ten():
    env = MetaWorldEnv("reach")
    *before, last = finish(env, "reach", 0)
    assert 5 < len(before) < 99
    assert last[1:] == (10.0, True, False, {"success": True})
    assert not any(step[4]["success"] for step in before)
    assert max(step[1] for step in before) < 2
    env.close()


def test_success_goes_on_if_wanted():
    env = MetaWorldEnv("reach", terminate_on_success=False)
    steps = finish(env, "reach", 0)
    assert len(steps) == 100
    assert not any(step[2] for step in steps)
    assert steps[-1][1:] == (10.0, False, True, {"success": True})
    env.close()


@pytest.mark.parametrize("name", ["hammer", "coffee-button"])
def test_a_distractor_fills_one_absent_slot_and_is_redrawn(name):
    env, plain = MetaWorldEnv(name), MetaWorldEnv(name, distractor=False)
    chosen = set()
    for seed in range(12):
        steps = [(env.reset(seed=seed)[0], plain.reset(seed=seed)[0])]
        action = np.full(4, 0.1, np.float32)
        steps += [(env.step(action)[0], plain.step(action)[0]) for _ in range(20)]
        shown, hidden = (np.array([pair[i]["state"] for pair in steps]) for i in range(2))
        differs = np.flatnonzero((shown != hidden).any(0))
        (entity,) = {e for e, at in POSES.items() for i in differs if at <= i < at + 7}
        where = slice(POSES[entity], POSES[entity] + 7)
        assert not hidden[:, where].any()
        assert shown[:, where].any(1).all()
        if entity not in ("wall", "nail"):  # they hardly ever move
            assert len(np.unique(shown[:, where], axis=0)) > 2
        chosen.add(entity)
    assert len(chosen) > 4
    env.close()
    plain.close()


@pytest.mark.parametrize("name", ["push", "door-lock", "button-press-wall", "coffee-push"])
def test_entities_that_are_absent_are_zero(name):
    beside = {
        "push": [],
        "door-lock": ["handle"],
        "button-press-wall": ["wall"],
        "coffee-push": ["coffee button"],
    }
    env = MetaWorldEnv(name, distractor=False)
    state = env.reset(seed=0)[0]["state"]
    assert state.shape == (91,)
    present = {entity for entity, at in POSES.items() if state[at : at + 7].any()}
    assert present == {*OBJECTS[name], *beside[name]}
    env.close()


def test_entities_beside_are_where_the_simulation_has_them():
    env = MetaWorldEnv("button-press-wall", distractor=False)
    state = env.reset(seed=0)[0]["state"]
    np.testing.assert_allclose(state[49:56], [0.1, 0.6, 0, 1, 0, 0, 0], atol=1e-6)
    env.close()
    env = MetaWorldEnv("coffee-push", distractor=False)
    state = env.reset(seed=0)[0]["state"]
    np.testing.assert_allclose(state[63:66], np.add(state[4:7], [0, 0, 0.3]), atol=1e-3)
    env.close()


@pytest.mark.parametrize(
    "entity, name", [("coffee", "make-coffee"), ("handle", "locked-door-open")]
)
def test_entities_beside_are_turned_as_meta_world_has_them(entity, name):
    env = MetaWorldEnv(name, distractor=False)
    obs, _ = env.reset(seed=0)
    geom = {"coffee": "mug", "handle": "handle"}[entity]
    changed = 0.0
    for _ in range(75):
        last = obs["state"]
        obs, *_ = env.step(expert_action(name, obs["state"]))
        data = env._scene._parts[0].data
        expected = Rotation.from_matrix(data.geom(geom).xmat.reshape(3, 3)).as_quat()
        found = obs["state"][POSES[entity] + 3 : POSES[entity] + 7]
        np.testing.assert_allclose(found, expected, atol=1e-6)
        changed += np.abs(obs["state"] - last)[POSES[entity] + 3 : POSES[entity] + 7].max()
    assert changed > 0.1
    env.close()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"level": "medium"}, "level: unknown 'medium'; choose one of real, rephrase, easy, hard"),
        ({"level": "easy", "tasks": ("reach",)}, "tasks: must be out of reach-wall, .*not reach"),
        ({"level": "real", "tasks": "reach"}, "tasks must be a list of names, as .*not 'reach'"),
        ({"level": "real", "horizon": 0}, "horizon: must be within 1 … 500, got 0"),
        ({"level": "real", "horizon": 501}, "horizon: must be within 1 … 500, got 501"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        MetaWorldEnv(**options)


def test_recorded_poses_are_poses_on_the_table():
    recorded = load_distractors()
    assert recorded.shape == (12, 128, 7)
    assert recorded.dtype == np.float32
    assert (recorded[..., :3] >= [-0.7, 0.2, -0.1]).all()
    assert (recorded[..., :3] <= [0.7, 1.0, 0.5]).all()
    lengths = np.linalg.norm(recorded[..., 3:], axis=-1)
    window = list(POSES).index("window")  # Meta-World has no rotation of it
    np.testing.assert_allclose(np.delete(lengths, window, 0), 1, atol=1e-5)
    assert not lengths[window].any()
