"""Hugging Face directories: types, shards, both forms of config.json, and every error by name."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from etils import epath

from jaxrl_guided.backbones import hf
from jaxrl_guided.backbones.config import BackboneConfig, BackboneError, RopeScaling
from jaxrl_guided.backbones.params import param_shapes

CONFIG = BackboneConfig(
    vocab_size=31,
    hidden_size=16,
    intermediate_size=24,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=6,
)
BASE = "model.layers.1.self_attn.k_proj.weight"


def params_of(config):
    return jax.tree.map(
        lambda shape: jnp.asarray(
            np.random.default_rng(len(shape)).normal(size=shape), jnp.float32
        ),
        param_shapes(config),
        is_leaf=lambda x: isinstance(x, tuple),
    )


@pytest.fixture
def checkpoint(tmp_path):
    hf.export_hf(CONFIG, params_of(CONFIG), tmp_path)
    return tmp_path


def change_tensors(directory, change):
    path = directory / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    change(tensors)
    safetensors.numpy.save_file(tensors, path)


def change_config(directory, **changes):
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


FEATURES = {
    "llama": {},
    "llama_bias": {"qkv_bias": True, "o_bias": True},
    "llama_tied": {"tie_embeddings": True},
    "llama3": {"rope_scaling": RopeScaling(8.0, 1.0, 4.0, 64)},
    "qwen2": {"qkv_bias": True},
    "qwen3": {"qk_norm": True, "tie_embeddings": True},
    "qwen3_bias": {"qk_norm": True, "qkv_bias": True, "o_bias": True},
}


@pytest.mark.parametrize("name", FEATURES)
def test_export_and_load_are_inverse(name, tmp_path):
    config = dataclasses.replace(CONFIG, **FEATURES[name])
    params = params_of(config)
    hf.export_hf(config, params, tmp_path)
    read, again = hf.load_hf(tmp_path)
    assert read == config
    jax.tree.map(np.testing.assert_array_equal, again, params)


def test_layout_of_a_tensor_by_hand(checkpoint):
    tensors = safetensors.numpy.load_file(checkpoint / "model.safetensors")
    kernel = params_of(CONFIG)["layers"]["k"]["kernel"]
    assert tensors[BASE].shape == (12, 16)  # torch keeps [out, in]
    np.testing.assert_array_equal(tensors[BASE], kernel[1].T)


@pytest.mark.parametrize("kind", [jnp.bfloat16, np.float16, np.float32])
def test_types_of_stored_tensors(kind, checkpoint):
    change_tensors(checkpoint, lambda t: t.update({k: v.astype(kind) for k, v in t.items()}))
    _, params = hf.load_hf(checkpoint)
    expected = jax.tree.map(lambda x: np.asarray(x).astype(kind), params_of(CONFIG))
    assert params["embed"].dtype == jnp.float32
    jax.tree.map(np.testing.assert_array_equal, params, expected)


def test_parameters_in_bfloat16_survive_export(tmp_path):
    params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params_of(CONFIG))
    hf.export_hf(CONFIG, params, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["torch_dtype"] == "bfloat16"
    _, again = hf.load_hf(tmp_path, dtype=jnp.bfloat16)
    assert again["embed"].dtype == jnp.bfloat16
    jax.tree.map(np.testing.assert_array_equal, again, params)


def shard(directory):
    path = directory / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    path.unlink()
    weight_map = {name: f"model-{i % 2 + 1}-of-2.safetensors" for i, name in enumerate(tensors)}
    for file in set(weight_map.values()):
        part = {name: tensors[name] for name in tensors if weight_map[name] == file}
        safetensors.numpy.save_file(part, directory / file)
    index = directory / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))


def test_shards(checkpoint):
    shard(checkpoint)
    _, params = hf.load_hf(checkpoint)
    jax.tree.map(np.testing.assert_array_equal, params, params_of(CONFIG))
    (checkpoint / "model-2-of-2.safetensors").unlink()
    with pytest.raises(BackboneError, match=r"model-2-of-2\.safetensors: the index names it"):
        hf.load_hf(checkpoint)


@pytest.mark.parametrize(
    "data,message",
    [
        (b"{}", "not a safetensors index"),
        (b'{"weight_map": [1]}', "not a safetensors index"),
        (b'{"weight_map": {"a": 5}}', "not a safetensors index"),
        (b'{"weight_map": null}', "not a safetensors index"),
        (b"[]", "holds a JSON list"),
        (b"\xff", "not text in UTF-8"),
    ],
)
def test_damaged_index(checkpoint, data, message):
    (checkpoint / "model.safetensors.index.json").write_bytes(data)
    with pytest.raises(BackboneError, match=rf"model\.safetensors\.index\.json: {message}"):
        hf.load_hf(checkpoint)


def test_an_index_that_names_a_directory(checkpoint):
    index = checkpoint / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {BASE: ""}}))
    with pytest.raises(BackboneError, match="the index names it, but there is no such file"):
        hf.load_hf(checkpoint)


def test_remote_directories_are_read_through_epath(checkpoint, monkeypatch):
    """A stand-in for a bucket: the loader sees gs:// paths only."""

    class Remote(type(epath.Path("gs://bucket"))):
        def local(self):
            return checkpoint / self.name if self.name != "model" else checkpoint

        def exists(self):
            return self.local().exists()

        def is_file(self):
            return self.local().is_file()

        def read_text(self):
            return self.local().read_text()

        def glob(self, pattern):
            return [self / path.name for path in checkpoint.glob(pattern)]

        def copy(self, target):
            target.write_bytes(self.local().read_bytes())

    monkeypatch.setattr(hf.epath, "Path", Remote)
    config, params = hf.load_hf("gs://bucket/model")
    assert config == CONFIG
    jax.tree.map(np.testing.assert_array_equal, params, params_of(CONFIG))


