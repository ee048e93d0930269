"""The extractor with a model that says what the test tells it to."""

import json
from collections import deque

import numpy as np
import pytest

from jaxrl_guided.backbones.embedders import HashedEmbedder
from jaxrl_guided.complementary.bank import Bank, Draft, Write
from jaxrl_guided.complementary.consolidation import MergeConfig
from jaxrl_guided.complementary.credit import CreditBuffer, CreditConfig
from jaxrl_guided.complementary.extractor import (
    NO_ADVICE,
    Experience,
    Extractor,
    ExtractorConfig,
)
from jaxrl_guided.complementary.requests import Requests
from jaxrl_guided.complementary.retrieval import RetrievalConfig, Retriever
from jaxrl_guided.learners.language.rollouts import Episode, Start

EMBED = HashedEmbedder(16)
TEXT = "if it is dark then walk along the wall"


def note(title):
    return f"<title>{title}</title><content>{TEXT}</content>"


def said(*items):
    return f"<answer>{json.dumps(items)}</answer>"


def add(title):
    return {"operation": "add", "new_memory": note(title)}


def episode(start, messages, success=False, turns=1):
    size = 3
    return Episode(
        start,
        "reach the stairs",
        messages,
        np.full(size, start.seed % 100, np.int32),
        np.array([False, True, True]),
        np.zeros(size, np.float32),
        {},
        success,
        turns,
        0,
        "terminated" if turns else "room",
        0,
    )


class Model:
    """Answers requests; `speak` maps a prompt to an answer, or to None: it is too long."""

    def __init__(self, requests, speak, slots=2):
        self.task, self.speak, self.slots = requests.make_task(), speak, slots
        self.open, self.prompts = deque(), []

    @property
    def busy(self):
        return bool(self.open)

    def add(self, starts):
        self.open.extend(starts)
        assert len(self.open) <= self.slots

    def begin(self, weights, version=0, steps=32):
        pass

    def finish(self):
        done = []
        for _ in range(min(self.slots, len(self.open))):
            start = self.open.popleft()
            prompt = self.task.reset(start.seed).observation
            self.prompts.append(prompt)
            answer = self.speak(prompt)
            messages = [("system", ""), ("user", prompt)]
            if answer is not None:
                assert self.task.step(answer).terminated
                messages.append(("assistant", answer))
            done.append(episode(start, messages, turns=answer is not None))
        return done


@pytest.fixture
def bank(tmp_path):
    with Bank(tmp_path / "bank", EMBED.dim, durability="normal") as bank:
        yield bank


def extractor_of(bank, speak, buffer=None, slots=2, **config):
    requests = Requests()
    model = Model(requests, speak, slots)
    retriever = Retriever(RetrievalConfig(), EMBED, bank, lambda: 0.0)
    settings = ExtractorConfig(**config)
    made = Extractor(settings, model, slots, requests, bank, EMBED, retriever, buffer)
    return made, model


def experience(number, success=True, shown=()):
    messages = [("system", "rules"), ("user", f"room {number}"), ("assistant", "east")]
    return Experience(episode(Start(number, number), messages, success), number, "room", shown)


def turn(extractor):
    extractor.begin(None)
    extractor.finish()


def run(extractor, most=1000):
    for _ in range(most):
        if not extractor.busy:
            return
        turn(extractor)
    raise AssertionError("it never ends")


def titles(bank):
    return [entry.title for entry in bank.entries()]


def test_episodes_become_entries(bank):
    extractor, model = extractor_of(
        bank, lambda prompt: said(add("new")), CreditBuffer(CreditConfig())
    )
    extractor.add(experience(7))
    run(extractor)
    (entry,) = bank.entries()
    assert (entry.title, entry.task, entry.episode, entry.generation) == ("new", "room", 7, 0)
    assert "Outcome: SUCCESS" in model.prompts[0]
    assert "user: room 7\nassistant: east" in model.prompts[0]
    assert "rules" not in model.prompts[0]
    assert dict(extractor.counts) == {"distilled": 1, "operation add": 1, "operation return": 0}


def test_outcomes_are_credited_to_what_was_used(bank):
    buffer = CreditBuffer(CreditConfig(batch=2))
    extractor, _ = extractor_of(bank, lambda prompt: said(add("a"), add("b")), buffer)
    extractor.add(experience(0))
    extractor.add(experience(1))
    run(extractor)
    first, twin, other, _ = bank.entries()
    assert (first.generation, twin.generation, other.generation) == (0, 0, 1)
    extractor.add(experience(2, True, [first, twin]))  # of one generation: credited once
    extractor.add(experience(3, False, [first]))
    extractor.add(experience(4, False, [other]))
    assert bank.usage(first.id).credits == 2
    assert bank.usage(first.id).total == 0
    assert bank.usage(twin.id).total == 1
    assert [sample.advantage for sample in buffer.take(step=0)] == [0.5, -0.5]


