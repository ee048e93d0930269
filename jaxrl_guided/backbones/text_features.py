"""Texts as fixed vectors for the small policies: MiniLM sentence vectors, or hashed n-grams."""

import collections
import functools
import hashlib
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from jaxrl_guided.backbones import minilm, weights

MINILM_DIM = 384


def text_features(
    texts: Sequence[str], kind: Literal["minilm", "hashed"] = "minilm", dim: int = MINILM_DIM
) -> np.ndarray:
    """Features `f32[I, dim]` of I texts, each of unit length.

    Args:
      kind: `minilm` needs the fetched weights and has 384 dimensions; `hashed` needs nothing.

    Raises:
      ValueError: unknown kind, no texts, or a dimension that the kind does not have.
      BackboneError: the weights of MiniLM are missing or broken.
    """
    if kind not in ("minilm", "hashed"):
        raise ValueError(f"kind must be 'minilm' or 'hashed', got {kind!r}")
    if isinstance(texts, str) or not texts:
        raise ValueError(f"texts must be a non-empty sequence of strings, got {texts!r}")
    if kind == "hashed":
        return hashed_ngrams(texts, dim)
    if dim != MINILM_DIM:
        raise ValueError(f"dim must be {MINILM_DIM} for kind='minilm', got {dim}")
    return minilm.sentence_vectors(minilm.load_minilm(weights.find("all-minilm-l6-v2")), texts)


def whiten(vectors: np.ndarray, reference: np.ndarray, components: int) -> np.ndarray:
    """The first principal components of `vectors` `f32[I, d]`, as `f32[I, components]`.

    Over the rows of `reference` `f32[R, d]`, each has mean 0 and variance 1. Sentences of one kind
    share most of their vector, and what tells them apart (who is pushed where) is small beside the
    manner of speaking; whitening makes it as large (arXiv 2103.15316).

    Raises:
      ValueError: `reference` does not vary in so many directions.
    """
    mean = reference.mean(axis=0)
    _, lengths, axes = np.linalg.svd(reference - mean, full_matrices=False)
    rank = int(np.sum(lengths > 1e-5 * lengths[0]))
    if not 1 <= components <= rank:
        raise ValueError(f"components must lie between 1 and {rank}, not {components}")
    axes, std = axes[:components], lengths[:components] / np.sqrt(len(reference))
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
    axes = axes * np.sign(largest)  # the same signs on every machine
    return ((vectors - mean) @ (axes / std[:, None]).T).astype(np.float32)


def hashed_ngrams(texts: Sequence[str], dim: int) -> np.ndarray:
    """Counts of n-grams, hashed with signs (Weinberger et al. 2009), as unit vectors `f32[I, dim]`.

    The hash is BLAKE2b: the same on every machine and in every process.
    """
    if dim < 1:
        raise ValueError(f"dim must be at least 1, got {dim}")
    features = np.zeros((len(texts), dim), np.float32)
    for row, text in zip(features, texts, strict=True):
        for gram, count in collections.Counter(ngrams(text)).items():
            code = _hash(gram)
            row[(code >> 1) % dim] += count if code & 1 else -count
    norm = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.maximum(norm, np.finfo(np.float32).tiny)


def ngrams(text: str) -> Iterator[str]:
    """Words, pairs of neighbouring words (ends included), and triples of letters within words."""
    words = re.findall(r"\w+", text.lower())
    yield from (f"word {word}" for word in words)
    yield from (
        f"pair {first} {second}" for first, second in itertools.pairwise(["^", *words, "$"])
    )
    for word in words:
        marked = f"^{word}$"
        yield from (f"letters {marked[i : i + 3]}" for i in range(len(marked) - 2))


@functools.lru_cache(maxsize=1 << 16)
def _hash(gram: str) -> int:
    return int.from_bytes(hashlib.blake2b(gram.encode(), digest_size=8).digest(), "little")
