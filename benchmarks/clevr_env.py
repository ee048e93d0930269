"""Steps per second of CLEVR-Robot on one core, beside the MuJoCo model of the same scene.

`python -m benchmarks.clevr_env`: ours is the whole environment (push, goals, reward, restarts)
under random actions, with the sweeps whose accuracy the tests measure; the peer only pushes.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import common
from jaxrl_guided.envs import make
from jaxrl_guided.envs.clevr.physics import SWEEPS
from jaxrl_guided.envs.clevr.table import NUM_ACTIONS
from jaxrl_guided.envs.types import PyTree

NAME = "clevr_env"
GOAL = 30.0
BATCHES = (64, 128, 256, 512, 1024, 2048)
QUICK_BATCHES = (256, 512)
STEPS = 20
MUJOCO_STEPS = 500
HORIZON = 50


def jax_candidate(num_envs: int) -> Callable[[], PyTree]:
    """`STEPS` random steps of `clevr/real`; the episodes go on from call to call."""
    env = make("clevr/real", num_envs=num_envs, horizon=HORIZON)

    def step(state: PyTree, key: jax.Array) -> tuple[PyTree, jax.Array]:
        action = jax.random.randint(key, (num_envs,), 0, NUM_ACTIONS)
        state, result = env.step(state, action)
        return state, jnp.sum(result.reward)

    @functools.partial(jax.jit, donate_argnums=0)
    def run(state: PyTree, key: jax.Array) -> tuple[PyTree, jax.Array, jax.Array]:
        key, action_key = jax.random.split(key)
        state, reward = jax.lax.scan(step, state, jax.random.split(action_key, STEPS))
        return state, key, reward

    carry = env.reset(jax.random.key(0))[0], jax.random.key(1)

    def advance() -> PyTree:
        nonlocal carry
        *carry, reward = run(*carry)
        return reward

    return advance


def mujoco_candidate() -> Callable[[], np.ndarray]:
    """`MUJOCO_STEPS` random pushes, from a new scene every `HORIZON`."""
    from benchmarks.peers.clevr_mujoco import ClevrMujoco

    starts = np.asarray(make("clevr/real", num_envs=64).reset(jax.random.key(0))[1]["state"])
    scene, rng = ClevrMujoco(), np.random.default_rng(0)

    def advance() -> np.ndarray:
        for step in range(MUJOCO_STEPS):
            if step % HORIZON == 0:
                scene.set_state(starts[rng.integers(len(starts))].reshape(5, 2))
            scene.push(int(rng.integers(NUM_ACTIONS)))
        return scene.positions

    return advance


def run() -> None:
    """Measures, prints and writes."""
    common.check_only()
    core = common.pin_to_core()
    batches = QUICK_BATCHES if common.QUICK.value else BATCHES
    candidates: dict[str, Callable[[], object]] = {"mujoco": mujoco_candidate()}
    candidates |= {str(num_envs): jax_candidate(num_envs) for num_envs in batches}
    times = common.measure_interleaved(candidates, repeats=3 if common.QUICK.value else 7)
    peer = MUJOCO_STEPS / times["mujoco"].median
    speed = {num_envs: num_envs * STEPS / times[str(num_envs)].median for num_envs in batches}
    best = max(speed, key=speed.__getitem__)
    rows = []
    for num_envs, ours in speed.items():
        valid = times[str(num_envs)].valid and times["mujoco"].valid
        rows.append(
            common.Row(
                case=f"clevr/real, {num_envs} environments, {SWEEPS} sweeps, one core",
                metric="environment steps per second",
                unit="1/s",
                ours=ours,
                peers={"MuJoCo 3.3.0": peer},
                goal=f"≥ {GOAL:.0f} × MuJoCo at the best batch" if num_envs == best else "",
                met=ours >= GOAL * peer if num_envs == best and valid else None,
                note=times[str(num_envs)].note or times["mujoco"].note,
            )
        )
    print(f"core {core}: {speed[best] / peer:.0f} × MuJoCo at {best} environments")
    common.write_results(NAME, rows, common.results_path(NAME))


if __name__ == "__main__":
    common.main(run)
