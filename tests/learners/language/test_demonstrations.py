"""Demonstrations as conversations, and what imitation of them minimises."""

import dataclasses
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.backbones.chat import NANO_TEMPLATE, Chat, ChatTemplate
from jaxrl_guided.backbones.tokenizer import nano_tokenizer, train_tokenizer
from jaxrl_guided.envs.text.route import Route, RouteDemonstrator
from jaxrl_guided.envs.text.task import Opening, Reply
from jaxrl_guided.learners.language.batches import MicroBatch
from jaxrl_guided.learners.language.demonstrations import demonstrate, encode
from jaxrl_guided.learners.language.objectives import ImitationConfig, token_losses

SHOWN = demonstrate(Route(), RouteDemonstrator(), range(200))
TEXTS = [text for episode in SHOWN for text in episode.texts]
TOKENIZER = train_tokenizer(TEXTS, 400)


def test_a_demonstration_is_the_whole_chat():
    chat = Chat(TOKENIZER, NANO_TEMPLATE)
    sample = encode(chat, TOKENIZER, SHOWN[0])
    text = TOKENIZER.decode(sample.tokens)
    expected = "".join(f"<bos>{m['role']}\n{m['content']}<eos>" for m in SHOWN[0].opening)
    for said, message in SHOWN[0].turns:
        expected += f"<bos>assistant\n{said}<eos>"
        expected += f"<bos>{message['role']}\n{message['content']}<eos>" if message else ""
    assert text == expected
    parts = np.split(sample.tokens, np.flatnonzero(np.diff(sample.spoken)) + 1)
    assert [TOKENIZER.decode(part) for part in parts[1::2]] == [
        f"{said}<eos>" for said, _ in SHOWN[0].turns
    ]


def test_words_of_the_task_become_tokens():
    assert TOKENIZER.vocab_size <= 400
    for word in (" north", " Crossing", "go", " south"):
        text = f"x{word}"
        assert len(TOKENIZER.encode([text])[0][0]) <= 1 + len(word) // 2
    for text in ("Grüße ☃", "\x00\n", TEXTS[0]):  # any text can be written
        assert TOKENIZER.decode(TOKENIZER.encode([text])[0][0]) == text
    again = train_tokenizer(TEXTS, 400)
    assert again.backend.to_str() == TOKENIZER.backend.to_str()
    longer = len(nano_tokenizer().encode([TEXTS[0]])[0][0])
    assert len(TOKENIZER.encode([TEXTS[0]])[0][0]) < longer / 3


def test_a_tokenizer_holds_all_bytes():
    with pytest.raises(ValueError, match="vocab_size must be at least 259, got 100"):
        train_tokenizer(TEXTS, 100)


def test_a_chat_that_closes_nothing_cannot_be_imitated():
    open_ended = ChatTemplate(
        "{% for m in messages %}{{ m.content }};{% endfor %}", NANO_TEMPLATE.bos, ""
    )
    with pytest.raises(ValueError, match="no special token to imitate"):
        encode(Chat(TOKENIZER, open_ended), TOKENIZER, SHOWN[0])


def test_imitation_is_cross_entropy():
    rng = np.random.default_rng(0)
    log_prob = jnp.asarray(rng.normal(size=(2, 5)).astype(np.float32))
    weight = jnp.asarray(np.where(rng.random((2, 5)) < 0.5, 0.1, 0.0).astype(np.float32))
    nothing = jnp.full((2, 5), jnp.nan)  # must not matter
    said = MicroBatch(nothing, nothing, nothing, jnp.zeros(2), jnp.ones(2), weight)

    def loss(log_prob):
        losses, metrics = token_losses(ImitationConfig(), log_prob, said)
        assert metrics == {}
        return (losses * weight).sum()

    value, grad = jax.value_and_grad(loss)(log_prob)
    assert value == pytest.approx(float(-(log_prob * weight).sum()), rel=1e-6)
    np.testing.assert_allclose(grad, -weight)


def test_a_player_that_gives_up_ends_with_the_turns():
    @dataclasses.dataclass
    class Silent(RouteDemonstrator):
        def answer(self, observation):
            return "…"

    (episode,) = demonstrate(Route(), Silent(), [0])
    assert len(episode.turns) == Route.max_turns
    assert not episode.success
    assert episode.turns[-1][1] is None


class Coins:
    """Asks for a coin that it has tossed by the episode's seed."""

    max_turns, instances = 1, 1000

    def reset(self, seed):
        self.coin = random.Random(seed).choice("01")
        return Opening("", "Heads or tails?", "")

    def step(self, answer):
        return Reply("", terminated=True, success=answer == self.coin)

    def close(self):
        """Nothing to free."""


class Guesser:
    def reset(self, seed):
        self.random = random.Random(seed)

    def answer(self, observation):
        return self.random.choice("01")


def test_a_player_does_not_draw_what_the_task_has_drawn():
    shown, again = (demonstrate(Coins(), Guesser(), range(1000)) for _ in range(2))
    assert 0.4 < np.mean([episode.success for episode in shown]) < 0.6
    assert shown == again
