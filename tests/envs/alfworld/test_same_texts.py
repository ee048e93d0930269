"""Our engine sees what TextWorld's own PddlEnv sees."""

import importlib.metadata
import random

import pytest

from benchmarks.stock_alfworld import Stock, make_game, trace, wander
from jaxrl_guided.envs.alfworld.compose import compose
from jaxrl_guided.envs.alfworld.engine import Engine
from jaxrl_guided.envs.alfworld.package import TASK_TYPES, read_catalogue, read_scenes
from jaxrl_guided.envs.alfworld.player import AlfworldPlayer
from jaxrl_guided.envs.alfworld.room import sparse
from tests.envs.alfworld.household import need

need("alfworld", "textworld", "fast_downward")

if (version := importlib.metadata.version("textworld")) != "1.7.0":
    pytest.skip(f"compares with textworld 1.7.0, not {version}", allow_module_level=True)


def small_game(seed, task):
    catalogue = read_catalogue()
    scenes = [sparse(scene, catalogue) for scene in read_scenes(True)]
    return compose(f"same {seed}", scenes, [task], catalogue, 2)


def scripted(game):
    """What the player does, with invalid commands and a look at things between."""
    engine, player, rng, commands = Engine(game), AlfworldPlayer(), random.Random(0), []
    seen = engine.text
    for _ in range(60):
        said = player.answer(seen).removeprefix("<answer>").removesuffix("</answer>")
        for command in (said, rng.choice(("look", "inventory", "eat", "examine apple 1"))):
            commands.append(command)
            engine.step(command)
            seen = engine.text if command == said else seen
            if engine.won:
                return commands
    raise AssertionError("the player does not win")


def check(game, commands):
    ours, stock = trace(Engine, game, commands), trace(Stock, game, commands)
    assert ours.seen == stock.seen
    return ours.seen[-1][2]


@pytest.mark.parametrize("task", TASK_TYPES)
def test_small_games_that_are_won(task):
    game = small_game(0, task)
    assert check(game, scripted(game))


def test_small_games_of_a_random_walk():
    for seed in range(3):
        game = small_game(seed + 1, TASK_TYPES[seed])
        check(game, wander(game, seed, 20))


@pytest.mark.slow
def test_games_of_all_sizes():
    for seed in range(100, 124):  # others than those of the benchmark
        game = make_game(seed)
        check(game, wander(game, seed, 40))
        assert check(game, scripted(game))
