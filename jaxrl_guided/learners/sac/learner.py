"""SAC as a handful of pure functions over one state."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from jaxrl_guided.envs.population import same_for_all
from jaxrl_guided.envs.types import PyTree, TimeStep, VectorEnv
from jaxrl_guided.learners.episodes import add_step, no_episodes
from jaxrl_guided.learners.evaluate import uniform_action
from jaxrl_guided.learners.guidance import Guidance, GuidedRollout
from jaxrl_guided.learners.interaction import Interaction, collect
from jaxrl_guided.learners.placement import check_division, divide
from jaxrl_guided.learners.replay import Replay, Steps, Transitions, draw, init_replay, insert
from jaxrl_guided.learners.sac.config import SACConfig, make_hyper
from jaxrl_guided.learners.sac.state import Learned, Metrics, SACState
from jaxrl_guided.learners.sac.update import init_learned, make_update
from jaxrl_guided.networks.soft import SoftNetwork


@dataclasses.dataclass(frozen=True)
class SAC:
    """Pure functions.

    `frozen` is the guidance's frozen prior, None without guidance; `demos` are the demonstrations
    (`demos.demonstrations`) of a configuration with a `demo_share`, None without.

    Attributes:
      config: as given.
      init: `(key, frozen=None) -> SACState`.
      interaction: the parts of `collect`, for environments that the host steps.
      collect: `state -> (state, Steps [C, N, …], sums over ended episodes)`.
      update: `(state, Steps, sums, frozen=None, demos=None) -> (state, Metrics)`: insertion, then
        all updates.
      iterate: `(state, frozen=None, demos=None) -> (state, Metrics)`, both in turn.
      memory: `N -> ()`, there is none.
      act: `(policy, memory, key, obs [N, …], greedy=False) -> (memory, action [N, …])`, the form of
        PPO's; the memory stays as it is.
    """

    config: SACConfig
    init: Callable[..., SACState]
    interaction: Interaction
    collect: Callable[[SACState], tuple[SACState, Steps, Metrics]]
    update: Callable[..., tuple[SACState, Metrics]]
    iterate: Callable[..., tuple[SACState, Metrics]]
    memory: Callable[[int], PyTree]
    act: Callable[..., tuple[PyTree, jax.Array]]


def make_sac(
    env: VectorEnv,
    network: SoftNetwork,
    config: SACConfig,
    guidance: Guidance | None = None,
    mesh: Mesh | None = None,
) -> SAC:
    """Compose SAC from its parts.

    Args:
      mesh: devices among which each batch is divided; see `placement`.

    Raises:
      ValueError: `env` and `config` disagree about the number of environments, a batch does not
        divide among the devices, or there is guidance beside demonstrations, which have no targets.
    """
    if env.num_envs != config.num_envs:
        raise ValueError(
            f"sac.num_envs is {config.num_envs}, but {env.name} has {env.num_envs} environments"
        )
    if guidance is not None and config.demo_batch:
        raise ValueError("sac.demo_share must be 0 with guidance: demonstrations have no targets")
    check_division("sac.batch", config.batch, mesh)
    interaction = _make_interaction(env, network, config)
    collect_steps = functools.partial(collect, env, interaction)
    update = functools.partial(
        _insert_and_learn, network, config, guidance, mesh, make_update(network, config, guidance)
    )

    def init(key: jax.Array, frozen: PyTree = None) -> SACState:
        key, params_key, env_key, guide_key = jax.random.split(key, 4)
        env_state, obs = env.reset(env_key)
        state = SACState(
            learned=init_learned(network, config, params_key),
            hyper=make_hyper(config),
            replay=Replay(None, jnp.int32(0)),  # until it is known what a chunk looks like
            env_state=env_state,
            obs=obs,
            episodes=no_episodes(env.num_envs),
            guidance=guidance.init(env.num_envs, guide_key) if guidance else None,
            key=key,
            iteration=jnp.int32(0),
        )
        like = jax.eval_shape(
            functools.partial(_chunk, network, guidance, collect_steps), state, frozen
        )
        return dataclasses.replace(state, replay=init_replay(like, config.capacity))

    def iterate(
        state: SACState, frozen: PyTree = None, demos: Replay | None = None
    ) -> tuple[SACState, Metrics]:
        state, steps, sums = collect_steps(state)
        return update(state, steps, sums, frozen, demos)

    return SAC(
        config,
        init,
        interaction,
        collect_steps,
        update,
        iterate,
        lambda num_envs: (),
        functools.partial(act, network),
    )


def act(
    network: SoftNetwork,
    policy: PyTree,
    memory: PyTree,
    key: jax.Array,
    obs: PyTree,
    greedy: bool = False,
) -> tuple[PyTree, jax.Array]:
    """Actions `[N, …]` for the environments, sampled or of the largest density."""
    return memory, network.to_env(_unit_action(network, policy, key, obs, greedy))


def _unit_action(
    network: SoftNetwork, policy: PyTree, key: jax.Array, obs: PyTree, greedy: bool
) -> jax.Array:
    distribution = network.policy(policy, obs)
    return distribution.action(distribution.mode() if greedy else distribution.sample(key))


def _make_interaction(env: VectorEnv, network: SoftNetwork, config: SACConfig) -> Interaction:
    """Acting for a chunk, parameters fixed; at random in the warm iterations.

    `end` gives the chunk as `Steps`, and sums over the episodes that ended.
    """

    def begin(state: SACState) -> tuple[SACState, PyTree, PyTree, jax.Array]:
        key, act_key = jax.random.split(state.key)
        fixed = (state.policy, state.iteration < config.warm_iterations)
        keys = jax.random.split(act_key, (config.chunk_steps, 2))
        return dataclasses.replace(state, key=key), fixed, (state.obs, state.episodes), keys

    def decide(fixed: PyTree, carry: PyTree, keys: jax.Array) -> tuple[PyTree, jax.Array]:
        (policy, warm), (obs, episodes), (random_key, policy_key) = fixed, carry, keys
        unit = jnp.where(
            warm,
            network.from_env(uniform_action(env, random_key)),
            _unit_action(network, policy, policy_key, obs, greedy=False),
        )
        return (obs, unit, episodes), network.to_env(unit)

    def record(fixed: PyTree, carry: PyTree, after: TimeStep) -> tuple[PyTree, PyTree]:
        del fixed
        obs, unit, episodes = carry
        episodes, sums = add_step(episodes, after)
        seen = Steps(obs, unit, after.reward, after.terminated, after.done, after.final_obs)
        return (after.obs, episodes), (seen, sums)

    def end(
        state: SACState, env_state: PyTree, carry: PyTree, seen: PyTree
    ) -> tuple[SACState, Steps, Metrics]:
        (obs, episodes), (steps, sums) = carry, seen
        state = dataclasses.replace(state, env_state=env_state, obs=obs, episodes=episodes)
        return state, steps, jax.tree.map(lambda x: x.sum(axis=0), sums)

    return Interaction(begin, decide, record, end)


def _guide(
    network: SoftNetwork, guidance: Guidance | None, guide: PyTree, steps: Steps, frozen: PyTree
) -> tuple[Steps, PyTree]:
    """The chunk with the guidance's targets, and the guidance's state."""
    if guidance is None:
        return steps, guide
    seen = GuidedRollout(steps.obs, network.to_env(steps.action), steps.done)
    targets, guide = guidance.targets(frozen, guide, seen)
    return dataclasses.replace(steps, targets=targets), guide


def _chunk(
    network: SoftNetwork,
    guidance: Guidance | None,
    collect: Callable[[SACState], tuple[SACState, Steps, Metrics]],
    state: SACState,
    frozen: PyTree,
) -> Steps:
    """What is inserted into the replay."""
    state, steps, _ = collect(state)
    return _guide(network, guidance, state.guidance, steps, frozen)[0]


def _draw(
    config: SACConfig, replay: Replay, demos: Replay | None, gamma: jax.Array, key: jax.Array
) -> Transitions:
    """A batch of own experience and, as configured, of demonstrations."""
    if not config.demo_batch:
        return draw(replay, key, config.batch, gamma, config.n_step)
    if demos is None:
        raise ValueError(f"sac.demo_share {config.demo_share} needs demonstrations")
    own_key, demo_key = jax.random.split(key)
    own = draw(replay, own_key, config.batch - config.demo_batch, gamma, config.n_step)
    shown = draw(demos, demo_key, config.demo_batch, gamma, config.n_step, whole=True)
    return jax.tree.map(lambda *x: jnp.concatenate(x), own, shown)


def _insert_and_learn(
    network: SoftNetwork,
    config: SACConfig,
    guidance: Guidance | None,
    mesh: Mesh | None,
    update: Callable[..., tuple[Learned, Metrics]],
    state: SACState,
    steps: Steps,
    sums: Metrics,
    frozen: PyTree = None,
    demos: Replay | None = None,
) -> tuple[SACState, Metrics]:
    """One scoring pass, insertion, and the updates that are due; metrics are means over them.

    In the warm iterations there are no updates, their metrics are zero, and so is `learned`.
    """
    steps, guide = _guide(network, guidance, state.guidance, steps, frozen)
    replay, hyper = insert(state.replay, steps), state.hyper
    key, learn_key = jax.random.split(state.key)

    def one(learned: Learned, draw_key: jax.Array, key: jax.Array) -> tuple[Learned, Metrics]:
        batch = divide(mesh, _draw(config, replay, demos, hyper.gamma, draw_key))
        return update(learned, hyper, batch, guide, key)

    def add(_: jax.Array, carry: tuple[Learned, Metrics, jax.Array]) -> tuple:
        learned, sums, key = carry
        key, draw_key, update_key = jax.random.split(key, 3)
        learned, metrics = one(learned, draw_key, update_key)
        return learned, jax.tree.map(jnp.add, sums, metrics), key

    warm = same_for_all(state.iteration) < config.warm_iterations
    shapes = jax.eval_shape(one, state.learned, state.key, state.key)[1]
    none = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    # No round of the loop while it is warm: a condition would copy all that is learned.
    due = jnp.where(warm, 0, config.updates)
    learned, metrics, _ = jax.lax.fori_loop(0, due, add, (state.learned, none, learn_key))
    metrics = jax.tree.map(lambda x: x / config.updates, metrics)
    iteration = state.iteration + 1
    metrics["learned"] = 1.0 - warm.astype(jnp.float32)
    metrics |= sums | {"reward": steps.reward.mean()}
    if guidance is not None:
        progress = jnp.minimum(iteration / config.iterations, 1.0)
        guide = guidance.after_update(guide, metrics, progress)
    state = dataclasses.replace(
        state, learned=learned, replay=replay, guidance=guide, key=key, iteration=iteration
    )
    return state, metrics
