"""SAC: probes, targets, temperature, warm-up, guidance, exact resume."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.envs.probes import TASKS, make_probe
from jaxrl_guided.envs.types import Box, Dict, Discrete, MultiDiscrete
from jaxrl_guided.learners.guidance import Guidance
from jaxrl_guided.learners.replay import Transitions
from jaxrl_guided.learners.sac import SACConfig, make_sac
from jaxrl_guided.learners.sac.update import init_learned, make_update, soft_target, target_entropy
from jaxrl_guided.learners.train import make_chunk, summarise, train
from jaxrl_guided.networks.soft import SoftNetworkConfig, make_soft_network
from jaxrl_guided.runtime.checkpoint import Checkpointer
from tests.learners.states import equal

GAMMA = 0.9


def build(env, config, guidance=None, **network):
    spaces = env.observation_space, env.action_space
    net = make_soft_network(*spaces, SoftNetworkConfig(**({"hidden": (8,)} | network)))
    return net, make_sac(env, net, config, guidance)


SMALL = SACConfig(
    replay_capacity=64,
    total_steps=400,
    num_envs=2,
    chunk_steps=4,
    updates_per_step=0.5,
    learning_starts=20,
    batch=16,
    n_step=2,
)


@functools.cache
def small(continuous=True):
    net, sac = build(make_probe("joint", 2, continuous), SMALL)
    return net, sac, jax.jit(sac.init), make_chunk(sac.iterate, 64)


def advance(iterations, continuous=True, seed=0):
    _, _, init, chunk = small(continuous)
    state, _ = chunk.run(init(jax.random.key(seed)), None, np.int32(iterations))
    return state


PROBES = SACConfig(
    replay_capacity=4096,
    total_steps=256 * 60,
    num_envs=16,
    chunk_steps=4,
    updates_per_step=0.25,
    learning_starts=256,
    batch=128,
    actor_rate=3e-3,
    critic_rate=3e-3,
    alpha_rate=0.0,
    initial_alpha=0.003,
    gamma=GAMMA,
    tau=0.05,
)


@pytest.mark.parametrize(
    "continuous, n_step",
    [
        (False, 3),
        (True, 1),
        pytest.param(False, 1, marks=pytest.mark.slow),
        pytest.param(True, 3, marks=pytest.mark.slow),
    ],
)
def test_probes_are_learned(continuous, n_step):
    """All but recall; with a temperature near 0 values are those of the hard problem."""
    config = dataclasses.replace(PROBES, n_step=n_step)
    net, sac = build(make_probe("joint", 16, continuous), config, hidden=(32,))
    state = jax.jit(jax.vmap(sac.init))(jax.random.split(jax.random.key(0), 7))
    tasks = jnp.arange(7, dtype=jnp.int32)
    state = dataclasses.replace(state, env_state=dataclasses.replace(state.env_state, task=tasks))
    chunk = make_chunk(jax.vmap(sac.iterate, in_axes=(0, None)))
    state = train(chunk, state, config.iterations)
    assert chunk.run._cache_size() == 1

    # Observations: nothing, signal +1, signal -1, times 0 … 4.
    obs = jnp.zeros((8, 6)).at[1, 0].set(1).at[2, 0].set(-1).at[3:, 1:].set(jnp.eye(5))

    def value(learned):
        policy = net.policy(learned.actor, obs)
        if not continuous:
            return net.values(learned.critics, obs, None).min(0).max(-1)
        return net.values(learned.critics, obs, policy.action(policy.mode())).min(0)

    values = dict(zip(TASKS, np.asarray(jax.vmap(value)(state.learned)), strict=False))
    close = functools.partial(np.testing.assert_allclose, atol=0.1)
    close(values["constant"][0], 1)
    close(values["observation"][1:3], [1, -1])
    close(values["discount"][3:5], [GAMMA, 1])
    close(values["action"][0], 1)
    close(values["joint"][1:3], [1, 1])
    close(values["limit"][3:], [10] * 5, atol=0.3)
    close(values["end"][3:], [4.0951, 3.439, 2.71, 1.9, 1])

    act = functools.partial(sac.act, memory=(), key=jax.random.key(0), obs=obs, greedy=True)
    actions = np.asarray(jax.vmap(lambda policy: act(policy)[1])(state.policy)).reshape(7, 8)
    actions = dict(zip(TASKS, actions, strict=False))
    close(actions["action"][0], 0.5 if continuous else 1)
    close(actions["joint"][1:3], [0.5, -0.5] if continuous else [1, 0])


def batch_of(net, size=6):
    rng = np.random.default_rng(0)
    obs = {"x": jnp.asarray(rng.normal(size=(size, 3)), jnp.float32)}
    after = {"x": jnp.asarray(rng.normal(size=(size, 3)), jnp.float32)}
    action = rng.integers(0, 4, size) if net.discrete else rng.uniform(-1, 1, (size, 2))
    return Transitions(
        obs=obs,
        action=jnp.asarray(action, jnp.int32 if net.discrete else jnp.float32),
        reward=jnp.asarray(rng.normal(size=size), jnp.float32),
        discount=jnp.float32([0.9, 0.0, 0.81, 0.9, 0.0, 0.729]),
        next_obs=after,
        targets=None,
    )


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_losses_of_discrete_actions_are_those_of_the_papers():
    """Target, value loss, policy loss and the temperature's step, in float64."""
    net = make_soft_network(Dict({"x": Box((3,))}), Discrete(4), SoftNetworkConfig((8,)))
    config = dataclasses.replace(SMALL, initial_alpha=0.3, alpha_rate=0.1)
    learned = init_learned(net, config, jax.random.key(0))
    slow = jax.tree.map(lambda x: 1.5 * x, learned.critics)  # tells the two apart
    learned = dataclasses.replace(
        learned, actor=jax.tree.map(lambda x: 40 * x, learned.actor), slow_critics=slow
    )
    batch = batch_of(net)
    _, sac = build(make_probe("joint", 2, False), config)
    hyper = sac.init(jax.random.key(0)).hyper
    update = jax.jit(make_update(net, config, None))
    after, metrics = update(learned, hyper, batch, None, jax.random.key(1))

    def numbers(critics, obs):
        return np.float64(net.values(critics, obs, None))

    def chances(obs):
        return softmax(np.float64(net.policy(learned.actor, obs).logits))

    pi = chances(batch.next_obs)
    soft = (pi * (numbers(slow, batch.next_obs).min(0) - 0.3 * np.log(pi))).sum(-1)
    target = np.float64(batch.reward) + np.float64(batch.discount) * soft
    q = numbers(learned.critics, batch.obs)
    taken = q[:, np.arange(6), np.asarray(batch.action)]
    loss = 0.5 * ((taken - target) ** 2).mean(-1).sum()
    assert metrics["value_loss"] == pytest.approx(loss, rel=1e-5)
    pi = chances(batch.obs)
    entropy = -(pi * np.log(pi)).sum(-1)
    policy_loss = -((pi * q.min(0)).sum(-1) + 0.3 * entropy).mean()
    assert metrics["policy_loss"] == pytest.approx(policy_loss, rel=1e-4)
    assert metrics["entropy"] == pytest.approx(entropy.mean(), rel=1e-5)
    # Adam's first step has the learning rate's size, down where there is more than wanted.
    more = entropy.mean() > 0.89 * math.log(4)
    step = after.log_alpha - learned.log_alpha
    assert step == pytest.approx(-0.1 if more else 0.1, rel=1e-3)
    moved = jax.tree.map(
        lambda new, old, fast: new - (old + 0.005 * (fast - old)),
        after.slow_critics,
        slow,
        after.critics,
    )
    assert max(abs(leaf).max() for leaf in jax.tree.leaves(moved)) < 1e-6


