"""The dual loop with players and models that are told what to do."""

import json

import numpy as np
import pytest

from jaxrl_guided.backbones.embedders import HashedEmbedder
from jaxrl_guided.complementary.actor import ActorConfig, Guide
from jaxrl_guided.complementary.advised import Advised
from jaxrl_guided.complementary.bank import Bank
from jaxrl_guided.complementary.consolidation import MergeConfig
from jaxrl_guided.complementary.credit import FREE, GUIDED, CreditBuffer, CreditConfig
from jaxrl_guided.complementary.dual import Background, DualLoop, LoopConfig
from jaxrl_guided.complementary.extractor import Extractor, ExtractorConfig
from jaxrl_guided.complementary.requests import Requests
from jaxrl_guided.complementary.retrieval import RetrievalConfig, Retriever
from jaxrl_guided.learners.language.hand_over import Versioned
from jaxrl_guided.learners.language.rollouts import Episode
from jaxrl_guided.learners.language.run_config import ImproveConfig
from jaxrl_guided.learners.language.seeds import Seeds
from tests.complementary.test_advised import Count

EMBED = HashedEmbedder(16)
SEEDS = Seeds(range(0), range(0), range(50))
ACTING = ActorConfig(instances=2, rollouts=4, guided=2, warm_up=1)
NOTE = "<title>walls</title><content>walk along the wall until the stairs show</content>"


class Slots:
    """Plays one episode a turn; guided ones and those of an extractor succeed."""

    def __init__(self, begin, speak, turns=1):
        self.begin_episode, self.speak, self.turns = begin, speak, turns
        self.waiting, self.versions, self.log, self.opened = [], [], [], 0

    @property
    def busy(self):
        return bool(self.waiting)

    def add(self, starts):
        self.waiting += [[start, self.turns] for start in starts]

    def begin(self, weights, version=0, steps=32):
        self.opened += 1
        self.versions.append(version)

    def finish(self):
        assert self.opened == 1, "finish without begin"
        self.opened = 0
        if not self.waiting:
            return []
        self.waiting[0][1] -= 1
        if self.waiting[0][1]:
            return []
        start, _ = self.waiting.pop(0)
        opening = self.begin_episode(start)
        said = self.speak(opening)
        self.log.append((start, opening.system))
        return [
            Episode(
                start,
                opening.description,
                [("system", opening.system), ("user", opening.observation), ("assistant", said)],
                np.array([1, 2, 3], np.int32),
                np.array([False, True, True]),
                np.zeros(3, np.float32),
                {"task": float("walk along" in opening.system)},
                "walk along" in opening.system,
                1,
                0,
                "terminated",
                self.versions[-1],
            )
        ]


class Weights:
    """A model that counts its updates."""

    def __init__(self):
        self.version, self.batches = 0, []

    def weights(self):
        return Versioned(None, self.version)

    def learn(self, samples):
        self.version += 1
        self.batches.append(samples)
        return {"loss": float(len(samples))}


def answer(opening):
    return f"<answer>{json.dumps([{'operation': 'add', 'new_memory': NOTE}])}</answer>"


class World:
    """A loop of such parts over a real bank."""

    def __init__(self, path, extractor=None, turns=1, learns=True, credit=None, **loop):
        self.bank = Bank(path, EMBED.dim, durability="normal")
        retrieve = Retriever(RetrievalConfig(), EMBED, self.bank, lambda: 0.0)
        self.buffer = CreditBuffer(credit or CreditConfig(batch=2)) if learns else None
        requests = Requests()
        reading = Slots(lambda start: requests.make_task().reset(start.seed), answer, turns)
        self.reading, self.scribe, self.actor = reading, Weights(), Weights()
        settings = extractor or ExtractorConfig(merge=None)
        self.extractor = Extractor(
            settings, reading, 2, requests, self.bank, EMBED, retrieve, self.buffer
        )
        background = Background(self.extractor, self.scribe, self.buffer, chunk=8)
        guide = Guide(ACTING, retrieve, None)
        self.playing = Slots(lambda start: guide.begin(start, Advised(Count())), lambda _: "east")
        self.background = background
        self.loop = DualLoop(
            LoopConfig(**loop),
            ACTING,
            ImproveConfig(),
            3,
            SEEDS,
            self.playing,
            guide,
            self.actor,
            background,
        )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "bank"


def test_relative_reward_is_known_when_a_step_has_ended(path):
    """Guided episodes succeed, 1, and free ones do not, −1."""
    rewards = {}
    for reward in ("outcome", "relative"):
        world = World(path.with_name(reward), credit=CreditConfig(batch=2, reward=reward))
        for step in range(4):
            world.loop.step(step)
            assert world.buffer.state()["sums"][:, 0].sum() > 0 or step == 0
        world.background.drain()
        assert world.scribe.version > 0
        rewards[reward] = world.buffer.reward
    assert rewards == {"outcome": 1, "relative": 2}


