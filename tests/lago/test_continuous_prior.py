"""Priors of continuous actions offline: loss, training, cloning, spoiling, saving."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.envs.types import Box, Dict, Discrete
from jaxrl_guided.lago.actions import ContinuousActions, recorded_map
from jaxrl_guided.lago.artifact import (
    PriorCard,
    PriorError,
    TrainedPrior,
    load_prior,
    new_prior,
    save_prior,
)
from jaxrl_guided.lago.bc import BCConfig, clone, expert_steps
from jaxrl_guided.lago.controls import spoil
from jaxrl_guided.lago.prior import encode_texts, read_actions
from jaxrl_guided.lago.sft import SFTConfig, make_sft, pack_rows
from jaxrl_guided.learners.ppo import act
from jaxrl_guided.networks.actor_critic import NetworkConfig, make_actor_critic
from tests.lago.tiny import BACKBONE, expert_episodes
from tests.lago.toy_env import AIM_MAP, AIMS, right_aim
from tests.lago.toys import HORIZON, make_episodes, small_prior, step_by_step, toy_texts

CONFIG = SFTConfig(max_updates=300, batch_rows=8, row_steps=12, lr=1e-2, action_dropout=0.0)
KIND = {"num_actions": 0, "action_size": 2}


def toy_episodes(seed=2, count=64):
    """Episodes of texts 0 to 3, each step's action that of the text, turned after the first."""

    def turning(states, text):
        return right_aim(text + (np.arange(len(states)) > 0))

    rng = np.random.default_rng(seed)
    lengths, texts = rng.integers(3, HORIZON + 1, count), rng.integers(0, 4, count)
    return make_episodes(lengths, texts, action=turning)


def decoded_loss(spec, prior, episodes, shown=True):
    """(NLL, accuracy) over expert steps, in numpy, from step-by-step decoding of each episode."""
    count = episodes.num_episodes
    table = jax.jit(lambda prior, t: encode_texts(spec, prior, *t))(prior, toy_texts())
    state = np.zeros((HORIZON, count, episodes.observations.shape[1]), np.float32)
    action, expert = np.zeros((HORIZON, count, 2), np.float32), np.zeros((HORIZON, count), bool)
    for e, (start, length) in enumerate(zip(episodes.starts, episodes.lengths, strict=True)):
        state[:length, e] = episodes.observations[start : start + length]
        action[:length, e] = episodes.actions[start : start + length]
        expert[:length, e] = episodes.is_expert[start : start + length]
    seen = spec.actions.hide(jnp.asarray(action), jnp.full(expert.shape, not shown))
    instruction = np.broadcast_to(episodes.instruction, expert.shape)
    outputs = step_by_step(
        spec, prior, table, state, seen, instruction, np.zeros(expert.shape, bool)
    )
    said = spec.actions.distribution(outputs)
    mean, std = np.float64(said.mean), np.exp(np.float64(said.log_std))
    label = np.arctanh(np.clip(np.float64(action), -0.98, 0.98))
    each = 0.5 * ((label - mean) / std) ** 2 + np.log(std) + 0.5 * np.log(2 * np.pi)
    near = np.abs(np.tanh(mean) - action) <= 0.1
    return each.sum(-1)[expert].mean(), near[expert].mean()


def test_loss_equals_step_by_step_decoding():
    spec, prior = small_prior("episode", **KIND)
    episodes = toy_episodes(count=20)
    sft = make_sft(spec, CONFIG)
    state, fixed = sft.init(prior)
    found = sft.evaluate(state.trainable, fixed, pack_rows(episodes, 12), toy_texts())
    nll, accuracy = decoded_loss(spec, prior, episodes)
    np.testing.assert_allclose(found["nll"], nll, rtol=1e-4)
    np.testing.assert_allclose(found["accuracy"], accuracy, rtol=1e-5)
    assert 0 < accuracy < 1


def test_action_dropout_hides_actions():
    """One row, which is the whole batch, and a share so near one that no action is shown."""
    episodes = dataclasses.replace(
        make_episodes([4, 5, 3], [2, 2, 2], seed=4),
        actions=np.random.default_rng(0).uniform(-1, 1, (12, 2)).astype(np.float32),
    )
    spec, prior = small_prior("episode", **KIND)
    sft = make_sft(spec, dataclasses.replace(CONFIG, batch_rows=1, action_dropout=0.999999))
    state, fixed = sft.init(prior)
    _, metrics = sft.update(state, fixed, pack_rows(episodes, 12), toy_texts(), 1)
    hidden, _ = decoded_loss(spec, prior, episodes, shown=False)
    shown, _ = decoded_loss(spec, prior, episodes)
    np.testing.assert_allclose(metrics["nll"], hidden, rtol=1e-4)
    assert abs(hidden - shown) > 1e-2


