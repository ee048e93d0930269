"""Makes the golden files of the decoder tests with transformers' torch models (the oracle).

Run `python -m tests.goldens.make_goldens` with the `parity` extra installed; the files are
committed, so that the comparison also runs without torch. Each holds a tiny random checkpoint
(initial std .3, random norms and biases: at the usual .02 a wrong rotary base does not show),
token ids, and the oracle's logits.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
LLAMA3_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    # Short, so that kept, blended and stretched frequencies all occur among tiny heads.
    "original_max_position_embeddings": 64,
}
CASES: dict[str, dict[str, Any]] = {
    "llama_scaled": {
        "model_type": "llama",
        "rope_theta": 1e5,
        "rope_scaling": LLAMA3_SCALING,
        "num_key_value_heads": 1,
        "tie_word_embeddings": True,
        "attention_bias": True,
    },
    "qwen2": {"model_type": "qwen2", "rope_theta": 5e6, "num_key_value_heads": 2},
    "qwen3": {"model_type": "qwen3", "rope_theta": 1e4, "num_key_value_heads": 4, "head_dim": 24},
}


def tiny_config(**changes: Any) -> dict[str, Any]:
    """A raw `config.json` of a tiny model."""
    return {
        "vocab_size": 61,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "hidden_act": "silu",
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        **changes,
    }


def random_model(raw: dict[str, Any], seed: int = 0) -> Any:
    """A torch model of this configuration with every parameter random."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    settings = {key: value for key, value in raw.items() if key != "model_type"}
    config = AutoConfig.for_model(raw["model_type"], **settings)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            mean = 1.0 if "norm" in name else 0.0
            parameter.normal_(mean, 0.3, generator=generator)
    return model


def oracle_logits(model: Any, tokens: np.ndarray) -> np.ndarray:
    """Logits `f32[B, T, V]` of unpadded token ids."""
    import torch

    with torch.no_grad():
        return model(torch.tensor(tokens)).logits.float().numpy()


def main() -> None:
    for name, changes in CASES.items():
        raw = tiny_config(**changes)
        model = random_model(raw)
        tokens = np.random.default_rng(0).integers(0, raw["vocab_size"], (2, 40))
        weights = {
            key: value.numpy()
            for key, value in model.state_dict().items()
            if not (raw["tie_word_embeddings"] and key == "lm_head.weight")
        }
        np.savez_compressed(
            FOLDER / f"decoder_{name}.npz",
            config=json.dumps(raw),
            tokens=tokens,
            logits=oracle_logits(model, tokens),
            **weights,
        )


if __name__ == "__main__":
    main()
