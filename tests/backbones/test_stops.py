"""Stop strings in tokens, against searching the text."""

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models

from jaxrl_guided.backbones.load import load_backbone
from jaxrl_guided.backbones.stops import MATCHED, stop_table
from jaxrl_guided.backbones.tokenizer import Tokenizer, nano_tokenizer


def word_tokenizer(words: list[str]) -> Tokenizer:
    """A byte-level vocabulary of given words; blanks are written as Ġ there."""
    backend = tokenizers.Tokenizer(models.BPE({w: i for i, w in enumerate(words)}, []))
    backend.decoder = decoders.ByteLevel()
    return Tokenizer(backend)


def follow(table: np.ndarray, tokens: list[int]) -> int | None:
    """Number of tokens after which a stop string has been seen."""
    state = 0
    for count, token in enumerate(tokens, 1):
        state = table[state, token]
        if state == MATCHED:
            return count
    return None


WORDS = ["a", "b", "ab", "ba", "aab", "bab", "abba", "Ġ", "aĠb"]
TEXTS = [word.replace("Ġ", " ") for word in WORDS]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.text("ab ", min_size=1, max_size=4), min_size=1, max_size=3),
    st.lists(st.integers(0, len(WORDS) - 1), max_size=8),
)
def test_equals_a_search_of_the_text(strings, tokens):
    table = stop_table(word_tokenizer(WORDS), strings, len(WORDS))
    texts = ["".join(TEXTS[t] for t in tokens[:n]) for n in range(1, len(tokens) + 1)]
    seen = [any(string in text for string in strings) for text in texts]
    assert follow(table, tokens) == (1 + seen.index(True) if any(seen) else None)


def test_strings_of_several_bytes():
    tokenizer = nano_tokenizer()
    table = stop_table(tokenizer, ["ä☃"], 259)
    ids, length = tokenizer.encode(["a ä ä☃!"])
    assert follow(table, list(ids[0])) == length[0] - 1


def test_special_tokens_interrupt_a_string_and_unused_ids_do():
    tokenizer = nano_tokenizer()
    table = stop_table(tokenizer, ["ab", "<eos>"], 300)
    a, b = tokenizer.encode(["ab"])[0][0]
    eos = tokenizer.backend.token_to_id("<eos>")
    assert follow(table, [a, b]) == 2
    assert follow(table, [a, eos, b]) is None
    assert follow(table, [a, 299, b]) is None
    assert follow(table, [eos]) is None


@pytest.mark.parametrize("strings", [[], [""], ["a", ""], "abc"])
def test_empty_strings_are_refused(strings):
    with pytest.raises(ValueError, match="stop strings must be non-empty texts"):
        stop_table(nano_tokenizer(), strings, 259)


def test_bytes_of_a_sentencepiece_vocabulary():
    backend = tokenizers.Tokenizer(models.BPE({"▁the": 0, "<0x0A>": 1, "x": 2, "<s>": 3}, []))
    backend.add_special_tokens(["<s>"])
    assert Tokenizer(backend).token_bytes() == [b" the", b"\n", b"x", b""]


@pytest.mark.parametrize(
    "name", ["nano", pytest.param("smollm2-135m-instruct", marks=pytest.mark.slow)]
)
def test_bytes_are_those_of_the_text(name):
    text = "Ünï ☃ code,\n\ttabs  and 123 <tag>"
    tokenizer = load_backbone(name, 1).tokenizer
    texts = tokenizer.token_bytes()
    assert b"".join(texts[token] for token in tokenizer.encode([text])[0][0]) == text.encode()