def test_values_of_real_actions_are_expectations_over_the_policy():
    """The target is unbiased: its mean over many keys equals a Monte-Carlo mean in numpy."""
    net = make_soft_network(Dict({"x": Box((3,))}), Box((2,), -2.0, 4.0), SoftNetworkConfig((8,)))
    learned = init_learned(net, SMALL, jax.random.key(0))
    batch = batch_of(net)
    noise = jax.random.normal(jax.random.key(1), (4000, 6, 2))
    alpha = jnp.float32(0.5)
    target = jax.jit(jax.vmap(lambda k: soft_target(net, learned, batch, alpha, k)))
    got = target(noise).mean(0)
    policy = net.policy(learned.actor, batch.next_obs)
    rng = np.random.default_rng(0)
    u = np.asarray(policy.mean) + np.exp(policy.log_std) * rng.normal(size=(4000, 6, 2))
    values = jax.vmap(lambda a: net.values(learned.critics, batch.next_obs, a))(
        jnp.asarray(np.tanh(u), jnp.float32)
    ).min(1)
    z = (u - np.asarray(policy.mean)) / np.exp(policy.log_std)
    density = (-0.5 * z**2 - np.asarray(policy.log_std) - 0.5 * math.log(2 * math.pi)).sum(-1)
    density -= np.log(1 - np.tanh(u) ** 2).sum(-1)
    wanted = batch.reward + batch.discount * (values - 0.5 * density).mean(0)
    np.testing.assert_allclose(got, wanted, atol=0.06)
    np.testing.assert_allclose(np.asarray(got)[[1, 4]], np.asarray(batch.reward)[[1, 4]], rtol=1e-6)


