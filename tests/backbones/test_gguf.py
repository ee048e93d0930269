"""GGUF checkpoints: written with the format's own library, read back, broken in many ways."""

import gguf
import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl_guided.backbones.config import BackboneError
from jaxrl_guided.backbones.gguf import load_gguf
from jaxrl_guided.backbones.params import param_shapes
from tests.backbones import gguf_files as files


@pytest.fixture(scope="module")
def arrays():
    return files.tensors(np.random.default_rng(0))


@pytest.fixture(scope="module")
def llama(arrays, tmp_path_factory):
    return files.write(tmp_path_factory.mktemp("gguf") / "tiny.gguf", arrays)


def rotate_pairs(head, position, theta):
    """Rotary embedding as GGUF's Llama has it: dimensions 2i and 2i + 1 turn together."""
    angle = position * theta ** (-2.0 * np.arange(len(head) // 2) / len(head))
    z = (head[0::2] + 1j * head[1::2]) * np.exp(1j * angle)
    return np.stack([z.real, z.imag], axis=1).ravel()


def rotate_halves(head, position, theta):
    """Rotary embedding of our decoder: dimensions i and i + d/2 turn together."""
    half = len(head) // 2
    angle = position * theta ** (-2.0 * np.arange(half) / len(head))
    z = (head[:half] + 1j * head[half:]) * np.exp(1j * angle)
    return np.concatenate([z.real, z.imag])


def load_or_message(path):
    try:
        load_gguf(path)
    except BackboneError as error:
        return str(error)
    return f"{path.name}: loaded"


def test_configuration(llama):
    config, _, metadata = load_gguf(llama)
    expected = {
        "vocab_size": 40,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_layers": 3,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 8,
        "rope_theta": 5e4,
        "rope_scaling": None,
        "norm_eps": 1e-5,
        "tie_embeddings": True,
        "qkv_bias": False,
        "o_bias": False,
        "qk_norm": False,
        "max_positions": 128,
    }
    assert {name: getattr(config, name) for name in expected} == expected
    assert metadata["general.architecture"] == "llama"
    assert metadata["tokenizer.ggml.merges"] == ["a b"]


def test_parameters(llama, arrays):
    config, params, _ = load_gguf(llama)
    assert jax.tree.map(np.shape, params) == param_shapes(config)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype(np.float32)}
    layers = params["layers"]
    np.testing.assert_array_equal(params["embed"], arrays["token_embd.weight"])
    np.testing.assert_array_equal(params["final_norm"], arrays["output_norm.weight"])
    names = {"v": "attn_v", "o": "attn_output", "gate": "ffn_gate", "up": "ffn_up"}
    for i in range(files.LAYERS):
        for ours, name in (names | {"down": "ffn_down"}).items():
            expected = arrays[f"blk.{i}.{name}.weight"].T
            np.testing.assert_array_equal(layers[ours]["kernel"][i], expected)
        np.testing.assert_array_equal(layers["attn_norm"][i], arrays[f"blk.{i}.attn_norm.weight"])
        np.testing.assert_array_equal(layers["mlp_norm"][i], arrays[f"blk.{i}.ffn_norm.weight"])


def test_rotary_halves_give_the_same_attention_scores(llama, arrays):
    config, params, _ = load_gguf(llama)
    x, y = np.random.default_rng(1).normal(size=(2, files.HIDDEN))
    for layer in range(files.LAYERS):
        theirs = [
            (arrays[f"blk.{layer}.attn_{name}.weight"] @ vector).reshape(-1, files.HEAD_DIM)
            for name, vector in (("q", x), ("k", y))
        ]
        ours = [
            (vector @ np.asarray(params["layers"][name]["kernel"][layer])).reshape(
                -1, files.HEAD_DIM
            )
            for name, vector in (("q", x), ("k", y))
        ]
        for head in range(files.HEADS):
            group = head * files.KV_HEADS // files.HEADS
            scores = [
                rotate(q[head], 7, config.rope_theta) @ rotate(k[group], 3, config.rope_theta)
                for (q, k), rotate in ((theirs, rotate_pairs), (ours, rotate_halves))
            ]
            np.testing.assert_allclose(scores[1], scores[0], rtol=1e-5)
    assert not np.allclose(params["layers"]["q"]["kernel"][0], arrays["blk.0.attn_q.weight"].T)


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3"])
def test_qwen_keeps_its_rows_and_has_its_extras(tmp_path, architecture):
    qwen3 = architecture == "qwen3"
    arrays = files.tensors(np.random.default_rng(2), bias=not qwen3, head_norms=qwen3)
    arrays["output.weight"] = np.ones((files.VOCAB, files.HIDDEN), np.float32)
    path = files.write(tmp_path / "q.gguf", arrays, architecture)
    config, params, _ = load_gguf(path)
    assert config.family == architecture
    assert jax.tree.map(np.shape, params) == param_shapes(config)
    for name in "qk":
        kernel = arrays[f"blk.1.attn_{name}.weight"].T
        np.testing.assert_array_equal(params["layers"][name]["kernel"][1], kernel)
        if qwen3:
            norm = arrays[f"blk.2.attn_{name}_norm.weight"]
            np.testing.assert_array_equal(params["layers"][f"{name}_norm"][2], norm)
        else:
            bias = arrays[f"blk.2.attn_{name}.bias"]
            np.testing.assert_array_equal(params["layers"][name]["bias"][2], bias)


@pytest.mark.parametrize("quant, step", [("Q8_0", 1 / 127), ("Q4_1", 1 / 15)])
def test_dequantises(tmp_path, arrays, quant, step):
    kind = gguf.GGMLQuantizationType[quant]
    path = files.write(tmp_path / "q.gguf", arrays, quant=kind)
    _, params, _ = load_gguf(path)
    for i in range(files.LAYERS):
        exact = arrays[f"blk.{i}.ffn_down.weight"].T
        error = np.abs(np.asarray(params["layers"]["down"]["kernel"][i]) - exact).max()
        assert 0 < error < step * (exact.max() - exact.min())


def test_first_layers_only(llama):
    _, whole, _ = load_gguf(llama)
    config, params, _ = load_gguf(llama, num_layers=2)
    assert config.num_layers == 2
    jax.tree.map(
        lambda a, b: np.testing.assert_array_equal(a, b[:2]), params["layers"], whole["layers"]
    )
    np.testing.assert_array_equal(params["final_norm"], whole["final_norm"])


@pytest.mark.parametrize("count", [0, 4, -1])
def test_refuses_a_number_of_layers_that_is_not_there(llama, count):
    with pytest.raises(BackboneError, match=rf"tiny.gguf: num_layers .* 1 … 3, got {count}"):
        load_gguf(llama, num_layers=count)


def test_every_truncation_is_named(llama, tmp_path):
    data, cut = llama.read_bytes(), tmp_path / "cut.gguf"
    for size in [0, 1, 7, 23, 24, *np.linspace(25, len(data) - 1, 60).astype(int)]:
        cut.write_bytes(data[:size])
        with pytest.raises(BackboneError, match=r"cut\.gguf: truncated or corrupt GGUF file"):
            load_gguf(cut)


def test_no_file_folder_or_other_format(tmp_path):
    (tmp_path / "text.gguf").write_text("not a model, but longer than a header")
    for path in [tmp_path / "missing.gguf", tmp_path, tmp_path / "text.gguf"]:
        with pytest.raises(BackboneError, match="truncated or corrupt GGUF file"):
            load_gguf(path)


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_a_corrupt_byte_loads_or_is_a_clear_error(llama, tmp_path_factory, data):
    raw = bytearray(llama.read_bytes())
    header = raw.index(b"tokenizer.ggml.tokens")  # sizes, types and names come before it
    raw[data.draw(st.integers(0, header), "at")] = data.draw(st.integers(0, 255), "byte")
    path = tmp_path_factory.mktemp("corrupt") / "bad.gguf"
    path.write_bytes(raw)
    assert "bad.gguf: " in load_or_message(path)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"llama__block_count": 2}, "metadata says 2 layers, the tensors make up 3"),
        ({"llama__block_count": None}, "block_count is None"),
        ({"llama__embedding_length": 64}, r"is \(.*32.*\), expected \(.*64.*\)"),
        ({"llama__attention__head_count": 3}, "must divide num_heads"),
        ({"general__architecture": [1]}, r"architecture \[1\] is not one of llama"),
        ({"llama__rope__scaling__type": "yarn"}, "scaled or partial rotary"),
        ({"llama__rope__dimension_count": 4}, "scaled or partial rotary"),
    ],
)
def test_metadata_that_does_not_fit(tmp_path, arrays, changes, message):
    path = files.write(tmp_path / "bad.gguf", arrays, **changes)
    with pytest.raises(BackboneError, match=rf"bad\.gguf: .*{message}"):
        load_gguf(path)


