"""One game after the other: what the seed decides, how it ends, and what it leaves behind."""

import itertools
import subprocess
import sys
import tempfile

import numpy as np
import pytest

from jaxrl_guided.envs.minihack.host import Host, HostConfig
from jaxrl_guided.envs.minihack.observe import PARTS
from jaxrl_guided.envs.minihack.symbols import SYMBOL
from jaxrl_guided.envs.minihack.text import decode

ALL = tuple(PARTS)
RAW = ("glyphs", "chars", "colors", "blstats", "message")


@pytest.fixture
def make():
    """Makes environments that are closed after the test."""
    made = []

    def build(task="Room-5x5", **options):
        made.append(Host(task, HostConfig(**options)))
        return made[-1]

    yield build
    for host in made:
        host.close()


def steps(host, rng, first_seed=0):
    """Random play for ever: all that is observed, and how each step ends."""
    for seed in itertools.count(first_seed):
        obs, _ = host.reset(seed=seed)
        yield obs, None
        ended = False
        while not ended:
            action = rng.integers(host.action_space.n)
            obs, reward, terminated, truncated, info = host.step(action)
            ended = terminated or truncated
            yield obs, (reward, terminated, truncated, info["success"])


def assert_same(obs, expected):
    for name in expected:
        np.testing.assert_array_equal(obs[name], expected[name], err_msg=name)


@pytest.mark.parametrize("task", ["Room-Ultimate-5x5", "KeyRoom-S5"])
def test_a_seed_decides_the_game(make, task):
    """Two environments, stepped in turns, of which one has played something else before."""
    one, other = (make(task, observe=ALL, max_steps=70) for _ in range(2))
    for _ in zip(range(40), steps(other, np.random.default_rng(9), 100), strict=False):
        pass
    games = (steps(host, np.random.default_rng(0)) for host in (one, other))
    episodes = 0
    for (obs, outcome), (expected, as_expected) in itertools.islice(zip(*games, strict=True), 1000):
        assert_same(obs, expected)
        assert outcome == as_expected
        episodes += outcome is None
    assert episodes > 10


def test_another_seed_is_another_level(make):
    host = make("Room-Random-5x5", observe=RAW)
    levels = {host.reset(seed=seed)[0]["glyphs"].tobytes() for seed in range(20)}
    assert len(levels) > 15


def test_the_day_it_is_played_on_does_not_matter(make):
    """NetHack speaks of the moon at the start; it is the seed's moon, not today's."""
    host = make(observe=RAW)
    told = ["moon" in decode(host.reset(seed=seed)[0]["message"]) for seed in range(60)]
    assert 0 < sum(told) < 60


def test_the_stairs_solve_the_task(make):
    host = make()  # from one corner to the opposite one, of 5 × 5 cells
    host.reset(seed=3)
    southeast = host.actions.index("southeast")
    outcomes = [host.step(southeast)[1:4] for _ in range(3)]
    assert outcomes == [(0.0, False, False)] * 3
    _, reward, terminated, truncated, info = host.step(southeast)
    assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, 1.0)


@pytest.mark.parametrize("reward, of_a_bump", [("sparse", 0.0), ("minihack", -0.01)])
def test_steps_without_time_cost_only_in_minihacks_reward(make, reward, of_a_bump):
    host = make(reward=reward)
    host.reset(seed=0)
    _, given, *_ = host.step(host.actions.index("north"))  # into the wall
    assert given == of_a_bump


def test_the_limit_truncates_and_shows_where_it_ends(make):
    short, long = make(observe=RAW, max_steps=6), make(observe=RAW)
    for host in (short, long):
        host.reset(seed=5)
    for action in (1, 2, 1, 2, 3):
        assert not any(short.step(action)[2:4])
        long.step(action)
    obs, reward, terminated, truncated, info = short.step(0)
    assert (reward, terminated, truncated, info["success"]) == (0.0, False, True, 0.0)
    assert_same(obs, long.step(0)[0])
    assert obs["blstats"][10] > 0  # hit points: the game is still there


@pytest.mark.parametrize("task, limit", [("Room-5x5", 100), ("KeyRoom-Fixed-S5", 200)])
def test_the_tasks_own_limit(make, task, limit):
    host = make(task)
    host.reset(seed=0)
    north = [host.step(0)[2:4] for _ in range(limit)]
    assert north == [(False, False)] * (limit - 1) + [(False, True)]


def test_stairs_in_the_last_step_count(make):
    host = make(max_steps=4)
    host.reset(seed=0)
    *_, (_, reward, terminated, _, info) = (host.step(5) for _ in range(4))
    assert (reward, terminated, info["success"]) == (1.0, True, 1.0)


