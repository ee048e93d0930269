"""Fine-tuning: packing and loss against slow oracles, exact resume, what is trained, and a toy."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.lago.prior import BATCHES, HEADS, encode_texts, merge_trainable, seed_key
from jaxrl_guided.lago.sft import SFTConfig, make_optimiser, make_sft, pack_rows
from jaxrl_guided.runtime.checkpoint import Checkpointer
from tests.lago.toys import (
    ACTIONS,
    HORIZON,
    TEXTS,
    make_episodes,
    small_prior,
    step_by_step,
    toy_texts,
)

CONFIG = SFTConfig(
    max_updates=400, batch_rows=8, row_steps=12, lr=1e-2, backbone_lr=1e-3, action_dropout=0.0
)
STRIDE = 50


@pytest.fixture(scope="module")
def episodes():
    rng = np.random.default_rng(1)
    return make_episodes(rng.integers(1, HORIZON + 1, 25), rng.integers(0, TEXTS, 25))


def pack_slowly(episodes, row_steps, keep, history):
    """Rows as lists of (state, action, position, segment, counts), and their instructions."""
    if history == "none":
        keep = np.repeat(keep, episodes.lengths)
        episodes = in_single_steps(episodes)
    rows, texts = [], []
    for text in range(TEXTS):
        fresh = True
        for e in range(episodes.num_episodes):
            if episodes.instruction[e] != text or not keep[e]:
                continue
            start, length = episodes.starts[e], min(episodes.lengths[e], row_steps)
            if fresh or len(rows[-1]) + length > row_steps:
                rows.append([])
                texts.append(text)
                segment = 0
            fresh, segment = False, segment + 1
            for t in range(length):
                step = start + t
                rows[-1].append(
                    (
                        episodes.observations[step],
                        episodes.actions[step],
                        t,
                        segment,
                        episodes.is_expert[step],
                    )
                )
    return rows, texts


def in_single_steps(episodes):
    """Every step as an episode."""
    count = episodes.num_steps
    return dataclasses.replace(
        episodes,
        terminated=np.ones(count, bool),
        final_observations=episodes.observations,
        instruction=np.repeat(episodes.instruction, episodes.lengths),
        lengths=np.ones(count, int),
    )


@pytest.mark.parametrize("history", ["episode", "none"])
@pytest.mark.parametrize("row_steps", [4, 12])
def test_rows_equal_a_slow_packing(episodes, row_steps, history):
    """Also with rows shorter than some episodes, of which the first steps stay."""
    keep = np.arange(25) % 4 != 0
    packed = pack_rows(episodes, row_steps, keep, history)
    rows, texts = pack_slowly(episodes, row_steps, keep, history)
    assert packed.steps.instruction[:, 0].tolist() == texts
    assert packed.counts.shape == (len(rows), row_steps)
    for r, row in enumerate(rows):
        state, action, position, segment, counts = map(np.array, zip(*row, strict=True))
        n = len(row)
        np.testing.assert_array_equal(packed.steps.state[r, :n], state)
        np.testing.assert_array_equal(packed.steps.action[r, :n], action)
        np.testing.assert_array_equal(packed.steps.position[r, :n], position)
        np.testing.assert_array_equal(packed.steps.segment[r, :n], segment)
        np.testing.assert_array_equal(packed.counts[r, :n], counts)
        assert not packed.steps.segment[r, n:].any()
        assert not packed.counts[r, n:].any()
    expert = np.repeat(keep, episodes.lengths) & episodes.is_expert
    within = np.arange(episodes.num_steps) - np.repeat(episodes.starts, episodes.lengths)
    cut = (within >= row_steps) & (history == "episode")
    assert packed.counts.sum() == (expert & ~cut).sum()
    if history == "none":  # every row is full, but the last one of an instruction
        full = packed.steps.segment.all(axis=1)
        last = np.append(np.diff(packed.steps.instruction[:, 0]) != 0, True)
        assert (full | last).all()


def test_nothing_to_pack_is_refused(episodes):
    with pytest.raises(ValueError, match="no episodes to pack"):
        pack_rows(episodes, 8, np.zeros(25, bool))


@pytest.mark.parametrize(
    "field, value",
    [
        ("batch_rows", 0),
        ("warmup", 1.0),
        ("patience", 0),
        ("lr", -1),
        ("lr", float("nan")),
        ("backbone_lr", 0.0),
        ("max_grad_norm", 0.0),
        ("weight_decay", -0.1),
        ("seed", -1),
    ],
)
def test_hyper_parameters_out_of_range_are_refused(field, value):
    with pytest.raises(ValueError, match=rf"sft\.{field} must (not )?be .*, (not|but is) {value}"):
        SFTConfig(**{field: value})


@pytest.mark.parametrize(
    "field, value, known",
    [
        ("history", "all", "episode, none"),
        ("finetune", "some", "lora, full, frozen"),
        ("horizon", 0, "at least 1"),
        ("num_actions", 0, "at least 1"),
    ],
)
def test_a_prior_of_an_unknown_kind_is_refused(field, value, known):
    spec, _ = small_prior("none")
    with pytest.raises(ValueError, match=rf"{field} must be .*{known}, not '?{value}"):
        dataclasses.replace(spec, **{field: value})


def decoded_loss(spec, prior, episodes, shown=True):
    """(NLL, accuracy) over expert steps, in numpy, from step-by-step decoding of each episode."""
    count = episodes.num_episodes
    table = jax.jit(lambda prior, t: encode_texts(spec, prior, *t))(prior, toy_texts())
    state = np.zeros((HORIZON, count, episodes.observations.shape[1]), np.float32)
    action, expert = np.zeros((HORIZON, count), np.int32), np.zeros((HORIZON, count), bool)
    for e, (start, length) in enumerate(zip(episodes.starts, episodes.lengths, strict=True)):
        state[:length, e] = episodes.observations[start : start + length]
        action[:length, e] = episodes.actions[start : start + length]
        expert[:length, e] = episodes.is_expert[start : start + length]
    seen = action if shown else np.full_like(action, ACTIONS)
    instruction = np.broadcast_to(episodes.instruction, action.shape)
    never = np.zeros(action.shape, bool)
    logits = step_by_step(spec, prior, table, state, seen, instruction, never)
    logits = np.asarray(logits, np.float64)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    nll = -np.take_along_axis(log_probs, action[..., None], -1)[..., 0]
    return nll[expert].mean(), (logits.argmax(-1) == action)[expert].mean()


def expert(history):
    """The action is a function of (instruction, s_t), and with history of the action before."""

    def act(states, text):
        actions = [text % 2]
        for state in states:
            before = actions[-1] % 2 if history == "episode" else 0
            actions.append(int(state[0] > 0) + 2 * (text % 2 + before))
        return np.array(actions[1:])

    return act


def toy_episodes(history):
    rng = np.random.default_rng(2)
    lengths, texts = rng.integers(3, HORIZON + 1, 64), rng.integers(0, TEXTS, 64)
    return make_episodes(lengths, texts, action=expert(history))


@functools.cache
def toy(history, finetune):
    """(spec, prior, sft, rows) of a toy dataset."""
    spec, prior = small_prior(history, finetune)
    return (
        spec,
        prior,
        make_sft(spec, CONFIG),
        pack_rows(toy_episodes(history), 12, history=history),
    )


def begin(history="episode", finetune="lora"):
    """(state, fixed); placed as a restored state is, so that one program serves both."""
    _, prior, sft, _ = toy(history, finetune)
    state, fixed = sft.init(prior)
    return jax.device_put(state, jax.devices()[0]), fixed


def advance(state, fixed, times=1, history="episode", finetune="lora"):
    _, _, sft, rows = toy(history, finetune)
    for _ in range(times):
        state, _ = sft.update(state, fixed, rows, toy_texts(), STRIDE)
    return state


@pytest.mark.parametrize("history, finetune", [("episode", "lora"), ("none", "full")])
def test_loss_equals_step_by_step_decoding(history, finetune):
    spec, prior, sft, rows = toy(history, finetune)
    state, fixed = sft.init(prior)
    found = sft.evaluate(state.trainable, fixed, rows, toy_texts())
    nll, accuracy = decoded_loss(spec, prior, toy_episodes(history))
    np.testing.assert_allclose(found["nll"], nll, rtol=1e-4)
    np.testing.assert_allclose(found["accuracy"], accuracy, rtol=1e-6)


def test_action_dropout_hides_actions_and_full_trains_everything():
    """One row, which is the whole batch, and a share so near one that no action is shown."""
    episodes = make_episodes([4, 5, 3], [2, 2, 2], seed=4)
    spec, prior = small_prior("episode", "full")
    sft = make_sft(spec, dataclasses.replace(CONFIG, batch_rows=1, action_dropout=0.999999))
    state, fixed = sft.init(prior)
    assert jax.tree.leaves(fixed) == [fixed.mean, fixed.std]
    rows = pack_rows(episodes, 12)
    assert rows.counts.shape[0] == 1
    state, metrics = sft.update(state, fixed, rows, toy_texts(), 1)
    hidden, _ = decoded_loss(spec, prior, episodes, shown=False)
    shown, _ = decoded_loss(spec, prior, episodes)
    np.testing.assert_allclose(metrics["nll"], hidden, rtol=1e-4)
    assert abs(hidden - shown) > 1e-2
    assert unmoved(merge_trainable(state.trainable, fixed), prior) == [".mean", ".std"]


def leaves(tree):
    """All arrays of a tree by path, typed keys as their data."""
    found = {}
    for path, leaf in jax.tree.leaves_with_path(tree):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        found[jax.tree_util.keystr(path)] = np.array(jax.random.key_data(leaf) if is_key else leaf)
    return found


def equal(a, b):
    a, b = leaves(a), leaves(b)
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def test_resume_is_bit_equal_and_seeds_decide_the_batches(tmp_path):
    state, fixed = begin()
    state = advance(state, fixed)
    with Checkpointer(tmp_path, CONFIG) as checkpoints:
        checkpoints.save(STRIDE, state)
        resumed, _ = checkpoints.restore(begin()[0])
    whole = advance(begin()[0], fixed, times=2)
    assert equal(advance(resumed, fixed), whole)
    assert whole.step == 2 * STRIDE
    other = dataclasses.replace(begin()[0], key=jax.device_put(jax.random.key(1), jax.devices()[0]))
    assert not equal(advance(other, fixed, times=2).trainable, whole.trainable)
    assert toy("episode", "lora")[2].update._cache_size() == 1

    spec, prior = small_prior("none", "frozen")
    other_seed, _ = make_sft(spec, dataclasses.replace(CONFIG, seed=1)).init(prior)
    assert equal(other_seed.key, jax.random.fold_in(jax.random.key(1), BATCHES))


def test_batches_and_first_weights_share_no_key():
    drawn = [
        jax.random.key_data(jax.random.split(key, count))
        for seed in range(3)
        for key, count in (
            (jax.random.key(seed), 4),
            (seed_key(seed, HEADS), 4),
            (seed_key(seed, BATCHES), 3),
        )
    ]
    everything = np.concatenate(drawn)
    assert len(np.unique(everything, axis=0)) == len(everything) == 33


def test_a_prior_with_history_overfits_what_depends_on_the_past():
    _, prior, sft, rows = toy("episode", "lora")
    state, fixed = begin()
    before = sft.evaluate(state.trainable, fixed, rows, toy_texts())
    assert before["accuracy"] < 0.5
    state = advance(state, fixed, times=8)
    after = sft.evaluate(state.trainable, fixed, rows, toy_texts())
    assert after["accuracy"] > 0.95

    # Adapters and heads moved, the backbone and the statistics did not.
    trained = merge_trainable(state.trainable, fixed)
    assert equal(trained.base, prior.base)
    assert equal((trained.mean, trained.std), (prior.mean, prior.std))
    assert unmoved((trained.adapters, trained.heads), (prior.adapters, prior.heads)) == []


@pytest.mark.slow
def test_a_prior_without_history_overfits_what_it_sees():
    _, _, sft, rows = toy("none", "full")
    state, fixed = begin("none", "full")
    state = advance(state, fixed, 4, "none", "full")
    assert sft.evaluate(state.trainable, fixed, rows, toy_texts())["accuracy"] > 0.95


def unmoved(after, before):
    """Paths of the arrays that are the same."""
    after, before = leaves(after), leaves(before)
    return [name for name in before if np.array_equal(after[name], before[name])]


def test_a_frozen_backbone_trains_heads_alone():
    spec, prior = small_prior("none", "frozen")
    state, fixed = make_sft(spec, CONFIG).init(prior)
    assert equal(state.trainable, {"heads": prior.heads, "adapters": {}})
    assert equal(fixed.base, prior.base)


def test_rates_and_weight_decay_are_those_of_each_part():
    """Without gradients an update is - rate * decay * weight, for matrices only."""
    config = SFTConfig(max_updates=4, warmup=0.5, lr=1.0, backbone_lr=0.1, weight_decay=0.5)
    ones = functools.partial(jnp.ones, dtype=jnp.float32)
    params = {
        "heads": {"policy": {"kernel": ones((2, 3)), "bias": ones(3)}},
        "adapters": {"q": {"a": ones((2, 2, 3)), "b": ones((2, 3, 2))}},
        "base": {
            "embed": ones((5, 2)),
            "layers": {
                "attn_norm": ones((2, 2)),
                "q": {"kernel": ones((2, 2, 2)), "bias": ones((2, 2))},
            },
        },
    }
    optimiser = make_optimiser(config)
    grads, state = jax.tree.map(jnp.zeros_like, params), optimiser.init(params)
    update = jax.jit(optimiser.update)
    for rate in (1 / 3, 2 / 3, 1.0, 0.55):  # up over the first half, half a cosine to a tenth
        updates, state = update(grads, state, params)
        for name, leaf in leaves(updates).items():
            vector = name.endswith(("'bias']", "norm']"))
            scale = 0.1 if "base" in name else 1.0
            np.testing.assert_allclose(leaf, 0.0 if vector else -0.5 * rate * scale, rtol=1e-5)
    single = make_optimiser(SFTConfig(max_updates=1, warmup=0.9, lr=1.0, weight_decay=0.5))
    updates, _ = jax.jit(single.update)(grads, single.init(params), params)
    assert updates["heads"]["policy"]["kernel"][0, 0] < -0.2
