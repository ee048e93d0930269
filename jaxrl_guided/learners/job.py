"""Training on one environment, several seeds side by side: build, train, evaluate, sum up."""

import ast
import dataclasses
import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax
import numpy as np
from jax.sharding import Mesh

from jaxrl_guided.envs import make
from jaxrl_guided.envs.dataset import load
from jaxrl_guided.envs.types import Dict, PyTree, VectorEnv
from jaxrl_guided.learners.evaluate import evaluate, stateless, uniform_action
from jaxrl_guided.learners.placement import Placement
from jaxrl_guided.learners.ppo import PPO, PPOConfig, make_ppo
from jaxrl_guided.learners.replay import Replay, nbytes
from jaxrl_guided.learners.sac import SAC, SACConfig, make_sac
from jaxrl_guided.learners.sac.demos import demonstrations
from jaxrl_guided.learners.segments import Clock, Plan, train_in_segments
from jaxrl_guided.learners.train import make_chunk
from jaxrl_guided.networks.actor_critic import NetworkConfig, make_actor_critic
from jaxrl_guided.networks.soft import SoftNetworkConfig, make_soft_network
from jaxrl_guided.runtime.checkpoint import Checkpointer
from jaxrl_guided.runtime.config import added
from jaxrl_guided.runtime.errors import UserError, validation
from jaxrl_guided.runtime.markdown import markdown_table
from jaxrl_guided.runtime.mesh import is_leader, replicated
from jaxrl_guided.runtime.plots import learning_curves
from jaxrl_guided.runtime.rundir import RunDir
from jaxrl_guided.runtime.signals import StopFlag
from jaxrl_guided.runtime.stats import bootstrap, iqm

POLICY = "policy"
"""Directory of the final policies within a run."""

_EVALUATION_SEED = 2_000_000_000
"""Episodes of evaluations start from here, those of training never do."""


_MAX_ITERATIONS = 2048
"""Of a chunk: an iteration of SAC in one environment takes half a millisecond."""


_BAD_OPTION = (TypeError, ArithmeticError, AttributeError, LookupError, AssertionError)
"""What environments raise for options that they cannot use."""


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    """How policies are judged, each on the same episodes.

    Attributes:
      episodes: of the final evaluation, for each seed.
      max_steps: cap on the length of an episode, for environments that have no limit of their own.
      curve_points: evaluations on the way, equally spaced; checkpoints are saved with them.
      curve_episodes: episodes of each of these.
    """

    episodes: int = 100
    max_steps: int = 10_000
    curve_points: int = 10
    curve_episodes: int = 20

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) < 1:
                raise ValueError(f"{field.name} must be at least 1")


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """A training run.

    Attributes:
      env: name in the registry, as `gymnax/CartPole-v1`.
      options: of the environment, as `NAME=VALUE`.
      seeds: run side by side in one program.
      algorithm: `ppo`, which uses `network` and `ppo`, or `sac`, which uses `soft` and `sac`.
      network, ppo, soft, sac, evaluation: the parts.
      demos: dataset directory of the demonstrations that `sac.demo_share` is of.
    """

    env: str = "gymnax/CartPole-v1"
    options: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    algorithm: Literal["ppo", "sac"] = "ppo"
    network: NetworkConfig = dataclasses.field(default_factory=NetworkConfig)
    ppo: PPOConfig = dataclasses.field(default_factory=PPOConfig)
    soft: SoftNetworkConfig = dataclasses.field(default_factory=SoftNetworkConfig)
    sac: SACConfig = dataclasses.field(default_factory=lambda: SACConfig(100_000))
    evaluation: EvaluationConfig = dataclasses.field(default_factory=EvaluationConfig)
    demos: str = added("")

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise ValueError(f"seeds must be different numbers from 0, not {self.seeds}")
        if max(self.seeds) >= _EVALUATION_SEED:
            raise ValueError(f"seeds must be below {_EVALUATION_SEED}, not {self.seeds}")
        shares = self.algorithm == "sac" and self.sac.demo_batch > 0
        if shares != bool(self.demos):
            raise ValueError(
                f"demos '{self.demos}' and sac.demo_share {self.sac.demo_share:g} need each other, "
                f"and algorithm sac, not {self.algorithm}"
            )
        self.env_options()

    def env_options(self) -> dict[str, Any]:
        """`options` as keyword arguments.

        Raises:
          ValueError: one of them is not `NAME=VALUE`.
        """
        found = {}
        for option in self.options:
            name, equals, text = option.partition("=")
            if not equals or not name.isidentifier():
                raise ValueError(f"options must be NAME=VALUE, not '{option}'")
            if name in found:
                raise ValueError(f"options must name '{name}' once")
            try:
                found[name] = ast.literal_eval(text)
            except (ValueError, SyntaxError, TypeError):
                found[name] = text
            if isinstance(found[name], float) and not math.isfinite(found[name]):
                raise ValueError(f"options must be finite numbers, not '{option}'")
        return found

    @property
    def num_envs(self) -> int:
        """Environments of each seed."""
        return self.ppo.num_envs if self.algorithm == "ppo" else self.sac.num_envs

    def make_env(self, num_envs: int) -> VectorEnv:
        """The environment.

        Raises:
          UserError: it is unknown, or has no such options.
        """
        with validation():
            try:
                return make(self.env, num_envs, **self.env_options())
            except _BAD_OPTION as error:  # from the depths of an environment's own code
                raise ValueError(f"options: {error}") from error


