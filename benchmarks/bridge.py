"""Steps per second of host environments through the bridge, beside other ways to step them.

`python -m benchmarks.bridge`: each way has processes of its own on all cores, one way after the
other, twice.
A bare loop on one core says what the environments cost; times the number of cores it is what no way
exceeds, and bare loops on all cores at once are what the machine allows. Then the parts of
training: callbacks, the host's loop, and PPO on MiniHack.
"""

import concurrent.futures
import dataclasses
import itertools
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from benchmarks import common, environments, race
from benchmarks.workers import ContenderFailed, Worker
from jaxrl_guided.envs import make
from jaxrl_guided.envs.types import PyTree, VectorEnv
from jaxrl_guided.learners.evaluate import uniform_action
from jaxrl_guided.learners.on_host import make_chunk_on_host
from jaxrl_guided.learners.ppo import PPOConfig, make_ppo
from jaxrl_guided.networks.actor_critic import NetworkConfig, make_actor_critic
from jaxrl_guided.runtime import versions
from jaxrl_guided.runtime.errors import UserError

NAME = "bridge"
ROUNDS, REPEATS = 2, 3
SPEED = "environment steps per second"
FORMS = {
    "bare loop": "bare",
    "SyncVectorEnv": "sync",
    "AsyncVectorEnv": "async",
    "SubprocVecEnv": "subproc",
}
"""Peers, and what `peers/bridge_forms.py` calls them."""

AT_ONCE = "bare loops, one a core, at once"

OF_CORES, OF_ASYNC, OF_BOTH = 0.9, 2.0, 0.9
"""Goals: share of bare loop times cores, ratio to AsyncVectorEnv, share of what bridge and learner
in turn can reach."""

LARGE = 64
"""Environments from which on the first goal holds."""


@dataclasses.dataclass(frozen=True)
class Case:
    """Environments to step.

    Attributes:
      env: name in the registry.
      num_envs: at once.
      steps: of all of them together in a run.
      max_steps: longest episode.
    """

    env: str
    num_envs: int
    steps: int
    max_steps: int

    @property
    def name(self) -> str:
        """What `--only` is matched with."""
        return f"{self.env.removeprefix('gym/')}, {self.num_envs} environments"


CASES = tuple(
    Case(env, num_envs, steps, max_steps)
    for env, steps, max_steps in (
        ("gym/CartPole-v1", 20_000, 500),
        ("minihack/Room-5x5", 6_000, 100),
        ("metaworld/reach", 4_000, 100),
    )
    for num_envs in (8, 64)
)
PPO_CASE = "PPO on minihack/Room-5x5, 64 environments"
TASKS_CASE = "metaworld, a task after the other"


def ways(case: Case) -> list[common.Row]:
    """Ours and the others'."""
    commands = {name: [sys.executable] for name in ("ours", *FORMS, AT_ONCE)}
    notes = []
    try:
        python = environments.make_environment("bridge", pathlib.Path(race.ENVS.value))
        commands["SubprocVecEnv"] = [str(python)]
    except UserError as error:
        del commands["SubprocVecEnv"]
        notes.append(f"SubprocVecEnv is left out: {error}")
    rates: dict[str, list[float]] = {}
    for _ in range(1 if common.QUICK.value else ROUNDS):
        for name, command in list(commands.items()):
            task = dataclasses.asdict(case) | {"form": FORMS.get(name, "pool")}
            task["env"] = case.env.removeprefix("gym/")
            script = [*command, str(race.SCRIPTS / "bridge_forms.py")]
            try:
                found = _at_once(script, task) if name == AT_ONCE else _measure(script, task)
                rates.setdefault(name, []).extend(found)
            except ContenderFailed as error:
                if name in ("ours", "bare loop", "AsyncVectorEnv", AT_ONCE):
                    raise RuntimeError(f"{name} failed on {case.name}: {error}") from error
                notes.append(f"{name} failed: {error}")
                del commands[name]
    return [_row(case, rates, notes)]


def _measure(command: Sequence[str], task: Mapping[str, Any]) -> list[float]:
    """Steps per second in each run but the first.

    Its processes live no longer: one for every environment takes much memory.
    """
    worker = Worker(command, task)
    try:
        answers = [worker.ask(f"run {seed}") for seed in range(1 + REPEATS)]
    finally:
        worker.close()
    return [answer["steps"] / answer["seconds"] for answer in answers[1:]]


