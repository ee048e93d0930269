"""The actor of many environments: what it writes down, what it tells, and that it learns."""

import dataclasses
import functools
import re
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from jaxrl_guided.complementary.bank import Bank, Draft, Write
from jaxrl_guided.complementary.credit import CreditBuffer, CreditConfig
from jaxrl_guided.complementary.dual import Background
from jaxrl_guided.complementary.embedded import EXPERIENCE, by_instruction, excerpt, extend
from jaxrl_guided.complementary.retrieval import RetrievalConfig
from jaxrl_guided.complementary.vector_actor import VectorActor
from jaxrl_guided.envs import make
from jaxrl_guided.envs.clevr.instructions import instruction_set
from jaxrl_guided.envs.clevr.telling import make_teller
from jaxrl_guided.envs.text.telling import Teller
from jaxrl_guided.envs.types import Dict, Discrete, TimeStep, VectorEnv
from jaxrl_guided.learners.evaluate import evaluate
from jaxrl_guided.learners.ppo import PPOConfig, make_ppo
from jaxrl_guided.networks.actor_critic import NetworkConfig, make_actor_critic
from tests.complementary.test_dual import Weights
from tests.complementary.test_extractor import EMBED, add, extractor_of, said
from tests.learners.counting_env import make_counting_env

LIMITS = (1, 2, 5, 4, 3, 7)
TEXTS = [f"count to {number}" for number in range(5)]
CONFIG = RetrievalConfig(recency="steps", recent=2)
TELLER = Teller(
    lambda obs: TEXTS[int(obs["instruction"])],
    lambda obs: "step {:.0f} of episode {:.0f}".format(*obs["state"]),
    lambda action: f"press {int(action)}",
)


