"""The entry for backbones, and SmolLM2's logits against torch."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.backbones import decoder
from jaxrl_guided.backbones.config import BackboneError
from jaxrl_guided.backbones.hf import export_hf
from jaxrl_guided.backbones.load import NANO, load_backbone
from jaxrl_guided.backbones.params import param_shapes
from jaxrl_guided.backbones.tokenizer import nano_tokenizer
from jaxrl_guided.runtime.checkpoint import content_hash
from tests import make_smollm2_golden as oracle
from tests.backbones import gguf_files


@pytest.fixture
def hf_folder(tmp_path):
    """The nano backbone as a Hugging Face directory."""
    folder = tmp_path / "hf"
    export_hf(NANO, load_backbone("nano").params, folder)
    nano_tokenizer().backend.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def gguf_folder(tmp_path):
    arrays = gguf_files.tensors(np.random.default_rng(0))
    (tmp_path / "gguf").mkdir()
    gguf_files.write(tmp_path / "gguf" / "tiny.gguf", arrays)
    return tmp_path / "gguf"


def assert_same_params(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_nano_is_always_the_same_and_runs():
    backbone = load_backbone("nano")
    # Of numpy, so that it is the same on every device and with every compiler setting.
    expected = "ea5478f8719eb0946567297acc8160565e9a42f8a9bf29db00cc4a9866206d75"
    assert content_hash(backbone.params) == expected
    assert jax.tree.map(np.shape, backbone.params) == param_shapes(backbone.config)
    ids, _ = backbone.tokenizer.encode(["red ball", "ünïcode"])
    x = decoder.embed(backbone.params, jnp.asarray(ids))
    positions = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
    hidden, _ = decoder.apply(backbone.config, backbone.params, x, positions)
    assert np.isfinite(hidden).all()


def test_hugging_face_directory(hf_folder):
    backbone = load_backbone(str(hf_folder))
    assert_same_params(backbone.params, load_backbone("nano").params)
    assert backbone.config.num_layers == 2
    assert (
        backbone.tokenizer.encode(["ab"])[0].tolist() == nano_tokenizer().encode(["ab"])[0].tolist()
    )


@pytest.mark.parametrize("name", ["", "tiny.gguf"])
def test_gguf_directory_and_file(gguf_folder, name):
    backbone = load_backbone(str(gguf_folder / name))
    assert backbone.config.num_layers == 3
    ids, _ = backbone.tokenizer.encode(["ab c<|a|>"])
    assert backbone.tokenizer.decode(ids[0]) == "ab c<|a|>"


@pytest.mark.parametrize("kind", ["nano", "hf", "gguf"])
def test_first_layers(request, kind):
    spec = "nano" if kind == "nano" else str(request.getfixturevalue(f"{kind}_folder"))
    whole, first = load_backbone(spec), load_backbone(spec, num_layers=1)
    assert first.config.num_layers == 1
    assert_same_params(
        first.params["layers"], jax.tree.map(lambda x: x[:1], whole.params["layers"])
    )
    assert_same_params(first.params["final_norm"], whole.params["final_norm"])
    for count in (0, 4):
        with pytest.raises(BackboneError, match=rf"num_layers must be within .* got {count}"):
            load_backbone(spec, num_layers=count)


def test_a_path_that_is_not_there(tmp_path):
    with pytest.raises(BackboneError, match=r"'.*/absent' is neither a path nor nano or smollm2"):
        load_backbone(str(tmp_path / "absent"))


def test_known_name_without_its_weights(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXRL_GUIDED_WEIGHTS", str(tmp_path))
    with pytest.raises(BackboneError, match=r"fetch them with: python -m experiments"):
        load_backbone("smollm2-135m-instruct")


def test_directory_without_config(hf_folder):
    (hf_folder / "config.json").unlink()
    with pytest.raises(BackboneError, match=r"hf: has neither config\.json nor a \.gguf file"):
        load_backbone(str(hf_folder))


def test_directory_without_tokenizer(hf_folder):
    (hf_folder / "tokenizer.json").unlink()
    with pytest.raises(BackboneError, match=r"tokenizer\.json: no such file"):
        load_backbone(str(hf_folder))


def test_several_gguf_files(gguf_folder):
    (gguf_folder / "other.gguf").write_bytes(b"")
    with pytest.raises(BackboneError, match=r"has 2 \.gguf files; name one"):
        load_backbone(str(gguf_folder))


def test_truncated_files(hf_folder, gguf_folder):
    for path in (hf_folder / "model.safetensors", gguf_folder / "tiny.gguf"):
        path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(BackboneError, match=r"tiny\.gguf: truncated or corrupt"):
        load_backbone(str(gguf_folder / "tiny.gguf"))
    with pytest.raises(BackboneError, match=r"model\.safetensors"):
        load_backbone(str(hf_folder))


@pytest.mark.parametrize(
    "changes,message",
    [
        ({"tokenizer__chat_template": 5}, "metadata tokenizer.chat_template is no text"),
        ({"tokenizer__ggml__pre": ["smollm"]}, r"tokenizer.ggml.pre \['smollm'\] is not one of"),
        ({"tokenizer__ggml__eos_token_id": 99}, "eos_token_id is 99, no id of a token"),
        ({"tokenizer__ggml__bos_token_id": "a"}, "bos_token_id is 'a', no id of a token"),
    ],
)
def test_texts_of_a_gguf_file_that_do_not_fit(tmp_path, changes, message):
    arrays = gguf_files.tensors(np.random.default_rng(0))
    path = tmp_path / "bad.gguf"
    gguf_files.write(path, arrays, **({"tokenizer__chat_template": "x"} | changes))
    with pytest.raises(BackboneError, match=rf"bad\.gguf: .*{message}"):
        load_backbone(str(path))


@pytest.mark.parametrize("data", [b"\xff", b"[]", b"null", b'{"model": 5}'])
def test_a_tokenizer_file_that_is_none(hf_folder, data):
    (hf_folder / "tokenizer.json").write_bytes(data)
    with pytest.raises(BackboneError, match=r"tokenizer\.json: not a readable tokenizer"):
        load_backbone(str(hf_folder))


def test_tokenizer_larger_than_the_embedding(hf_folder):
    path = hf_folder / "tokenizer.json"
    raw = json.loads(path.read_text())
    raw["model"]["vocab"]["extra"] = 300
    path.write_text(json.dumps(raw))
    with pytest.raises(BackboneError, match="tokenizer has 301 ids, the embedding only 259 rows"):
        load_backbone(str(hf_folder))


def smollm2_logits(layers: int, ids: np.ndarray) -> np.ndarray:
    backbone = load_backbone("smollm2-135m-instruct", None if layers == 30 else layers)
    assert backbone.config.num_layers == layers
    x = decoder.embed(backbone.params, jnp.asarray(ids))
    positions = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
    hidden, _ = decoder.apply(backbone.config, backbone.params, x, positions)
    return np.asarray(decoder.logits(backbone.config, backbone.params, hidden))


def assert_within_tolerance(ours: np.ndarray, expected: np.ndarray) -> None:
    error = np.abs(ours - expected).max(axis=(1, 2))
    assert (error <= oracle.TOLERANCE).all(), f"largest error of each row: {error}"


@pytest.mark.slow
@pytest.mark.parametrize("layers", oracle.LAYERS)
def test_smollm2_golden_logits(layers):
    golden = np.load(oracle.GOLDEN)
    logits = smollm2_logits(layers, golden["ids"])[:, golden["positions"]]
    top = np.take_along_axis(logits, golden[f"top_{layers}"], axis=-1)
    assert_within_tolerance(top, golden[f"values_{layers}"])
    columns = logits[..., :: logits.shape[-1] // 32]
    assert_within_tolerance(columns, golden[f"columns_{layers}"])
    np.testing.assert_array_equal(logits.argmax(-1), golden[f"top_{layers}"][..., 0])


@pytest.mark.parity
def test_smollm2_logits_agree_with_torch():
    ids = oracle.token_ids()
    for layers, expected in oracle.torch_logits(ids).items():
        assert_within_tolerance(smollm2_logits(layers, ids), expected)