def run_job(config: TrainConfig, mesh: Mesh, run: RunDir, stop: StopFlag) -> dict[str, Any]:
    """Trains, evaluates and writes metrics, checkpoints, policies, summary and curve.

    Args:
      mesh: whose devices share the work; it does not change the result.

    Returns:
      What `train_members` returns, a member for each seed.

    Raises:
      UserError: the environment or the network's options do not fit.
      Stopped: asked to stop; the same call goes on from the last checkpoint.
    """
    result = train_members(config, config.seeds, {}, mesh, run, stop)
    if not is_leader():
        return result
    run.write_summary(result, summary_text(config, result))
    curve = np.asarray(result["curve"]["steps"]), np.asarray(result["curve"]["return"]).T
    draw_returns(config, {config.algorithm.upper(): curve}, result, run)
    return result


def train_members(
    config: TrainConfig,
    seeds: Sequence[int],
    hyper: Mapping[str, np.ndarray],
    mesh: Mesh,
    run: RunDir,
    stop: StopFlag,
) -> dict[str, Any]:
    """Trains a population in one program and evaluates it.

    Args:
      seeds: of the M members.
      hyper: hyper-parameters that differ between members, fields of the learner's `Hyper`, `f[M]`.
      run: gets metrics, checkpoints and the final policies; they belong to its configuration.

    Returns:
      JSON data: `final` numbers of each member, `random` ones (uniform random actions on the same
      episodes), `curve`, `steps` and `minutes`.
    """
    clock, placement = Clock(), place(config, len(seeds), mesh)
    learner, demos = make_learner(config, placement)
    plan = Plan(
        config.env,
        learner.config.iterations,
        learner.config.steps_at,
        config.evaluation.curve_points,
        "return",
    )
    judge_often = make_judge(config, config.evaluation.curve_episodes, learner, mesh)
    judge = make_judge(config, config.evaluation.episodes, learner, mesh)

    def start(seed: jax.Array, changes: dict[str, jax.Array]) -> Any:
        state: Any = learner.init(jax.random.key(seed))
        return dataclasses.replace(state, hyper=dataclasses.replace(state.hyper, **changes))

    changes = {name: np.asarray(values, np.float32) for name, values in hyper.items()}
    state, shardings = placement.init(start, np.asarray(seeds, np.uint32), changes)
    more = (None,) if demos is None else (None, demos)

    def iterate(state: Any, more: PyTree) -> Any:
        return learner.iterate(state, *more)

    chunk = make_chunk(jax.vmap(iterate, in_axes=(0, None)), _MAX_ITERATIONS, shardings)

    def point(state: Any) -> list[float]:
        return judge_often(state.policy)["return"]

    with Checkpointer(run.checkpoints, run.config) as checkpoints:
        state, curve = train_in_segments(
            plan, chunk, state, point, run, checkpoints, stop, clock, more
        )
    with Checkpointer(run.home / POLICY, run.config, keep=1) as policies:
        policies.save(0, state.policy)
    return {
        "final": judge(state.policy),
        "random": judge_random(config),
        "curve": curve,
        "steps": plan.steps_at(plan.iterations),
        "minutes": round(clock.seconds / 60, 2),
    }


def draw_returns(
    config: TrainConfig,
    curves: Mapping[str, tuple[np.ndarray, np.ndarray]],
    result: Mapping[str, Any],
    run: RunDir,
) -> None:
    """`curve.png`: returns over environment steps, and those of uniform random actions."""
    floor = {"uniform random": result["random"]["return"][0]}
    path, ylabel = run.path / "curve.png", "return of greedy actions"
    learning_curves(curves, path, config.env, ylabel, levels=floor)


def place(config: TrainConfig, members: int, mesh: Mesh) -> Placement:
    """Where a population lies.

    Raises:
      UserError: the devices divide neither the members nor their environments.
    """
    with validation():
        return Placement(mesh, members, config.num_envs)


