"""Texts as vectors of unit length, by which experience is found: hashes, MiniLM, or a decoder."""

import functools
from collections.abc import Sequence
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_guided.backbones import decoder, minilm, weights
from jaxrl_guided.backbones.config import BackboneConfig
from jaxrl_guided.backbones.load import Backbone, load_backbone
from jaxrl_guided.backbones.params import Params
from jaxrl_guided.backbones.text_features import MINILM_DIM, hashed_ngrams

_BATCH, _LENGTHS = 16, (32, 64, 128, 256, 512, 1024)


class Embedder(Protocol):
    """Makes vectors.

    Attributes:
      name: what `make_embedder` makes it from; vectors of different names do not compare.
      dim: numbers in a vector.
    """

    name: str
    dim: int

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors `f32[I, dim]` of I texts; each depends on its own text alone."""
        ...


def make_embedder(name: str) -> Embedder:
    """An embedder by name.

    Args:
      name: `hashed-DIM`, which needs no weights; `minilm`, with the fetched weights; or what
        `load_backbone` takes: its last token's hidden state, as of Qwen3-Embedding.

    Raises:
      ValueError: no number after `hashed-`.
      BackboneError: weights are missing or broken.
    """
    kind, _, size = name.partition("-")
    if kind == "hashed":
        if not size.isdecimal() or not int(size):
            raise ValueError(f"embedder {name}: give the size of its vectors, as hashed-256")
        return HashedEmbedder(int(size))
    if name == "minilm":
        return MiniLMEmbedder()
    return DecoderEmbedder(name, load_backbone(name))


class HashedEmbedder:
    """Hashed n-grams; see `hashed_ngrams`."""

    def __init__(self, dim: int) -> None:
        self.name, self.dim = f"hashed-{dim}", dim

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        return hashed_ngrams(texts, self.dim)


class MiniLMEmbedder:
    """Sentence vectors of MiniLM-L6."""

    name, dim = "minilm", MINILM_DIM

    def __init__(self) -> None:
        self._model = minilm.load_minilm(weights.find("all-minilm-l6-v2"))

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        if not texts:
            return np.zeros((0, self.dim), np.float32)
        return minilm.sentence_vectors(self._model, texts)


class DecoderEmbedder:
    """The last token's hidden state after the final norm; long texts keep their first tokens.

    Args:
      name: of the embedder.
      backbone: the decoder; its tokenizer adds the token that ends a text, if the model has one.
    """

    def __init__(self, name: str, backbone: Backbone) -> None:
        self.name, self.dim = name, backbone.config.hidden_size
        self._backbone = backbone

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        vectors = np.zeros((len(texts), self.dim), np.float32)
        if not texts:
            return vectors
        config, params = self._backbone.config, self._backbone.params
        ids, length = self._backbone.tokenizer.encode([text or " " for text in texts])
        length = np.minimum(length, _LENGTHS[-1])
        order = np.argsort(length, kind="stable")
        for start in range(0, len(order), _BATCH):
            rows = order[start : start + _BATCH]
            width = next(n for n in _LENGTHS if n >= length[rows].max())
            tokens, ends = np.zeros((_BATCH, width), np.int32), np.ones(_BATCH, np.int32)
            columns = min(width, ids.shape[1])
            tokens[: len(rows), :columns] = ids[rows, :columns]
            ends[: len(rows)] = length[rows]
            vectors[rows] = np.asarray(last_hidden(config, params, tokens, ends))[: len(rows)]
        return vectors


@functools.partial(jax.jit, static_argnums=0)
def last_hidden(
    config: BackboneConfig, params: Params, tokens: jax.Array, length: jax.Array
) -> jax.Array:
    """Hidden states `f32[B, D]` of the last of `length` i32[B] tokens `i32[B, T]`, of length 1."""
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    hidden, _ = decoder.apply(config, params, decoder.embed(params, tokens), positions)
    last = jnp.take_along_axis(hidden, length[:, None, None] - 1, axis=1)[:, 0]
    return last / jnp.linalg.norm(last, axis=-1, keepdims=True)
