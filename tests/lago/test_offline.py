"""The offline stages: exact resume of fine-tuning, and what they refuse."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.envs import dataset
from jaxrl_guided.envs.clevr.env import ACTION_MAP
from jaxrl_guided.envs.metaworld.tasks import ACTION_MAP as METAWORLD_ACTIONS
from jaxrl_guided.lago import offline
from jaxrl_guided.lago.artifact import PriorError, load_prior
from jaxrl_guided.lago.config import DataConfig
from jaxrl_guided.lago.offline import collect_data, load_data, load_trained, train_prior
from jaxrl_guided.lago.prior import embed_states
from jaxrl_guided.runtime.checkpoint import file_hash
from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.rundir import open_run
from jaxrl_guided.runtime.signals import StopFlag, Stopped
from tests.lago.tiny import (
    HORIZON,
    PRIOR,
    expert_episodes,
    metaworld_episodes,
    prior_card,
    write_prior,
)
from tests.lago.toy_env import STATE

pytestmark = pytest.mark.usefixtures("toy_family")


def run(path, out, episodes, flag=None, config=PRIOR):
    with open_run(path, "prior", config) as directory:
        return train_prior(config, episodes, directory, out, flag or StopFlag())


class Stopping(StopFlag):
    """A stop is asked for when it is looked at for the n-th time."""

    def __init__(self, count):
        super().__init__()
        self.count = count

    @property
    def requested(self):
        self.count -= 1
        return self.count == 0


def test_stopped_fine_tuning_goes_on_exactly(tmp_path):
    episodes = expert_episodes()
    card = run(tmp_path / "whole", tmp_path / "prior", episodes)
    assert card.training["updates"] == 6
    assert card.training["expert_steps"] == episodes.num_steps
    assert (card.action_map, card.spec.horizon) == (ACTION_MAP, HORIZON)
    for count in (1, 1):  # after each of the first two evaluations
        with pytest.raises(Stopped, match=f"goes on with --run_dir={tmp_path / 'cut'}"):
            run(tmp_path / "cut", tmp_path / "cut_prior", episodes, Stopping(count))
        assert not (tmp_path / "cut_prior").exists()
    run(tmp_path / "cut", tmp_path / "cut_prior", episodes)
    assert file_hash(tmp_path / "cut_prior") == file_hash(tmp_path / "prior")
    metrics = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("whole", "cut")]
    rows = [[json.loads(line) for line in text.splitlines()] for text in metrics]
    for row in rows[0] + rows[1]:
        row.pop("time", None)
    assert [row["step"] for row in rows[1]] == [2, 4, 6]
    assert [r["held_out_nll"] for r in rows[1]] == [r["held_out_nll"] for r in rows[0]]


def test_the_best_prior_is_saved_and_nothing_is_trained_in_vain(tmp_path, monkeypatch):
    """Held-out losses are made up: better, then worse until patience ends."""
    losses = iter([1.0, 0.5, 0.7, 0.6, 0.1])
    trained = []
    make_sft = offline.make_sft

    def spy(spec, config, mesh):
        sft = make_sft(spec, config, mesh)

        def evaluate(trainable, *rest):
            trained.append({k: np.asarray(v) for k, v in trainable["heads"]["policy"].items()})
            return {"nll": np.float32(next(losses)), "accuracy": np.float32(0)}

        return dataclasses.replace(sft, evaluate=evaluate)

    monkeypatch.setattr(offline, "make_sft", spy)
    config = dataclasses.replace(
        PRIOR, sft=dataclasses.replace(PRIOR.sft, max_updates=10, patience=2)
    )
    card = run(tmp_path / "run", tmp_path / "prior", expert_episodes(), config=config)
    assert (card.training["updates"], card.training["held_out_nll"]) == (8, 0.5)
    saved = load_prior(tmp_path / "prior")[1].heads["policy"]
    for name, best in trained[1].items():
        np.testing.assert_array_equal(saved[name], best)
        assert np.any(best != trained[3][name])


def test_an_existing_prior_is_left_alone(tmp_path):
    path = write_prior(tmp_path / "prior")
    before = file_hash(path)
    with pytest.raises(UserError, match=f"prior directory {path} exists"):
        run(tmp_path / "run", path, expert_episodes())
    assert file_hash(path) == before


def test_a_run_does_not_go_on_with_other_data(tmp_path):
    with pytest.raises(Stopped):
        run(tmp_path / "run", tmp_path / "prior", expert_episodes(), Stopping(1))
    with pytest.raises(UserError, match=r"--run_dir=.*run has begun with another dataset"):
        run(tmp_path / "run", tmp_path / "prior", expert_episodes(seed=1))
    assert not (tmp_path / "prior").exists()


def test_data_without_held_out_episodes_is_refused(tmp_path):
    with pytest.raises(UserError, match="no episodes to pack"):
        run(tmp_path / "run", tmp_path / "prior", expert_episodes(1))


def test_data_of_another_environment_is_refused(tmp_path):
    metaworld_episodes().save(tmp_path / "data")
    with pytest.raises(
        UserError, match="holds episodes of 'metaworld/real', but 'clevr/…' is needed"
    ):
        load_data(tmp_path / "data", "clevr")
    assert load_data(tmp_path / "data", "metaworld").num_episodes == 60
    assert load_data(tmp_path / "data").num_episodes == 60
    expert_episodes(env="gym/CartPole-v1").save(tmp_path / "other")
    with pytest.raises(UserError, match=r"env must be out of clevr, metaworld, .*, not 'gym'"):
        load_data(tmp_path / "other")
    with pytest.raises(UserError, match="is no dataset directory"):
        load_data(tmp_path / "nothing")


def of_level(level):
    episodes = expert_episodes(env=f"clevr/{level}")
    return dataclasses.replace(episodes, metadata=episodes.metadata | {"level": level})


@pytest.mark.parametrize("level", ["easy", "rephrase", "hard-sort"])
def test_nothing_is_learned_offline_but_from_real(tmp_path, level):
    message = f"is of level '{level}', but priors and cloned policies learn from level 'real' alone"
    of_level(level).save(tmp_path / "data")
    with pytest.raises(UserError, match=f"dataset {tmp_path / 'data'} {message}"):
        load_data(tmp_path / "data")
    with pytest.raises(UserError, match=f"the dataset {message}"):
        run(tmp_path / "run", tmp_path / "prior", of_level(level))
    assert not (tmp_path / "prior").exists()


def test_a_damaged_dataset_is_refused(tmp_path):
    expert_episodes(env="clevr/real").save(tmp_path / "data")
    path = tmp_path / "data" / "actions.npy"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"actions.npy: is truncated"):
        load_data(tmp_path / "data")


def test_a_prior_with_another_action_map_is_refused(tmp_path):
    path = write_prior(
        tmp_path / "prior", action_map={**ACTION_MAP, "action": "direction * 5 + ball"}
    )
    with pytest.raises(PriorError, match=r"trained for actions .*; train a prior for it"):
        load_trained(path, "clevr")
    assert load_trained(write_prior(tmp_path / "right"), "clevr").expert_steps == 7


@pytest.mark.slow
def test_collected_data_is_saved_as_configured(tmp_path):
    config = DataConfig(level="easy", episodes=30, random_fraction=0.5, seed=3)
    collected = collect_data(config, 8, tmp_path / "data", "clevr")
    loaded = dataset.load(tmp_path / "data")
    assert loaded.num_episodes == 30
    assert loaded.metadata == collected.metadata
    assert (loaded.metadata["level"], loaded.metadata["horizon"]) == ("easy", 8)
    assert loaded.metadata["random_fraction"] == 0.5


def changed(**changes):
    episodes = expert_episodes(env="clevr/real")
    values = {name: change(getattr(episodes, name)) for name, change in changes.items()}
    return dataclasses.replace(episodes, **values)


def with_first(value):
    def change(array):
        array = array.copy()
        array[0] = value
        return array

    return change


def with_metadata(**entries):
    return lambda metadata: {k: v for k, v in {**metadata, **entries}.items() if v is not None}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"actions": with_first(99)}, "actions out of 0 … 39"),
        ({"instruction": with_first(-1)}, "instruction out of 0 … "),
        ({"instruction": with_first(10**6)}, "instruction out of 0 … "),
        ({"metadata": with_metadata(horizon=3)}, "lengths out of 0 … 3"),
        ({"metadata": with_metadata(horizon="many")}, "no whole number metadata.horizon"),
        ({"metadata": with_metadata(action_map=None)}, "no usable metadata.action_map"),
        ({"observations": with_first(np.nan)}, "observations that are not finite"),
        ({"observations": lambda x: {"state": x}}, r"must have observations f32\[M, d\]"),
        ({"is_expert": np.zeros_like}, "no step of the expert"),
    ],
)
def test_data_that_cannot_be_learned_from_is_refused(tmp_path, changes, message):
    if "observations" in changes and message.startswith("must"):
        changes = changes | {"final_observations": lambda x: {"state": x}}
    changed(**changes).save(tmp_path / "data")
    with pytest.raises(UserError, match=f"dataset .*data (has|holds)? ?.*{message}"):
        load_data(tmp_path / "data")


@pytest.mark.parametrize(
    "actions, message",
    [
        (with_first(1.01), "±1, 4 numbers each"),
        (with_first(np.nan), "±1, 4 numbers each"),
        (lambda x: x[:, :3], "±1, 4 numbers each"),
        (lambda x: np.ones_like(x, int), "±1, 4 numbers each"),
    ],
)
def test_continuous_actions_that_cannot_be_learned_from_are_refused(tmp_path, actions, message):
    episodes = metaworld_episodes()
    dataclasses.replace(episodes, actions=actions(episodes.actions)).save(tmp_path / "data")
    with pytest.raises(UserError, match=f"dataset .*data has actions out of {message}"):
        load_data(tmp_path / "data", "metaworld")


def test_a_prior_of_continuous_actions_is_trained_and_loaded(tmp_path):
    pytest.importorskip("metaworld")
    card = run(tmp_path / "run", tmp_path / "prior", metaworld_episodes())
    assert (card.spec.num_actions, card.spec.action_size) == (0, 4)
    assert card.action_map == METAWORLD_ACTIONS | {"squash": "tanh", "clip": 0.98}
    found = load_trained(tmp_path / "prior", "metaworld")
    assert (found.spec, found.expert_steps) == (card.spec, card.training["expert_steps"])
    with pytest.raises(PriorError, match=r"trained for actions .*'squash': 'tanh'"):
        load_trained(tmp_path / "prior", "clevr")


def test_what_never_varied_has_no_weight():
    """A distractor that the data has not shown changes nothing, and no number is large."""
    states = np.random.default_rng(0).normal(size=(100_000, STATE)).astype(np.float32)
    states[:, [2, 5]] = 0.6
    mean, std = offline._statistics(states)
    np.testing.assert_allclose(mean[[2, 5]], 0.6, rtol=1e-6)
    expected = np.std(np.float64(states), 0)
    np.testing.assert_allclose(np.delete(std, [2, 5]), np.delete(expected, [2, 5]), rtol=1e-6)
    states = states[:50]
    _, prior, _ = prior_card()
    prior = dataclasses.replace(prior, mean=jnp.asarray(mean), std=jnp.asarray(std))
    other = states.copy()
    other[:, [2, 5]] = 0.9

    def seen_at(x):
        return np.where(np.isin(np.arange(STATE), [2, 5]), 0.6, x).astype(np.float32)

    seen, changed = (embed_states(prior, jnp.asarray(x)) for x in (states, other))
    np.testing.assert_allclose(seen, changed, atol=1e-5)
    far, farther = (embed_states(prior, jnp.asarray(seen_at(x))) for x in (1e3, 1e5))
    np.testing.assert_array_equal(far, farther)