def test_the_scale_of_actions():
    """The unit scale maps to the bounds, whatever they are."""
    space = Box((2,), np.float32([-2, 0]), np.float32([4, 1]))
    net = make_soft_network(Box((3,)), space, SoftNetworkConfig((8,)))
    np.testing.assert_allclose(net.to_env(jnp.float32([[-1, 1], [0, 0]])), [[-2, 1], [1, 0.5]])
    np.testing.assert_allclose(net.from_env(jnp.float32([[-2, 1], [1, 0.5]])), [[-1, 1], [0, 0]])
    policy = net.policy(net.init(jax.random.key(0))[0], jnp.zeros((1, 3)))
    np.testing.assert_allclose(jnp.exp(policy.log_std), 1, atol=0.05)


@pytest.mark.parametrize(
    "space, given, wanted",
    [
        (Box((3,), -1.0, 1.0), None, -3.0),
        (Box((3,), -5.0, 7.0), None, -3.0),
        (Box((3,), -1.0, 1.0), -1.5, -1.5),
        (Discrete(4), None, 0.89 * math.log(4)),
    ],
)
def test_target_entropy(space, given, wanted):
    net = make_soft_network(Box((2,)), space, SoftNetworkConfig((8,)))
    config = dataclasses.replace(SMALL, target_entropy=given)
    assert target_entropy(net, config) == pytest.approx(wanted)


@pytest.mark.parametrize("space", [Discrete(3, (2,)), MultiDiscrete((2, 2)), Box((1,)), Dict({})])
def test_unsupported_actions_are_refused(space):
    with pytest.raises(ValueError, match="actions must be Discrete"):
        make_soft_network(Box((2,)), space, SoftNetworkConfig())


@pytest.mark.parametrize("continuous", [False, True])
def test_warm_iterations_act_at_random_and_learn_nothing(continuous):
    """Twenty steps in chunks of eight are three iterations."""
    assert SMALL.warm_iterations == 3
    start, warm, after = (advance(n, continuous) for n in (0, 3, 4))
    assert equal(start.learned, warm.learned)
    assert not equal(warm.learned, after.learned)
    actions = np.asarray(warm.replay.steps.action)[:12].ravel()
    if continuous:
        assert (abs(actions) <= 1).all()
        assert np.std(actions) > 0.4
    else:
        assert set(actions) == {0, 1}
    assert warm.replay.inserted == 12


@pytest.mark.parametrize("continuous", [False, True])
def test_resume_from_a_checkpoint_is_bit_equal(continuous, tmp_path):
    _, _, init, chunk = small(continuous)
    whole = advance(12, continuous)
    with Checkpointer(tmp_path / "saved", SMALL) as saved:
        saved.save(5, advance(5, continuous))
    with Checkpointer(tmp_path / "saved", SMALL) as saved:
        state, _ = saved.restore(init(jax.random.key(7)))
    state, _ = chunk.run(state, None, np.int32(7))
    assert equal(state, whole)
    assert not equal(advance(12, continuous, seed=1).learned, whole.learned)


def test_warm_iterations_count_in_no_mean_and_a_population_skips_their_updates():
    _, sac, init, _ = small()
    iterate = jax.vmap(sac.iterate, in_axes=(0, None))
    chunk = make_chunk(iterate, 16)
    state = jax.vmap(init)(jax.random.split(jax.random.key(0), 2))
    loops = [e for e in jax.make_jaxpr(iterate)(state, None).eqns if e.primitive.name == "while"]
    # Its end is one for all members, else a round would be made and thrown away.
    assert [loop.params["cond_jaxpr"].out_avals[0].shape for loop in loops] == [()]
    assert "reduce_or" not in str(loops[0].params["cond_jaxpr"])
    _, rows = chunk.run(state, None, np.int32(5))
    rows = {name: np.asarray(row)[:5] for name, row in rows.items()}
    np.testing.assert_array_equal(rows["learned"][:, 0], [0, 0, 0, 1, 1])
    whole = summarise(rows)
    np.testing.assert_allclose(whole["alpha"], rows["alpha"][3:].mean(0), rtol=1e-6)
    np.testing.assert_allclose(whole["reward"], rows["reward"].mean(0), rtol=1e-6)
    warm = summarise({name: row[:3] for name, row in rows.items()})
    assert "alpha" not in warm
    assert "reward" in warm


