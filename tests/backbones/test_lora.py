"""LoRA: zero start, merging, gradients on adapters only, PEFT's files."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from jaxrl_guided.backbones import decoder, lora
from jaxrl_guided.backbones.config import BackboneConfig, BackboneError
from jaxrl_guided.backbones.params import init_params

CONFIG = BackboneConfig(
    vocab_size=31,
    hidden_size=16,
    intermediate_size=24,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=6,
    qkv_bias=True,
)
LORA = lora.LoraConfig(rank=3, alpha=6.0)
PARAMS = init_params(CONFIG, 0, std=0.3)
X = decoder.embed(PARAMS, jnp.arange(14).reshape(2, 7))
AT = jnp.broadcast_to(jnp.arange(7), (2, 7))


@jax.jit
def hidden(params, adapters):
    return decoder.apply(CONFIG, params, X, AT, lora=adapters, lora_scale=LORA.scale)[0]


def trained(targets=lora.ALL_LINEAR):
    """Adapters with a B that is not zero."""
    adapters = lora.init_lora(CONFIG, lora.LoraConfig(3, 6.0, targets), jax.random.key(1))
    keys = jax.random.split(jax.random.key(2), len(targets))
    return {
        name: {**adapters[name], "b": 0.1 * jax.random.normal(key, adapters[name]["b"].shape)}
        for name, key in zip(targets, keys, strict=True)
    }


def test_starts_as_the_base_bit_for_bit():
    adapters = lora.init_lora(CONFIG, LORA, jax.random.key(1))
    assert np.array_equal(hidden(PARAMS, adapters), hidden(PARAMS, None))
    assert all(np.abs(pair["a"]).max() > 0 for pair in adapters.values())


def test_leading_axis_and_paths_mirror_the_base():
    adapters = lora.init_lora(CONFIG, LORA, jax.random.key(1))
    for name, pair in adapters.items():
        layers, width_in, width_out = PARAMS["layers"][name]["kernel"].shape
        assert pair["a"].shape == (layers, width_in, 3)
        assert pair["b"].shape == (layers, 3, width_out)


@pytest.mark.parametrize("targets", [lora.ALL_LINEAR, ("v",)], ids=["all", "v"])
def test_merged_equals_unmerged(targets):
    adapters = trained(targets)
    merged = lora.merge_lora(PARAMS, adapters, LORA.scale)
    adapted, base = hidden(PARAMS, adapters), hidden(PARAMS, None)
    np.testing.assert_allclose(hidden(merged, None), adapted, atol=2e-5)
    assert np.abs(adapted - base).max() > 0.1


def test_merge_by_hand_and_base_untouched():
    adapters, before = trained(("up",)), jax.tree.map(np.array, PARAMS)
    merged = lora.merge_lora(PARAMS, adapters, 2.0)
    a, b = (np.asarray(adapters["up"][part][1], np.float64) for part in "ab")
    expected = before["layers"]["up"]["kernel"][1] + 2.0 * a @ b
    np.testing.assert_allclose(merged["layers"]["up"]["kernel"][1], expected, atol=1e-6)
    jax.tree.map(np.testing.assert_array_equal, PARAMS, before)


def test_gradient_reaches_every_adapter_and_only_b_at_the_start():
    def loss(adapters):
        return jnp.sum(hidden(PARAMS, adapters) * jnp.sin(jnp.arange(16.0)))

    start = jax.grad(loss)(lora.init_lora(CONFIG, LORA, jax.random.key(1)))
    assert set(start) == set(lora.ALL_LINEAR)
    for pair in start.values():
        assert np.abs(pair["b"]).max() > 0
        assert np.abs(pair["a"]).max() == 0
    later = jax.grad(loss)(trained())
    assert all(np.abs(x).max() > 0 for x in jax.tree.leaves(later))


def test_peft_files_by_name_and_back(tmp_path):
    config = lora.LoraConfig(3, 6.0, ("q", "down"))
    adapters = trained(("q", "down"))
    lora.export_peft(config, adapters, tmp_path, base="models/base")
    tensors = safetensors.numpy.load_file(tmp_path / "adapter_model.safetensors")
    name = "base_model.model.model.layers.1.mlp.down_proj.lora_A.weight"
    np.testing.assert_array_equal(tensors[name], adapters["down"]["a"][1].T)
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"
    np.testing.assert_array_equal(tensors[name], adapters["q"]["b"][0].T)
    assert len(tensors) == 8
    raw = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (raw["r"], raw["lora_alpha"], raw["peft_type"]) == (3, 6.0, "LORA")
    assert raw["base_model_name_or_path"] == "models/base"
    assert raw["target_modules"] == ["q_proj", "down_proj"]
    again, read = lora.import_peft(CONFIG, tmp_path)
    assert again == config
    jax.tree.map(np.testing.assert_array_equal, read, adapters)


def test_export_leaves_existing_files_untouched(tmp_path):
    (tmp_path / "adapter_config.json").write_text("mine")
    with pytest.raises(BackboneError, match=r"adapter_config\.json exists"):
        lora.export_peft(LORA, trained(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["adapter_config.json"]
    assert (tmp_path / "adapter_config.json").read_text() == "mine"


@pytest.mark.parametrize(
    "change,message",
    [
        ({"alpha_pattern": {"q_proj": 1}}, "only plain LoRA"),
        ({"r": "3"}, r"adapter_config\.json: r must be a positive integer .* got '3'"),
        ({"lora_alpha": "6"}, "lora_alpha must be a number .* got '6'"),
        ({"lora_alpha": 0}, r"adapter_config\.json: lora.alpha must be positive"),
        ({"target_modules": [["q_proj"]]}, r"target modules \[\['q_proj'\]\] are not supported"),
        ({"use_dora": True}, "only plain LoRA"),
        ({"bias": "all"}, "only plain LoRA"),
        ({"target_modules": ["lm_head"]}, "target modules \\['lm_head'\\] are not supported"),
        ({"r": 4}, "lora_A.weight is of shape \\(3, 16\\), expected \\(4, 16\\)"),
        ({"target_modules": ["q_proj", "k_proj"]}, "k_proj.lora_A.weight is missing"),
        ({"target_modules": "all"}, "must be a list of names, not 'all'"),
        ({"r": 0}, r"adapter_config\.json: r must be a positive integer .* got 0"),
    ],
)
def test_import_names_what_does_not_fit(tmp_path, change, message):
    lora.export_peft(lora.LoraConfig(3, 6.0, ("q",)), trained(("q",)), tmp_path)
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(BackboneError, match=message):
        lora.import_peft(CONFIG, tmp_path)


def test_import_refuses_absent_truncated_and_surplus_files(tmp_path):
    with pytest.raises(BackboneError, match=r"adapter_config\.json: does not exist"):
        lora.import_peft(CONFIG, tmp_path)
    lora.export_peft(lora.LoraConfig(3, 6.0, ("q",)), trained(("q",)), tmp_path)
    path = tmp_path / "adapter_model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-8])
    with pytest.raises(BackboneError, match="truncated or corrupt"):
        lora.import_peft(CONFIG, tmp_path)
    tensors = safetensors.numpy.load(whole)
    broken = {name: np.full_like(value, np.nan) for name, value in tensors.items()}
    path.write_bytes(safetensors.numpy.save(broken))
    with pytest.raises(BackboneError, match=r"adapter_model\.safetensors: tensor .* is not finite"):
        lora.import_peft(CONFIG, tmp_path)
    path.write_bytes(safetensors.numpy.save(tensors | {"more": np.zeros(1, np.float32)}))
    with pytest.raises(BackboneError, match="unknown tensor more"):
        lora.import_peft(CONFIG, tmp_path)
    path.unlink()
    with pytest.raises(BackboneError, match=r"no adapter_model\.safetensors"):
        lora.import_peft(CONFIG, tmp_path)


@pytest.mark.parametrize(
    "arguments,message",
    [
        ((0, 1.0), "lora.rank must be at least 1, not 0"),
        ((4, 0.0), "lora.alpha must be positive and finite in float32, not 0.0"),
        ((4, 1e300), "lora.alpha must be positive and finite in float32"),
        ((4, float("nan")), "lora.alpha must be positive and finite in float32"),
        ((4, float("inf")), "lora.alpha must be positive and finite in float32"),
        ((4, 1.0, ()), "distinct names"),
        ((4, 1.0, ("q", "q")), "distinct names"),
        ((4, 1.0, ("w",)), "distinct names"),
    ],
)
def test_config_refuses_bad_values(arguments, message):
    with pytest.raises(ValueError, match=message):
        lora.LoraConfig(*arguments)