def test_warm_up_fills_the_bank_and_then_halves_are_compared(path):
    world = World(path)
    first = world.loop.step(0)
    assert (first["success"], world.actor.version) == (0, 0)
    assert "success_guided" not in first
    assert {start.part for start, _ in world.playing.log} == {FREE}
    world.background.drain()
    assert len(world.bank) == 8
    second = world.loop.step(1)
    assert (second["success_guided"], second["success_free"], second["success"]) == (1, 0, 0.5)
    assert world.actor.version == 1
    assert {sample.part for sample in world.actor.batches[0]} == {FREE, GUIDED}
    assert second["flat_groups"] == 1  # each half is the same throughout
    assert [sample.advantage for sample in world.actor.batches[0]] == [0] * 8


def test_advantages_across_halves_see_the_difference(path):
    world = World(path, split=False)
    world.loop.step(0)
    world.background.drain()
    found = world.loop.step(1)
    assert found["flat_groups"] == 0
    advantages = {sample.part: sample.advantage for sample in world.actor.batches[0]}
    assert advantages == {GUIDED: 1, FREE: -1}


def test_the_extractor_learns_from_the_episodes_that_used_its_notes(path):
    world = World(path)
    for number in range(3):
        metrics = world.loop.step(number)
        world.background.drain()
    assert world.scribe.version >= 1
    assert all(len(batch) == 2 for batch in world.scribe.batches)
    assert world.bank.usage(1).credits >= 1
    assert "extractor_loss" in metrics or world.scribe.version == 1
    frozen = World(path.with_name("other"), learns=False)
    for number in range(3):
        frozen.loop.step(number)
        frozen.background.drain()
    assert frozen.scribe.version == 0
    assert frozen.bank.usage(1).credits >= 1


def test_a_step_does_not_wait_for_a_slow_extractor(path):
    slow = World(path, turns=100)
    for number in range(4):
        slow.loop.step(number)
    assert len(slow.playing.versions) == 4 * 8  # an episode a turn, and no turn for nothing
    assert slow.extractor.busy
    assert len(slow.bank) == 0
    waits = World(path.with_name("other"), turns=100, barrier=True)
    waits.loop.step(0)
    assert not waits.extractor.busy
    assert len(waits.bank) == 8
    assert len(waits.reading.versions) >= 800


def test_a_full_queue_may_block(path):
    settings = ExtractorConfig(merge=None, queue=2, full="block")
    world = World(path, settings, turns=5)
    for number in range(2):
        world.loop.step(number)
    assert world.extractor.counts["dropped"] == 0
    world.background.drain()
    assert world.extractor.counts["distilled"] == 16


def test_merges_begin_every_few_steps(path):
    world = World(path, ExtractorConfig(merge=MergeConfig(every=2)))
    for number in range(5):
        world.loop.step(number)
        world.background.drain()
    assert world.extractor.counts["merged"] > 0
    assert world.extractor.counts["rejected unknown operation"] == world.extractor.counts["merged"]


def test_an_actor_that_is_frozen_does_not_learn(path):
    world = World(path, train_actor=False)
    for number in range(3):
        world.loop.step(number)
    assert world.actor.version == 0
    assert len(world.actor.batches) == 0


def test_a_fixed_bank_stays_as_the_warm_up_has_left_it(path):
    world = World(path, fixed=True)
    for number in range(4):
        world.loop.step(number)
    assert world.extractor.counts["distilled"] == 8  # episodes of step 0
    assert len(world.bank) == 8
    assert world.actor.version == 3
    assert world.scribe.version == 0


def test_ages_and_steps_of_the_task_are_told(path):
    world = World(path)
    for number in range(2):
        metrics = world.loop.step(number)
        world.background.drain()
    assert metrics["actions"] == 1
    shown = [entry for entry in world.bank.entries() if world.bank.usage(entry.id).retrievals]
    assert 0 < metrics["entry_age"] < 16
    assert shown
    assert "entry_age" not in world.loop.step(0)  # the warm-up shows nothing


def test_the_same_seed_is_the_same_run(path):
    logs = []
    for name in ("one", "two"):
        world = World(path.with_name(name))
        for number in range(4):
            world.loop.step(number)
        logs.append(world.playing.log)
    assert logs[0] == logs[1]


def test_without_an_extractor_it_is_plain_training(path):
    world = World(path)
    guide = Guide(ACTING, None)
    playing = Slots(lambda start: guide.begin(start, Advised(Count())), lambda _: "east")
    loop = DualLoop(LoopConfig(), ACTING, ImproveConfig(), 3, SEEDS, playing, guide, world.actor)
    for number in range(2):
        metrics = loop.step(number)
    assert metrics["success_guided"] == metrics["success_free"] == 0
    assert world.actor.version == 1
    assert len(world.bank) == 0
