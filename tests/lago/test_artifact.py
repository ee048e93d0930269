"""Saved priors: exact round trip, refusals that name the file, and what the online stage gets."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from jaxrl_guided.backbones.lora import LoraConfig
from jaxrl_guided.lago.artifact import (
    BackboneChoice,
    PriorCard,
    PriorError,
    freeze,
    load_prior,
    new_prior,
    save_prior,
)
from jaxrl_guided.lago.prior import HEADS, Steps, action_outputs, encode_texts, init_prior
from jaxrl_guided.runtime.checkpoint import file_hash

ACTION_MAP = {"env": "toy", "kind": "discrete", "n": 6}
CHOICE = BackboneChoice("nano", num_layers=1)
TEXTS = ("one", "another text", "one", "the third", "another text")


def make_prior(finetune, choice=CHOICE, seed=3):
    """(card, prior, tokenizer), with noise in everything that is trained."""
    fields = {"state_size": 4, "num_actions": 6, "horizon": 7, "finetune": finetune}
    fields["lora"] = LoraConfig(rank=3, targets=("q", "v", "down"))
    mean, std = np.arange(4) * 0.1, np.arange(4) + 1.0
    spec, prior, tokenizer, backbone_hash = new_prior(choice, fields, mean, std, seed)
    rng = np.random.default_rng(0)

    def noisy(tree):
        return jax.tree.map(
            lambda x: x + np.float32(0.3) * rng.normal(size=x.shape).astype(np.float32), tree
        )

    prior = dataclasses.replace(prior, adapters=noisy(prior.adapters), heads=noisy(prior.heads))
    if finetune == "full":
        prior = dataclasses.replace(prior, base=noisy(prior.base))
    training = {"expert_steps": 7, "accuracy": 0.5}
    card = PriorCard(choice, spec, ACTION_MAP, backbone_hash, seed, training)
    return card, prior, tokenizer


@pytest.fixture(scope="module")
def lora():
    return make_prior("lora")


@pytest.fixture
def saved(lora, tmp_path):
    save_prior(tmp_path / "prior", lora[0], lora[1])
    return tmp_path / "prior"


def assert_equal(a, b):
    """The same arrays, bit for bit, in the same tree."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("finetune", ["lora", "full", "frozen"])
def test_round_trip_is_bit_equal(tmp_path, finetune):
    card, prior, tokenizer = make_prior(finetune)
    save_prior(tmp_path / "a" / "prior", card, prior)
    found, loaded, read = load_prior(tmp_path / "a" / "prior", ACTION_MAP)
    assert found == card
    assert_equal(loaded, prior)
    np.testing.assert_array_equal(read.encode(TEXTS)[0], tokenizer.encode(TEXTS)[0])
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "a" / "prior").iterdir()}
    assert modes == {0o644}
    stored = load_file(tmp_path / "a" / "prior" / "prior.safetensors")
    assert any(name.startswith("base/") for name in stored) == (finetune == "full")
    assert {p.name for p in (tmp_path / "a").rglob("*")} == {
        "prior",
        "prior.json",
        "prior.safetensors",
    }


def test_random_weights_are_those_of_the_seed(tmp_path):
    card, prior, _ = make_prior("lora", dataclasses.replace(CHOICE, random_weights=True))
    save_prior(tmp_path / "prior", card, prior)
    assert_equal(load_prior(tmp_path / "prior")[1], prior)
    assert card.backbone_hash != make_prior("lora")[0].backbone_hash
    change(tmp_path / "prior", seed=4)
    with pytest.raises(PriorError, match="backbone 'nano' is not the one that prior"):
        load_prior(tmp_path / "prior")


def test_heads_are_drawn_from_a_key_of_their_own():
    spec, prior, _, _ = new_prior(
        CHOICE, {"state_size": 4, "num_actions": 6, "horizon": 7}, np.zeros(4), np.ones(4), seed=3
    )
    key = jax.random.fold_in(jax.random.key(3), HEADS)
    again = init_prior(spec, prior.base, np.zeros(4), np.ones(4), key)
    assert_equal(prior.heads, again.heads)
    assert_equal(prior.adapters, again.adapters)


def test_an_existing_directory_is_refused_and_untouched(lora, tmp_path):
    (tmp_path / "prior").mkdir()
    (tmp_path / "prior" / "notes").write_text("mine")
    before = file_hash(tmp_path)
    with pytest.raises(PriorError, match="prior exists; choose another"):
        save_prior(tmp_path / "prior", lora[0], lora[1])
    assert file_hash(tmp_path) == before


def test_a_save_that_fails_leaves_nothing(lora, tmp_path):
    card = dataclasses.replace(lora[0], training={"what": object()})
    with pytest.raises(TypeError, match="cannot be written as JSON"):
        save_prior(tmp_path / "prior", card, lora[1])
    assert list(tmp_path.iterdir()) == []