def test_bare_model_names_stray_buffers_and_tied_head(tmp_path):
    config = dataclasses.replace(CONFIG, tie_embeddings=True)
    hf.export_hf(config, params_of(config), tmp_path)

    def change(tensors):
        bare = {name.removeprefix("model."): value for name, value in tensors.items()}
        tensors.clear()
        tensors.update(bare)
        tensors["layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(3, np.float32)
        tensors["lm_head.weight"] = bare["embed_tokens.weight"]

    change_tensors(tmp_path, change)
    _, params = hf.load_hf(tmp_path)
    jax.tree.map(np.testing.assert_array_equal, params, params_of(config))
    change_tensors(tmp_path, lambda t: t.update({"lm_head.weight": t["lm_head.weight"] + 1}))
    with pytest.raises(BackboneError, match=r"lm_head\.weight differs from the embedding"):
        hf.load_hf(tmp_path)


def test_no_config(tmp_path):
    with pytest.raises(BackboneError, match=r"no config\.json there"):
        hf.load_hf(tmp_path)


@pytest.mark.parametrize(
    "data,message",
    [
        (b"{", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"vocab_size": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b"\xff\xfe", "not text in UTF-8"),
        (b"[]", "holds a JSON list, not an object"),
        (b"null", "holds a JSON NoneType, not an object"),
    ],
)
def test_damaged_config(checkpoint, data, message):
    (checkpoint / "config.json").write_bytes(data)
    with pytest.raises(BackboneError, match=rf"config\.json: {message}"):
        hf.load_hf(checkpoint)


_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
)


@pytest.mark.parametrize("name", _SIZES)
@pytest.mark.parametrize("value", ["64", True, 64.5, 0, -4, 2**31, [4], {"a": 4}])
def test_sizes_of_other_types(checkpoint, name, value):
    change_config(checkpoint, **{name: value})
    with pytest.raises(BackboneError, match=rf"config\.json: {name} must be a positive integer"):
        hf.load_hf(checkpoint)


def test_more_layers_than_any_decoder_has(checkpoint):
    change_config(checkpoint, num_hidden_layers=10**9)
    with pytest.raises(BackboneError, match=r"config\.json: num_layers must be at most 10,000"):
        hf.load_hf(checkpoint)


def test_weights_beyond_all_memory(checkpoint):
    """Found before anything is read: the shapes of tensors are compared with room for them."""
    change_config(checkpoint, hidden_size=2**31 - 1, intermediate_size=2**31 - 1)
    with pytest.raises(BackboneError, match=r"config\.json: there is no memory for weights"):
        hf.load_hf(checkpoint)


def test_no_weights(checkpoint):
    (checkpoint / "model.safetensors").unlink()
    with pytest.raises(BackboneError, match=r"no \*\.safetensors there"):
        hf.load_hf(checkpoint)


@pytest.mark.parametrize("kept", [4, 100, -8])
def test_truncated_weights(checkpoint, kept):
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(BackboneError, match=r"model\.safetensors: truncated or corrupt"):
        hf.load_hf(checkpoint)


