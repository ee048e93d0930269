"""Tokenizers: literal ids, a plain byte-pair merger as oracle, round trips."""

import itertools
import json

import numpy as np
import pytest
import tokenizers
from etils import epath
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl_guided.backbones import weights
from jaxrl_guided.backbones.config import BackboneError
from jaxrl_guided.backbones.gguf import load_gguf
from jaxrl_guided.backbones.tokenizer import nano_tokenizer, read_tokenizer, tokenizer_from_gguf

# Characters of any script, controls and the planes above 3 apart: some of their bytes have no
# token in SmolLM2's vocabulary.
ordinary_text = st.text(
    st.characters(codec="utf-8", max_codepoint=0x3FFFF, exclude_categories=["Cc"])
)


def byte_symbols() -> dict[int, str]:
    """GPT-2's table, restated: printable Latin-1 stands for itself, the rest is moved up."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in kept]
    return {b: chr(b) for b in kept} | {b: chr(256 + n) for n, b in enumerate(moved)}


def merge_by_rank(word: str, ranks: dict[tuple[str, str], int]) -> list[str]:
    parts = list(word)
    while True:
        pairs = [(ranks[p], i) for i, p in enumerate(itertools.pairwise(parts)) if p in ranks]
        if not pairs:
            return parts
        _, at = min(pairs)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def small_metadata(**changes):
    symbols = sorted(byte_symbols().values())
    merges = ["r e", "re d", "Ġ b", "a l", "al l", "Ġb all", "1 2"]
    tokens = ["<|a|>", "<|b|>", "<tool>", *symbols, *(m.replace(" ", "") for m in merges)]
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3, 4, *[1] * (len(tokens) - 3)],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.add_bos_token": False,
    }
    return metadata | {f"tokenizer.ggml.{name}": value for name, value in changes.items()}


def tokens_of(tokenizer, text):
    ids, length = tokenizer.encode([text])
    return [tokenizer.backend.id_to_token(int(i)) for i in ids[0, : length[0]]]


class TestFromGguf:
    def test_merges_digits_specials(self):
        tokenizer = tokenizer_from_gguf(small_metadata(), "small.gguf")
        assert tokens_of(tokenizer, "red ball") == ["red", "Ġball"]
        assert tokens_of(tokenizer, "12") == ["1", "2"]  # despite the merge: digits stand alone
        assert tokens_of(tokenizer, "<|a|>red<tool>") == ["<|a|>", "red", "<tool>"]
        assert tokenizer.vocab_size == 3 + 256 + 7

    def test_bos_only_if_asked_for(self):
        tokenizer = tokenizer_from_gguf(small_metadata(add_bos_token=True), "small.gguf")
        assert tokens_of(tokenizer, "red") == ["<|b|>", "red"]

    def test_qwen2_splits_as_transformers_does(self):
        from transformers import Qwen2Tokenizer

        metadata = small_metadata(pre="qwen2")
        ours = tokenizer_from_gguf(metadata, "small.gguf")
        vocabulary = {t: i for i, t in enumerate(metadata["tokenizer.ggml.tokens"])}
        merges = [tuple(m.split()) for m in metadata["tokenizer.ggml.merges"]]
        theirs = Qwen2Tokenizer(vocabulary, merges, eos_token="<|a|>", pad_token="<|a|>")
        for text in [
            "I'll push 12 red balls,\r\n  really!\n\n",
            "e\u0301te\u0301  日本語 ½",
            "a\t b  ",
        ]:
            assert ours.encode([text])[0][0].tolist() == theirs(text)["input_ids"]

    @pytest.mark.parametrize(
        "changes, message",
        [
            ({"model": "llama"}, "model 'llama'"),
            ({"pre": "other"}, "pre 'other'"),
            ({"token_type": [1]}, "broken tokenizer metadata"),
            ({"merges": ["x"]}, "broken tokenizer metadata"),
            ({"merges": ["re qq"]}, "broken tokenizer metadata"),
        ],
    )
    def test_refuses(self, changes, message):
        with pytest.raises(BackboneError, match=rf"^small\.gguf: .*{message}"):
            tokenizer_from_gguf(small_metadata(**changes), "small.gguf")

    def test_names_what_is_missing(self):
        metadata = small_metadata()
        del metadata["tokenizer.ggml.merges"]
        with pytest.raises(BackboneError, match=r"tokenizer\.ggml\.merges is missing"):
            tokenizer_from_gguf(metadata, "small.gguf")

    @settings(deadline=None, max_examples=100)
    @given(ordinary_text)
    def test_agrees_with_a_plain_merger_on_one_word(self, text):
        metadata = small_metadata()
        tokenizer = tokenizer_from_gguf(metadata, "small.gguf")
        merges = metadata["tokenizer.ggml.merges"]
        ranks = {tuple(m.split()): i for i, m in enumerate(merges)}
        word = "".join(c for c in text if c.isalpha()) + "redball"
        symbols = "".join(byte_symbols()[b] for b in word.encode())
        assert tokens_of(tokenizer, word) == merge_by_rank(symbols, ranks)


class TestNano:
    @settings(deadline=None)
    @given(st.text(st.characters(codec="utf-8")))
    def test_one_token_per_byte_and_back(self, text):
        tokenizer = nano_tokenizer()
        ids, length = tokenizer.encode([text])
        if "<" not in text:
            assert length[0] == len(text.encode())
        assert tokenizer.decode(ids[0, : length[0]]) == text

    def test_padding(self):
        ids, length = nano_tokenizer().encode(["ab", "", "abc"])
        assert ids.dtype == length.dtype == np.int32
        assert length.tolist() == [2, 0, 3]
        assert ids[0, 2] == 0
        assert ids[1].tolist() == [0, 0, 0]
        assert (ids[2] > 2).all()

    @pytest.mark.parametrize("texts", ["red", []])
    def test_needs_a_list_of_texts(self, texts):
        with pytest.raises(ValueError, match="texts must be a non-empty sequence"):
            nano_tokenizer().encode(texts)


class TestReadTokenizer:
    def test_padding_and_truncation_of_the_file_are_off(self, tmp_path):
        backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
        backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        backend.enable_padding(length=8)
        backend.enable_truncation(2)
        backend.save(str(tmp_path / "tokenizer.json"))
        ids, length = read_tokenizer(epath.Path(tmp_path) / "tokenizer.json").encode(["a b b", "b"])
        assert (ids.tolist(), length.tolist()) == ([[0, 1, 1], [1, 0, 0]], [3, 1])
        ids, length = read_tokenizer(epath.Path(tmp_path) / "tokenizer.json", max_length=1).encode(
            ["a b b"]
        )
        assert (ids.tolist(), length.tolist()) == ([[0]], [1])

    @pytest.mark.parametrize("content", [None, "", json.dumps({"version": "1.0"})])
    def test_missing_or_broken_file(self, tmp_path, content):
        path = epath.Path(tmp_path) / "tokenizer.json"
        if content is not None:
            path.write_text(content)
        with pytest.raises(BackboneError, match=r"tokenizer\.json"):
            read_tokenizer(path)


@pytest.mark.slow
class TestSmolLM2:
    @pytest.fixture(scope="class")
    def tokenizer(self):
        (path,) = weights.find("smollm2-135m-instruct").glob("*.gguf")
        return tokenizer_from_gguf(load_gguf(path, num_layers=1)[2], str(path))

    def test_literal_ids(self, tokenizer):
        """Ids that other implementations of this model publish for its chat template."""
        system = (
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
            "Face<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
        )
        start = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28]
        start += [7018, 411, 407, 19712, 8182, 2, 198, 1, 4093, 198]
        english = [1780, 314, 260, 3575, 282, 4649, 47]
        french = [65, 2726, 290, 1264, 2618, 47765, 1121, 367, 2618, 4649, 9148, 428, 2756, 96]
        french += [19870, 430, 16520, 8715, 30]
        texts = {
            "What is the capital of France?": english,
            "Quelle est la capitale de la France ? Réponds en une phrase.": french,
            "hello world": [28120, 905],
        }
        ids, length = tokenizer.encode([system.format(text) for text in texts])
        for row, size, middle in zip(ids, length, texts.values(), strict=True):
            assert row[:size].tolist() == [*start, *middle, 2, 198, 1, 520, 9531, 198]
            assert not row[size:].any()
        assert tokenizer.vocab_size == 49_152

    def test_round_trip(self, tokenizer):
        @settings(deadline=None, max_examples=200)
        @given(ordinary_text)
        def check(text):
            ids, length = tokenizer.encode([text])
            assert tokenizer.decode(ids[0, : length[0]]) == text

        check()

    def test_digits_stand_alone(self, tokenizer):
        digits = tokens_of(tokenizer, "move 2048 cm")
        assert digits == ["move", "Ġ", "2", "0", "4", "8", "Ġcm"]

    def test_agrees_with_a_plain_merger(self, tokenizer):
        model = json.loads(tokenizer.backend.to_str())["model"]
        ranks = {tuple(pair): i for i, pair in enumerate(model["merges"])}
        for word in ["unbelievable", "Übergrößenträger", "хорошо", "日本語", "purple"]:
            symbols = "".join(byte_symbols()[b] for b in word.encode())
            assert tokens_of(tokenizer, word) == merge_by_rank(symbols, ranks)

    def test_merges_are_those_of_the_file(self, tokenizer):
        model = json.loads(tokenizer.backend.to_str())["model"]
        assert len(model["merges"]) == 48_900
        assert [tuple(pair) for pair in model["merges"][:2]] == [("Ġ", "t"), ("Ġ", "a")]