def test_no_key_is_used_twice():
    """Acting at random and by policy, drawing, sampling in losses: each has a key of its own."""

    def job(key):
        _, sac = build(make_probe("joint", 2, True), SMALL)
        state = sac.init(key)
        for _ in range(2):
            state, metrics = sac.iterate(dataclasses.replace(state, iteration=jnp.int32(5)))
        return metrics, sac.act(state.policy, (), jax.random.key(3), state.obs)[1]

    with jax.debug_key_reuse(True):
        jax.eval_shape(jax.jit(job), jax.random.key(0))


def test_the_temperature_stays_positive_and_finds_the_entropy():
    config = dataclasses.replace(
        PROBES, alpha_rate=0.02, initial_alpha=1.0, target_entropy=-0.5, total_steps=256 * 80
    )
    _, sac = build(make_probe("joint", 16, True), config, hidden=(32,))
    entropies = []

    def note(state, metrics, iteration):
        assert (metrics["alpha"][metrics["value_loss"] > 0] > 0).all()
        entropies.extend(metrics["entropy"].tolist())

    train(
        make_chunk(sac.iterate),
        jax.jit(sac.init)(jax.random.key(0)),
        config.iterations,
        on_chunk=note,
    )
    assert np.mean(entropies[-40:]) == pytest.approx(-0.5, abs=0.15)


def toy_guidance():
    """A prior that says: action [signal · frozen > 0], for a reward that does not care."""

    def targets(frozen, state, rollout):
        assert rollout.done.dtype == bool
        return (rollout.obs[..., 0] * frozen > 0).astype(jnp.int32), state + 1

    def loss(distribution, targets, state):
        value = -distribution.log_prob(targets).mean()
        return value, {"prior_loss": value}

    return Guidance(lambda n, key: jnp.int32(0), targets, loss, lambda state, *_: state)


def test_guidance_is_scored_once_a_chunk_and_leads_the_actor():
    config = dataclasses.replace(PROBES, initial_alpha=0.01)
    _, sac = build(make_probe("observation", 16), config, toy_guidance())
    chunk, init = make_chunk(sac.iterate), jax.jit(sac.init)
    probe = jnp.zeros((2, 6)).at[:, 0].set(jnp.float32([1, -1]))
    for sign in (1.0, -1.0):
        frozen = jnp.float32(sign)
        state = init(jax.random.key(0), frozen)
        state, rows = chunk.run(state, frozen, np.int32(100))
        _, greedy = sac.act(state.policy, (), jax.random.key(0), probe, greedy=True)
        assert greedy.tolist() == ([1, 0] if sign > 0 else [0, 1])
        assert state.guidance == 100
        assert rows["prior_loss"][99] < 0.2
        stored = state.replay.steps
        np.testing.assert_array_equal(stored.targets, stored.obs[..., 0] * sign > 0)
        assert not frozen.is_deleted()


def test_without_guidance_nothing_is_kept_for_it():
    state = advance(0)
    assert state.replay.steps.targets is None
    assert jax.tree.leaves(state.guidance) == []


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"replay_capacity": 0}, "sac.replay_capacity must be at least 1"),
        ({"replay_capacity": 60}, "multiple of sac.num_envs 2 x sac.chunk_steps 4, not 60"),
        ({"updates_per_step": 0.3}, "updates_per_step 0.3 must give whole updates: .* has 2.4"),
        ({"updates_per_step": 0.01}, "must give whole updates"),
        ({"updates_per_step": math.nan}, "updates_per_step must be positive"),
        ({"n_step": 33}, "must hold sac.n_step 33 steps of each of the 2 environments, not 32"),
        ({"tau": 1.5}, r"sac.tau must be in \[0, 1\]"),
        ({"initial_alpha": 0.0}, "sac.initial_alpha must be positive"),
        ({"learning_starts": -1}, "sac.learning_starts must be at least 0"),
        ({"learning_starts": 400}, "learning_starts 400 .* leave nothing of sac.total_steps 400"),
        ({"critic_rate": 1e300}, "sac.critic_rate must be positive and finite in float32"),
        ({"initial_alpha": 1e-300}, "sac.initial_alpha must be positive and finite in float32"),
        ({"target_entropy": math.nan}, "sac.target_entropy must be finite"),
    ],
)
def test_bad_configurations(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **changes)


def test_the_capacity_must_be_given():
    with pytest.raises(TypeError, match="replay_capacity"):
        SACConfig()


def test_the_number_of_environments_must_match():
    with pytest.raises(ValueError, match="num_envs is 2, but probe/limit-discrete has 8"):
        build(make_probe("limit", 8), SMALL)
