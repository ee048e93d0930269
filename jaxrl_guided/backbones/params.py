"""The decoder's parameters: names, shapes, random ones, and the first layers of given ones.

Parameters are stacked over layers on a leading axis:

    {"embed": f32[V, D],
     "layers": {"attn_norm": [L, D], "mlp_norm": [L, D],
                "q", "k", "v", "o", "gate", "up", "down":
                    {"kernel": [L, in, out], "bias" (if any): [L, out]},
                "q_norm", "k_norm" (Qwen3): [L, head_dim]},
     "final_norm": [D],
     "lm_head" (unless tied): {"kernel": [D, V]}}
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_guided.backbones.config import BackboneConfig, BackboneError

Params = dict[str, Any]
"""Nested dictionary of arrays."""

FUSED = (("q", "k", "v"), ("gate", "up"))
"""Linear layers of a block that read the same input."""


def linear_shapes(config: BackboneConfig) -> dict[str, tuple[int, int]]:
    """(in, out) of the seven linear layers of a block, by name."""
    width, ffn = config.hidden_size, config.intermediate_size
    q, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    return {
        "q": (width, q),
        "k": (width, kv),
        "v": (width, kv),
        "o": (q, width),
        "gate": (width, ffn),
        "up": (width, ffn),
        "down": (ffn, width),
    }


def param_shapes(config: BackboneConfig) -> Params:
    """The parameter tree with shapes (tuples) in the place of arrays."""
    count, width = config.num_layers, config.hidden_size
    layers: Params = {"attn_norm": (count, width), "mlp_norm": (count, width)}
    for name, shape in linear_shapes(config).items():
        layers[name] = {"kernel": (count, *shape)}
        if (name in "qkv" and config.qkv_bias) or (name == "o" and config.o_bias):
            layers[name]["bias"] = (count, shape[1])
    if config.qk_norm:
        layers |= {"q_norm": (count, config.head_dim), "k_norm": (count, config.head_dim)}
    params: Params = {
        "embed": (config.vocab_size, width),
        "layers": layers,
        "final_norm": (width,),
    }
    if not config.tie_embeddings:
        params["lm_head"] = {"kernel": (width, config.vocab_size)}
    return params


def init_params(
    config: BackboneConfig,
    seed: int,
    std: float = 0.02,
    dtype: jax.typing.DTypeLike = jnp.float32,
) -> Params:
    """Random parameters: matrices normal with `std`, norms one, biases zero.

    Drawn by numpy: priors know their backbone by its bits, and those of `jax.random.normal` differ
    between devices and compiler settings.
    """
    shapes, tree = jax.tree.flatten_with_path(
        param_shapes(config), is_leaf=lambda x: isinstance(x, tuple)
    )
    rng, leaves = np.random.default_rng(seed), []
    for path, shape in shapes:
        name = path[-1].key
        if name == "bias":
            leaves.append(jnp.zeros(shape, dtype))
        elif name.endswith("norm"):
            leaves.append(jnp.ones(shape, dtype))
        else:
            drawn = rng.standard_normal(shape, np.float32) * np.float32(std)
            leaves.append(jnp.asarray(drawn.astype(dtype)))
    return jax.tree.unflatten(tree, leaves)


def truncate(
    config: BackboneConfig, params: Params, num_layers: int
) -> tuple[BackboneConfig, Params]:
    """The first `num_layers` layers; the final norm (and the head) stay.

    Raises:
      BackboneError: `num_layers` is not within 1 … `config.num_layers`.
    """
    check_layers(config, num_layers)
    layers = jax.tree.map(lambda x: x[:num_layers], params["layers"])
    return dataclasses.replace(config, num_layers=num_layers), {**params, "layers": layers}


def unstack(params: Params, fuse: bool = False) -> Params:
    """The same parameters with a tuple of layers, as loops over tokens read them (`decoder.apply`).

    Arrays are copied: do it once for weights that do not change.

    Args:
      params: stacked.
      fuse: put linear layers that read the same input side by side (`FUSED`). One wide product of
        few rows is faster than several narrow ones; not for weights that a mesh divides.
    """
    stacked = params["layers"]
    if fuse:
        stacked = dict(stacked)
        for names in FUSED:
            parts = [stacked.pop(name) for name in names]
            stacked["_".join(names)] = {
                key: jnp.concatenate([part[key] for part in parts], axis=-1) for key in parts[0]
            }
    count = jax.tree.leaves(stacked)[0].shape[0]
    layers = tuple(jax.tree.map(lambda x: x[i], stacked) for i in range(count))
    return {**params, "layers": layers}


def check_layers(config: BackboneConfig, num_layers: int) -> None:
    """Raises BackboneError unless the decoder has so many layers."""
    if not 1 <= num_layers <= config.num_layers:
        raise BackboneError(
            f"num_layers must be within 1 … {config.num_layers} for this backbone, got {num_layers}"
        )