def change(path, **fields):
    """Sets fields of prior.json, `a__b` for b within a; None removes."""
    data = json.loads((path / "prior.json").read_text())
    for name, value in fields.items():
        *parents, last = name.split("__")
        node = data
        for parent in parents:
            node = node[parent]
        if value is None:
            del node[last]
        else:
            node[last] = value
    (path / "prior.json").write_text(json.dumps(data))


def change_arrays(path, edit):
    arrays = load_file(path / "prior.safetensors")
    edit(arrays)
    save_file(arrays, path / "prior.safetensors")


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda p: (p / "prior.json").unlink(), "no prior at .*prior: prior.json is missing"),
        (lambda p: cut(p / "prior.json", 100), "prior.json is damaged, it is not valid JSON"),
        (lambda p: (p / "prior.json").write_text("[1]"), "prior.json has another format than 1"),
        (lambda p: change(p, format=2), "prior.json has another format than 1"),
        (lambda p: change(p, choice=None), "prior.json is damaged.*choice"),
        (lambda p: change(p, seed=None), "prior.json is damaged.*seed"),
        (lambda p: change(p, spec__horizon="x"), r"prior.json is damaged.*spec\.horizon"),
        (lambda p: change(p, spec__colour=1), r"prior.json is damaged.*spec\.colour"),
        (lambda p: (p / "prior.safetensors").unlink(), "prior.safetensors cannot be read"),
        (lambda p: cut(p / "prior.safetensors", 1000), "prior.safetensors cannot be read"),
        (lambda p: cut(p / "prior.safetensors", 0), "prior.safetensors cannot be read"),
        (lambda p: change(p, backbone_hash="0"), "backbone 'nano' is not the one.*prior"),
        (lambda p: change(p, spec__backbone__norm_eps=0.1), "backbone 'nano' is not the one"),
        (lambda p: change(p, spec__num_actions=7), "prior.safetensors do not have the arrays"),
        (lambda p: change(p, spec__finetune="full"), "prior.safetensors do not have the arrays"),
        (
            lambda p: change_arrays(p, lambda a: a.pop("mean")),
            "prior.safetensors do not have the arrays",
        ),
        (
            lambda p: change_arrays(p, lambda a: a.update(std=a["std"].astype(np.float64))),
            "prior.safetensors do not have the arrays",
        ),
        (
            lambda p: change_arrays(p, lambda a: a.update(more=a["std"])),
            "prior.safetensors do not have the arrays",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(saved, damage, message):
    damage(saved)
    with pytest.raises(PriorError, match=message):
        load_prior(saved, ACTION_MAP)


def test_another_action_map_is_refused(saved):
    with pytest.raises(PriorError, match=r"was trained for actions .*'n': 6.*but .*'n': 4"):
        load_prior(saved, ACTION_MAP | {"n": 4})


def test_frozen_prior_gives_the_same_logits_as_the_unmerged_one(lora):
    """Merged adapters, no token embeddings, and shared texts kept once."""
    card, prior, tokenizer = lora
    frozen = freeze(card.spec, prior, tokenizer, TEXTS)
    assert frozen.prior.adapters == {}
    assert "embed" not in frozen.prior.base
    assert frozen.texts.keys.shape[1] == 3
    assert frozen.texts.index[:, 0].tolist() == [0, 1, 0, 2, 1]
    rng = np.random.default_rng(0)
    steps = Steps(
        state=jnp.asarray(rng.normal(size=(5, 6, 4)), jnp.float32),
        action=jnp.asarray(rng.integers(0, 6, (5, 6)), jnp.int32),
        position=jnp.broadcast_to(jnp.arange(6), (5, 6)),
        segment=jnp.ones((5, 6), jnp.int32),
        instruction=jnp.arange(5)[:, None],
    )

    @jax.jit
    def unmerged(prior, tokens, length):
        texts = encode_texts(card.spec, prior, tokens, length)
        return action_outputs(card.spec, prior, texts, steps)

    want = unmerged(prior, *tokenizer.encode(TEXTS))
    found = jax.jit(lambda frozen: action_outputs(card.spec, frozen.prior, frozen.texts, steps))(
        frozen
    )
    np.testing.assert_allclose(found, want, atol=1e-4)
    assert np.std(want) > 0.1
    plain = unmerged(
        dataclasses.replace(prior, adapters=jax.tree.map(jnp.zeros_like, prior.adapters)),
        *tokenizer.encode(TEXTS),
    )
    assert np.abs(plain - want).max() > 0.01


def test_weights_that_are_not_finite_are_refused(saved):
    weights = saved / "prior.safetensors"
    content = bytearray(weights.read_bytes())
    content[-4:] = b"\xff" * 4  # a NaN
    weights.write_bytes(content)
    with pytest.raises(PriorError, match=r"prior.safetensors are damaged, some are not finite"):
        load_prior(saved, ACTION_MAP)