@pytest.mark.parametrize(
    "change,message",
    [
        (lambda t: t.pop(BASE), f"tensor {BASE} is missing"),
        (lambda t: t.update({"model.extra": np.ones(1, np.float32)}), "model.extra is unknown"),
        (lambda t: t.update({BASE: t[BASE][:8]}), r"k_proj.* shape \(8, 16\).* says \(12, 16\)"),
        (lambda t: t.update({BASE: t[BASE].astype(np.int32)}), "k_proj.weight has type I32"),
        (
            lambda t: t.update({BASE: t[BASE] * np.nan}),
            rf"\.safetensors: tensor {BASE} is not finite",
        ),
        (
            lambda t: t.update({BASE: (t[BASE] + np.inf).astype(jnp.bfloat16)}),
            f"tensor {BASE} is not finite",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named(checkpoint, change, message):
    change_tensors(checkpoint, change)
    with pytest.raises(BackboneError, match=message):
        hf.load_hf(checkpoint)


def test_wrong_vocabulary(checkpoint):
    change_config(checkpoint, vocab_size=40)
    message = r"shape \(31, 16\), config\.json says \(40, 16\) \(vocab_size\)"
    with pytest.raises(BackboneError, match=message):
        hf.load_hf(checkpoint)


@pytest.mark.parametrize(
    "changes,message",
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2' is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope type 'yarn' is not supported"),
        ({"num_key_value_heads": 3}, "num_kv_heads = 3 must divide"),
        ({"num_attention_heads": None}, "num_attention_heads must be a positive integer"),
        ({"model_type": ["llama"]}, r"model_type \['llama'\] is not supported"),
        ({"rms_norm_eps": "1e-5"}, "rms_norm_eps must be a number"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps must be a number"),
        ({"rope_theta": "1e4"}, "rope_theta must be a number"),
        ({"rope_theta": 10**400}, "rope_theta must be a number"),
        ({"rope_theta": 0}, "rope_theta must be positive"),
        ({"rope_scaling": [1]}, r"rope_scaling must be an object {…}, got \[1\]"),
        ({"rope_parameters": {"rope_theta": True}}, "rope_theta must be a number"),
        ({"rope_scaling": {"type": "llama3", "factor": "8"}}, "factor must be a number"),
        ({"layer_types": 5}, "layer_types must be a list, got 5"),
        ({"use_sliding_window": "no"}, "use_sliding_window must be true or false, got 'no'"),
        ({"attention_bias": 0}, "attention_bias must be true or false, got 0"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings must be true or false"),
    ],
)
def test_unsupported_configurations(checkpoint, changes, message):
    change_config(checkpoint, **changes)
    with pytest.raises(BackboneError, match=message):
        hf.load_hf(checkpoint)


def test_missing_entry(checkpoint):
    raw = json.loads((checkpoint / "config.json").read_text())
    del raw["intermediate_size"]
    (checkpoint / "config.json").write_text(json.dumps(raw))
    with pytest.raises(BackboneError, match="no entry 'intermediate_size'"):
        hf.load_hf(checkpoint)


def test_both_forms_of_rope_settings():
    raw = CONFIG.to_hf()
    del raw["rope_theta"]
    scaling = {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    hub = raw | {"rope_theta": 5e5, "rope_scaling": scaling | {"rope_type": "llama3"}}
    new = raw | {"rope_parameters": scaling | {"rope_type": "llama3", "rope_theta": 5e5}}
    expected = dataclasses.replace(
        CONFIG, rope_theta=5e5, rope_scaling=RopeScaling(8.0, 1.0, 4.0, 64)
    )
    assert BackboneConfig.from_hf(hub) == BackboneConfig.from_hf(new) == expected


def test_export_leaves_existing_files_untouched(tmp_path):
    (tmp_path / "config.json").write_text("mine")
    with pytest.raises(BackboneError, match=r"config\.json exists"):
        hf.export_hf(CONFIG, params_of(CONFIG), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    assert (tmp_path / "config.json").read_text() == "mine"


@pytest.mark.parametrize("change", [{"o_bias": True}, {"qk_norm": True, "qkv_bias": True}])
def test_export_refuses_biases_that_no_model_type_has(tmp_path, change):
    config = dataclasses.replace(CONFIG, **change)
    with pytest.raises(BackboneError, match="bias"):
        hf.export_hf(config, params_of(config), tmp_path / "out")
    assert not (tmp_path / "out").exists()
