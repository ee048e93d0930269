"""Draws against numpy: the inverse of the distribution function, and its frequencies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from jaxrl_guided.backbones.draw import Cut, draw

SIZE = 300  # more than two blocks, not a multiple of one
jitted = jax.jit(draw, static_argnums=3)


def logits_of(rows: int, size: int = SIZE, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 3, (rows, size)).astype(np.float32)


def drawn(logits, uniform, temperature=1.0, cut=Cut()):  # noqa: B008
    uniform = jnp.asarray(uniform, jnp.float32)
    heat = jnp.full(uniform.shape, temperature, jnp.float32)
    return jax.tree.map(np.asarray, jitted(jnp.asarray(logits), uniform, heat, cut))


@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7])
def test_token_is_the_inverse_of_the_running_sum(temperature):
    logits = logits_of(2000)
    uniform = np.random.default_rng(1).random(2000)
    token, log_prob = drawn(logits, uniform, temperature)
    log_probs = special.log_softmax(logits.astype(np.float64) / temperature, axis=1)
    reached = np.cumsum(np.exp(log_probs), axis=1)
    rows = np.arange(2000)
    # The uniform number lies within the token's step, but for rounding.
    below = np.where(token > 0, reached[rows, token - 1], 0)
    assert (below <= uniform + 1e-5).all()
    assert (uniform <= reached[rows, token] + 1e-5).all()
    np.testing.assert_allclose(log_prob, log_probs[rows, token], atol=2e-5)


def test_frequencies_are_the_probabilities():
    logits, count = logits_of(1, 40), 40_000
    token, _ = drawn(np.repeat(logits, count, 0), np.random.default_rng(2).random(count))
    expected = special.softmax(logits[0].astype(np.float64)) * count
    common = expected > 20
    seen = np.bincount(token, minlength=40)
    folded = [np.append(x[common], x[~common].sum()) for x in (seen, expected)]
    assert stats.chisquare(*folded).pvalue > 1e-3


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-24])
@pytest.mark.parametrize("alive", [[0], [299], [127, 128], [5, 290]])
def test_tokens_without_weight_are_never_drawn(uniform, alive):
    logits = np.full((1, SIZE), -np.inf, np.float32)
    logits[0, alive] = 0.0
    token, log_prob = drawn(logits, [uniform])
    assert token[0] == alive[int(uniform * len(alive))]
    np.testing.assert_allclose(log_prob, -np.log(len(alive)), atol=1e-6)


def test_temperature_zero_takes_the_likeliest():
    logits = logits_of(50)
    token, log_prob = drawn(logits, np.full(50, 0.999), 0.0)
    assert np.array_equal(token, logits.argmax(1))
    np.testing.assert_allclose(log_prob, special.log_softmax(logits, axis=1).max(1), atol=1e-5)


@pytest.mark.parametrize("temperature", [1e-10, 1.2e-38])
def test_the_smallest_temperatures_take_the_likeliest(temperature):
    """Logits divided by them are beyond float32, and their differences no number."""
    logits = logits_of(50) + 10
    token, log_prob = drawn(logits, np.full(50, 0.999), temperature)
    assert np.array_equal(token, logits.argmax(1))
    assert np.array_equal(log_prob, np.zeros(50))


def test_rows_are_cut_as_told():
    logits = np.log(np.array([[0.4, 0.1, 0.3, 0.05, 0.15]], np.float32))
    uniform = np.linspace(0, 0.999, 2000)

    def left(cut):
        token, log_prob = drawn(np.repeat(logits, 2000, 0), uniform, 1.0, cut)
        return {int(t): round(float(np.exp(log_prob[token == t][0])), 3) for t in set(token)}

    assert left(Cut(top_k=2)) == {0: 0.571, 2: 0.429}
    assert left(Cut(top_p=0.4)) == {0: 1.0}
    assert left(Cut(top_p=0.41)) == {0: 0.571, 2: 0.429}
    assert left(Cut(top_p=0.8)) == {0: 0.471, 2: 0.353, 4: 0.176}
    assert left(Cut(top_k=3, top_p=0.5)) == {0: 0.571, 2: 0.429}
    assert left(Cut(top_k=9)) == {0: 0.4, 2: 0.3, 4: 0.15, 1: 0.1, 3: 0.05}


@pytest.mark.parametrize("settings", [{"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.5}])
def test_impossible_cuts_are_refused(settings):
    with pytest.raises(ValueError, match=r"top_k must be 0 or more and top_p in \(0, 1\]"):
        Cut(**settings)


def test_a_broken_row_says_so_and_leaves_the_others():
    logits = logits_of(2)
    logits[0, 7] = np.nan
    token, log_prob = drawn(logits, [0.5, 0.5])
    assert np.isnan(log_prob[0])
    assert np.isfinite(log_prob[1])
    assert token.min() >= 0
    assert token.max() < SIZE
