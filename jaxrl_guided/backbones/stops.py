"""Where a completion ends: token ids, or strings, found in the bytes of the tokens on the device.

A string may end within a token and may have been written in any tokens. So a table over all tokens
follows the strings byte by byte (Aho and Corasick, 1975): one look-up a token.
"""

import enum
from collections.abc import Sequence

import numpy as np

from jaxrl_guided.backbones.tokenizer import Tokenizer

MATCHED = -1
"""State of a row whose text contains a stop string."""


class StopReason(enum.IntEnum):
    """Why a row generates no more."""

    RUNNING = 0
    """It does."""
    STOP_ID = 1
    """It drew one of the stop ids, which is part of the completion."""
    STOP_STRING = 2
    """Its text contains a stop string; what its last token holds after it is kept."""
    LENGTH = 3
    """It drew as many tokens as the turn allows."""
    FULL = 4
    """Its conversation fills its slot."""


def stop_table(tokenizer: Tokenizer, strings: Sequence[str], vocab_size: int) -> np.ndarray:
    """Follows stop strings through tokens.

    Args:
      tokenizer: says which bytes a token stands for. Special tokens interrupt strings.
      strings: not empty; none of them empty.
      vocab_size: V, rows of the embedding; ids without a token are like special ones.

    Returns:
      `i32[states, V]`: the state after a token, or `MATCHED`. Rows start in state 0.

    Raises:
      ValueError: there is no string, or an empty one.
    """
    if isinstance(strings, str) or not strings or not all(strings):
        raise ValueError(f"stop strings must be non-empty texts, got {strings!r}")
    step = _automaton([string.encode() for string in strings])
    texts = tokenizer.token_bytes()
    order = sorted(
        (token for token, text in enumerate(texts) if text), key=lambda token: -len(texts[token])
    )
    lengths = np.array([len(texts[token]) for token in order])
    table = np.zeros((len(step), vocab_size), np.int32)
    state = np.tile(np.arange(len(step), dtype=np.int32)[:, None], (1, len(order)))
    for place in range(lengths[0] if order else 0):
        count = int((lengths > place).sum())  # tokens with a byte at this place come first
        byte = np.array([texts[token][place] for token in order[:count]])
        now = state[:, :count]
        state[:, :count] = np.where(now == MATCHED, MATCHED, step[now, byte])
    table[:, order] = state
    return table


def _automaton(strings: Sequence[bytes]) -> np.ndarray:
    """`i32[states, 256]`: a state is the longest end of the text that begins a string."""
    prefixes = sorted({string[:n] for string in strings for n in range(len(string))})
    number = {prefix: index for index, prefix in enumerate(prefixes)}  # b"" is state 0
    step = np.zeros((len(prefixes), 256), np.int32)
    for prefix, index in number.items():
        for byte in range(256):
            text = prefix + bytes([byte])
            if any(text.endswith(string) for string in strings):
                step[index, byte] = MATCHED
            else:
                step[index, byte] = next(
                    number[text[n:]] for n in range(len(text) + 1) if text[n:] in number
                )
    return step