def test_other_architecture(tmp_path, arrays):
    path = files.write(tmp_path / "bad.gguf", arrays, "gemma")
    with pytest.raises(BackboneError, match="'gemma' is not one of llama, qwen2, qwen3"):
        load_gguf(path)


@pytest.mark.parametrize(
    "name, array, message",
    [
        ("blk.1.ffn_up.weight", None, "1 tensors are missing, e.g. blk.1.ffn_up.weight"),
        ("token_embd.weight", None, "token_embd.weight is missing"),
        ("blk.1.ffn_up.bias", np.ones(64, np.float32), "1 unknown tensors, e.g. blk.1.ffn_up.bias"),
        ("rope_freqs.weight", np.ones(4, np.float32), "scaled or partial rotary"),
        ("blk.2.attn_norm.weight", np.ones(8, np.float32), r"is \(8,\), expected \(32,\)"),
        ("blk.2.attn_norm.weight", np.full(32, np.nan, np.float32), "is not finite"),
    ],
)
def test_tensors_that_do_not_fit(tmp_path, arrays, name, array, message):
    changed = {k: v for k, v in (arrays | {name: array}).items() if v is not None}
    path = files.write(tmp_path / "bad.gguf", changed)
    with pytest.raises(BackboneError, match=rf"bad\.gguf: .*{message}"):
        load_gguf(path)
