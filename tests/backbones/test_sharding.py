"""Places of weights on a mesh: the rule table, and whatever does not divide."""

import dataclasses

import jax
import pytest
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

from jaxrl_guided.backbones import sharding
from jaxrl_guided.backbones.lora import LoraConfig, lora_shapes
from jaxrl_guided.backbones.params import param_shapes
from jaxrl_guided.backbones.presets import PRESETS


def is_shape(x):
    return isinstance(x, tuple)


def places(config, fsdp, tensor):
    """Path to partition of every weight and adapter."""
    mesh = AbstractMesh((fsdp, tensor), (sharding.FSDP, sharding.TENSOR), (AxisType.Auto,) * 2)
    shapes = {"base": param_shapes(config), "adapters": lora_shapes(config, LoraConfig(rank=8))}
    tree = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s, float), shapes, is_leaf=is_shape)
    found = sharding.shardings(mesh, config, {"mu": tree, "count": jax.ShapeDtypeStruct((), int)})
    flat, _ = jax.tree.flatten_with_path(found)
    return {"/".join(str(key.key) for key in path): place.spec for path, place in flat}


def test_matrices_are_divided_by_width_and_by_heads():
    found = places(PRESETS["llama2_7b"], 4, 2)
    expected = {
        "base/embed": ("tensor", "fsdp"),
        "base/lm_head/kernel": ("fsdp", "tensor"),
        "base/final_norm": (),
        "base/layers/attn_norm": (),
        "base/layers/q/kernel": (None, "fsdp", "tensor"),
        "base/layers/k/kernel": (None, "fsdp", "tensor"),
        "base/layers/o/kernel": (None, "tensor", "fsdp"),
        "base/layers/down/kernel": (None, "tensor", "fsdp"),
        "adapters/up/a": (None, "fsdp"),
        "adapters/up/b": (None, None, "tensor"),
        "adapters/o/a": (None, "tensor"),
    }
    for path, axes in expected.items():
        assert found[f"mu/{path}"] == PartitionSpec(*axes), path
    assert found["count"] == PartitionSpec()


def test_heads_are_divided_whole_or_not_at_all():
    config = PRESETS["tinyllama"]  # 32 query heads, 4 for keys and values
    found = places(config, 1, 8)
    assert found["mu/base/layers/q/kernel"] == PartitionSpec(None, "fsdp", "tensor")
    assert found["mu/base/layers/k/kernel"] == PartitionSpec(None, "fsdp")
    odd = dataclasses.replace(config, vocab_size=32001)
    assert places(odd, 1, 8)["mu/base/embed"] == PartitionSpec(None, "fsdp")


def test_biases_follow_the_outputs():
    found = places(PRESETS["qwen2.5_0.5b"], 2, 2)
    assert found["mu/base/layers/q/bias"] == PartitionSpec(None, "tensor")
    assert found["mu/base/layers/v/bias"] == PartitionSpec(None, "tensor")


@pytest.mark.parametrize("fsdp, tensor", [(0, 1), (1, 1000), (-1, -1)])
def test_a_mesh_of_devices_that_are_not_there_is_refused(fsdp, tensor):
    with pytest.raises(ValueError, match=f"fsdp {fsdp} and tensor {tensor} must be positive"):
        sharding.make_model_mesh(fsdp, tensor)
