"""The decoder against torch's golden logits and against its own plain forward."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from jax.extend import core as jex_core

from jaxrl_guided.backbones import attention, decoder, hf, rope
from jaxrl_guided.backbones.config import BackboneConfig, BackboneError, RopeScaling
from jaxrl_guided.backbones.kv_cache import init_cache, put_part
from jaxrl_guided.backbones.kv_cache import part as part_of
from jaxrl_guided.backbones.lora import LoraConfig, init_lora
from jaxrl_guided.backbones.params import init_params, param_shapes, truncate, unstack
from jaxrl_guided.backbones.presets import PRESETS

GOLDENS = sorted((Path(__file__).parents[1] / "goldens").glob("decoder_*.npz"))
CONFIG = BackboneConfig(
    vocab_size=61,
    hidden_size=32,
    intermediate_size=48,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=12,
    rope_theta=1e5,
    qkv_bias=True,
    qk_norm=True,
    o_bias=True,
)
PARAMS = init_params(CONFIG, 0, std=0.3)
apply = jax.jit(
    decoder.apply, static_argnums=0, static_argnames=("window", "remat", "compute_dtype")
)


table_of = jax.jit(decoder.prefix_from_tokens, static_argnums=0, static_argnames="chunk")
prefix_of = jax.jit(decoder.prefix_from_embeddings, static_argnums=0)


def run(x: jax.Array, at: jax.Array | None = None, ids: jax.Array | None = None, **options):
    """Hidden states; explicit segments, so that calls of one shape share a program."""
    at = steps(*x.shape[:2]) if at is None else jnp.asarray(at)
    ids = jnp.ones_like(at) if ids is None else jnp.asarray(ids)
    return apply(CONFIG, PARAMS, x, at, segment_ids=ids, **options)[0]


def tokens_of(rows: int, length: int, seed: int = 1) -> jax.Array:
    return jax.random.randint(jax.random.key(seed), (rows, length), 0, CONFIG.vocab_size)


def steps(rows: int, length: int, start: int = 0) -> jax.Array:
    return jnp.broadcast_to(jnp.arange(start, start + length), (rows, length))


def embedded(tokens: jax.Array) -> jax.Array:
    return decoder.embed(PARAMS, tokens)


def close(ours: jax.Array, expected: jax.Array) -> None:
    np.testing.assert_allclose(ours, expected, atol=3e-5)


@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.stem)
def test_logits_equal_golden_logits_of_torch(path, tmp_path):
    golden = dict(np.load(path))
    (tmp_path / "config.json").write_text(str(golden.pop("config")))
    tokens, expected = jnp.asarray(golden.pop("tokens")), golden.pop("logits")
    safetensors.numpy.save_file(golden, tmp_path / "model.safetensors")
    config, params = hf.load_hf(tmp_path)
    hidden, _ = apply(config, params, decoder.embed(params, tokens), steps(*tokens.shape))
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(decoder.logits(config, params, hidden), expected, atol=1e-4)


def test_three_golden_files():
    assert len(GOLDENS) == 3


def test_embedding_path_is_token_path_bit_for_bit():
    tokens = tokens_of(2, 8)
    table = np.asarray(PARAMS["embed"])
    by_hand = jnp.asarray(np.stack([[table[token] for token in row] for row in tokens]))
    assert np.array_equal(run(embedded(tokens)), run(by_hand))


def test_unknown_token_gives_nan_and_not_another_token():
    assert np.isnan(decoder.embed(PARAMS, jnp.array([CONFIG.vocab_size]))).all()


def test_tokens_do_not_see_the_future():
    tokens = tokens_of(2, 8)
    full, changed = run(embedded(tokens)), run(embedded(tokens.at[:, 5].add(1) % 61))
    close(changed[:, :5], full[:, :5])
    assert np.abs(changed[:, 5:] - full[:, 5:]).max(-1).min() > 1e-3


@pytest.mark.parametrize("where", ["left", "right", "both", "inside"])
def test_row_is_independent_of_batch_and_padding(where):
    tokens = tokens_of(1, 6)
    slots = {
        "left": np.arange(4, 10),
        "right": np.arange(6),
        "both": np.arange(2, 8),
        "inside": np.array([0, 1, 4, 5, 8, 9]),
    }[where]
    batch, ids, at = tokens_of(3, 10, seed=2), np.ones((3, 10), int), np.tile(np.arange(10), (3, 1))
    ids[1], at[1] = 0, 77
    ids[1, slots], at[1, slots] = 1, np.arange(6)
    hidden = run(embedded(batch.at[1, slots].set(tokens[0])), at, ids)
    close(hidden[1, slots], run(embedded(tokens))[0])
    assert np.isfinite(hidden).all()


def test_segments_equal_separate_sequences():
    x = embedded(tokens_of(2, 8))
    packed = run(x, [[0, 1, 2, 0, 1, 2, 3, 4]] * 2, [[1, 1, 1, 2, 2, 2, 2, 2]] * 2)
    close(packed[:, :3], run(x)[:, :3])
    close(packed[:, 3:], run(jnp.roll(x, -3, axis=1))[:, :5])


@pytest.mark.parametrize("prefill", [1, 4])
def test_cached_decoding_equals_full_forward_at_each_step(prefill):
    x = embedded(tokens_of(3, 10))
    full = run(x)
    cache = init_cache(CONFIG, 3, 10)
    hidden, cache = apply(CONFIG, PARAMS, x[:, :prefill], steps(3, prefill), cache=cache)
    close(hidden, full[:, :prefill])
    for t in range(prefill, 10):
        hidden, cache = apply(CONFIG, PARAMS, x[:, t : t + 1], steps(3, 1, t), cache=cache)
        close(hidden[:, 0], full[:, t])
    assert cache.length.tolist() == [10, 10, 10]


@pytest.mark.parametrize("right", [True, False], ids=["right", "left"])
def test_ragged_prefill_then_decoding(right):
    x, lengths = embedded(tokens_of(3, 10)), np.array([5, 2, 3])
    full = run(x)[:, :8]
    slot = np.arange(5) - (0 if right else 5 - lengths[:, None]) + np.zeros((3, 1), int)
    valid = (slot >= 0) & (slot < lengths[:, None])
    gathered = jnp.take_along_axis(x, np.clip(slot, 0, 9)[..., None], axis=1)
    cache = init_cache(CONFIG, 3, 8)
    hidden, cache = apply(
        CONFIG,
        PARAMS,
        gathered,
        jnp.asarray(slot),
        segment_ids=jnp.asarray(valid, jnp.int32),
        cache=cache,
    )
    assert cache.length.tolist() == lengths.tolist()
    assert np.isfinite(hidden).all()
    for row, length in enumerate(lengths):
        close(hidden[row, valid[row]], full[row, :length])
    for step in range(3):
        at = lengths[:, None] + step
        new = jnp.take_along_axis(x, at[..., None], axis=1)
        hidden, cache = apply(CONFIG, PARAMS, new, jnp.asarray(at), cache=cache)
        close(hidden, jnp.take_along_axis(full, at[..., None], axis=1))


def test_full_cache_keeps_its_entries():
    x = embedded(tokens_of(1, 5))
    _, cache = apply(CONFIG, PARAMS, x[:, :4], steps(1, 4), cache=init_cache(CONFIG, 1, 4))
    _, after = apply(CONFIG, PARAMS, x[:, 4:], steps(1, 1, 4), cache=cache)
    for kept, before in zip(after.keys + after.values, cache.keys + cache.values, strict=True):
        assert np.array_equal(kept, before)
    assert after.length.tolist() == [5]


@pytest.mark.parametrize("fuse", [False, True])
def test_layers_apart_and_side_by_side_give_the_same(fuse):
    x, cache = embedded(tokens_of(2, 4)), init_cache(CONFIG, 2, 4)
    lora = init_lora(CONFIG, LoraConfig(rank=2), jax.random.key(5))
    lora = jax.tree.map(lambda w: w + 0.1, lora)
    apart = unstack(PARAMS, fuse)
    assert ("q_k_v" in apart["layers"][1]) == fuse
    for expected, ours in zip(
        apply(CONFIG, PARAMS, x, steps(2, 4), cache=cache, lora=lora),
        apply(CONFIG, apart, x, steps(2, 4), cache=cache, lora=lora),
        strict=True,
    ):
        jax.tree.map(close, ours, expected)


def test_chosen_rows_of_a_cache_leave_the_others():
    x = embedded(tokens_of(4, 6))
    full = run(x)
    _, cache = apply(CONFIG, PARAMS, x[:, :3], steps(4, 3), cache=init_cache(CONFIG, 4, 6))
    rows = jnp.array([2, 0, 4])  # there is no row 4: padding
    new = x[jnp.array([2, 0, 1]), 3:5]
    near = part_of(cache, rows, 5)
    hidden, near = apply(CONFIG, PARAMS, new, steps(3, 2, 3), cache=near)
    after = put_part(cache, rows, 5, near)
    close(hidden[:2], full[rows[:2], 3:5])
    assert after.length.tolist() == [5, 3, 5, 3]
    for kept, before in zip(after.keys + after.values, cache.keys + cache.values, strict=True):
        assert np.array_equal(kept[jnp.array([1, 3])], before[jnp.array([1, 3])])
        assert np.array_equal(kept[:, :, :3], before[:, :, :3])
        assert not kept[:, :, 5:].any()
    hidden, _ = apply(CONFIG, PARAMS, x[:, 5:], steps(4, 1, 5), cache=after)
    close(hidden[jnp.array([0, 2]), 0], full[jnp.array([0, 2]), 5])


@pytest.mark.parametrize("tokens,window", [(15, 4), (150, 40)])
def test_window_equals_plain_when_segments_are_short(tokens, window):
    assert attention.block_sizes(window)[1] < tokens
    x, size = embedded(tokens_of(2, tokens)), window + 1
    long, short = np.arange(tokens) // size + 1, np.arange(tokens) // (size - 2) + 1
    short[-3:] = 0
    ids = np.stack([long, short])
    close(run(x, ids=ids, window=window), run(x, ids=ids))


@pytest.mark.parametrize("tokens,window", [(11, 3), (150, 40)])
def test_window_hides_what_is_further_back(tokens, window):
    """One layer: the last token depends on the last w tokens and itself, exactly."""
    config, params = truncate(CONFIG, PARAMS, 1)

    @jax.jit
    @jax.grad
    def reached(x):
        at = steps(1, tokens)
        return decoder.apply(config, params, x, at, window=window)[0][0, -1].sum()

    size = np.abs(reached(embedded(tokens_of(1, tokens)))[0]).max(-1)
    assert (size[: -window - 1] == 0).all()
    assert (size[-window - 1 :] > 0).all()


def test_window_zero_is_one_token_sequences():
    x, at = embedded(tokens_of(2, 8)), steps(2, 8)
    alone = run(x.reshape(16, 1, -1), at.reshape(16, 1))
    close(run(x, window=0).reshape(16, -1), alone[:, 0])


def test_window_zero_builds_no_square_array():
    rows, tokens = 2, 96
    jaxpr = jax.make_jaxpr(
        lambda x: decoder.apply(CONFIG, PARAMS, x, steps(rows, tokens), window=0)[0]
    )(embedded(tokens_of(rows, tokens)))
    largest = max(value.aval.size for _, value in every_output(jaxpr.jaxpr))
    assert largest < rows * tokens * tokens


@pytest.mark.parametrize("groups,window", [(1, None), (2, 3), (8, 0)])
def test_prefix_equals_concatenated_forward(groups, window):
    """Every group is its own segment behind its own text."""
    texts, lengths = tokens_of(3, 5, seed=3), np.array([5, 2, 4])
    prefix = table_of(CONFIG, PARAMS, texts, jnp.asarray(lengths), chunk=2)
    index = np.random.default_rng(0).integers(0, 3, (2, groups))
    size = 8 // groups
    own = embedded(tokens_of(2, 8))
    at = lengths[index].repeat(size, axis=1) + np.tile(np.arange(size), (2, groups))
    ids = jnp.broadcast_to(jnp.arange(8) // size + 1, (2, 8))
    ours, _ = apply(
        CONFIG,
        PARAMS,
        own,
        jnp.asarray(at),
        segment_ids=ids,
        prefix=prefix.replace(index=jnp.asarray(index)),
        window=window,
    )
    # The same as one plain row per group: its text, its tokens, padding.
    joined, ids = jnp.zeros((2 * groups, 13, CONFIG.hidden_size)), np.zeros((2 * groups, 13), int)
    for row, (text, part) in enumerate(zip(index.flat, own.reshape(-1, size, 32), strict=True)):
        used = int(lengths[text])
        x = jnp.concatenate([embedded(texts[text, :used]), part])
        joined, ids[row, : used + size] = joined.at[row, : used + size].set(x), 1
    full = run(joined, ids=ids)
    last = [full[row, int(lengths[text]) :][:size] for row, text in enumerate(index.flat)]
    close(ours.reshape(2 * groups, size, -1), jnp.stack(last))


def test_prefix_with_cache_equals_concatenated_forward():
    texts, own = embedded(tokens_of(2, 4, seed=3)), embedded(tokens_of(2, 4))
    full = run(jnp.concatenate([texts, own], 1))
    prefix = prefix_of(CONFIG, PARAMS, texts, jnp.array([4, 4]))
    cache = init_cache(CONFIG, 2, 4)
    for t in range(4):
        hidden, cache = apply(
            CONFIG, PARAMS, own[:, t : t + 1], steps(2, 1, 4 + t), prefix=prefix, cache=cache
        )
        close(hidden[:, 0], full[:, 4 + t])


def test_prefix_of_length_zero_reads_nothing():
    x = embedded(tokens_of(2, 8))
    empty = prefix_of(CONFIG, PARAMS, embedded(tokens_of(2, 4)), jnp.array([0, 0]))
    close(run(x, prefix=empty), run(x))


def test_prefix_table_is_what_a_fresh_cache_holds():
    tokens, length = tokens_of(5, 4), jnp.array([4, 1, 3, 2, 4])
    ids = (jnp.arange(4) < length[:, None]).astype(jnp.int32)
    _, cache = apply(
        CONFIG,
        PARAMS,
        embedded(tokens),
        steps(5, 4),
        segment_ids=ids,
        cache=init_cache(CONFIG, 5, 4),
    )
    prefix = table_of(CONFIG, PARAMS, tokens, length, chunk=2)
    shown = np.asarray(ids, bool)
    for ours, stored in [(prefix.keys, cache.keys), (prefix.values, cache.values)]:
        close(ours[:, shown], jnp.stack(stored).swapaxes(2, 3)[:, shown])
    assert np.array_equal(prefix.length, cache.length)


def test_gradient_flows_through_prefix_as_through_concatenation():
    text, own = embedded(tokens_of(2, 3, seed=3)), embedded(tokens_of(2, 4))
    weight = jax.random.normal(jax.random.key(4), own.shape)

    def concatenated(text):
        x = jnp.concatenate([text, own], 1)
        return jnp.sum(decoder.apply(CONFIG, PARAMS, x, steps(2, 7))[0][:, 3:] * weight)

    def prefixed(text):
        prefix = decoder.prefix_from_embeddings(CONFIG, PARAMS, text, jnp.array([3, 3]), remat=True)
        hidden, _ = decoder.apply(
            CONFIG, PARAMS, own, steps(2, 4, 3), prefix=prefix, remat=True, window=3
        )
        return jnp.sum(hidden * weight)

    expected, ours = (jax.jit(jax.grad(f))(text) for f in (concatenated, prefixed))
    np.testing.assert_allclose(ours, expected, atol=1e-4 * np.abs(expected).max())


def test_gradient_is_finite_with_padding():
    x, ids = embedded(tokens_of(2, 5)), jnp.array([[1, 1, 0, 0, 0], [0, 0, 0, 0, 0]])
    grads = jax.grad(
        lambda x: decoder.apply(CONFIG, PARAMS, x, steps(2, 5), segment_ids=ids)[0].sum()
    )
    assert np.isfinite(jax.jit(grads)(x)).all()


def every_output(jaxpr: jex_core.Jaxpr):
    """(equation, output) of a jaxpr and all within it."""
    for equation in jaxpr.eqns:
        yield from ((equation, value) for value in equation.outvars)
        for inner in equation.params.values():
            inner = getattr(inner, "jaxpr", inner)
            if isinstance(inner, jex_core.Jaxpr):
                yield from every_output(inner)


def test_phases_norms_softmax_and_logits_are_float32_under_bfloat16():
    x = embedded(tokens_of(2, 6))

    def forward(x):
        hidden, _ = decoder.apply(CONFIG, PARAMS, x, steps(2, 6), compute_dtype=jnp.bfloat16)
        return hidden, decoder.logits(CONFIG, PARAMS, hidden.astype(jnp.bfloat16))

    outputs = list(every_output(jax.make_jaxpr(forward)(x).jaxpr))
    strict = {"cos", "sin", "rsqrt", "exp", "reduce_max", "reduce_sum", "div"}
    types = {
        (e.primitive.name, v.aval.dtype.name) for e, v in outputs if e.primitive.name in strict
    }
    assert types == {(name, "float32") for name in strict}
    products = [v.aval.dtype.name for e, v in outputs if e.primitive.name == "dot_general"]
    assert products.count("bfloat16") == 7  # the linear layers; scores, values, logits are float32
    assert products.count("float32") == 3
    assert all(out.dtype == jnp.float32 for out in jax.eval_shape(forward, x))


def test_bfloat16_is_close_to_float32_at_far_positions():
    x, at = embedded(tokens_of(2, 8)), steps(2, 8, 5000)
    exact, rounded = run(x, at), run(x, at, compute_dtype=jnp.bfloat16)
    assert np.abs(exact - rounded).mean() < 0.03


def test_rope_by_hand():
    """Position 3, two pairs with frequencies 1 and 1/100."""
    config = BackboneConfig(8, 4, 4, 1, 1, 1, 4, rope_theta=1e4)
    cos, sin = rope.phases(config, jnp.array([[3]]))
    turned = rope.rotate(jnp.array([1.0, 0.0, 0.0, 2.0])[None, None, None], cos, sin)
    expected = [np.cos(3), -2 * np.sin(0.03), np.sin(3), 2 * np.cos(0.03)]
    np.testing.assert_allclose(turned[0, 0, 0], expected, atol=1e-6)


def test_truncate_equals_later_layers_that_add_nothing():
    x = embedded(tokens_of(1, 5))
    config, params = truncate(CONFIG, PARAMS, 1)
    layers = dict(PARAMS["layers"])
    for name in ("o", "down"):
        layers[name] = jax.tree.map(lambda w: w.at[1].set(0), layers[name])
    full, _ = apply(CONFIG, {**PARAMS, "layers": layers}, x, steps(1, 5))
    close(apply(config, params, x, steps(1, 5))[0], full)


@pytest.mark.parametrize("count", [0, 3, -1])
def test_truncate_refuses_impossible_counts(count):
    with pytest.raises(BackboneError, match="num_layers must be within 1 … 2"):
        truncate(CONFIG, PARAMS, count)


def test_apply_refuses_what_does_not_fit():
    x = embedded(tokens_of(1, 6))
    with pytest.raises(ValueError, match="window cannot be combined with cache"):
        decoder.apply(CONFIG, PARAMS, x, steps(1, 6), window=2, cache=init_cache(CONFIG, 1, 6))
    prefix = prefix_of(CONFIG, PARAMS, x, jnp.array([6]))
    with pytest.raises(ValueError, match="4 groups, which must divide T = 6"):
        decoder.apply(
            CONFIG, PARAMS, x, steps(1, 6), prefix=prefix.replace(index=jnp.zeros((1, 4), int))
        )


@pytest.mark.parametrize(
    "change,message",
    [
        ({"hidden_size": 0}, r"hidden_size must be a positive integer below 2\*\*31, got 0"),
        ({"num_layers": -1}, "num_layers must be a positive integer"),
        ({"num_kv_heads": 3}, "num_kv_heads = 3 must divide num_heads = 4"),
        ({"head_dim": 7}, "head_dim must be even"),
        ({"rope_theta": 0.0}, "rope_theta must be positive"),
    ],
)
def test_config_refuses_bad_sizes(change, message):
    sizes = {
        "vocab_size": 8,
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_layers": 1,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 8,
    }
    with pytest.raises(BackboneError, match=message):
        BackboneConfig(**(sizes | change))


def test_rope_scaling_refuses_bad_factors():
    with pytest.raises(BackboneError, match="low_freq_factor < high_freq_factor"):
        RopeScaling(8.0, 4.0, 1.0, 64)


def test_merge_of_parts_is_one_softmax():
    rng = np.random.default_rng(0)
    q, keys, values = (
        jnp.asarray(rng.normal(size=shape), jnp.float32)
        for shape in [(1, 2, 1, 2, 4), (1, 7, 1, 4), (1, 7, 1, 4)]
    )
    score = 9 * np.einsum("tkrh,skh->tkrs", q[0], keys[0])
    weight = np.exp(score - score.max(-1, keepdims=True))
    expected = np.einsum("tkrs,skh->tkrh", weight / weight.sum(-1, keepdims=True), values[0])
    shown = jnp.ones((1, 2, 7), bool)
    parts = [
        attention.keys_part(9 * q, keys[:, part], values[:, part], shown[..., part])
        for part in (slice(0, 3), slice(3, 4), slice(4, 7))
    ]
    np.testing.assert_allclose(attention.merge(*parts)[0], expected, atol=1e-5)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_have_the_published_number_of_parameters(name):
    millions = {
        "smollm2_135m": 134.5,
        "tinyllama": 1100.0,
        "llama2_7b": 6738.4,
        "qwen2.5_0.5b": 494.0,
        "qwen2.5_1.5b": 1543.7,
        "qwen2.5_7b": 7615.6,
        "qwen3_4b": 4022.5,
        "qwen3_0.6b": 596.0,
        "qwen3_1.7b": 1720.6,
    }
    shapes = param_shapes(PRESETS[name])
    leaves = jax.tree.leaves(shapes, is_leaf=lambda x: isinstance(x, tuple))
    assert sum(np.prod(shape) for shape in leaves) / 1e6 == pytest.approx(millions[name], rel=1e-3)


@pytest.mark.parametrize("name", PRESETS)
def test_config_survives_hugging_face_form(name):
    raw = json.loads(json.dumps(PRESETS[name].to_hf()))
    assert BackboneConfig.from_hf(raw) == PRESETS[name]