class Record(Bank):
    """A bank that keeps the events that were recorded."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.events = []

    def record(self, events):
        super().record(events)
        self.events += events

    def of(self, kind):
        return [event for event in self.events if event.kind == kind]


@pytest.fixture
def bank(tmp_path):
    with Record(tmp_path / "bank", EMBED.dim, capacity=20, durability="normal") as bank:
        yield bank


def fill(bank, count):
    titles = [f"note {number}" for number in range(count)]
    bank.write(Write(tuple(Draft(t, "c", v) for t, v in zip(titles, EMBED(titles), strict=True))))


def actor_of(bank, env, texts, steps=3, config=CONFIG, ppo=None, **options):
    vectors = by_instruction(EMBED(texts))
    extended = extend(env, vectors, config, excerpt(config, bank, bank.capacity))
    network = make_actor_critic(
        extended.env.observation_space, env.action_space, NetworkConfig(hidden=(16,))
    )
    settings = {"total_steps": 10_000, "minibatches": 3, "epochs": 2} | (ppo or {})
    learner = make_ppo(
        extended.env,
        network,
        PPOConfig(num_envs=env.num_envs, rollout_steps=steps, **settings),
    )
    return VectorActor(extended, learner, bank, clock=lambda: 50.0, **options)


def counting(bank, **options):
    return actor_of(bank, make_counting_env(LIMITS, instructions=5), TEXTS, **options)


def run(actor, steps, seed=0):
    state, log = actor.init(jax.random.key(seed)), []
    for _ in range(steps):
        state, metrics = actor.step(state)
        log.append(metrics)
    return state, log


def replay(iterations, steps=3):
    """Episodes of the counting environments: (number, env, iteration begun, ended or None)."""
    episodes = [[env, env, 0, None] for env in range(len(LIMITS))]
    now = list(range(len(LIMITS)))
    for row in range(iterations * steps):
        for env, limit in enumerate(LIMITS):
            if (row + 1) % limit == 0:
                episodes[now[env]][3] = row // steps
                now[env] = len(episodes)
                episodes.append([len(episodes), env, row // steps, None])
    return episodes


def test_what_was_shown_and_how_it_ended_is_written_down(bank):
    fill(bank, 7)
    actor = counting(bank)
    state, log = run(actor, 8)
    episodes = replay(8)
    guided = [episode for episode in episodes if episode[1] < 3]
    retrieved, credited = bank.of("retrieved"), bank.of("credited")
    assert [(e.episode, e.step) for e in retrieved] == [(n, begun) for n, _, begun, _ in guided]
    assert {event.at for event in retrieved} == {50.0}
    entry_of = {event.episode: event.entry for event in retrieved}
    ended = sorted((end, n, env) for n, env, _, end in guided if end is not None)
    expected = {(n, entry_of[n], 1.0 if LIMITS[env] > 1 else -1.0, end) for end, n, env in ended}
    assert {(e.episode, e.entry, e.value, e.step) for e in credited} == expected
    assert len(credited) == len(expected)
    for entry in bank.entries():
        usage = bank.usage(entry.id)
        mine = [event for event in credited if event.entry == entry.id]
        assert usage.credits == len(mine)
        assert usage.total == sum(event.value for event in mine)
    counts = Counter(event.entry for event in retrieved)
    assert len(counts) > 3
    assert state.env_state.bank.retrievals[:7].tolist() == [counts[i] for i in range(1, 8)]
    for number, metrics in enumerate(log):
        halves = [[], []]
        for _, env, _, end in episodes:
            if end == number:
                halves[env >= 3].append(LIMITS[env] > 1)
        for name, half in zip(("guided", "free"), halves, strict=True):
            assert metrics.get(f"success_{name}") == (np.mean(half) if half else None)
        assert metrics["retrievals"] == sum(begun == number for *_, begun, _ in guided[3:])
        assert metrics["episodes"] == sum(map(len, halves))


def test_one_program_serves_a_bank_that_fills_changes_and_overflows(bank):
    actor = counting(bank)
    state = actor.init(jax.random.key(0))
    assert bank.of("retrieved") == []
    for count in (0, 1, 6, 18, 3):
        fill(bank, count)
        state, metrics = actor.step(state)
        assert (metrics["retrievals"] > 0) == (count > 0)
    assert actor._run._cache_size() == 1
    assert len(bank) == bank.capacity
    ids = state.env_state.bank.ids.tolist()
    assert [number for number in ids if number >= 0] == [entry.id for entry in bank.entries()]
    larger = Bank(bank._log.database.path.with_name("larger"), EMBED.dim, capacity=30)
    with larger, pytest.raises(ValueError, match="capacity is 20, but the bank's is 30"):
        counting(larger).step(state)


def test_the_same_seed_is_the_same_run(tmp_path):
    runs = []
    for name in ("one", "two"):
        with Record(tmp_path / name, EMBED.dim, capacity=20, durability="normal") as bank:
            fill(bank, 7)
            state, log = run(counting(bank), 5, seed=3)
            runs.append((bank.events, log, jax.device_get(state.policy)))
    assert runs[0][:2] == runs[1][:2]
    jax.tree.map(np.testing.assert_array_equal, runs[0][2], runs[1][2])


def scribe(bank, speak, buffer=None):
    extractor, model = extractor_of(bank, speak, buffer, merge=None)
    return Background(extractor, Weights(), buffer, chunk=8), model


def test_episodes_of_some_environments_are_told_whole(bank):
    background, model = scribe(bank, lambda prompt: said({"operation": "return"}))
    fill(bank, 3)
    run(counting(bank, background=background, teller=TELLER, told=2), 9)
    background.drain()
    ended = [(n, env) for n, env, _, end in replay(9) if end is not None and env in (0, 1, 3, 4)]
    told = [re.search(r"of episode (\d+)", prompt)[1] for prompt in model.prompts]
    assert len(told) == len(ended)
    by_limit = Counter(prompt.count("assistant: press") for prompt in model.prompts)
    assert by_limit == Counter(LIMITS[env] for _, env in ended)
    for prompt in model.prompts:
        steps = [int(step) for step in re.findall(r"step (\d+) of", prompt)]
        assert steps == list(range(len(steps)))
        number = int(re.search(r"of episode (\d+)", prompt)[1])
        assert f"user: {TEXTS[number % 5]}\nstep 0 of episode {number}\nassistant: press" in prompt
        assert f"Outcome: {'SUCCESS' if len(steps) > 1 else 'FAILURE'}" in prompt
    guided = sum(env < 3 for _, env in ended)
    assert sum("1. <title>note" in prompt for prompt in model.prompts) == guided


def test_the_extractor_writes_what_the_next_episodes_are_shown_and_is_credited(bank):
    buffer = CreditBuffer(CreditConfig(batch=2))
    background, _ = scribe(bank, lambda prompt: said(add("new")), buffer)
    actor = counting(bank, background=background, teller=TELLER)
    state = actor.init(jax.random.key(0))
    state, _ = actor.step(state)
    background.drain()
    assert len(bank) > 0
    for _ in range(4):
        state, metrics = actor.step(state)
    assert metrics["retrievals"] > 0
    credited = bank.of("credited")
    assert Counter(event.episode for event in credited).most_common(1)[0][1] == 1
    assert background._model.version > 0  # it has learned from outcomes
    assert sum(bank.usage(entry.id).credits for entry in bank.entries()) == len(credited)


def test_a_saved_state_goes_on(bank):
    fill(bank, 7)
    actor = counting(bank)
    state, _ = run(actor, 3)
    background, model = scribe(bank, lambda prompt: said({"operation": "return"}))
    again = counting(bank, background=background, teller=TELLER, told=3)
    again.resume(state, actor.numbers)
    for _ in range(5):
        state, _ = again.step(state)
    background.drain()
    episodes = replay(8)
    guided = [episode for episode in episodes if episode[1] < 3]
    retrieved, credited = bank.of("retrieved"), bank.of("credited")
    assert [(e.episode, e.step) for e in retrieved] == [(n, begun) for n, _, begun, _ in guided]
    ended = {(n, end) for n, _, _, end in guided if end is not None}
    assert {(e.episode, e.step) for e in credited} == ended
    assert again.numbers == [max(n for n, env, *_ in episodes if env == i) for i in range(6)]
    # Episodes whose beginning was not seen are not told.
    whole = sum((end or 0) >= 3 for *_, end in episodes)
    cut = sum(begun < 3 <= (end or 0) and 9 % LIMITS[env] > 0 for _, env, begun, end in episodes)
    assert cut > 0
    assert len(model.prompts) == whole - cut
    assert all("step 0 of" in prompt for prompt in model.prompts)


def test_a_policy_is_judged_with_a_bank_that_stays(bank):
    fill(bank, 7)
    state, _ = run(actor := counting(bank), 2)
    version, frozen = bank.version, excerpt(CONFIG, bank.snapshot(), bank.capacity)
    fill(bank, 3)
    env = make_counting_env(LIMITS, instructions=5)
    judged = extend(env, by_instruction(EMBED(TEXTS)), CONFIG, frozen, guided=len(LIMITS)).env
    act = functools.partial(actor._ppo.act, state.policy, greedy=True)
    found = evaluate(judged, act, jax.random.key(1), 10, actor._ppo.memory(6))
    assert found.success.tolist() == [limit > 1 for limit in LIMITS]
    start, obs = judged.reset(jax.random.key(1))
    assert (start.shown > 0).all()
    assert (obs[EXPERIENCE] != 0).any(axis=1).all()
    assert bank.version == version + 1


def test_told_environments_must_be_there(bank):
    background, _ = scribe(bank, lambda prompt: "")
    with pytest.raises(ValueError, match="told must be between 0 and the environments of a half"):
        counting(bank, background=background, teller=TELLER, told=4)


def test_clevr_trains_with_experience_and_tells_its_episodes(bank):
    instructions = instruction_set("easy")
    background, model = scribe(bank, lambda prompt: said(add("new")))
    actor = actor_of(
        bank,
        make("clevr/easy", num_envs=8),
        instructions.texts,
        steps=16,
        ppo={"minibatches": 4},
        teller=make_teller(instructions),
        background=background,
    )
    _, log = run(actor, 6)
    assert all(np.isfinite(list(metrics.values())).all() for metrics in log)
    assert log[-1]["retrievals"] == 4 * 16
    prompt = model.prompts[0]
    assert any(f"Task: {text}\n" in prompt for text in instructions.texts)
    assert re.search(r"user: .*\nred -?\d+ -?\d+, blue .*\nassistant: push \w+ to the \w+", prompt)
    assert actor._run._cache_size() == 1


TASKS, ANSWERS, CODE = 4, 4, 8


@struct.dataclass
class Riddles:
    """Tasks `i32[N]` that are open, and the right answer `i32[TASKS]` to each."""

    answers: jax.Array
    task: jax.Array
    key: jax.Array


def make_riddles(num_envs):
    """The task is seen, its answer is not; an episode is one step."""

    def observe(state):
        return {"instruction": state.task}

    def reset(key):
        key, task_key = jax.random.split(key)
        task = jax.random.randint(task_key, (num_envs,), 0, TASKS)
        state = Riddles(jnp.zeros(TASKS, jnp.int32), task, key)
        return state, observe(state)

    def step(state, action):
        right = action == state.answers[state.task]
        key, task_key = jax.random.split(state.key)
        task = jax.random.randint(task_key, (num_envs,), 0, TASKS)
        after = Riddles(state.answers, task, key)
        done = jnp.ones(num_envs, bool)
        return after, TimeStep(
            observe(after), right.astype(jnp.float32), done, ~done, observe(state),
            {"success": right},
        )  # fmt: skip

    space = Dict({"instruction": Discrete(TASKS)})
    return VectorEnv("riddles", num_envs, space, Discrete(ANSWERS), reset, step)


@pytest.mark.slow
def test_a_policy_learns_to_read_what_it_is_shown(tmp_path):
    """Answers change in every iteration, and only the vectors of entries tell them."""
    random = np.random.default_rng(0)
    tasks = np.eye(TASKS, TASKS + CODE, dtype=np.float32)
    codes = np.zeros((ANSWERS, TASKS + CODE), np.float32)
    codes[:, TASKS:] = random.normal(size=(ANSWERS, CODE))
    codes /= np.linalg.norm(codes, axis=1, keepdims=True)

    def tell(bank, answers):
        vectors = (tasks + codes[answers]) / np.sqrt(2)
        titles = [f"task {task}: {answer}" for task, answer in enumerate(answers)]
        drafts = tuple(Draft(t, "c", v) for t, v in zip(titles, vectors, strict=True))
        bank.write(Write(drafts, tuple(entry.id for entry in bank.entries())))

    with Bank(tmp_path / "bank", TASKS + CODE, capacity=8, durability="normal") as bank:
        env, config = make_riddles(16), RetrievalConfig(oversampling=1)
        extended = extend(env, by_instruction(tasks), config, excerpt(config, bank, 8))
        spaces = extended.env.observation_space, env.action_space
        settings = PPOConfig(
            total_steps=10**6, num_envs=16, rollout_steps=32, minibatches=8, learning_rate=3e-3,
            schedule="constant",
        )  # fmt: skip
        ppo = make_ppo(extended.env, make_actor_critic(*spaces, NetworkConfig()), settings)
        actor = VectorActor(extended, ppo, bank)
        state = actor.init(jax.random.key(0))

        def play(state, iterations, lie=0):
            log = []
            for _ in range(iterations):
                answers = random.integers(0, ANSWERS, TASKS)
                tell(bank, (answers + lie) % ANSWERS)
                riddles = dataclasses.replace(state.env_state.inner, answers=jnp.asarray(answers))
                inner = dataclasses.replace(state.env_state, inner=riddles)
                state, metrics = actor.step(dataclasses.replace(state, env_state=inner))
                log.append((metrics["success_guided"], metrics["success_free"]))
            return state, np.mean(log, axis=0)

        state, first = play(state, 1)
        np.testing.assert_allclose(first, 0.25, atol=0.1)
        state, _ = play(state, 100)
        state, (guided, free) = play(state, 20)
        # The first of 32 answers was looked up in the bank of the iteration before.
        assert guided > 0.93
        assert free == pytest.approx(0.25, abs=0.04)
        _, (misled, _) = play(state, 2, lie=1)
        assert misled < 0.2
