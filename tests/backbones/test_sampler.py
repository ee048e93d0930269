"""Turns of many conversations against the plain forward over each conversation alone."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType

from jaxrl_guided.backbones import decoder, sharding, turns
from jaxrl_guided.backbones.config import BackboneConfig
from jaxrl_guided.backbones.draw import Cut
from jaxrl_guided.backbones.lora import LoraConfig, init_lora
from jaxrl_guided.backbones.params import init_params, unstack
from jaxrl_guided.backbones.sampler import Completion, Request, Sampler
from jaxrl_guided.backbones.stops import StopReason, stop_table
from jaxrl_guided.backbones.tokenizer import nano_tokenizer
from jaxrl_guided.backbones.turns import Rules, Weights

CONFIG = BackboneConfig(
    vocab_size=61,
    hidden_size=32,
    intermediate_size=48,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=12,
    qk_norm=True,
)
PARAMS = init_params(CONFIG, 0, std=0.3)
WEIGHTS = Weights(unstack(PARAMS, fuse=True))
RULES = Rules(CONFIG, size=64, max_tokens=8)

forward = jax.jit(
    lambda params, tokens, lora: decoder.logits(
        CONFIG,
        params,
        decoder.apply(
            CONFIG,
            params,
            decoder.embed(params, tokens),
            jnp.arange(tokens.shape[1])[None],
            lora=lora,
            lora_scale=2.0,
        )[0],
    )
)


def plain_logits(tokens: list[int], lora=None) -> np.ndarray:
    """What the next token is drawn from after each token of one conversation, `f32[T, V]`."""
    room = -len(tokens) % 64  # few shapes
    ids = jnp.asarray([[*tokens, *[0] * room]])
    return np.asarray(forward(PARAMS, ids, lora))[0, : len(tokens)]


def check(history: list[int], answer: Completion, temperature: float = 1.0, lora=None) -> None:
    """Log-probabilities of an answer are those of the plain forward."""
    tokens = [*history, *answer.tokens.tolist()]
    logits = plain_logits(tokens, lora)[len(history) - 1 : -1] / (temperature or 1.0)
    log_probs = jax.nn.log_softmax(logits)
    expected = np.take_along_axis(np.asarray(log_probs), answer.tokens[:, None], axis=1)[:, 0]
    np.testing.assert_allclose(answer.log_probs, expected, atol=1e-4)
    if temperature == 0:
        assert np.array_equal(answer.tokens, logits.argmax(1))


def prompt(length: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, CONFIG.vocab_size, length).tolist()


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_answers_of_several_turns_are_those_of_the_plain_forward(temperature):
    sampler, history = Sampler(RULES, rows=4), {slot: [] for slot in range(4)}
    for turn in range(3):
        new = {slot: prompt(1 + (slot * 3 + turn) % 7, 10 * turn + slot) for slot in history}
        requests = {
            slot: Request(new[slot], seed=slot, temperature=temperature, max_tokens=2 + slot)
            for slot in history
        }
        done = sampler.answer(WEIGHTS, requests, steps=3)
        assert set(done) == set(history)
        for slot, answer in done.items():
            history[slot] += new[slot]
            assert len(answer.tokens) == 2 + slot
            assert answer.reason == StopReason.LENGTH
            check(history[slot], answer, temperature)
            history[slot] += answer.tokens.tolist()


def test_what_a_slot_draws_is_its_own():
    """Whatever the slot, the company, the chunk and the time: the same tokens."""
    talk = [Request(prompt(5, 1), seed=7), Request(prompt(3, 2), seed=8)]

    def alone():
        sampler = Sampler(RULES, rows=4)
        return [sampler.answer(WEIGHTS, {0: request})[0] for request in talk]

    def in_company():
        sampler, answers = Sampler(RULES, rows=4), []
        for number, request in enumerate(talk):
            other = Request(prompt(20, 3 + number), seed=number, fresh=True)
            sampler.submit(3, other)
            sampler.run(WEIGHTS, steps=2)  # slot 3 is in the middle of its answer
            sampler.submit(2, request)
            done = {}
            while sampler.busy:
                done |= sampler.run(WEIGHTS, steps=1)
            check(list(other.tokens), done[3])
            answers.append(done[2])
        return answers

    for ours, expected in zip(in_company(), alone(), strict=True):
        assert np.array_equal(ours.tokens, expected.tokens)
        np.testing.assert_allclose(ours.log_probs, expected.log_probs, atol=1e-5)


def test_seeds_differ_and_repeat():
    sampler = Sampler(RULES, rows=4)
    requests = {slot: Request([5, 6], seed=seed) for slot, seed in enumerate((1, 1, 2))}
    done = sampler.answer(WEIGHTS, requests)
    assert np.array_equal(done[0].tokens, done[1].tokens)
    assert not np.array_equal(done[0].tokens, done[2].tokens)


def test_a_fresh_conversation_forgets_the_one_before():
    sampler = Sampler(RULES, rows=4)
    first = sampler.answer(WEIGHTS, {1: Request(prompt(9, 1), seed=3)})[1]
    again = sampler.answer(WEIGHTS, {1: Request(prompt(9, 1), seed=3, fresh=True)})[1]
    assert np.array_equal(first.tokens, again.tokens)
    np.testing.assert_allclose(first.log_probs, again.log_probs, atol=1e-6)


def test_long_conversations_are_read_in_parts_and_find_room():
    rules = Rules(CONFIG, size=1500, max_tokens=4)
    sampler, history = Sampler(rules, rows=3), prompt(700, 1)
    done = sampler.answer(WEIGHTS, {0: Request(history), 2: Request([1, 2])})
    check(history, done[0])
    check([1, 2], done[2])
    history += [*done[0].tokens.tolist(), *prompt(600, 2)]
    answer = sampler.answer(WEIGHTS, {0: Request(history[704:])})[0]
    check(history, answer)


def test_short_conversations_read_no_more_after_long_ones():
    """Room that one slot needs costs others nothing, and what lies beyond is left alone."""
    rules = Rules(CONFIG, size=600, max_tokens=8)
    sampler = Sampler(rules, rows=4)
    long = prompt(520, 1)
    first = sampler.answer(WEIGHTS, {0: Request(long, seed=1)})[0]
    assert sampler._slots.cache.size == 600
    short = {slot: Request(prompt(20, slot), seed=slot, fresh=True) for slot in (1, 2)}
    expected = Sampler(rules, rows=4).answer(WEIGHTS, short)
    beyond = [np.asarray(x[0]) for x in sampler._slots.cache.keys]
    programs = sampler._advance._cache_size()
    done = sampler.answer(WEIGHTS, short)
    assert sampler._advance._cache_size() == programs + 1
    for slot, answer in done.items():
        assert np.array_equal(answer.tokens, expected[slot].tokens)
        assert np.array_equal(answer.log_probs, expected[slot].log_probs)
    for before, after in zip(beyond, sampler._slots.cache.keys, strict=True):
        np.testing.assert_array_equal(before, after[0])
    more = prompt(10, 3)
    second = sampler.answer(WEIGHTS, {0: Request(more, seed=2)})[0]
    check([*long, *first.tokens.tolist(), *more], second)


def test_adapters_answer():
    lora = init_lora(CONFIG, LoraConfig(rank=2), jax.random.key(1))
    lora = jax.tree.map(lambda x: x + 0.05, lora)
    rules = Rules(CONFIG, size=64, max_tokens=8, lora_scale=2.0)
    answer = Sampler(rules, rows=1).answer(Weights(PARAMS, lora), {0: Request([3, 4])})[0]
    check([3, 4], answer, lora=lora)


def test_stop_ids_end_an_answer_and_belong_to_it():
    free = Sampler(RULES, rows=4).answer(WEIGHTS, {0: Request([9], seed=4)})[0].tokens
    stop = int(free[3])
    assert stop not in free[:3]
    rules = Rules(CONFIG, size=64, max_tokens=8, stop_ids=(60, stop))
    answer = Sampler(rules, rows=1).answer(WEIGHTS, {0: Request([9], seed=4)})[0]
    assert answer.reason == StopReason.STOP_ID
    assert np.array_equal(answer.tokens, free[:4])


def test_stop_strings_end_an_answer_across_tokens_and_turns_begin_anew():
    config = BackboneConfig(259, 16, 16, 1, 2, 1, 8)
    rules = Rules(config, size=64, max_tokens=20)
    params, tokenizer = init_params(config, 0, std=0.3), nano_tokenizer()
    request = Request(tokenizer.encode(["go"])[0][0], temperature=0.5, seed=1)
    free = Sampler(rules, rows=1).answer(Weights(params), {0: request})[0]
    texts = [tokenizer.token_bytes()[token] for token in free.tokens]
    start = next(n for n in range(2, 18) if texts[n] and texts[n + 1] and texts[n][0] < 128)
    table = np.zeros((2, 259), np.int32)
    table[0, free.tokens[start]], table[1, free.tokens[start]] = 1, 1
    table[1, free.tokens[start + 1]] = -1
    weights = Weights(params, stops=jnp.asarray(table))
    sampler = Sampler(rules, rows=1)
    answer = sampler.answer(weights, {0: request})[0]
    assert answer.reason == StopReason.STOP_STRING
    assert np.array_equal(answer.tokens, free.tokens[: start + 2])
    # Half of the string at the end of one answer does not count for the next.
    half = Request(request.tokens, seed=1, temperature=0.5, max_tokens=start + 1, fresh=True)
    assert sampler.answer(weights, {0: half})[0].reason == StopReason.LENGTH
    assert int(sampler._slots.turn.matched[0]) == 1
    sampler.submit(0, Request([4], max_tokens=1))
    sampler.run(weights)
    assert int(sampler._slots.turn.matched[0]) == 0


def test_stop_string_of_a_tokenizer_ends_an_answer():
    config = BackboneConfig(259, 16, 16, 1, 2, 1, 8)
    params = init_params(config, 0, std=0.3)
    letters = nano_tokenizer().encode(["ab"])[0][0]
    weights = Weights(
        {**params, "embed": params["embed"] * 0},  # all tokens are equally likely
        stops=jnp.asarray(stop_table(nano_tokenizer(), ["a", "b"], 259)),
    )
    rules = Rules(config, size=700, max_tokens=600)
    answer = Sampler(rules, rows=1).answer(weights, {0: Request([5])}, steps=600)[0]
    assert answer.reason == StopReason.STOP_STRING
    assert answer.tokens[-1] in letters
    assert not np.isin(answer.tokens[:-1], letters).any()


def test_a_full_slot_ends_an_answer():
    rules = Rules(CONFIG, size=10, max_tokens=8)
    sampler = Sampler(rules, rows=1, overlong="truncate")
    answer = sampler.answer(WEIGHTS, {0: Request(prompt(3, 0))})[0]
    assert (answer.reason, answer.dropped, len(answer.tokens)) == (StopReason.LENGTH, 0, 8)
    # 10 tokens are read with the last one of the answer: none of the new ones finds room.
    answer = sampler.answer(WEIGHTS, {0: Request([1, 2, 3])})[0]
    assert (answer.reason, answer.dropped, len(answer.tokens)) == (StopReason.FULL, 3, 0)


def test_an_answer_that_fills_its_slot_ends_there():
    sampler = Sampler(Rules(CONFIG, size=10, max_tokens=5), rows=2, overlong="truncate")
    first = sampler.answer(WEIGHTS, {0: Request(prompt(3, 0))})[0]
    # 7 tokens are read; with the last of the answer 8: two more and their successor have room.
    second = sampler.answer(WEIGHTS, {0: Request([])})[0]
    assert (second.reason, len(second.tokens)) == (StopReason.FULL, 3)
    check(prompt(3, 0) + first.tokens.tolist(), second)


def test_overlong_tokens_lose_their_first_ones():
    rules = Rules(CONFIG, size=20, max_tokens=4)
    sampler = Sampler(rules, rows=1, overlong="truncate")
    tokens = prompt(30, 0)
    answer = sampler.answer(WEIGHTS, {0: Request(tokens)})[0]
    assert (answer.reason, answer.dropped) == (StopReason.LENGTH, 13)
    check(tokens[13:], answer)


def test_chunks_of_steps_give_the_same_answer():
    answers = [
        Sampler(RULES, rows=4).answer(WEIGHTS, {0: Request([1, 2], seed=5)}, steps=steps)[0]
        for steps in (1, 3, 32)
    ]
    for answer in answers[1:]:
        assert np.array_equal(answer.tokens, answers[0].tokens)


def test_programs_are_few_and_slots_are_donated():
    sampler = Sampler(Rules(CONFIG, size=65, max_tokens=4), rows=6)
    before, slots = (sampler._read._cache_size(), sampler._advance._cache_size()), sampler._slots
    for turn in range(8):
        chosen = np.random.default_rng(turn).permutation(6)[: 1 + turn % 6].tolist()
        sizes = {slot: 1 + (7 * turn + slot) % 40 for slot in chosen}
        new = {slot: Request(prompt(sizes[slot], turn), fresh=True) for slot in chosen}
        sampler.answer(WEIGHTS, new, steps=1 + turn % 4)
    assert all(x.is_deleted() for x in jax.tree.leaves(slots))
    # New tokens of two lengths for one, four or six rows.
    assert sampler._read._cache_size() - before[0] <= 2 * 3
    assert sampler._advance._cache_size() - before[1] == 1


def test_whole_vocabulary_cut_for_evaluation():
    rules = Rules(CONFIG, size=64, max_tokens=8, cut=Cut(top_k=1))
    cut = Sampler(rules, rows=1).answer(WEIGHTS, {0: Request([3], seed=9)})[0]
    greedy = Sampler(RULES, rows=4).answer(WEIGHTS, {0: Request([3], temperature=0.0)})[0]
    assert np.array_equal(cut.tokens, greedy.tokens)
    np.testing.assert_allclose(cut.log_probs, 0, atol=1e-6)


@pytest.mark.parametrize(
    "slot,request_,message",
    [
        (4, Request([1]), "there is no slot 4: the sampler has 4"),
        (-1, Request([1]), "there is no slot -1"),
        (0, Request([]), "a new conversation needs at least one token"),
        (0, Request([4, 61]), "token 61 is not in 0 … 60"),
        (0, Request([-1]), "token -1 is not in 0 … 60"),
        (0, Request([1], max_tokens=0), "max_tokens must be an integer within 1 … 8, got 0"),
        (0, Request([1], max_tokens=9), "max_tokens must be an integer within 1 … 8, got 9"),
        (0, Request([1], max_tokens=2.5), "max_tokens must be an integer within 1 … 8, got 2.5"),
        (0, Request([1.0, 2.7]), "slot 0: tokens must be integers, got float64"),
        (0, Request([10**30]), "slot 0: tokens must be integers, got object"),
        (0, Request([1], temperature=-1.0), "temperature must be 0, or positive and finite"),
        (0, Request([1], temperature=float("nan")), "temperature must be 0, or .* not nan"),
        (0, Request([1], temperature=float("inf")), "temperature must be 0, or .* not inf"),
        (0, Request([1], temperature=1e-40), "temperature must be 0, or .* not 1e-40"),
        (0, Request([1], seed=2**32), "seed must be an integer within 0 … 2\\*\\*32 - 1"),
        (0, Request([1], seed=0.5), "seed must be an integer within 0 … .* not 0.5"),
        (0, Request([1] * 58), "58 tokens and an answer of 8 do not fit into size 64"),
    ],
)
def test_bad_requests_are_refused_and_change_nothing(slot, request_, message):
    sampler = Sampler(RULES, rows=4)
    with pytest.raises(ValueError, match=message):
        sampler.submit(slot, request_)
    assert not sampler.busy
    check([1, 2], sampler.answer(WEIGHTS, {0: Request([1, 2])})[0])


def test_a_slot_that_answers_takes_nothing():
    sampler = Sampler(RULES, rows=4)
    sampler.submit(0, Request([1]))
    for _ in range(2):
        with pytest.raises(ValueError, match="slot 0 has not answered yet"):
            sampler.submit(0, Request([1]))
        sampler.run(WEIGHTS, steps=1)


def test_one_bad_request_leaves_none_submitted():
    sampler = Sampler(RULES, rows=4)
    with pytest.raises(ValueError, match="slot 2: token 61"):
        sampler.answer(WEIGHTS, {0: Request([1]), 2: Request([61]), 3: Request([1])})
    assert not sampler.busy


@pytest.mark.parametrize("steps", [0, -1, 2**31, float("nan")])
def test_steps_must_be_some(steps):
    sampler = Sampler(RULES, rows=4)
    with pytest.raises(ValueError, match=r"steps must be at least 1 and below 2\*\*31, not"):
        sampler.answer(WEIGHTS, {0: Request([1])}, steps=steps)
    assert not sampler.busy
    sampler.submit(0, Request([1]))
    for call in (sampler.run, sampler.begin):
        with pytest.raises(ValueError, match="steps must be at least 1"):
            call(WEIGHTS, steps)
    assert len(sampler.run(WEIGHTS)[0].tokens) == 8


def test_a_sampler_that_was_reset_is_as_new():
    """In the middle of answers, with room that has grown, and with tokens that wait."""
    rules = Rules(CONFIG, size=600, max_tokens=8)
    sampler, request = Sampler(rules, rows=4), {1: Request(prompt(9, 1), seed=3)}
    expected = sampler.answer(WEIGHTS, request)[1]
    sampler.submit(0, Request(prompt(400, 2)))
    sampler.run(WEIGHTS, steps=2)
    sampler.submit(2, Request([1, 2]))
    sampler.begin(WEIGHTS, steps=1)
    sampler.submit(3, Request([1, 2]))
    sampler.reset()
    assert not sampler.busy
    assert sampler.finish() == {}
    programs = sampler._read._cache_size(), sampler._advance._cache_size()
    again = sampler.answer(WEIGHTS, request)[1]  # not of the conversation before
    assert programs == (sampler._read._cache_size(), sampler._advance._cache_size())
    assert np.array_equal(again.tokens, expected.tokens)
    assert np.array_equal(again.log_probs, expected.log_probs)


@pytest.mark.parametrize(
    "rows,options,message",
    [
        (10**12, {}, r"rows must be below 2\*\*31, not 1000000000000"),
        (2, {"overlong": "trunc"}, "overlong must be one of error, truncate, not 'trunc'"),
    ],
)
def test_slots_that_cannot_be_are_refused(rows, options, message):
    with pytest.raises(ValueError, match=message):
        Sampler(RULES, rows, **options)


def test_slots_beyond_all_memory_are_refused(monkeypatch):
    def exhausted(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")

    monkeypatch.setattr(turns, "init_slots", exhausted)
    with pytest.raises(ValueError, match=r"no memory for rows = 9 slots \(RESOURCE_EXHAUSTED"):
        Sampler(RULES, rows=9)


@pytest.mark.parametrize("rows,limits", [(0, (64, 8)), (2, (8, 8)), (2, (8, 0))])
def test_impossible_samplers_are_refused(rows, limits):
    with pytest.raises(ValueError, match="a sampler needs rows >= 1"):
        Sampler(Rules(CONFIG, *limits), rows)


def test_reading_leaves_other_rows_bit_for_bit():
    slots = turns.init_slots(RULES, 4, 64)
    text = turns.Text(
        rows=None,
        tokens=jnp.asarray([prompt(5, s) for s in range(4)]),
        count=jnp.array([5, 0, 2, 5]),
        fresh=jnp.zeros(4, bool),
        last=jnp.array([True, True, True, False]),
        seed=jnp.zeros(4, jnp.uint32),
        temperature=jnp.ones(4),
        budget=jnp.full(4, 8),
    )
    after = jax.jit(turns.read, static_argnums=(0, 1))(RULES, 64, WEIGHTS, slots, text)
    assert after.cache.length.tolist() == [5, 0, 2, 5]
    assert after.turn.count.tolist() == [1, 0, 1, 0]
    for old, new in zip(jax.tree.leaves(slots), jax.tree.leaves(after), strict=True):
        assert np.array_equal(old[1], new[1])


def eight_devices() -> None:
    """Runs in a process with eight devices; the last prompt makes the slots grow."""
    mesh = sharding.make_model_mesh(fsdp=4, tensor=2)
    params = jax.device_put(PARAMS, sharding.shardings(mesh, CONFIG, PARAMS))
    rules = Rules(CONFIG, size=600, max_tokens=5)
    divided, alone = Sampler(rules, rows=8, mesh=mesh), Sampler(rules, rows=8)
    for turn, slots in enumerate(([0, 1, 2, 3, 4, 5, 6, 7], [3], [1, 2, 6], [0])):
        length = 300 if turn == 3 else 6
        talk = {s: Request(prompt(length, 10 * turn + s), seed=s) for s in slots}
        ours = divided.answer(Weights(params), talk, steps=2)
        for slot, expected in alone.answer(Weights(PARAMS), talk).items():
            assert np.array_equal(ours[slot].tokens, expected.tokens)
            np.testing.assert_allclose(ours[slot].log_probs, expected.log_probs, atol=1e-4)
    keys = divided._slots.cache.keys[0]
    assert keys.shape[2] == 512
    assert keys.addressable_shards[0].data.shape == (2, 1, 512, 12)


@pytest.mark.slow
def test_eight_devices_answer_as_one_does():
    subprocess.run(
        [sys.executable, "-c", "from tests.backbones import test_sampler as t; t.eight_devices()"],
        env=os.environ
        | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"},
        check=True,
        timeout=600,
    )


def test_slots_must_divide_among_devices():
    mesh = AbstractMesh((4, 1), (sharding.FSDP, sharding.TENSOR), (AxisType.Auto,) * 2)
    with pytest.raises(ValueError, match="6 rows cannot be divided among fsdp = 4"):
        Sampler(RULES, rows=6, mesh=mesh)
