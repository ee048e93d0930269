"""Vectors of texts: each depends on its own text, and near texts have near vectors."""

import numpy as np
import pytest

from jaxrl_guided.backbones import decoder, embedders
from jaxrl_guided.backbones.embedders import DecoderEmbedder, make_embedder
from jaxrl_guided.backbones.load import load_backbone

TEXTS = ["the stairs are in the corner", "a", "", "stairs in a corner " * 20, "x" * 300]


@pytest.mark.parametrize("name", ["hashed-64", "nano"])
def test_a_vector_is_of_unit_length_and_of_its_text_alone(name):
    embed = make_embedder(name)
    together = embed(TEXTS)
    assert embed.name == name
    assert together.shape == (len(TEXTS), embed.dim)
    assert together.dtype == np.float32
    if name == "nano":
        np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    for text, vector in zip(TEXTS, together, strict=True):
        np.testing.assert_allclose(embed([text])[0], vector, atol=1e-5)
    assert embed([]).shape == (0, embed.dim)


def test_a_decoder_gives_its_last_hidden_state(monkeypatch):
    monkeypatch.setattr(embedders, "_LENGTHS", (32, 64, 128))
    backbone = load_backbone("nano")
    found = DecoderEmbedder("nano", backbone)(TEXTS)
    for text, vector in zip(TEXTS, found, strict=True):
        ids = backbone.tokenizer.encode([text or " "])[0][:, :128]
        x = decoder.embed(backbone.params, ids)
        hidden, _ = decoder.apply(
            backbone.config, backbone.params, x, np.arange(ids.shape[1])[None]
        )
        last = np.asarray(hidden)[0, -1]
        np.testing.assert_allclose(vector, last / np.linalg.norm(last), atol=1e-5)


def test_unknown_embedders_are_refused():
    with pytest.raises(ValueError, match="give the size of its vectors, as hashed-256"):
        make_embedder("hashed")
    with pytest.raises(ValueError, match="neither a path nor nano"):
        make_embedder("gone")


@pytest.mark.slow
def test_minilm_finds_what_is_meant():
    embed = make_embedder("minilm")
    question, near, far = embed(
        ["How do I open a locked door?", "Use the key to unlock the door.", "Buy a red dress."]
    )
    assert question @ near > question @ far + 0.3
