"""Episodes of a random decoder on a toy task, against the plain forward and the task by hand."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.backbones.chat import NANO_TEMPLATE, Chat
from jaxrl_guided.backbones.config import BackboneConfig
from jaxrl_guided.backbones.log_probs import score_tokens
from jaxrl_guided.backbones.params import init_params, unstack
from jaxrl_guided.backbones.sampler import Sampler
from jaxrl_guided.backbones.tokenizer import nano_tokenizer
from jaxrl_guided.backbones.turns import Rules, Weights
from jaxrl_guided.envs.text.task import TASK, Opening, Reply
from jaxrl_guided.learners.language.journal import as_record
from jaxrl_guided.learners.language.rollouts import Outcomes, Rollouts, Start, _seed_of, outcomes_of

TOKENIZER = nano_tokenizer()
CHAT = Chat(TOKENIZER, NANO_TEMPLATE)
BACKBONE = BackboneConfig(
    vocab_size=TOKENIZER.vocab_size,
    hidden_size=32,
    intermediate_size=48,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    head_dim=16,
    tie_embeddings=True,
)
PARAMS = init_params(BACKBONE, 0, std=0.3)
WEIGHTS = Weights(unstack(PARAMS, fuse=True))
SCORED = jax.jit(functools.partial(score_tokens, BACKBONE), static_argnames="compute_dtype")
RULES = Rules(BACKBONE, size=320, max_tokens=6, stop_ids=CHAT.stop_ids)


class Toy:
    """Ends by what was said, in one of three ways; pays by the length of what was said."""

    max_turns, instances = 4, 100

    def reset(self, seed):
        self.seed, self.turn, self.closed = seed, 0, False
        return Opening(f"s{seed}", "go", f"toy {seed}")

    def step(self, answer):
        self.turn += 1
        kind = (len(answer) + self.seed + self.turn) % 7
        return Reply(
            "more" * (1 + kind),
            {TASK: float(len(answer)), "late": -0.5 * self.turn},
            terminated=kind == 0,
            truncated=kind == 1,
            success=kind == 0 and self.turn > 1,
            acted=kind != 2,
            role="tool" if kind == 3 else "user",
        )

    def close(self):
        self.closed = True


def rollouts_of(rows, make_task=Toy, rules=RULES, **options):
    return Rollouts(Sampler(rules, rows, **options), CHAT, TOKENIZER, make_task)


def starts_of(count, temperature=1.0):
    return [Start(seed % 5, draws=seed, temperature=temperature) for seed in range(count)]


PLAYED = rollouts_of(4).play(starts_of(24), WEIGHTS, version=3)


def test_every_episode_is_played_in_order():
    assert [episode.start for episode in PLAYED] == starts_of(24)
    assert {episode.end for episode in PLAYED} == {"terminated", "truncated", "turns"}
    assert {episode.version for episode in PLAYED} == {3}


def test_episodes_are_those_of_the_task_by_hand():
    for episode in PLAYED:
        task = Toy()
        opening = task.reset(episode.start.seed)
        expected = [("system", opening.system), ("user", "go")]
        answers = [text for role, text in episode.messages if role == "assistant"]
        assert episode.turns == len(answers)
        assert episode.description == opening.description
        rewards, unread, success = {TASK: 0.0, "late": 0.0}, 0, False
        for answer in answers:
            reply = task.step(answer)
            expected += [("assistant", answer), (reply.role, reply.observation)]
            rewards = {name: rewards[name] + value for name, value in reply.rewards.items()}
            unread, success = unread + (not reply.acted), success or reply.success
        assert list(episode.messages) == expected[:-1]
        assert (episode.rewards, episode.unread) == (rewards, unread)
        assert episode.success == success
        assert episode.total_reward == sum(rewards.values())
        ends = {"terminated": reply.terminated, "truncated": reply.truncated}
        assert ends.get(episode.end, episode.turns == Toy.max_turns)


def test_ids_are_what_was_read_and_drawn():
    """Nothing that was drawn is decoded and encoded again."""
    recoded = 0
    for episode in PLAYED:
        system, first = (text for _, text in episode.messages[:2])
        opening = [{"role": "system", "content": system}, {"role": "user", "content": first}]
        expected = CHAT.opening(opening)
        at = len(expected)
        assert not episode.spoken[:at].any()
        for role, text in episode.messages[2:]:
            before = at
            if role == "assistant":
                while at < len(episode.tokens) and episode.spoken[at]:
                    at += 1
                said = episode.tokens[before:at].tolist()
                body = said[:-1] if said[-1] in CHAT.stop_ids else said
                assert TOKENIZER.decode(body) == text
                recoded += TOKENIZER.encode([text])[0][0].tolist() != body
                assert 1 <= len(said) <= RULES.max_tokens
                expected += said
            else:
                expected += CHAT.reply([{"role": role, "content": text}], expected[-1])
                at = len(expected)
        assert episode.tokens.tolist() == expected
    assert recoded  # there are answers that would have come back as other ids


def test_log_probs_are_those_of_the_trainer():
    tokens, spoken = np.zeros((24, RULES.size), np.int32), np.zeros((24, RULES.size), bool)
    for row, episode in enumerate(PLAYED):
        size = len(episode.tokens)
        tokens[row, :size], spoken[row, :size] = episode.tokens, episode.spoken
    scores = jax.jit(score_tokens, static_argnums=0)(BACKBONE, PARAMS, tokens, spoken, jnp.ones(24))
    for row, episode in enumerate(PLAYED):
        expected = scores.log_prob[row, : len(episode.tokens)]
        np.testing.assert_allclose(episode.log_probs, expected, atol=1e-4)


def same(ours, others):
    for mine, other in zip(ours, others, strict=True):
        assert mine.start == other.start
        assert mine.messages == other.messages
        assert np.array_equal(mine.tokens, other.tokens)
        np.testing.assert_allclose(mine.log_probs, other.log_probs, atol=1e-5)


def test_an_episode_does_not_depend_on_its_slot_or_its_company():
    same(PLAYED, rollouts_of(7).play(starts_of(24), WEIGHTS))
    alone = [rollouts_of(1).play([start], WEIGHTS)[0] for start in starts_of(3)]
    same(PLAYED[:3], alone)
    others = rollouts_of(4).play([Start(seed % 5, draws=99 + seed) for seed in range(24)], WEIGHTS)
    assert sum(a.messages != b.messages for a, b in zip(PLAYED, others, strict=True)) > 20


def test_slots_do_not_wait_for_each_other():
    """With one slot more than long episodes, short ones pass through the last slot."""
    work = rollouts_of(2)
    work.add(starts_of(24))
    order = []
    while work.busy:
        order += work.run(WEIGHTS, steps=1)
    same(PLAYED, sorted(order, key=lambda episode: episode.start.draws))
    assert [episode.start.draws for episode in order] != sorted(e.start.draws for e in order)


def test_the_oldest_weights_that_took_part_are_named():
    work, version, done = rollouts_of(3), 10, []
    work.add(starts_of(6))
    while work.busy:
        version += 1
        done += work.run(WEIGHTS, version, steps=1)
    assert min(episode.version for episode in done) == 11
    assert max(episode.version for episode in done) > 11
    assert all(episode.version < version for episode in done if episode.turns > 1)


def test_greedy_rollouts_of_a_task_are_alike():
    starts = [Start(0, draws, temperature=0.0) for draws in range(3)]
    first, *others = rollouts_of(3).play(starts, WEIGHTS)
    assert all(np.array_equal(first.tokens, other.tokens) for other in others)


def test_what_is_added_to_an_opening_is_told_and_kept():
    def begin(start, task):
        opening = task.reset(start.seed)
        more = f"\nRemember {opening.description}." if start.part else ""
        return dataclasses.replace(opening, system=opening.system + more)

    rollouts = Rollouts(Sampler(RULES, 2), CHAT, TOKENIZER, Toy, begin)
    plain, told = rollouts.play([Start(0, 1, 0.0), Start(0, 2, 0.0, part=1)], WEIGHTS)
    assert plain.messages[0] == ("system", "s0")
    assert told.messages[0] == ("system", "s0\nRemember toy 0.")
    assert len(told.tokens) - told.spoken.sum() > len(plain.tokens) - plain.spoken.sum()


def test_an_episode_ends_where_its_slot_is_full():
    class Endless(Toy):
        max_turns = 1000

        def step(self, answer):
            return Reply("and so on " * 2)

    rules = dataclasses.replace(RULES, size=120)
    for episode in rollouts_of(2, Endless, rules).play(starts_of(4), WEIGHTS):
        assert episode.end == "room"
        assert not episode.success
        assert 60 < len(episode.tokens) <= rules.size + 1
        assert episode.messages[-1][0] == "assistant"


def test_an_opening_without_room_ends_its_episode_alone():
    class Wordy(Toy):
        def reset(self, seed):
            opening = super().reset(seed)
            return dataclasses.replace(opening, observation="go on " * 60) if seed == 3 else opening

    starts = starts_of(7)
    found = rollouts_of(2, Wordy).play(starts, WEIGHTS)
    for episode, expected in zip(found, rollouts_of(2).play(starts, WEIGHTS), strict=True):
        if episode.start.seed == 3:
            assert (episode.end, episode.turns, episode.rewards) == ("room", 0, {})
            assert not episode.spoken.any()
            assert len(episode.tokens) == len(episode.spoken) == RULES.size
        else:
            assert episode.messages == expected.messages
    alone = [episode for episode in found if not episode.turns]
    assert outcomes_of(alone)._asdict() == dict.fromkeys(Outcomes._fields, 0.0) | {"cut": 1.0}


def test_replies_that_come_later_change_nothing_but_the_time():
    class Slow(Toy):
        def step(self, answer):
            reply, asked = super().step(answer), iter(range(3))

            def later():
                return None if next(asked) < 2 else reply

            return Reply("", later=later) if len(answer) % 2 else reply

    starts = starts_of(12)
    for ours, theirs in zip(rollouts_of(3, Slow).play(starts, WEIGHTS), PLAYED[:12], strict=True):
        assert ours.messages == theirs.messages
        assert ours.rewards == theirs.rewards
        np.testing.assert_array_equal(ours.tokens, theirs.tokens)


def test_turns_and_episodes_draw_independently():
    """Also when the numbers of episodes are made of a round and a place in it."""
    draws = [(round_ << 32) + place for round_ in range(8) for place in range(8)]
    seeds = {_seed_of(draw, turn) for draw in draws for turn in range(8)}
    assert len(seeds) == 8**3
    assert max(seeds) < 2**32


def test_a_bfloat16_sampler_is_near_the_trainer():
    """Rule 3: the two differ by some hundredths; the importance weight carries it."""
    rules = dataclasses.replace(RULES, compute_dtype=jnp.bfloat16)
    params = init_params(BACKBONE, 0, std=0.1)
    weights = Weights(unstack(params, fuse=True))
    episodes = rollouts_of(4, rules=rules, cache_dtype=jnp.bfloat16).play(starts_of(24), weights)
    apart = []
    for episode in episodes:
        length = len(episode.tokens)
        tokens = np.zeros((1, RULES.size + 1), np.int32)
        asked = np.zeros((1, RULES.size + 1), bool)
        tokens[0, :length], asked[0, :length] = episode.tokens, episode.spoken
        found = SCORED(params, tokens, asked, jnp.ones(1), compute_dtype=jnp.bfloat16)
        apart += list(np.abs(found.log_prob[0, :length] - episode.log_probs)[episode.spoken])
    assert 1e-5 < np.mean(apart) < 0.05
    assert np.max(apart) < 0.3


class Broken(Exception):
    pass


@pytest.mark.parametrize("where", ["reset", "step", "later"])
def test_after_an_exception_the_next_play_is_as_new(where):
    """Whatever was begun, waits or is awaited is dropped, in the task and in the sampler."""

    class Fragile(Toy):
        def reset(self, seed):
            if broken and where == "reset" and seed == 4:
                raise Broken
            return super().reset(seed)

        def step(self, answer):
            if broken and where != "reset" and self.seed == 3 and self.turn == 1:
                if where == "step":
                    raise Broken
                return Reply("", later=self.never)
            return super().step(answer)

        def never(self):
            if where == "later":
                raise Broken

    work, broken = rollouts_of(4, Fragile), True
    with pytest.raises(Broken):
        work.play(starts_of(24), WEIGHTS)
    assert not work.busy
    broken = False
    for ours, theirs in zip(work.play(starts_of(24), WEIGHTS, version=3), PLAYED, strict=True):
        assert (ours.start, ours.messages, ours.version) == (theirs.start, theirs.messages, 3)
        assert np.array_equal(ours.tokens, theirs.tokens)
        assert np.array_equal(ours.log_probs, theirs.log_probs)


def test_a_model_without_finite_log_probabilities_has_diverged():
    work = rollouts_of(2)
    broken = Weights(unstack(jax.tree.map(lambda x: x * jnp.nan, PARAMS), fuse=True))
    message = "log-probabilities are not finite in turn 1 of the episode of seed 0"
    with pytest.raises(FloatingPointError, match=message):
        work.play(starts_of(3), broken)
    same(work.play(starts_of(3), WEIGHTS), PLAYED[:3])


def test_samplers_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"give Rules stop_ids=chat\.stop_ids"):
        rollouts_of(1, rules=dataclasses.replace(RULES, stop_ids=()))
    with pytest.raises(ValueError, match="overlong='error'"):
        rollouts_of(1, overlong="truncate")


def test_tasks_are_closed():
    made = []

    def make():
        made.append(Toy())
        return made[-1]

    work = rollouts_of(3, make)
    work.play(starts_of(3), WEIGHTS)
    work.close()
    assert [task.closed for task in made] == [True] * 3


def test_outcomes_are_means_over_episodes():
    found = outcomes_of(PLAYED)
    assert found.success == np.mean([episode.success for episode in PLAYED])
    assert found.reward == pytest.approx(np.mean([e.total_reward for e in PLAYED]), rel=1e-6)
    turns = sum(episode.turns for episode in PLAYED)
    assert found.turns == turns / 24
    assert found.answer_tokens == sum(e.spoken.sum() for e in PLAYED) / turns
    assert found.unread == sum(e.unread for e in PLAYED) / turns
    assert found.cut == np.mean([e.end == "turns" for e in PLAYED])
    assert jax.tree.all(jax.tree.map(np.isfinite, found._asdict()))


def test_an_episode_on_record_can_be_played_again():
    for episode in PLAYED[:6]:
        found = as_record(episode)
        task, shown = Toy(), []
        task.reset(found["seed"])
        for answer in found["answers"]:
            shown.append(task.step(answer).observation)
        assert shown[: len(found["observations"])] == found["observations"]
        assert len(shown) - len(found["observations"]) == 1  # the last one nobody needs