def test_death_ends_without_success(make):
    host = make("Room-Monster-15x15", observe=RAW)
    game = steps(host, np.random.default_rng(0))
    before = None
    for obs, outcome in itertools.islice(game, 20_000):
        if outcome is not None and outcome[1] and outcome[3] == 0.0:
            break
        before = obs
    assert outcome == (0.0, True, False, 0.0)
    assert before["blstats"][10] <= 6


def test_actions_of_ones_own(make):
    host = make(actions=("southeast", "search"))
    host.reset(seed=0)
    assert host.action_space.n == 2
    host.step(1)
    assert [host.step(0)[1] for _ in range(4)] == [0.0, 0.0, 0.0, 1.0]


OPEN = [SYMBOL[name] for name in ("floor", "dark floor", "open door", "stairs down", "tool")]
SIDES = {"north": (-1, 0), "east": (0, 1), "south": (1, 0), "west": (0, -1)}


def cell(obs, name):
    """Where a symbol is on the map; None where it is not seen."""
    return next(iter(map(tuple, np.argwhere(obs["symbols"] == SYMBOL[name]))), None)


def way(obs, goal):
    """Names of the moves of the shortest way, along the axes."""
    ways = {cell(obs, "you"): []}
    for place in (queue := list(ways)):
        for name, (down, right) in SIDES.items():
            there = (place[0] + down, place[1] + right)
            if there not in ways and obs["symbols"][there] in OPEN:
                ways[there] = [*ways[place], name]
                queue.append(there)
    return ways[goal]


def test_a_key_opens_the_door(make):
    host = make("KeyRoom-Fixed-S5", observe=("symbols", "inventory"))
    obs, _ = host.reset(seed=0)
    tools = obs["inventory"][6]
    key, door = cell(obs, "tool"), cell(obs, "closed door")

    def do(*names):
        return [host.step(host.actions.index(name)) for name in names][-1]

    obs, *_ = do(*way(obs, key), "pickup")
    assert obs["inventory"][6] == tools + 0.25
    assert cell(obs, "tool") is None
    obs, *_ = do(*way(obs, (door[0], door[1] + 1)), "apply")
    assert cell(obs, "open door") == door
    obs, *_ = do("west", "west")
    _, reward, terminated, *_ = do(*way(obs, cell(obs, "stairs down")))
    assert (reward, terminated) == (1.0, True)


@pytest.mark.parametrize(
    "options, said",
    [
        ({"observe": ()}, "observe must be a list of different names out of symbols_crop, symbols"),
        ({"observe": "stats"}, "not 'stats'"),
        ({"observe": ("stats", "stats")}, "observe must be"),
        ({"observe": ("pixels",)}, "observe must be"),
        ({"actions": 3}, "pickup, search, not 3"),
        ({"actions": [["north"]]}, "pickup, search, not [['north']]"),
        ({"actions": ()}, "actions must be a list of different names out of north, east"),
        ({"actions": ("jump",)}, "not ('jump',)"),
        ({"reward": "dense"}, "reward must be 'sparse' or 'minihack', not 'dense'"),
        ({"max_steps": 0}, "max_steps must be positive, not 0"),
    ],
)
def test_wrong_options_are_refused(options, said):
    with pytest.raises(ValueError) as error:
        HostConfig(**options)
    assert said in str(error.value)


def test_closing_leaves_no_files(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    hosts = [Host("Room-5x5", HostConfig()) for _ in range(2)]
    for host in hosts:
        host.reset(seed=0)
        host.step(0)
    assert len(list(tmp_path.iterdir())) == 2
    for host in hosts:
        host.close()
    assert list(tmp_path.iterdir()) == []


def test_it_is_silent_and_needs_no_jax():
    code = """
import sys
from jaxrl_guided.envs.minihack.host import Host, HostConfig
host = Host("Sokoban1a", HostConfig())
host.reset(seed=0)
host.step(0)
host.close()
assert "jax" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


@pytest.mark.slow
def test_many_games_in_one_process(make):
    hosts = [make("Room-Random-5x5", observe=RAW) for _ in range(64)]
    alone = make("Room-Random-5x5", observe=RAW)
    games = [steps(host, np.random.default_rng(i), 1000 * i) for i, host in enumerate(hosts)]
    seen = [list(itertools.islice(game, 30)) for game in games]
    for i in (0, 17, 63):
        game = steps(alone, np.random.default_rng(i), 1000 * i)
        for (obs, outcome), (expected, as_expected) in zip(seen[i], game, strict=False):
            assert_same(obs, expected)
            assert outcome == as_expected
