"""Gradients of a GRPO step against torch's, and adapters in peft, through the loaders."""

import dataclasses

import jax
import numpy as np
import pytest
import safetensors.numpy

from jaxrl_guided.backbones import decoder, hf
from jaxrl_guided.backbones.lora import LoraConfig, export_peft, init_lora, merge_lora
from jaxrl_guided.learners.language.batches import MicroBatch
from jaxrl_guided.learners.language.learner import LanguageLearnerConfig, gradient_of
from jaxrl_guided.learners.language.objectives import GRPOConfig
from tests.goldens import make_goldens

pytestmark = pytest.mark.parity

ROWS, LENGTH = 3, 20
OBJECTIVE = GRPOConfig(clip_low=0.1, clip_high=0.3, max_importance=1.2)


def a_batch(vocab_size):
    random = np.random.default_rng(0)
    spoken = random.random((ROWS, LENGTH)) < 0.6
    spoken[:, 0] = False
    shape = (ROWS, LENGTH)
    return MicroBatch(
        tokens=random.integers(0, vocab_size, shape),
        spoken=spoken,
        behaviour=random.normal(-4, 1, shape).astype(np.float32),
        advantage=random.normal(size=ROWS).astype(np.float32),
        temperature=np.array([0.7, 1.0, 1.3], np.float32),
        weight=np.where(spoken, random.random(shape), 0).astype(np.float32),
        old=random.normal(-4, 1, shape).astype(np.float32),
    )


def torch_gradient(model, batch):
    """Autograd of the clipped surrogate as arXiv 2402.03300 writes it."""
    import torch

    given = {f.name: getattr(batch, f.name) for f in dataclasses.fields(batch)}
    given = {name: torch.tensor(x) for name, x in given.items() if x is not None}
    logits = model(given["tokens"]).logits[:, :-1] / given["temperature"][:, None, None]
    log_probs = torch.log_softmax(logits, -1)
    now = torch.gather(log_probs, 2, given["tokens"][:, 1:, None])[..., 0]
    old, behaviour, weight = (given[name][:, 1:] for name in ("old", "behaviour", "weight"))
    ratio, advantage = torch.exp(now - old), given["advantage"][:, None]
    gain = torch.minimum(ratio * advantage, ratio.clip(0.9, 1.3) * advantage)
    importance = torch.exp(old - behaviour).clip(max=1.2)
    loss = -(weight * importance * gain).sum()
    loss.backward()
    return float(loss.detach()), {name: p.grad.numpy() for name, p in model.named_parameters()}


def in_our_form(folder, tensors):
    """Tensors with transformers' names as our parameters."""
    safetensors.numpy.save_file(
        {name: np.ascontiguousarray(x) for name, x in tensors.items()},
        folder / "model.safetensors",
    )
    return hf.load_hf(folder)[1]


def close(ours, expected):
    for left, right in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(left, right, atol=2e-5 * np.abs(right).max(), rtol=1e-3)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_gradients_of_all_weights_and_of_adapters_are_torchs(family, tmp_path):
    from transformers import AutoModelForCausalLM

    raw = make_goldens.tiny_config(model_type=family, tie_word_embeddings=False)
    model = make_goldens.random_model(raw)
    model.save_pretrained(tmp_path)
    backbone, base = hf.load_hf(tmp_path)
    batch = a_batch(backbone.vocab_size)
    full = LanguageLearnerConfig(backbone, OBJECTIVE, lengths=(LENGTH,))
    ours = jax.jit(gradient_of, static_argnums=0)(full, None, base, batch)
    loss, gradients = torch_gradient(model, batch)
    assert ours.metrics["loss"] == pytest.approx(loss, rel=1e-4)
    close(ours.trained, in_our_form(tmp_path, gradients))

    # With W + s A B in place of W: dA = s dW Bᵀ and dB = s Aᵀ dW.
    lora = LoraConfig(rank=3, alpha=6.0)
    adapters = init_lora(backbone, lora, jax.random.key(1))
    adapters = jax.tree.map(lambda x: x + 0.05, adapters)
    ours = jax.jit(gradient_of, static_argnums=0)(
        dataclasses.replace(full, lora=lora), base, adapters, batch
    )
    merged = tmp_path / "merged"
    hf.export_hf(backbone, merge_lora(base, adapters, lora.scale), merged)
    loss, gradients = torch_gradient(AutoModelForCausalLM.from_pretrained(merged), batch)
    assert ours.metrics["loss"] == pytest.approx(loss, rel=1e-4)
    kernels = in_our_form(merged, gradients)["layers"]
    for name, pair in adapters.items():
        change = np.asarray(kernels[name]["kernel"])
        a = lora.scale * change @ np.swapaxes(pair["b"], 1, 2)
        b = lora.scale * np.swapaxes(pair["a"], 1, 2) @ change
        close(ours.trained[name], {"a": a, "b": b})


def test_peft_reads_our_adapters(tmp_path):
    import peft
    import torch

    raw = make_goldens.tiny_config(tie_word_embeddings=False, model_type="llama")
    model = make_goldens.random_model(raw)
    model.save_pretrained(tmp_path)
    backbone, base = hf.load_hf(tmp_path)
    lora = LoraConfig(rank=3, alpha=6.0)
    adapters = init_lora(backbone, lora, jax.random.key(1))
    adapters = jax.tree.map(lambda x: x + 0.05, adapters)
    export_peft(lora, adapters, tmp_path / "adapters")
    adapted = peft.PeftModel.from_pretrained(model, str(tmp_path / "adapters")).eval()
    tokens = np.random.default_rng(0).integers(0, backbone.vocab_size, (2, 9))
    with torch.inference_mode():
        expected = adapted(torch.tensor(tokens)).logits.numpy()
    at = np.broadcast_to(np.arange(9), (2, 9))
    hidden, _ = decoder.apply(
        backbone, base, decoder.embed(base, tokens), at, lora=adapters, lora_scale=lora.scale
    )
    ours = decoder.logits(backbone, base, hidden)
    np.testing.assert_allclose(ours, expected, atol=2e-4, rtol=1e-4)
    hidden, _ = decoder.apply(backbone, base, decoder.embed(base, tokens), at)
    assert np.abs(decoder.logits(backbone, base, hidden) - expected).max() > 0.1