def _at_once(command: Sequence[str], task: Mapping[str, Any]) -> list[float]:
    """Steps per second of bare loops, one a core, which share the environments."""
    cores = len(versions.cores())
    share = {name: max(task[name] // cores, 1) for name in ("num_envs", "steps")}
    one = {**task, **share, "form": "bare"}
    with concurrent.futures.ThreadPoolExecutor(cores) as threads:
        each = list(threads.map(lambda _: _measure(command, one), range(cores)))
    return [sum(rates) for rates in zip(*each, strict=True)]


def _row(case: Case, rates: Mapping[str, list[float]], notes: list[str]) -> common.Row:
    cores = len(versions.cores())
    median = {name: statistics.median(values) for name, values in rates.items()}
    ours = median.pop("ours")
    most = cores * median["bare loop"]
    peers = {f"bare loop × {cores} cores": most} | median
    wanted = [f"≥ {OF_ASYNC:g}× AsyncVectorEnv"]
    met = ours >= OF_ASYNC * median["AsyncVectorEnv"]
    if case.num_envs >= LARGE and not case.env.startswith("gym/"):
        wanted.append(f"≥ {OF_CORES:g} of bare loop × cores")
        met = met and ours >= OF_CORES * most
    void = [f"void: repeats of {name} spread by {s:.0%}" for name, s in _wide(rates).items()]
    ratio = f"{ours / most:.2f} of bare loop × cores, "
    ratio += f"{ours / median[AT_ONCE]:.2f} of {AT_ONCE}, "
    ratio += f"{ours / median['AsyncVectorEnv']:.2f}× AsyncVectorEnv"
    spread = set(_wide(rates)) & {"ours", "bare loop", "AsyncVectorEnv"}
    return common.Row(
        case.name,
        SPEED,
        "1/s",
        ours,
        peers,
        ", ".join(wanted),
        None if spread else met,
        "; ".join([ratio, *void, *notes]),
    )


_MAX_SPREAD = 2 * common.MAX_SPREAD
"""All cores are in use, so that the system's own work shows."""


def _wide(rates: Mapping[str, list[float]]) -> dict[str, float]:
    """Spreads that are too wide, between the second lowest and second highest of the repeats."""
    spreads = {}
    for name, values in rates.items():
        inner = sorted(values)[1:-1] or values
        spreads[name] = (inner[-1] - inner[0]) / statistics.median(values)
    return {name: spread for name, spread in spreads.items() if spread > _MAX_SPREAD}


def forms(case: Case) -> list[common.Row]:
    """What a step costs by callbacks and by the host's loop, beyond the pool's own time."""
    env = make(case.env, case.num_envs, **_limit(case))
    assert env.host is not None
    host = env.host
    steps = max(case.steps // case.num_envs, 10)
    keys = jax.random.split(jax.random.key(0), steps)
    draw = jax.jit(lambda key: uniform_action(env, key))
    actions = np.asarray(jax.vmap(draw)(keys))
    state, _ = jax.jit(env.reset)(jax.random.key(1))
    program = jax.jit(
        lambda state: jax.lax.scan(
            lambda now, key: (env.step(now, uniform_action(env, key))[0], None), state, keys
        )[0]
    )
    advance = jax.jit(host.advance)

    def callbacks() -> None:
        nonlocal state
        state = jax.block_until_ready(program(state))

    def loop() -> None:
        nonlocal state
        clock = host.clock(state)
        for i in range(steps):
            action = draw(keys[i])
            state, _ = advance(state, action, host.step(clock + i, np.asarray(action)))
        jax.block_until_ready(state)

    def pool() -> None:
        nonlocal state
        clock = host.clock(state)
        for i in range(steps):
            host.step(clock + i, actions[i])
        state = dataclasses.replace(state, clock=state.clock + steps)

    repeats = 2 if common.QUICK.value else ROUNDS * REPEATS
    times = common.measure_interleaved(
        {"callbacks": callbacks, "loop": loop, "pool": pool}, repeats
    )
    env.close()
    micros = {name: 1e6 * timing.median / steps for name, timing in times.items()}
    note = f"the pool alone {micros['pool']:.0f} µs a step of all environments"
    return [
        common.Row(
            case.name,
            f"cost of a step of all environments by {name}, beyond the pool",
            "µs",
            micros[name] - micros["pool"],
            note=note,
        )
        for name in ("callbacks", "loop")
    ]


def _limit(case: Case) -> dict[str, Any]:
    return {"horizon": case.max_steps} if case.env.startswith("metaworld/") else {}


def training() -> list[common.Row]:
    """PPO beside what its environments and its learning take one after the other.

    It learns nothing: a policy that solves its episodes sooner restarts them more often, which is
    slow, and would not be compared with the random actions of the bridge alone.
    """
    config = PPOConfig(
        total_steps=10**6,
        num_envs=64,
        rollout_steps=32,
        minibatches=8,
        learning_rate=1e-9,
        normalise_obs=False,
    )
    env, apart, still = (make("minihack/Room-5x5", config.num_envs) for _ in range(3))
    assert apart.host is not None
    assert still.host is not None
    jax.jit(apart.reset)(jax.random.key(0))
    rng, step, clock = np.random.default_rng(0), apart.host.step, itertools.count()
    shape = (config.rollout_steps, config.num_envs)
    actions = rng.integers(env.action_space.n, size=shape, dtype=np.int32)  # type: ignore[union-attr]
    outcome = jax.tree.map(lambda x: x[None], step(next(clock), actions[0]))
    idle = dataclasses.replace(still.host, step=lambda clock, action: outcome)

    def bridge() -> None:
        for action in actions:
            step(next(clock), action)

    candidates = {
        "training": _iterations(env, config),
        "learner": _iterations(dataclasses.replace(still, host=idle), config),
        "bridge": bridge,
    }
    times = common.measure_interleaved(candidates, 2 if common.QUICK.value else ROUNDS * REPEATS)
    for made in (env, apart, still):
        made.close()
    rate = {name: config.batch / timing.median for name, timing in times.items()}
    most = 1 / (1 / rate["bridge"] + 1 / rate["learner"])
    return [
        common.Row(
            PPO_CASE,
            SPEED,
            "1/s",
            rate["training"],
            {"bridge alone": rate["bridge"], "learner alone": rate["learner"]},
            f"≥ {OF_BOTH:g} of both in turn ({most:,.0f})",
            rate["training"] >= OF_BOTH * most,
            f"{rate['training'] / most:.2f} of both in turn",
        )
    ]


def tasks() -> list[common.Row]:
    """An episode of each task of Real, without a bridge, beside Meta-World's own environments."""
    from metaworld import MT1

    from jaxrl_guided.envs.metaworld.env import MetaWorldEnv
    from jaxrl_guided.envs.metaworld.tasks import CATEGORIES

    horizon = 100
    actions = np.random.default_rng(0).uniform(-1, 1, (horizon, 4)).astype(np.float32)
    names = CATEGORIES["real"]
    ours = [MetaWorldEnv(name, distractor=False) for name in names]
    theirs = []
    for name in names:
        of_task = MT1(f"{name}-v3")
        env = of_task.train_classes[f"{name}-v3"]()
        env.set_task(of_task.train_tasks[0])
        theirs.append(env)

    def play(envs: Sequence[Any]) -> None:
        for env in envs:
            env.reset(seed=0)
            for action in actions:
                env.step(action)

    times = common.measure_interleaved(
        {"ours": lambda: play(ours), "theirs": lambda: play(theirs)},
        *((2, 1) if common.QUICK.value else (ROUNDS * REPEATS, 6)),
    )
    rate = {name: horizon * len(names) / timing.median for name, timing in times.items()}
    ratio = f"{rate['ours'] / rate['theirs']:.2f}×"
    notes = [ratio, *(timing.note for timing in times.values() if not timing.valid)]
    return [
        common.Row(
            TASKS_CASE,
            SPEED,
            "1/s",
            rate["ours"],
            {"Meta-World alone": rate["theirs"]},
            note="; ".join(notes),
        )
    ]


def _iterations(env: VectorEnv, config: PPOConfig) -> Callable[[], Any]:
    """Does an iteration of PPO at every call."""
    network = make_actor_critic(env.observation_space, env.action_space, NetworkConfig())
    ppo = make_ppo(env, network, config)
    chunk = make_chunk_on_host(env, ppo)
    state: PyTree = None

    def iterate() -> Any:
        nonlocal state
        if state is None:
            state = jax.jit(jax.vmap(ppo.init))(jax.random.split(jax.random.key(0), 1))
        state, rows = chunk.run(state, (None,), np.int32(1))
        return rows

    return iterate


def run() -> None:
    """Measures, prints and writes."""
    common.check_only([*(case.name for case in CASES), TASKS_CASE, PPO_CASE])
    cases = CASES[:1] if common.QUICK.value and not common.ONLY.value else CASES
    rows: list[common.Row] = []
    started = time.monotonic()
    for case in cases:
        if common.fits(case.name):
            print(f"{case.name} … ({time.monotonic() - started:.0f} s)", flush=True)
            rows += ways(case) + forms(case)
    for name, measure in ((TASKS_CASE, tasks), (PPO_CASE, training)):
        if common.fits(name) and not (common.QUICK.value and not common.ONLY.value):
            print(f"{name} …", flush=True)
            rows += measure()
    common.write_results(NAME, rows, common.results_path(NAME))


if __name__ == "__main__":
    common.main(run)
