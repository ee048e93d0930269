"""Our side of a race on tiny tasks, and the products of its floor."""

from collections import Counter

import jax
import pytest

from benchmarks import learner_floor, ours, ppo, sac

PPO = ppo.CASES[0].task | {
    "steps": 64,
    "rollout_steps": 8,
    "hidden": [8],
    "epochs": 1,
    "minibatches": 2,
}
SAC = sac.CASES[0].task | {
    "steps": 24,
    "learning_starts": 8,
    "replay": 32,
    "batch": 4,
    "hidden": [8],
    "seeds": 2,
}


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """Toy programs compile for seconds and run for milliseconds."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.mark.parametrize("task, seeds", [(PPO, 1), (SAC, 2)], ids=["ppo", "sac"])
def test_a_tiny_race(task, seeds, monkeypatch):
    monkeypatch.setattr(learner_floor, "_OPERATIONS", 1.0)
    monkeypatch.setattr(learner_floor, "_ENVIRONMENT_STEPS", 32)
    contender = ours.Ours(dict(task))
    assert contender.prepare() > 0
    steps, seconds = contender.run(1)
    assert steps == seeds * task["steps"]
    assert seconds > 0
    first = contender.judge()
    assert len(first) == seeds
    contender.run(1)
    assert contender.judge() == first
    if task is PPO:
        assert min(contender.floor().values()) > 0


@pytest.mark.parametrize("case", [*ppo.CASES, *sac.CASES], ids=lambda case: case.name)
def test_our_settings_of_every_case(case):
    config = (ours.ppo_config if case.task["algorithm"] == "ppo" else ours.sac_config)(
        dict(case.task)
    )
    assert config.steps_at(config.iterations) == case.task["steps"]


def test_products_of_a_pass():
    sizes = (3, 5, 2)
    assert learner_floor.forward(sizes, 4) == Counter({(4, 3, 5): 1, (4, 5, 2): 1})
    assert learner_floor.weight_grads(sizes, 4) == Counter({(3, 4, 5): 1, (5, 4, 2): 1})
    assert learner_floor.input_grads(sizes, 4) == Counter({(4, 2, 5): 1})
    assert learner_floor.input_grads(sizes, 4, of_input=True)[(4, 5, 3)] == 1


def test_operations_of_an_iteration():
    """PPO: 2 networks, (1 + 3 epochs) forwards and nearly twice that backwards; by hand."""
    task = {"num_envs": 2, "rollout_steps": 4, "minibatches": 2, "epochs": 3, "hidden": [5]}
    products = learner_floor.ppo_products(3, 7, task)
    weights = (3 * 5 + 5 * 7) + (3 * 5 + 5 * 1)
    backwards = weights + (5 * 7 + 5 * 1)
    expected = 8 * weights + 3 * 8 * (weights + backwards)
    assert sum(m * k * n * count for (m, k, n), count in products.items()) == expected


def test_operations_of_an_update():
    """SAC: the actor 3 times forward, critics 3 times, and their gradients; by hand."""
    task = {"num_envs": 1, "batch": 10, "hidden": [5]}
    products = learner_floor.sac_products(3, 2, task)
    actor, critic = 3 * 5 + 5 * 4, 5 * 5 + 5 * 1
    acting, target = actor, 10 * (actor + 2 * critic)
    critics = 10 * 2 * (2 * critic + 5 * 1)
    policy = 10 * (2 * actor + 5 * 4 + 2 * 2 * critic)
    expected = acting + target + critics + policy
    assert sum(m * k * n * count for (m, k, n), count in products.items()) == expected
