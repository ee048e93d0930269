"""MiniLM in JAX against golden vectors of torch, live torch, and itself in other batches."""

import json

import jax
import numpy as np
import pytest
import tokenizers
from safetensors.numpy import save_file

from jaxrl_guided.backbones import weights
from jaxrl_guided.backbones.config import BackboneError
from jaxrl_guided.backbones.minilm import embed, load_minilm, sentence_vectors
from tests import make_minilm_golden as oracle

SENTENCES = [
    "Move the red ball to the left of the blue ball.",
    "Could you push the crimson sphere leftwards of the azure one?",
    "Stock markets fell sharply on Tuesday.",
    "Réponds, s'il te plaît: 你好 🙂",
    "word " * 300,
    "",
]


@pytest.fixture(scope="module")
def golden():
    return dict(np.load(oracle.GOLDEN))


@pytest.fixture
def folder(golden, tmp_path):
    tensors = {k.removeprefix("model/"): v for k, v in golden.items() if k.startswith("model/")}
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(oracle.SIZES))
    words = ["[CLS]", "[SEP]", "[UNK]", *"abcdefgh"]
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]")
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 1)]
    )
    backend.enable_padding(length=12)  # as the published file has it; must be switched off
    backend.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_golden_vectors(golden, folder):
    model = load_minilm(folder)
    ours = embed(model.params, golden["ids"], golden["length"], model.config)
    np.testing.assert_allclose(ours, golden["vectors"], atol=2e-6)


def test_padding_does_not_matter(golden, folder):
    model = load_minilm(folder)
    ids = golden["ids"].copy()
    ids[np.arange(12) >= golden["length"][:, None]] = 29
    ours = embed(model.params, ids, golden["length"], model.config)
    np.testing.assert_allclose(ours, golden["vectors"], atol=2e-6)


def test_order_and_batch_do_not_matter(folder):
    model = load_minilm(folder)
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(list("abcdefgh"), rng.integers(0, 14))) for _ in range(150)]
    together = sentence_vectors(model, texts)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    for i in (0, 1, 77, 149):
        np.testing.assert_allclose(together[i], sentence_vectors(model, [texts[i]])[0], atol=1e-6)


def test_long_texts_keep_the_last_special_token(folder):
    ids, length = load_minilm(folder).tokenizer.encode(["a " * 50])
    assert length.tolist() == [12]
    assert ids[0, -1] == 1


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_missing_and_truncated_files_are_named(folder, name):
    path = folder / name
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(BackboneError, match=name):
        load_minilm(folder)
    path.unlink()
    with pytest.raises(BackboneError, match=name):
        load_minilm(folder)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"hidden_size": 32}, r"word_embeddings.weight is \(30, 16\), expected \(30, 32\)"),
        ({"num_hidden_layers": 3}, r"encoder\.layer\.2\..* is missing"),
        ({"hidden_act": "relu"}, "needs model_type 'bert' with hidden_act 'gelu'"),
        ({"num_attention_heads": None}, "num_attention_heads"),
        ({"num_attention_heads": 3}, "num_attention_heads = 3 must divide hidden_size = 16"),
        ({"hidden_size": "16"}, r"config\.json: .*hidden_size must be a positive integer"),
        ({"layer_norm_eps": [1]}, r"config\.json: .*layer_norm_eps must be a number"),
    ],
)
def test_configuration_that_does_not_fit(folder, changes, message):
    raw = {k: v for k, v in (oracle.SIZES | changes).items() if v is not None}
    (folder / "config.json").write_text(json.dumps(raw))
    with pytest.raises(BackboneError, match=message):
        load_minilm(folder)


def test_numbers_that_are_not_finite(golden, folder):
    tensors = {k.removeprefix("model/"): v for k, v in golden.items() if k.startswith("model/")}
    name = "encoder.layer.0.output.dense.bias"
    save_file(tensors | {name: tensors[name] * np.nan}, folder / "model.safetensors")
    with pytest.raises(BackboneError, match=rf"model\.safetensors: tensor {name} is not finite"):
        load_minilm(folder)


@pytest.mark.slow
def test_real_weights_tell_meanings_apart():
    model = load_minilm(weights.find("all-minilm-l6-v2"))
    vectors = sentence_vectors(model, SENTENCES)
    assert vectors.shape == (6, 384)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.3
    assert model.tokenizer.encode(SENTENCES[4:5])[1].tolist() == [256]


@pytest.mark.parity
def test_real_weights_agree_with_torch():
    import torch
    from transformers import AutoTokenizer, BertModel

    folder = weights.find("all-minilm-l6-v2")
    ours = sentence_vectors(load_minilm(folder), SENTENCES)
    reference = BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for text, vector in zip(SENTENCES, ours, strict=True):
        ids = tokenizer(text, truncation=True, max_length=256, return_tensors="np")["input_ids"]
        expected = oracle.torch_vectors(reference, ids, np.array([ids.shape[1]]))
        assert isinstance(reference, torch.nn.Module)
        np.testing.assert_allclose(vector, expected[0], atol=1e-6)


@pytest.mark.parity
def test_golden_is_what_torch_gives(golden):
    import torch
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(**oracle.SIZES), add_pooling_layer=False).eval()
    state = {k.removeprefix("model/"): v for k, v in golden.items() if k.startswith("model/")}
    model.load_state_dict(jax.tree.map(torch.tensor, state))
    expected = oracle.torch_vectors(model, golden["ids"], golden["length"])
    np.testing.assert_allclose(golden["vectors"], expected, atol=1e-6)