def test_it_learns_what_depends_on_the_text_and_on_the_past():
    spec, prior = small_prior("episode", **KIND)
    sft, rows = make_sft(spec, CONFIG), pack_rows(toy_episodes(), 12)
    state, fixed = sft.init(prior)
    assert sft.evaluate(state.trainable, fixed, rows, toy_texts())["accuracy"] < 0.5
    state, _ = sft.update(state, fixed, rows, toy_texts(), 300)
    assert sft.evaluate(state.trainable, fixed, rows, toy_texts())["accuracy"] > 0.9


def test_a_prior_has_one_kind_of_actions():
    spec, _ = small_prior("none", **KIND)
    assert spec.actions == ContinuousActions(2)
    with pytest.raises(ValueError, match="num_actions must be 0 beside action_size, not 5"):
        dataclasses.replace(spec, num_actions=5)
    with pytest.raises(ValueError, match="action_size must be at least 1, not -1"):
        dataclasses.replace(spec, action_size=-1)


SPACE = Dict({"state": Box((10,)), "instruction": Discrete(len(AIMS))})
TABLE = 2 * jnp.eye(len(AIMS))


def aiming_batches():
    """Observations of four instructions, and saturated actions of the expert."""
    episodes = expert_episodes(300, "aim/real", 0, right_aim, AIM_MAP, num_texts=len(AIMS))
    return expert_steps(episodes, np.array([False, False, False, True]))


def test_cloning_learns_saturated_actions():
    (obs, action), held_out = aiming_batches()
    assert action.dtype == jnp.float32
    assert set(np.unique(held_out[0]["instruction"])) == {3}
    network = make_actor_critic(SPACE, Box((2,), -1.0, 1.0), NetworkConfig(hidden=(16,)), TABLE)
    config = BCConfig(updates=400, batch=32, learning_rate=0.02)
    run = jax.jit(lambda train, key: clone(network, config, train, train, key))
    policy, loss = run((obs, action), jax.random.key(0))
    _, found = act(network, policy, {}, jax.random.key(1), obs, greedy=True)
    np.testing.assert_allclose(found, np.clip(action, -0.98, 0.98), atol=0.1)
    density = network.step(policy.params, {}, normalised(obs))[1].log_prob(
        jnp.arctanh(jnp.clip(action, -0.98, 0.98))
    )
    np.testing.assert_allclose(loss, -np.mean(density), rtol=1e-3)


def normalised(obs):
    state = np.asarray(obs["state"])
    return obs | {"state": (state - state.mean(0)) / state.std(0)}


def test_cloning_refuses_a_policy_that_is_not_squashed():
    train, held_out = aiming_batches()
    network = make_actor_critic(
        SPACE, Box((2,), -1.0, 1.0), NetworkConfig(hidden=(16,), policy="clipped"), TABLE
    )
    with pytest.raises(ValueError, match=r"network\.policy must be 'tanh' .*not ClippedNormal"):
        clone(network, BCConfig(updates=20, batch=4), train, held_out, jax.random.key(0))


def card_and_prior():
    """(card, prior, tokenizer) of an untrained prior for `AIM_MAP`."""
    fields = {"state_size": 10, "horizon": HORIZON, "finetune": "frozen", **KIND}
    mean, std = np.zeros(10), np.ones(10)
    spec, prior, tokenizer, backbone_hash = new_prior(BACKBONE, fields, mean, std, 0)
    card = PriorCard(BACKBONE, spec, recorded_map(AIM_MAP), backbone_hash, 0, {"expert_steps": 1})
    return card, prior, tokenizer


@pytest.mark.parametrize("control", ["reversed", "random"])
def test_spoilt_priors(control):
    card, prior, tokenizer = card_and_prior()
    trained = TrainedPrior(card.spec, prior, tokenizer, 1)
    hidden = jax.random.normal(jax.random.key(1), (64, card.spec.backbone.hidden_size))
    before, after = (
        card.spec.actions.distribution(read_actions(part.prior, hidden))
        for part in (trained, spoil(trained, control))
    )
    if control == "reversed":
        np.testing.assert_allclose(after.mean, -before.mean, atol=1e-6)
        np.testing.assert_array_equal(after.log_std, before.log_std)
    else:
        assert after.mean.std() == pytest.approx(float(before.mean.std()), rel=0.3)
        assert abs(np.corrcoef(before.mean.ravel(), after.mean.ravel())[0, 1]) < 0.4


def test_round_trip_and_other_action_maps(tmp_path):
    card, prior, _ = card_and_prior()
    save_prior(tmp_path / "prior", card, prior)
    found, loaded, _ = load_prior(tmp_path / "prior", AIM_MAP)
    assert found == card
    assert jax.tree.structure(loaded) == jax.tree.structure(prior)
    for a, b in zip(jax.tree.leaves(loaded), jax.tree.leaves(prior), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(PriorError, match=r"'size': 2.*but the environment has .*'size': 3"):
        load_prior(tmp_path / "prior", AIM_MAP | {"size": 3})
    other = dataclasses.replace(card, action_map=card.action_map | {"clip": 0.9})
    save_prior(tmp_path / "other", other, prior)
    with pytest.raises(PriorError, match=r"'clip': 0.9.*but the environment has .*'clip': 0.98"):
        load_prior(tmp_path / "other", AIM_MAP)
