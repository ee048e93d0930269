"""PPO against the field's libraries, and on CLEVR-Robot alone and guided by a prior.

`python -m benchmarks.ppo`: see `race` for how it is measured and `guided` for the last rows.
Settings are such that policies learn; both sides treat time limits as they ship.
"""

from typing import Any

from benchmarks import common, guided, race

NAME = "ppo"
CARTPOLE_BAR = 475.0

_TASK: dict[str, Any] = {
    "algorithm": "ppo",
    "seeds": 1,
    "steps": 500_000,
    "rollout_steps": 128,
    "epochs": 4,
    "schedule": "linear",
    "max_grad_norm": 0.5,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip": 0.2,
    "value_clip": 0.2,
    "value_weight": 0.5,
    "entropy_weight": 0.01,
    "hidden": [64, 64],
    "activation": "tanh",
    "normalise_obs": False,
}


def _cartpole(num_envs: int, minibatches: int, learning_rate: float, **task: Any) -> dict[str, Any]:
    sizes = {"num_envs": num_envs, "minibatches": minibatches, "learning_rate": learning_rate}
    return _TASK | {"env": "CartPole-v1"} | sizes | task


_FUSED = ("purejaxrl", "rejax")
"""Peers whose run is one program."""

CASES = (
    race.make_case(
        "CartPole-v1, 4 environments, 4 minibatches",
        _cartpole(4, 4, 2.5e-4),
        (*_FUSED, "sbx", "stable-baselines3"),
        goals={"stable-baselines3": 30.0},
        bar=CARTPOLE_BAR,
        starts=1,
    ),
    race.make_case(
        "CartPole-v1, 64 environments, 32 minibatches",
        _cartpole(64, 32, 5e-4),
        _FUSED,
        goals={"purejaxrl": 1.4, "rejax": 1.6},
        bar=CARTPOLE_BAR,
    ),
    race.make_case(
        "CartPole-v1, 1024 environments, 32 minibatches",
        _cartpole(1024, 32, 1e-3, steps=5_000_000),
        _FUSED,
        goals={"purejaxrl": 1.45},
        bar=CARTPOLE_BAR,
        starts=1,
    ),
    race.make_case(
        "CartPole-v1, 64 environments, 32 minibatches",
        _cartpole(64, 32, 5e-4, seeds=16),
        _FUSED,
        bar=CARTPOLE_BAR,
        starts=1,
    ),
    race.make_case(
        "Breakout-MinAtar, 64 environments, 16 minibatches",
        _cartpole(64, 16, 1e-3, env="Breakout-MinAtar"),
        _FUSED,
    ),
    race.make_case(
        "brax/inverted_pendulum (spring), 64 environments, 8 minibatches",
        _TASK
        | {
            "env": "brax/inverted_pendulum",
            "options": {"backend": "spring"},
            "max_steps": 1000,
            "num_envs": 64,
            "rollout_steps": 32,
            "minibatches": 8,
            "learning_rate": 3e-4,
            "schedule": "constant",
            "gamma": 0.97,
            "value_clip": None,
            "normalise_obs": True,
        },
        ("brax",),
        starts=1,
    ),
)


def run() -> None:
    """Measures, prints and writes."""
    common.check_only([*(case.name for case in CASES), *(case.name for case in guided.cases())])
    rows = race.all_rows(race.race_all(CASES))
    rows += guided.rows()
    common.write_results(NAME, rows, common.results_path(NAME))


if __name__ == "__main__":
    common.main(run)
