"""Scores in chunks, against the softmax of all logits at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core as jex_core

from jaxrl_guided.backbones import decoder
from jaxrl_guided.backbones.config import BackboneConfig
from jaxrl_guided.backbones.draw import draw
from jaxrl_guided.backbones.log_probs import CHUNK, score_hidden, score_tokens
from jaxrl_guided.backbones.params import init_params, unstack
from jaxrl_guided.backbones.sampler import Request, Sampler
from jaxrl_guided.backbones.turns import Rules, Weights

CONFIG = BackboneConfig(61, 32, 48, 2, 4, 2, 12)
PARAMS = init_params(CONFIG, 0, std=0.3)
ROWS, LENGTH = 2, CHUNK + 9


def batch():
    rng = np.random.default_rng(0)
    tokens = jnp.asarray(rng.integers(0, 61, (ROWS, LENGTH)))
    asked = jnp.asarray(rng.random((ROWS, LENGTH)) < 0.4).at[:, 0].set(False)
    return tokens, asked, jnp.array([0.7, 1.0])


def plain(params, tokens, asked, temperature):
    positions = jnp.broadcast_to(jnp.arange(LENGTH), (ROWS, LENGTH))
    hidden, _ = decoder.apply(CONFIG, params, decoder.embed(params, tokens), positions)
    logits = decoder.logits(CONFIG, params, hidden) / temperature[:, None, None]
    log_probs = jax.nn.log_softmax(logits[:, :-1])
    entropy = -(jnp.exp(log_probs) * log_probs).sum(-1)
    chosen = jnp.take_along_axis(log_probs, tokens[:, 1:, None], -1)[..., 0]
    return tuple(jnp.where(asked, jnp.pad(x, [(0, 0), (1, 0)]), 0.0) for x in (chosen, entropy))


def test_scores_and_gradients_are_those_of_the_whole_softmax():
    given = batch()
    ours = jax.jit(lambda p: score_tokens(CONFIG, p, *given))(PARAMS)
    for x, expected in zip(ours, jax.jit(plain)(PARAMS, *given), strict=True):
        np.testing.assert_allclose(x, expected, atol=2e-5)
    weight = jax.random.normal(jax.random.key(1), (ROWS, LENGTH))
    grads = [
        jax.jit(jax.grad(lambda p, f=f: (f(p) * weight).sum()))(PARAMS)
        for f in (
            lambda p: score_tokens(CONFIG, p, *given).log_prob,
            lambda p: plain(p, *given)[0],
        )
    ]
    scale = max(float(jnp.abs(x).max()) for x in jax.tree.leaves(grads[1]))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5 * scale), *grads)


def sizes(jaxpr: jex_core.Jaxpr):
    for equation in jaxpr.eqns:
        yield from (value.aval.size for value in equation.outvars)
        for inner in equation.params.values():
            inner = getattr(inner, "jaxpr", inner)
            if isinstance(inner, jex_core.Jaxpr):
                yield from sizes(inner)


def test_no_array_holds_all_logits():
    config = BackboneConfig(4096, 16, 16, 1, 1, 1, 16)
    params = init_params(config, 0)
    tokens, asked = jnp.zeros((2, 8 * CHUNK), int), jnp.ones((2, 8 * CHUNK), bool)

    def loss(params):
        return score_tokens(config, params, tokens, asked, jnp.ones(2)).log_prob.sum()

    largest = max(sizes(jax.make_jaxpr(jax.grad(loss))(params).jaxpr))
    assert largest <= 2 * CHUNK * 4096


def test_padding_changes_nothing_and_unknown_ids_are_seen():
    tokens, asked, temperature = batch()
    asked = asked.at[:, 40:].set(False)
    padded = tokens.at[:, 40:].set(7)

    @jax.jit
    def loss(params, tokens):
        return score_tokens(CONFIG, params, tokens, asked, temperature).log_prob.sum()

    np.testing.assert_allclose(loss(PARAMS, padded), loss(PARAMS, tokens), rtol=1e-6)
    assert np.isnan(loss(PARAMS, tokens.at[0, 3].set(99)))


@pytest.mark.parametrize("temperature", [1e-10, 1.2e-38])
def test_the_smallest_temperatures_are_scored_as_they_are_drawn(temperature):
    """All on the likeliest token; nothing is NaN, neither scores nor gradients."""
    tokens, _, _ = batch()
    tokens = tokens[:1, :20]
    positions = jnp.arange(20)[None]
    hidden, _ = decoder.apply(CONFIG, PARAMS, decoder.embed(PARAMS, tokens), positions)
    logits = 100 * decoder.logits(CONFIG, PARAMS, hidden)
    params = {**PARAMS, "lm_head": {"kernel": 100 * PARAMS["lm_head"]["kernel"]}}
    drawn, log_prob = draw(logits[0], jnp.full(20, 0.5), jnp.full(20, temperature))
    heat = jnp.array([temperature])

    def scored(hidden):
        scores = score_hidden(CONFIG, params, hidden, drawn[None], heat)
        return scores.log_prob.sum(), scores

    gradient, scores = jax.grad(scored, has_aux=True)(hidden)
    assert np.array_equal(scores.log_prob[0], log_prob)
    assert np.array_equal(scores.entropy, np.zeros((1, 20)))
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_the_trainer_computes_what_the_sampler_drew_with(temperature):
    sampler = Sampler(Rules(CONFIG, size=64, max_tokens=8), rows=4)
    history, spoken, log_probs = [], [], []
    for turn in range(3):
        new = np.random.default_rng(turn).integers(0, 61, 4).tolist()
        request = Request(new, seed=turn, temperature=temperature)
        answer = sampler.answer(Weights(unstack(PARAMS, fuse=True)), {1: request})[1]
        history += [*new, *answer.tokens.tolist()]
        spoken += [False] * 4 + [True] * 8
        log_probs += [0.0] * 4 + answer.log_probs.tolist()
    tokens, asked = jnp.asarray([history]), jnp.asarray([spoken])
    scores = score_tokens(CONFIG, PARAMS, tokens, asked, jnp.array([temperature]))
    np.testing.assert_allclose(scores.log_prob[0], log_probs, atol=1e-4)
