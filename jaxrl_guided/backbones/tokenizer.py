"""Tokenizers behind one small interface: rebuilt from GGUF metadata, read from `tokenizer.json`,
or the byte-level one of the `nano` backbone.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tokenizers
from etils import epath
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from jaxrl_guided.backbones.config import BackboneError

# Token types of GGUF metadata that are matched as a whole before anything else.
_CONTROL, _USER_DEFINED = 3, 4

NANO_SPECIALS = ("<pad>", "<bos>", "<eos>")


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """Text to padded ids and back. Special tokens of the model's own template are added."""

    backend: tokenizers.Tokenizer

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return 1 + max(self.backend.get_vocab(with_added_tokens=True).values())

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Encodes B ≥ 1 texts.

        Returns:
          `i32[B, P]` ids, right padded with 0 to the longest, and `i32[B]` lengths. Padding is
          told by the lengths only: 0 may be a token of the vocabulary.
        """
        if isinstance(texts, str) or not texts:
            raise ValueError(f"texts must be a non-empty sequence of strings, got {texts!r}")
        rows = [encoding.ids for encoding in self.backend.encode_batch_fast(list(texts))]
        length = np.array([len(row) for row in rows], np.int32)
        ids = np.zeros((len(rows), length.max()), np.int32)
        for row, target in zip(rows, ids, strict=True):
            target[: len(row)] = row
        return ids, length

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Text of one unpadded sequence `i32[P]`, special tokens included."""
        return self.backend.decode([int(i) for i in ids], skip_special_tokens=False)

    def token_bytes(self) -> list[bytes]:
        """UTF-8 bytes that each id adds to a text; none for special tokens and unused ids.

        Exact for byte-level tokenizers. Of others, "▁" is read as a blank and `<0x0A>` as a byte.
        """
        texts = [b""] * self.vocab_size
        level = _BYTE_OF if isinstance(self.backend.decoder, decoders.ByteLevel) else None
        for token, index in self.backend.get_vocab(with_added_tokens=False).items():
            texts[index] = _bytes_of(token, level)
        for index, added in self.backend.get_added_tokens_decoder().items():
            texts[index] = b"" if added.special else added.content.encode()
        return texts


def read_tokenizer(path: epath.Path, max_length: int | None = None) -> Tokenizer:
    """Reads a `tokenizer.json`; padding is switched off, truncation is only by `max_length`.

    Raises:
      BackboneError: the file is missing or not a tokenizer.
    """
    if not path.is_file():
        raise BackboneError(f"{path}: no such file; a backbone directory needs its tokenizer.json")
    try:
        backend = tokenizers.Tokenizer.from_str(path.read_text())
    except Exception as error:  # the Rust library raises bare Exception
        raise BackboneError(f"{path}: not a readable tokenizer ({error})") from error
    backend.no_padding()
    if max_length is None:
        backend.no_truncation()
    else:
        backend.enable_truncation(max_length)
    return Tokenizer(backend)


def tokenizer_from_gguf(metadata: Mapping[str, Any], source: str) -> Tokenizer:
    """Rebuilds a byte-level BPE tokenizer from GGUF metadata.

    As in the original, a byte that has no token of its own is dropped (SmolLM2 lacks 21 of the
    256 bytes, most of which never occur in UTF-8).

    Raises:
      BackboneError: names `source` and the metadata that is missing or unsupported.
    """

    def need(key: str) -> Any:
        if f"tokenizer.ggml.{key}" not in metadata:
            raise BackboneError(f"{source}: metadata tokenizer.ggml.{key} is missing")
        return metadata[f"tokenizer.ggml.{key}"]

    if need("model") != "gpt2":
        raise BackboneError(f"{source}: tokenizer.ggml.model {need('model')!r} is not BPE ('gpt2')")
    if need("pre") not in tuple(_SPLITTERS):  # it may be a list
        known = ", ".join(_SPLITTERS)
        raise BackboneError(f"{source}: tokenizer.ggml.pre {need('pre')!r} is not one of {known}")
    tokens, types, merges = need("tokens"), need("token_type"), need("merges")
    try:
        pairs = [(first, second) for first, second in (merge.split(" ") for merge in merges)]
        backend = _byte_level_bpe(tokens, pairs)
        _SPLITTERS[need("pre")](backend)
        kinds = list(zip(tokens, types, strict=True))
        backend.add_special_tokens([_whole(token) for token, kind in kinds if kind == _CONTROL])
        backend.add_tokens([_whole(token) for token, kind in kinds if kind == _USER_DEFINED])
        if metadata.get("tokenizer.ggml.add_bos_token", False):
            bos = need("bos_token_id")
            backend.post_processor = processors.TemplateProcessing(
                single=[tokens[bos], "$A"], special_tokens=[(tokens[bos], bos)]
            )
    except Exception as error:  # the Rust library raises bare Exception
        raise BackboneError(f"{source}: broken tokenizer metadata ({error})") from error
    return Tokenizer(backend)


def nano_tokenizer() -> Tokenizer:
    """One token per UTF-8 byte after the special ones; id 0 is padding."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = _byte_level_bpe([*NANO_SPECIALS, *alphabet], [])
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.add_special_tokens(list(NANO_SPECIALS))
    return Tokenizer(backend)


def train_tokenizer(texts: Sequence[str], vocab_size: int) -> Tokenizer:
    """A byte-level BPE tokenizer of one's own, with the special tokens of `nano_tokenizer`.

    Args:
      texts: to learn words from; any others can be encoded, too.
      vocab_size: ids at most.

    Raises:
      ValueError: `vocab_size` does not hold the special tokens and all bytes.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    least = len(NANO_SPECIALS) + len(alphabet)
    if vocab_size < least:
        raise ValueError(f"vocab_size must be at least {least}, got {vocab_size}")
    backend = tokenizers.Tokenizer(models.BPE())
    # A line end belongs to the word before it: the name of a role is one token of a chat.
    words = tokenizers.Regex(r" ?\w+\n?|[^\w\s]+|\s+")
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(words, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(NANO_SPECIALS),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    return Tokenizer(backend)


def _byte_alphabet() -> dict[str, int]:
    """The byte that each character of a byte-level vocabulary stands for.

    Printable characters of Latin-1 stand for themselves, the other bytes in their order for the
    characters from 256 on.
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {
        chr(256 + place): byte for place, byte in enumerate(others)
    }


_BYTE_OF = _byte_alphabet()


def _bytes_of(token: str, level: Mapping[str, int] | None) -> bytes:
    if level is not None and all(character in level for character in token):
        return bytes(level[character] for character in token)
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes([int(token[3:5], 16)])
    return token.replace("▁", " ").encode()


def _whole(token: str) -> tokenizers.AddedToken:
    return tokenizers.AddedToken(token, normalized=False)


def _byte_level_bpe(tokens: Sequence[str], merges: list[tuple[str, str]]) -> tokenizers.Tokenizer:
    vocabulary = {token: index for index, token in enumerate(tokens)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    backend.decoder = decoders.ByteLevel()
    return backend


def _split_smollm(backend: tokenizers.Tokenizer) -> None:
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )


def _split_qwen2(backend: tokenizers.Tokenizer) -> None:
    # Contractions | letters with one leading mark | one digit | punctuation | line ends | blanks.
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


_SPLITTERS: Mapping[str, Callable[[tokenizers.Tokenizer], None]] = {
    "smollm": _split_smollm,
    "qwen2": _split_qwen2,
}
