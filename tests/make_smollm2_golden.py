"""Makes `goldens/smollm2_logits.npz`: logits of SmolLM2-135M from transformers' torch model.

transformers reads the GGUF file on its own, so this shares no code with our loader or decoder.
Run: python -m tests.make_smollm2_golden (needs the extra `parity` and the fetched weights).
"""

from pathlib import Path

import numpy as np

from jaxrl_guided.backbones import weights

GOLDEN = Path(__file__).parent / "goldens" / "smollm2_logits.npz"
LAYERS = (8, 30)
POSITIONS = (0, 1, 7, 16, 31)
TOP = 16
# Largest error allowed in each row of `token_ids`. Logits reach 28; in float32 torch itself is up
# to 1.3e-4 away from float64, most on arbitrary tokens. A wrong rotary order is 6 away.
TOLERANCE = np.array([2e-4, 4e-4])


def token_ids() -> np.ndarray:
    """A sentence in the chat template (padded by its own end), and 32 arbitrary tokens."""
    text = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018]
    text += [411, 407, 19712, 8182, 2, 198, 1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2]
    arbitrary = np.random.default_rng(0).integers(0, 49_152, len(text))
    return np.array([text, arbitrary], np.int32)


def torch_logits(ids: np.ndarray) -> dict[int, np.ndarray]:
    """Number of layers → `f32[B, T, V]`, computed in float64; cut models keep the final norm."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    (file,) = weights.find("smollm2-135m-instruct").glob("*.gguf")
    config = AutoConfig.from_pretrained(file.parent, gguf_file=file.name)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    state = load_gguf_checkpoint(str(file), return_tensors=True, model_to_load=model)["tensors"]
    loaded = model.load_state_dict(state, strict=False)
    assert (loaded.missing_keys, loaded.unexpected_keys) == (["lm_head.weight"], [])
    model.tie_weights()
    model = model.double()
    logits = {}
    for count in sorted(LAYERS, reverse=True):
        model.model.layers = model.model.layers[:count]
        with torch.no_grad():
            logits[count] = (
                model(torch.tensor(ids).long(), use_cache=False).logits.numpy().astype(np.float32)
            )
    return logits


def main() -> None:
    ids = token_ids()
    arrays = {"ids": ids, "positions": np.array(POSITIONS)}
    for count, logits in torch_logits(ids).items():
        picked = logits[:, POSITIONS]
        arrays[f"top_{count}"] = np.argsort(-picked, axis=-1)[..., :TOP].astype(np.int32)
        arrays[f"columns_{count}"] = picked[..., :: logits.shape[-1] // 32]
        arrays[f"values_{count}"] = np.take_along_axis(picked, arrays[f"top_{count}"], axis=-1)
    np.savez_compressed(GOLDEN, **arrays)


if __name__ == "__main__":
    main()
