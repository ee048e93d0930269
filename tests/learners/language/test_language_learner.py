"""Updates against the gradient of the plainly written loss, and a policy that learns."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxrl_guided.backbones import decoder, turns
from jaxrl_guided.backbones.config import BackboneConfig
from jaxrl_guided.backbones.lora import LoraConfig
from jaxrl_guided.backbones.params import init_params, unstack
from jaxrl_guided.backbones.sampler import Request, Sampler
from jaxrl_guided.backbones.turns import Rules, Weights
from jaxrl_guided.learners.language.batches import MicroBatch, Sample
from jaxrl_guided.learners.language.learner import (
    LanguageLearner,
    LanguageLearnerConfig,
    apply_gradient,
    gradient_of,
    init_language,
)
from jaxrl_guided.learners.language.objectives import CISPOConfig, GRPOConfig

BACKBONE = BackboneConfig(31, 16, 24, 2, 2, 1, 8)
BASE = init_params(BACKBONE, 0, std=0.3)
FULL = LanguageLearnerConfig(
    BACKBONE,
    learning_rate=1e-2,
    weight_decay=0.1,
    max_grad_norm=0.5,
    micro_batch=2,
    lengths=(8, 16),
)
LORA = dataclasses.replace(
    FULL, lora=LoraConfig(rank=2), objective=GRPOConfig(max_importance=1.1, kl_weight=0.2)
)
CISPO = dataclasses.replace(FULL, objective=CISPOConfig(), aggregation="token_mean")


def samples_of(count: int = 5) -> list[Sample]:
    rng, found = np.random.default_rng(0), []
    for number in range(count):
        size = int(rng.choice([7, 12]))  # of one program each, and few for the plain loss
        spoken = rng.random(size) < 0.5
        spoken[0], spoken[-1] = False, True
        found.append(
            Sample(
                tokens=rng.integers(0, 31, size),
                spoken=spoken,
                log_probs=np.where(spoken, -3 + rng.normal(0, 0.3, size), np.nan),
                advantage=float(rng.normal()),
                temperature=0.8,
                part=number % 2,
            )
        )
    return found


def trained_of(config: LanguageLearnerConfig):
    state = init_language(config, BASE, jax.random.key(1))
    if config.lora is None:
        return state
    moved = jax.tree.map(lambda x: x + 0.03, state.trained)  # adapters that do something
    return dataclasses.replace(state, trained=moved)


def learner_of(config: LanguageLearnerConfig) -> LanguageLearner:
    return LanguageLearner(config, None if config.lora is None else BASE)


def plain_log_probs(config, trained, sample):
    params, lora = (trained, None) if config.lora is None else (BASE, trained)
    tokens = jnp.asarray(sample.tokens)[None]
    hidden, _ = decoder.apply(
        BACKBONE,
        params,
        decoder.embed(params, tokens),
        jnp.arange(tokens.shape[1])[None],
        lora=lora,
        lora_scale=config.lora_scale,
    )
    logits = decoder.logits(BACKBONE, params, hidden)[0, :-1] / sample.temperature
    scored = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[0, 1:, None], 1)[:, 0]
    return scored[sample.spoken[1:]]


def plain_loss(config, trained, samples, old, reference):
    """Mean over the two parts; within them over sequences and tokens, or over all tokens."""
    parts = []
    for part in (0, 1):
        rows = []
        for number, sample in enumerate(samples):
            if sample.part != part:
                continue
            now = plain_log_probs(config, trained, sample)
            behaviour = sample.log_probs[sample.spoken]
            if isinstance(config.objective, CISPOConfig):
                ratio = jax.lax.stop_gradient(jnp.clip(jnp.exp(now - behaviour), 0.9, 1.1))
                rows.append(-ratio * sample.advantage * now)
                continue
            ratio = jnp.exp(now - old[number])
            gain = jnp.minimum(
                ratio * sample.advantage, jnp.clip(ratio, 0.8, 1.2) * sample.advantage
            )
            importance = np.minimum(
                np.exp(old[number] - behaviour), config.objective.max_importance
            )
            apart = reference[number] - now
            penalty = config.objective.kl_weight * (jnp.exp(apart) - apart - 1)
            rows.append(-importance * gain + penalty)
        tokens = jnp.concatenate(rows)
        by_sequence = jnp.stack([row.mean() for row in rows]).mean()
        parts.append(tokens.mean() if config.aggregation == "token_mean" else by_sequence)
    return (parts[0] + parts[1]) / 2


def plain_update(config, state, samples, minibatches=1):
    optimizer = optax.chain(
        optax.clip_by_global_norm(config.max_grad_norm),
        optax.adamw(config.learning_rate, weight_decay=config.weight_decay),
    )
    trained, moments = state.trained, optimizer.init(state.trained)
    plain = dataclasses.replace(config, lora=None, objective=GRPOConfig())
    old, reference = jax.device_get(
        jax.jit(
            lambda trained: (
                [plain_log_probs(config, trained, s) for s in samples],
                [plain_log_probs(plain, BASE, s) for s in samples],
            )
        )(trained)
    )
    for part in np.array_split(np.arange(len(samples)), minibatches):
        chosen = [[x[i] for i in part] for x in (samples, old, reference)]
        grads = jax.jit(jax.grad(lambda t, c=chosen: plain_loss(config, t, *c)))(trained)
        updates, moments = optimizer.update(grads, moments, trained)
        trained = optax.apply_updates(trained, updates)
    return trained


def close(ours, expected, atol=2e-5):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=atol), ours, expected)


@pytest.mark.parametrize(
    "config,minibatches",
    [(FULL, 2), (LORA, 1), (CISPO, 1)],
    ids=["full, two steps", "lora", "cispo"],
)
def test_an_update_is_that_of_the_plain_loss(config, minibatches):
    state, samples = trained_of(config), samples_of()
    expected = plain_update(config, state, samples, minibatches)
    before = jax.tree.map(np.array, BASE)
    state, metrics = learner_of(config).update(state, samples, minibatches)
    # Adam makes much of gradients near zero, so that rounding shows in the second step.
    close(state.trained, expected, atol=2e-5 if minibatches == 1 else 5e-4)
    assert int(state.step) == minibatches
    assert metrics["skipped"] == 0
    if minibatches == 1 and config is not CISPO:
        assert metrics["ratio"] == pytest.approx(1, abs=1e-4)
    jax.tree.map(np.testing.assert_array_equal, BASE, before)


def test_micro_batches_of_any_size_add_up():
    results = []
    for rows in (1, 5):
        config = dataclasses.replace(FULL, micro_batch=rows)
        state, metrics = learner_of(config).update(trained_of(config), samples_of())
        results.append((state.trained, metrics))
    close(results[0][0], results[1][0], atol=1e-5)
    assert results[0][1] == pytest.approx(results[1][1], rel=1e-4, abs=1e-6)


def test_programs_are_one_for_each_length():
    config = dataclasses.replace(FULL, max_grad_norm=0.7)
    learner, state = learner_of(config), trained_of(config)
    before = learner._add._cache_size(), learner._apply._cache_size()
    for count in (5, 3, 4):
        state, _ = learner.update(state, samples_of(count))
    assert learner._add._cache_size() - before[0] <= 2
    assert learner._apply._cache_size() - before[1] == 1


def test_weights_that_a_sampler_reads_outlive_the_update():
    state = trained_of(LORA)
    sampler = Sampler(Rules(BACKBONE, size=16, max_tokens=8, lora_scale=LORA.lora_scale), rows=4)
    sampler.submit(0, Request([1, 2, 3]))
    weights, moments = Weights(BASE, state.trained), jax.tree.leaves(state.optimizer)
    sampler.run(weights, steps=2)
    after, _ = learner_of(LORA).update(state, samples_of())
    assert any(x.is_deleted() for x in moments)
    while sampler.busy:
        done = sampler.run(weights, steps=2)
    fresh = sampler.answer(weights, {0: Request([1, 2, 3], fresh=True)})
    assert np.array_equal(done[0].tokens, fresh[0].tokens)
    assert int(after.step) == 1


def test_a_gradient_that_is_not_finite_changes_nothing():
    state = trained_of(LORA)
    broken = dataclasses.replace(state, trained=jax.tree.map(lambda x: x * jnp.nan, state.trained))
    before = jax.tree.map(np.array, broken)
    after, metrics = learner_of(LORA).update(broken, samples_of())
    assert metrics["skipped"] == 1
    jax.tree.map(np.testing.assert_array_equal, after, before)


def sample(**changes) -> Sample:
    given = {
        "tokens": np.array([1, 2]),
        "spoken": np.array([False, True]),
        "log_probs": np.zeros(2),
        "advantage": 1.0,
    }
    return Sample(**(given | changes))


@pytest.mark.parametrize(
    "changes,message",
    [
        ({"tokens": np.array([1, 2, 3])}, "must have one length of at least 1, got 3, 2 and 2"),
        ({"spoken": np.array([True, True])}, "the first token of a sample cannot be spoken"),
        ({"log_probs": np.array([0, np.nan])}, "1 log_probs that are not finite"),
        ({"advantage": float("inf")}, "an advantage of inf"),
        ({"temperature": 0.0}, "a temperature of 0.0"),
    ],
)
def test_broken_samples_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        sample(**changes)


def test_batches_that_cannot_be_learned_from_are_refused():
    learner, state = learner_of(FULL), trained_of(FULL)
    silent = sample(spoken=np.zeros(2, bool))
    long = sample(tokens=np.ones(17, int), spoken=np.arange(17) > 8, log_probs=np.zeros(17))
    for samples, minibatches, message in [
        ([], 1, "there is nothing to learn from"),
        ([silent], 1, "no sample has a spoken token"),
        ([sample()], 2, "minibatches must be within 1 … 1 samples, got 2"),
        ([sample(tokens=np.array([1, 31]))], 1, "sample 0 has ids outside 0 … 30"),
        ([long], 1, "a sample of 17 tokens is longer than 16"),
    ]:
        with pytest.raises(ValueError, match=message):
            learner.update(state, samples, minibatches)
    learner.update(state, [silent, sample()])  # was not donated; a silent sample is no harm


@pytest.mark.parametrize(
    "changes,message",
    [
        ({"aggregation": "sum"}, "aggregation must be one of"),
        ({"aggregation": "fixed_length"}, "fixed_length must be positive"),
        ({"fixed_length": 5}, "fixed_length must be positive"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"max_grad_norm": float("nan")}, "max_grad_norm must be positive"),
        ({"weight_decay": -1.0}, "weight_decay must be at least 0"),
        ({"weight_decay": float("inf")}, "weight_decay must .* not inf"),
        ({"micro_batch": 0}, "micro_batch must be at least 1"),
        ({"lengths": (16, 8)}, "lengths must be ascending"),
        ({"lengths": ()}, "lengths must be ascending"),
        ({"objective": GRPOConfig(kl_weight=0.1)}, "kl_weight needs lora"),
        ({"objective": CISPOConfig()}, "aggregation must be token_mean with CISPO"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(FULL, **changes)
    with pytest.raises(ValueError, match="base goes with lora"):
        LanguageLearner(LORA)


def one_update(config, rules, state, seed):
    """Sampler, groups and update in one program: what the host loops do, for one length."""
    rows, prompt, drawn = 64, 4, rules.max_tokens
    groups = jnp.arange(rows) // 8
    told = jax.random.randint(jax.random.key(7), (8, prompt), 0, BACKBONE.vocab_size)[groups]
    slots = turns.init_slots(rules, rows, rules.size)
    text = turns.Text(
        None,
        told,
        jnp.full(rows, prompt),
        jnp.ones(rows, bool),
        jnp.ones(rows, bool),
        (seed * rows + jnp.arange(rows)).astype(jnp.uint32),
        jnp.ones(rows),
        jnp.full(rows, drawn),
    )
    weights = Weights(unstack(state.trained))
    slots = turns.read(rules, rules.size, weights, slots, text)
    slots = turns.advance(rules, rules.size, weights, slots, jnp.int32(drawn))
    reward = (slots.turn.tokens < 8).mean(1)
    each = reward.reshape(8, 8)
    deviation = jnp.maximum(each.std(1, keepdims=True), 1e-3)
    advantage = ((each - each.mean(1, keepdims=True)) / deviation).reshape(-1)
    spoken = jnp.broadcast_to(jnp.arange(prompt + drawn) >= prompt, (rows, prompt + drawn))
    behaviour = jnp.pad(slots.turn.log_probs, [(0, 0), (prompt, 0)])
    weight = spoken / spoken.sum()
    batch = MicroBatch(
        jnp.concatenate([told, slots.turn.tokens], 1),
        spoken,
        behaviour,
        advantage,
        jnp.ones(rows),
        weight,
    )
    gradient = gradient_of(config, None, state.trained, batch)
    state, _ = apply_gradient(config, gradient, state.optimizer, state.trained, state.step)
    return state, reward.mean()


@pytest.mark.slow
def test_a_random_decoder_learns_what_is_rewarded():
    """Everything in one jitted scan: the share of tokens below 8 of 31 rises to all."""
    config = dataclasses.replace(FULL, learning_rate=3e-3, weight_decay=0.0)
    rules = Rules(BACKBONE, size=16, max_tokens=8)
    state = init_language(config, BASE, jax.random.key(0))
    step = functools.partial(one_update, config, rules)
    _, rewards = jax.jit(lambda state: jax.lax.scan(step, state, jnp.arange(60)))(state)
    assert rewards[0] < 0.45
    assert rewards[-5:].mean() > 0.95