def test_updates_replace_what_was_shown(bank):
    bank.write(Write((Draft("old", TEXT, EMBED(["old"])[0]),)))
    (old,) = bank.entries()
    update = {"operation": "update", "target_idx": [1], "new_memory": note("better")}
    extractor, model = extractor_of(bank, lambda prompt: said(update))
    extractor.add(experience(0, shown=[old]))
    extractor.add(experience(1, shown=[old]))
    run(extractor)
    assert titles(bank) == ["better"]
    assert "1. <title>old</title>" in model.prompts[0]
    assert extractor.counts["late"] == 1  # the second one updates what has ended


def test_questions_go_before_merges_and_episodes(bank):
    bank.write(Write(tuple(Draft(f"n{i}", TEXT, EMBED([f"n{i}"])[0]) for i in range(3))))
    order = []

    def speak(prompt):
        kind = "ask" if "Question:" in prompt else "merge" if "You tidy" in prompt else "distil"
        order.append(kind)
        return "<answer> go east </answer>" if kind == "ask" else said({"operation": "return"})

    extractor, _ = extractor_of(bank, speak, slots=1)
    extractor.add(experience(0))
    extractor.begin_merge()
    extractor.begin_merge()
    reply = extractor.ask("where?", "reach the stairs", 5)
    assert reply() is None
    run(extractor)
    assert order == ["ask", "merge", "distil"]
    assert reply() == "go east"


def test_an_adviser_is_credited_with_the_outcome(bank):
    bank.write(Write((Draft("note", TEXT, EMBED(["note"])[0], generation=9),)))
    buffer = CreditBuffer(CreditConfig(batch=1))
    extractor, model = extractor_of(bank, lambda prompt: "<answer>east</answer>", buffer)
    reply = extractor.ask("where?", "reach the stairs", 5)
    run(extractor)
    assert reply() == "east"
    assert "Note: <title>note</title>" in model.prompts[0]
    assert buffer.take(step=0) == []
    extractor.config = ExtractorConfig(distil="guided")  # the episode itself is not read
    extractor.add(experience(5, False))
    assert bank.usage(1).total == -1
    assert len(buffer.take(step=0)) == 1
    assert not extractor.busy


def test_a_merge_ends_with_fewer_entries(bank):
    bank.write(Write(tuple(Draft(f"n{i}", TEXT, EMBED([f"n{i}"])[0]) for i in range(9))))
    merge = {"operation": "merge", "target_idx": [1, 2], "new_memory": note("one")}
    extractor, _ = extractor_of(bank, lambda prompt: said(merge), merge=MergeConfig(chunk=3))
    extractor.begin_merge()
    run(extractor)
    assert extractor.counts["merged"] == 4
    assert len(bank) == 5
    none, _ = extractor_of(bank, lambda prompt: said(merge), merge=None)
    none.begin_merge()
    assert not none.busy


@pytest.mark.parametrize(
    ("speak", "counted"),
    [
        (lambda prompt: "\x00garbage \ud800 <answer>", "rejected no answer"),
        (lambda prompt: None, "too long"),
        (lambda prompt: said(*[add("always")] * 3), "operation add"),
        (lambda prompt: said({"operation": "update", "target_idx": [1], "new_memory": note("x")}),
         "rejected targets"),
    ],
)  # fmt: skip
def test_bad_models_are_counted_and_bounded(tmp_path, speak, counted):
    with Bank(tmp_path / "bank", EMBED.dim, capacity=20, durability="normal") as bank:
        buffer = CreditBuffer(CreditConfig(batch=4, capacity=10))
        extractor, _ = extractor_of(bank, speak, buffer, queue=8)
        for number in range(60):
            extractor.add(experience(number))
            extractor.begin_merge()
            reply = extractor.ask("?", "", number)
            turn(extractor)
        run(extractor)
        assert extractor.counts[counted] >= 20
        assert len(bank) <= 20
        assert len(buffer) <= 10
        assert not extractor._requests.texts
        assert reply() == NO_ADVICE or speak("") is not None


def test_a_full_queue_drops_the_oldest_or_blocks(bank):
    extractor, model = extractor_of(bank, lambda prompt: said({"operation": "return"}), queue=3)
    for number in range(5):
        extractor.add(experience(number))
    assert (extractor.counts["dropped"], extractor.full) == (2, False)
    run(extractor)
    assert ["room 2" in model.prompts[0], len(model.prompts)] == [True, 3]
    blocking, _ = extractor_of(bank, lambda prompt: "", queue=2, full="block")
    blocking.add(experience(0))
    assert not blocking.full
    blocking.add(experience(1))
    assert blocking.full
    turn(blocking)
    assert not blocking.full


@pytest.mark.parametrize(
    "fields", [{"distil": "some"}, {"full": "wait"}, {"queue": 0}, {"temperature": 0.0}]
)
def test_bad_settings(fields):
    with pytest.raises(ValueError, match=f"extractor.{next(iter(fields))} must be"):
        ExtractorConfig(**fields)
