"""Small GGUF checkpoints for tests, written with llama.cpp's own writer."""

from pathlib import Path

import gguf
import numpy as np

HEADS, KV_HEADS, HEAD_DIM, HIDDEN, INNER, LAYERS, VOCAB = 4, 2, 8, 32, 64, 3, 40


def tensors(rng: np.random.Generator, bias: bool = False, head_norms: bool = False) -> dict:
    """Random tensors of a tied decoder, matrices [out, in], by their GGUF names."""
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes = {"token_embd.weight": (VOCAB, HIDDEN), "output_norm.weight": (HIDDEN,)}
    for i in range(LAYERS):
        layer = {
            "attn_norm.weight": (HIDDEN,),
            "ffn_norm.weight": (HIDDEN,),
            "attn_q.weight": (q, HIDDEN),
            "attn_k.weight": (kv, HIDDEN),
            "attn_v.weight": (kv, HIDDEN),
            "attn_output.weight": (HIDDEN, q),
            "ffn_gate.weight": (INNER, HIDDEN),
            "ffn_up.weight": (INNER, HIDDEN),
            "ffn_down.weight": (HIDDEN, INNER),
        }
        if bias:
            layer |= {"attn_q.bias": (q,), "attn_k.bias": (kv,), "attn_v.bias": (kv,)}
        if head_norms:
            layer |= {"attn_q_norm.weight": (HEAD_DIM,), "attn_k_norm.weight": (HEAD_DIM,)}
        shapes |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
    return {n: (0.3 * rng.normal(size=s) + 0.1).astype(np.float32) for n, s in shapes.items()}


def metadata(architecture: str) -> dict:
    return {
        f"{architecture}.block_count": LAYERS,
        f"{architecture}.context_length": 128,
        f"{architecture}.embedding_length": HIDDEN,
        f"{architecture}.feed_forward_length": INNER,
        f"{architecture}.attention.head_count": HEADS,
        f"{architecture}.attention.head_count_kv": KV_HEADS,
        f"{architecture}.rope.freq_base": 5e4,
        f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": ["<|a|>", *"abcdefghijklmnopqrstuvwxyzĠ", "ab"],
        "tokenizer.ggml.token_type": [3, *[1] * 28],
        "tokenizer.ggml.merges": ["a b"],
    }


def write(path: Path, arrays: dict, architecture: str = "llama", quant=None, **changes) -> Path:
    """Writes a checkpoint; `changes` replace metadata (`__` for `.`), None removes it."""
    fields = metadata(architecture) | {k.replace("__", "."): v for k, v in changes.items()}
    writer = gguf.GGUFWriter(path, architecture)
    for name, value in fields.items():
        if isinstance(value, list):
            writer.add_array(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        elif value is not None:
            writer.add_uint32(name, value)
    for name, array in arrays.items():
        if quant is not None and array.ndim == 2:
            packed = gguf.quants.quantize(array, quant)
            writer.add_tensor(name, packed, raw_dtype=quant)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
