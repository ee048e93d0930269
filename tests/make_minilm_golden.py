"""Makes `goldens/minilm_tiny.npz`: a tiny random BERT's sentence vectors, by transformers' torch.

Run: python -m tests.make_minilm_golden (needs the extra `parity`).
"""

from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).parent / "goldens" / "minilm_tiny.npz"
SIZES = {
    "vocab_size": 30,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 12,
    "layer_norm_eps": 1e-12,
    "model_type": "bert",
    "hidden_act": "gelu",
}


def torch_vectors(model, ids: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Masked mean of the last hidden states, at unit length, in torch."""
    import torch

    mask = torch.arange(ids.shape[1])[None] < torch.tensor(length)[:, None]
    with torch.no_grad():
        hidden = model(torch.tensor(ids).long(), attention_mask=mask.long()).last_hidden_state
    mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    return torch.nn.functional.normalize(mean, dim=1).numpy()


def main() -> None:
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    model = BertModel(BertConfig(**SIZES), add_pooling_layer=False).eval()
    for parameter in model.parameters():  # large and everywhere, so that no term can hide
        torch.nn.init.normal_(parameter, std=0.3)
    rng = np.random.default_rng(0)
    ids = rng.integers(0, SIZES["vocab_size"], (5, 12)).astype(np.int32)
    length = np.array([1, 3, 7, 12, 12], np.int32)
    tensors = {f"model/{name}": value.numpy() for name, value in model.state_dict().items()}
    vectors = torch_vectors(model, ids, length)
    np.savez_compressed(GOLDEN, ids=ids, length=length, vectors=vectors, **tensors)


if __name__ == "__main__":
    main()
