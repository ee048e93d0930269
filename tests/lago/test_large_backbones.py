"""Priors on large backbones: bfloat16, weights divided among devices, the shapes of the paper."""

import dataclasses
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.backbones.config import BackboneError
from jaxrl_guided.backbones.params import param_shapes
from jaxrl_guided.backbones.presets import PRESETS as SHAPES
from jaxrl_guided.backbones.sharding import make_model_mesh
from jaxrl_guided.lago.artifact import (
    BackboneChoice,
    PriorCard,
    freeze,
    load_prior,
    new_prior,
    save_prior,
)
from jaxrl_guided.lago.presets import LLAMA2, TINYLLAMA
from jaxrl_guided.lago.prior import action_outputs, encode_texts, merge_trainable
from jaxrl_guided.lago.scoring import no_open_episodes, score
from jaxrl_guided.lago.sft import SFTConfig, make_sft, pack_rows
from tests.lago.toys import ACTIONS, HORIZON, STATE, TEXTS, make_episodes, small_prior, toy_texts

COMPILED = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: (
        COMPILED.append(event) if event.endswith("backend_compile_duration") else None
    )
)


def rows_of(history="episode", row_steps=12):
    rng = np.random.default_rng(1)
    data = make_episodes(rng.integers(1, HORIZON + 1, 25), rng.integers(0, TEXTS, 25))
    return pack_rows(data, row_steps, history=history)


def outputs(spec, prior, rows):
    tokens, length = toy_texts()
    table = encode_texts(spec, prior, tokens, length)
    return action_outputs(spec, prior, table, rows.steps)


@pytest.mark.parametrize("history", ["episode", "none"])
def test_bfloat16_is_near_float32(history):
    spec, prior = small_prior(history)
    low = dataclasses.replace(spec, dtype="bfloat16")
    layers = jax.tree.map(lambda x: x.astype(jnp.bfloat16), prior.base)
    rows = rows_of(history)
    exact = outputs(spec, prior, rows)
    near = outputs(low, dataclasses.replace(prior, base=layers), rows)
    assert near.dtype == jnp.float32
    counted = rows.steps.segment > 0
    gap = jnp.abs(near - exact)[counted]
    # Eight bits of mantissa over two layers; not equal, or nothing was rounded.
    assert 1e-4 < gap.mean() < 0.05 * jnp.abs(exact)[counted].mean()


@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_small_adapters_are_not_lost_when_a_prior_is_frozen(size):
    """Of weights in bfloat16; merged into them, those of 1e-3 would be wrong by a tenth."""
    spec, prior = small_prior("none")
    spec = dataclasses.replace(spec, dtype="bfloat16")
    base = jax.tree.map(lambda x: x.astype(jnp.bfloat16), prior.base)
    adapters = {k: v | {"b": size * v["b"]} for k, v in prior.adapters.items()}
    prior = dataclasses.replace(prior, base=base, adapters=adapters)
    frozen = freeze(spec, prior, ByteTokenizer(), tuple("abcde"))
    rows = rows_of("none")
    tokens, length = ByteTokenizer().encode(tuple("abcde"))
    table = encode_texts(spec, prior, tokens, length)
    expected = action_outputs(spec, prior, table, rows.steps)
    ours = action_outputs(spec, frozen.prior, frozen.texts, rows.steps)
    np.testing.assert_array_equal(ours, expected)


class ByteTokenizer:
    """One token a letter."""

    def encode(self, texts):
        return jnp.array([[ord(text) % 32] for text in texts]), jnp.ones(len(texts), jnp.int32)


def choice(name="tinyllama", layers=1):
    return BackboneChoice(name=name, num_layers=layers, random_weights=True)


FIELDS = {"state_size": STATE, "num_actions": ACTIONS, "horizon": HORIZON, "history": "none"}


def toy_shape(monkeypatch):
    """A decoder of the family's kind that tests can afford, under the name of the large one."""
    small = dataclasses.replace(
        SHAPES["tinyllama"],
        vocab_size=512,
        hidden_size=32,
        intermediate_size=48,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
    )
    patched = dict(SHAPES) | {"tinyllama": small}
    monkeypatch.setattr("jaxrl_guided.backbones.load.PRESETS", patched)


@pytest.mark.parametrize("finetune, weights", [("lora", "bfloat16"), ("full", "float32")])
def test_a_prior_in_bfloat16_is_saved_loaded_and_frozen(monkeypatch, tmp_path, finetune, weights):
    toy_shape(monkeypatch)
    mean, std = np.zeros(STATE, np.float32), np.ones(STATE, np.float32)
    fields = FIELDS | {"finetune": finetune, "dtype": "bfloat16"}
    spec, prior, tokenizer, backbone_hash = new_prior(choice(layers=2), fields, mean, std, 3)
    assert prior.base["layers"]["q"]["kernel"].dtype == weights
    assert prior.heads["policy"]["kernel"].dtype == jnp.float32
    card = PriorCard(choice(layers=2), spec, {"kind": "toy"}, backbone_hash, 3, {"expert_steps": 1})
    save_prior(tmp_path / "prior", card, prior)
    again, loaded, _ = load_prior(tmp_path / "prior")
    assert again.spec == spec
    jax.tree.map(np.testing.assert_array_equal, loaded, prior)
    frozen = freeze(spec, loaded, tokenizer, ("go left", "go right"))
    assert frozen.prior.base["layers"]["q"]["kernel"].dtype == jnp.bfloat16
    assert frozen.texts.keys.dtype == jnp.bfloat16


def test_shapes_without_weights_say_what_to_do():
    with pytest.raises(BackboneError, match="'tinyllama' is a shape without weights: name a dir"):
        BackboneChoice(name="tinyllama", num_layers=None).load()
    with pytest.raises(BackboneError, match="num_layers must be within 1 … 22"):
        choice(layers=23).load()


