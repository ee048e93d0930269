"""Hashed n-grams against scikit-learn's exact counts and a hash recomputed by hand."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import CountVectorizer

from jaxrl_guided.backbones import minilm
from jaxrl_guided.backbones.config import BackboneError
from jaxrl_guided.backbones.text_features import hashed_ngrams, ngrams, text_features, whiten

TEXTS = [
    "Move the red ball to the left of the blue one.",
    "Move the blue ball to the left of the red one.",
    "move, the RED ball! to the left of the blue one",
    "Please put the purple sphere behind the cyan ball",
    "",
]


def test_ngrams():
    assert list(ngrams("Red, 2 red")) == [
        *("word red", "word 2", "word red"),
        *("pair ^ red", "pair red 2", "pair 2 red", "pair red $"),
        *("letters ^re", "letters red", "letters ed$", "letters ^2$"),
        *("letters ^re", "letters red", "letters ed$"),
    ]
    assert list(ngrams("")) == ["pair ^ $"]


def test_bucket_and_sign_by_hand():
    code = int.from_bytes(hashlib.blake2b(b"pair ^ $", digest_size=8).digest(), "little")
    expected = np.zeros(64)
    expected[(code // 2) % 64] = 1 if code % 2 else -1
    np.testing.assert_array_equal(hashed_ngrams([""], 64)[0], expected)


def test_wide_features_have_the_cosines_of_exact_counts():
    counts = CountVectorizer(analyzer=lambda text: list(ngrams(text))).fit_transform(TEXTS)
    exact = counts.toarray() / np.linalg.norm(counts.toarray(), axis=1, keepdims=True)
    features = hashed_ngrams(TEXTS, 1 << 20)  # wide enough that nothing collides
    np.testing.assert_allclose(features @ features.T, exact @ exact.T, atol=1e-6)


def test_case_and_marks_do_not_count_but_order_does():
    features = hashed_ngrams(TEXTS, 256)
    np.testing.assert_array_equal(features[0], features[2])
    assert features[0] @ features[1] < 0.99


@settings(deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=4), st.integers(1, 40))
def test_rows_are_independent_unit_vectors(texts, dim):
    features = text_features(texts, "hashed", dim)
    assert features.shape == (len(texts), dim)
    assert features.dtype == np.float32
    norms = np.linalg.norm(features, axis=1)
    assert (np.isclose(norms, 1, atol=1e-6) | (norms == 0)).all()  # opposite signs may cancel
    np.testing.assert_array_equal(features[-1:], text_features(texts[-1:], "hashed", dim))


def test_whitened_vectors_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    reference = rng.normal(size=(40, 12)) * np.geomspace(1, 1e-2, 12) + 3
    vectors = rng.normal(size=(5, 12))
    oracle = PCA(n_components=6, whiten=True, svd_solver="full").fit(reference)
    found, known = whiten(reference, reference, 6), oracle.transform(reference)
    signs = np.sign((found * known).sum(axis=0))
    ddof = np.sqrt(40 / 39)  # scikit-learn divides by R - 1
    np.testing.assert_allclose(found, known * signs * ddof, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.cov(found.T, ddof=0), np.eye(6), atol=1e-5)
    others = oracle.transform(vectors) * signs * ddof
    np.testing.assert_allclose(whiten(vectors, reference, 6), others, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(
        whiten(vectors, reference, 3), whiten(vectors, reference, 6)[:, :3]
    )


def test_more_components_than_there_are_directions_are_refused():
    flat = np.outer([1.0, 2.0, 4.0], [1.0, 1.0])
    assert whiten(flat, flat, 1).shape == (3, 1)
    for components in (0, 2):
        with pytest.raises(
            ValueError, match=f"components must lie between 1 and 1, not {components}"
        ):
            whiten(flat, flat, components)


def test_the_same_in_another_process():
    code = (
        "from jaxrl_guided.backbones.text_features import hashed_ngrams; import sys;"
        f"sys.stdout.write(hashed_ngrams({TEXTS!r}, 32).tobytes().hex())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == hashed_ngrams(TEXTS, 32).tobytes().hex()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((["a"], "bert"), "kind must be 'minilm' or 'hashed', got 'bert'"),
        ((["a"], "minilm", 128), "dim must be 384 for kind='minilm', got 128"),
        ((["a"], "hashed", 0), "dim must be at least 1, got 0"),
        (([], "hashed"), "texts must be a non-empty sequence"),
        (("red", "hashed"), "texts must be a non-empty sequence"),
    ],
)
def test_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        text_features(*arguments)


def test_minilm_without_weights_says_what_to_run(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXRL_GUIDED_WEIGHTS", str(tmp_path))
    with pytest.raises(BackboneError, match=r"python -m experiments\.fetch_weights"):
        text_features(["a"])


def test_minilm_is_read_from_the_weights_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXRL_GUIDED_WEIGHTS", str(tmp_path))
    seen = []
    monkeypatch.setattr("jaxrl_guided.backbones.weights.is_complete", lambda name, root: True)
    monkeypatch.setattr(minilm, "load_minilm", lambda folder: seen.append(folder) or "model")
    monkeypatch.setattr(minilm, "sentence_vectors", lambda model, texts: (model, texts))
    assert text_features(["a"]) == ("model", ["a"])
    assert seen == [tmp_path / "all-minilm-l6-v2"]