def make_learner(config: TrainConfig, placement: Placement) -> tuple[PPO | SAC, Replay | None]:
    """The learner on its environments, and the demonstrations, on every device.

    Raises:
      UserError: the environment, the learner's options for it or the demonstrations do not fit.
    """
    if config.algorithm == "ppo":
        env = config.make_env(config.ppo.num_envs)
        with validation():
            network = make_actor_critic(env.observation_space, env.action_space, config.network)
            return make_ppo(env, network, config.ppo, mesh=placement.inner), None
    env = config.make_env(config.sac.num_envs)
    with validation():
        soft = make_soft_network(env.observation_space, env.action_space, config.soft)
        sac = make_sac(env, soft, config.sac, mesh=placement.inner)
        family = config.env.partition("/")[0]
        demos = demonstrations(load(config.demos, family), env, soft) if config.demos else None
    _check_memory(sac, placement)
    return sac, jax.device_put(demos, replicated(placement.mesh))


def _check_memory(sac: SAC, placement: Placement) -> None:
    """Raises UserError for a replay that the device cannot hold: allocating it may never end."""
    state = jax.eval_shape(sac.init, jax.random.key(0))
    needed = placement.members * nbytes(state.replay) / placement.mesh.size
    device = jax.local_devices()[0]
    known = (device.memory_stats() or {}).get("bytes_limit")
    limit = known or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > limit:
        raise UserError(
            f"sac.replay_capacity {sac.config.replay_capacity:,} needs {needed / 2**30:,.1f} GiB "
            f"for {placement.members} seeds, {device} has {limit / 2**30:,.1f}"
        )


def make_judge(
    config: TrainConfig, episodes: int, learner: PPO | SAC, mesh: Mesh
) -> Callable[[PyTree], dict[str, list[float]]]:
    """A function from the policies of all seeds to their numbers, a list over seeds each.

    `return`, `length` and, where the environment reports it, `success` are means over episodes of
    greedy actions; `sampled_return` is that of sampled ones.
    """
    env = config.make_env(episodes)
    memory = learner.memory(episodes) if isinstance(learner, PPO) else ()

    def run(policy: PyTree) -> dict[str, jax.Array]:
        key = jax.random.key(_EVALUATION_SEED)
        greedy, sampled = (
            evaluate(
                env,
                functools.partial(learner.act, policy, greedy=mode),
                key,
                config.evaluation.max_steps,
                memory,
            )
            for mode in (True, False)
        )
        numbers = {"return": greedy.returns, "length": greedy.length}
        if reports_success(env):
            numbers["success"] = greedy.success
        numbers["sampled_return"] = sampled.returns
        return {name: values.mean() for name, values in numbers.items()}

    program = jax.jit(jax.vmap(run), out_shardings=replicated(mesh))
    return lambda policy: {k: np.asarray(v).tolist() for k, v in program(policy).items()}


def judge_random(config: TrainConfig) -> dict[str, list[float]]:
    """Returns of uniform random actions on the episodes of the final evaluation."""
    env = config.make_env(config.evaluation.episodes)

    def choose(key: jax.Array, obs: PyTree) -> jax.Array:
        del obs
        return uniform_action(env, key)

    def run(key: jax.Array) -> jax.Array:
        results = evaluate(env, stateless(choose), key, config.evaluation.max_steps)
        return results.returns.mean()

    return {"return": [float(jax.jit(run)(jax.random.key(_EVALUATION_SEED)))]}


def reports_success(env: VectorEnv) -> bool:
    """Whether `info` has `success`."""
    assert not isinstance(env.action_space, Dict)
    state, _ = jax.eval_shape(env.reset, jax.random.key(0))
    shape = (env.num_envs, *env.action_space.shape)
    action = jax.ShapeDtypeStruct(shape, env.action_space.dtype)
    return "success" in jax.eval_shape(env.step, state, action)[1].info


def mean_text(values: Sequence[float]) -> str:
    """Mean over seeds with its interval, where there are at least two."""
    return f"{bootstrap(np.asarray(values)):.4g}" if len(values) > 1 else f"{values[0]:.4g}"


def middle_text(values: Sequence[float]) -> str:
    """Interquartile mean over seeds with its interval; empty below four, where it is the mean."""
    return f"{bootstrap(np.asarray(values), iqm):.4g}" if len(values) > 3 else ""


def summary_text(config: TrainConfig, result: dict[str, Any]) -> str:
    """The result as Markdown: a row a number, with the values of the seeds."""
    rows = []
    for name, values in result["final"].items():
        each = ", ".join(f"{value:.4g}" for value in values)
        rows.append([name.replace("_", " "), mean_text(values), middle_text(values), each])
    (floor,) = result["random"]["return"]
    rows.append(["return, uniform random", f"{floor:.4g}", "", ""])
    seeds = ", ".join(map(str, config.seeds))
    columns = ["", "mean [95 %]", "interquartile mean [95 %]", f"seeds {seeds}"]
    title = f"# {config.algorithm.upper()} on {config.env}, {result['steps']:,} steps\n\n"
    return title + markdown_table(columns, rows)