def tuned(mesh, finetune):
    spec, prior = small_prior("episode", finetune)
    sft = make_sft(spec, SFTConfig(max_updates=9, batch_rows=8, row_steps=12, lr=1e-4), mesh)
    state, fixed = sft.init(prior)
    rows, texts = sft.place((rows_of(), toy_texts()))
    state, _ = sft.update(state, fixed, rows, texts, n=3)
    before = len(COMPILED)
    state, metrics = sft.update(state, fixed, rows, texts, n=3)
    assert len(COMPILED) == before > 0
    judged = sft.evaluate(state.trainable, fixed, rows, texts)
    return state, metrics | judged, merge_trainable(state.trainable, fixed)


def eight_devices(finetune):
    state, metrics, prior = tuned(make_model_mesh(4, 2), finetune)
    expected_state, expected, _ = tuned(None, finetune)
    kernel = prior.base["layers"]["q"]["kernel"]
    assert len(kernel.sharding.device_set) == 8
    assert kernel.addressable_shards[0].data.size * 8 == kernel.size
    divided = kernel if finetune == "full" else prior.adapters["q"]["a"]
    parts = 8 if finetune == "full" else 4
    moments = [x for x in jax.tree.leaves(state.opt_state) if x.shape == divided.shape]
    assert len(moments) >= 2
    assert all(x.addressable_shards[0].data.size * parts == x.size for x in (divided, *moments))
    for name, value in metrics.items():
        few = 0.05 if name == "accuracy" else 0.0  # ties may fall the other way
        np.testing.assert_allclose(value, expected[name], rtol=1e-3, atol=few, err_msg=name)
    # Six updates of about 1e-4 each: where a gradient is nearly zero Adam may go either way.
    jax.tree.map(
        lambda ours, theirs: np.testing.assert_allclose(ours, theirs, atol=5e-5),
        jax.tree.map(np.asarray, state.trainable),
        jax.tree.map(np.asarray, expected_state.trainable),
    )


@pytest.mark.slow
@pytest.mark.parametrize("finetune", ["lora", "full"])
def test_eight_devices_agree_with_one(finetune):
    subprocess.run(
        [
            sys.executable,
            "-c",
            f"from tests.lago import test_large_backbones as t; t.eight_devices({finetune!r})",
        ],
        env=os.environ
        | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"},
        check=True,
        timeout=600,
    )


def test_rows_must_divide_among_devices():
    spec, _ = small_prior("none")
    mesh = jax.sharding.AbstractMesh((3, 1), ("fsdp", "tensor"))
    with pytest.raises(
        ValueError, match=r"sft\.batch_rows must divide among the 3 devices .* not 8"
    ):
        make_sft(spec, SFTConfig(batch_rows=8), mesh)


@pytest.mark.parametrize("preset, millions", [(TINYLLAMA, 1_100), (LLAMA2, 6_738)])
def test_presets_are_the_papers_backbones(preset, millions):
    prior = preset.prior
    shapes = param_shapes(SHAPES[prior.backbone.name])
    count = sum(np.prod(s) for s in jax.tree.leaves(shapes, is_leaf=lambda x: isinstance(x, tuple)))
    assert round(count / 1e6) == millions
    assert (prior.dtype, prior.finetune, prior.backbone.num_layers) == ("bfloat16", "lora", None)


@pytest.mark.slow
@pytest.mark.parametrize("preset, layers", [(TINYLLAMA, None), (LLAMA2, 2)])
def test_presets_run_on_random_weights_at_full_width(preset, layers):
    """Fine-tuning and the scoring pass; a whole Llama-2 does not fit into the machine of the CI."""
    config = preset.prior
    backbone = dataclasses.replace(config.backbone, num_layers=layers, random_weights=True)
    mean, std = np.zeros(STATE, np.float32), np.ones(STATE, np.float32)
    fields = FIELDS | {"dtype": config.dtype, "lora": config.lora}
    spec, prior, tokenizer, _ = new_prior(backbone, fields, mean, std, 0)
    settings = dataclasses.replace(
        config.sft, batch_rows=2, row_steps=12, max_updates=4, warmup=0.0
    )
    sft = make_sft(spec, settings)
    state, fixed = sft.init(prior)
    rows = rows_of("none")
    texts = tuple(jnp.asarray(x) for x in tokenizer.encode(["go"] * TEXTS))
    state, first = sft.update(state, fixed, rows, texts, n=1)
    assert np.isfinite(first["nll"])
    # An untrained head: uniform over the actions.
    assert float(first["nll"]) == pytest.approx(np.log(ACTIONS), abs=0.3)
    state, second = sft.update(state, fixed, rows, texts, n=1)
    assert float(second["grad_norm"]) > 0
    frozen = freeze(spec, merge_trainable(state.trainable, fixed), tokenizer, ("go",) * TEXTS)
    steps, envs = 2, 3
    rollout = (
        jnp.zeros((steps, envs, STATE)),
        jnp.zeros((steps, envs), jnp.int32),
        jnp.zeros((steps, envs), jnp.int32),
        jnp.zeros((steps, envs), bool),
    )
    options = preset.online.guidance
    found, scored, _ = score(
        spec,
        frozen.prior,
        frozen.texts,
        no_open_episodes(spec, envs),
        rollout,
        chunk_tokens=options.chunk_tokens,
        fraction=options.prior_fraction,
        key=jax.random.key(0),
    )
    assert found.shape == (steps, envs, ACTIONS)
    assert np.isfinite(found).all()
    assert scored.sum() == max(1, round(options.prior_fraction * steps * envs))
