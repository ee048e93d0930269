"""Shape and constants of a decoder; reads Hugging Face's `config.json`, old and new form."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxrl_guided.runtime.errors import UserError


class BackboneError(UserError):
    """A backbone's files or settings cannot be used; the message names what and why."""


@dataclasses.dataclass(frozen=True)
class RopeScaling:
    """Llama-3's stretching of the slow rotary frequencies.

    Attributes:
      factor: how much the slowest frequencies are slowed down.
      low_freq_factor: wavelengths above `original_max_positions / low_freq_factor` are stretched.
      high_freq_factor: wavelengths below `original_max_positions / high_freq_factor` are kept.
      original_max_positions: context length before stretching.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: int

    def __post_init__(self) -> None:
        if self.factor < 1 or not 0 < self.low_freq_factor < self.high_freq_factor:
            raise BackboneError(
                "rope_scaling needs factor >= 1 and 0 < low_freq_factor < high_freq_factor, "
                f"got {self}"
            )


@dataclasses.dataclass(frozen=True)
class BackboneConfig:
    """A decoder of the Llama family (Llama, Qwen2, Qwen3).

    Attributes:
      vocab_size: V, rows of the embedding table.
      hidden_size: D.
      intermediate_size: width of the gated feed-forward layer.
      num_layers: L.
      num_heads: H query heads.
      num_kv_heads: K key/value heads; divides H.
      head_dim: size of a head, even; need not be D / H.
      rope_theta: base of the rotary frequencies.
      rope_scaling: Llama-3's frequency scaling, or None.
      norm_eps: epsilon of every RMS norm.
      tie_embeddings: logits use the embedding table.
      qkv_bias: q, k and v have biases (Qwen2; Llama with `attention_bias`).
      o_bias: the attention output has a bias (Llama with `attention_bias`).
      qk_norm: heads of q and k are RMS-normalised before the rotation (Qwen3).
      max_positions: context length of the pretraining.

    Raises:
      BackboneError: a size is not positive, or sizes do not fit each other.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_theta: float = 1e4
    rope_scaling: RopeScaling | None = None
    norm_eps: float = 1e-5
    tie_embeddings: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: bool = False
    max_positions: int = 2048

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type is int and (not isinstance(value, int) or value < 1):
                raise BackboneError(f"{field.name} must be a positive integer, got {value!r}")
        if self.num_heads % self.num_kv_heads:
            raise BackboneError(
                f"num_kv_heads = {self.num_kv_heads} must divide num_heads = {self.num_heads}"
            )
        if self.head_dim % 2:
            raise BackboneError(f"head_dim must be even, got {self.head_dim}")
        if self.rope_theta <= 0 or self.norm_eps < 0:
            raise BackboneError(
                f"rope_theta must be positive and norm_eps not negative, "
                f"got {self.rope_theta} and {self.norm_eps}"
            )

    @property
    def family(self) -> str:
        """Hugging Face's model type with these features: llama, qwen2 or qwen3."""
        if self.qk_norm:
            return "qwen3"
        return "qwen2" if self.qkv_bias and not self.o_bias else "llama"

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> "BackboneConfig":
        """Reads a raw `config.json` as the hub has it or as transformers 5 writes it.

        Raises:
          BackboneError: unsupported model type or feature, or a missing entry; names it.
        """
        family = raw.get("model_type")
        if family not in ("llama", "qwen2", "qwen3"):
            raise BackboneError(
                f"model_type {family!r} is not supported; supported are llama, qwen2, qwen3"
            )
        _refuse_unsupported(raw)
        try:
            heads, width = raw["num_attention_heads"], raw["hidden_size"]
            head_dim = raw.get("head_dim") or (128 if family == "qwen3" else width // heads)
            theta, scaling = _rope(raw)
            bias = bool(raw.get("attention_bias", False))
            return cls(
                vocab_size=raw["vocab_size"],
                hidden_size=width,
                intermediate_size=raw["intermediate_size"],
                num_layers=raw["num_hidden_layers"],
                num_heads=heads,
                num_kv_heads=raw.get("num_key_value_heads") or heads,
                head_dim=head_dim,
                rope_theta=theta,
                rope_scaling=scaling,
                norm_eps=raw.get("rms_norm_eps", 1e-6),
                tie_embeddings=bool(raw.get("tie_word_embeddings", False)),
                qkv_bias=bias or family == "qwen2",
                o_bias=bias and family != "qwen2",
                qk_norm=family == "qwen3",
                max_positions=raw.get("max_position_embeddings", 2048),
            )
        except KeyError as missing:
            raise BackboneError(f"config.json has no entry {missing}") from None

    def to_hf(self) -> dict[str, Any]:
        """The `config.json` that makes transformers (4 and 5) build the same network.

        Raises:
          BackboneError: a combination of biases that no supported model type has.
        """
        if self.o_bias and not self.qkv_bias:
            raise BackboneError("no supported model type has o_bias without qkv_bias")
        if self.qk_norm and self.qkv_bias != self.o_bias:
            raise BackboneError("qwen3 has biases on all of q, k, v, o or on none")
        names = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}
        raw: dict[str, Any] = {
            "architectures": [names[self.family] + "ForCausalLM"],
            "model_type": self.family,
            "hidden_act": "silu",
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "rope_theta": self.rope_theta,
            "rms_norm_eps": self.norm_eps,
            "tie_word_embeddings": self.tie_embeddings,
            "max_position_embeddings": self.max_positions,
        }
        if self.family != "qwen2":
            raw["attention_bias"] = self.qkv_bias
        if self.rope_scaling is not None:
            raw["rope_scaling"] = {
                "rope_type": "llama3",
                "factor": self.rope_scaling.factor,
                "low_freq_factor": self.rope_scaling.low_freq_factor,
                "high_freq_factor": self.rope_scaling.high_freq_factor,
                "original_max_position_embeddings": self.rope_scaling.original_max_positions,
            }
        return raw


def _refuse_unsupported(raw: Mapping[str, Any]) -> None:
    if raw.get("hidden_act", "silu") != "silu":
        raise BackboneError(f"hidden_act {raw['hidden_act']!r} is not supported; only silu is")
    if raw.get("mlp_bias"):
        raise BackboneError("mlp_bias = true is not supported")
    sliding = "sliding_attention" in (raw.get("layer_types") or ())
    if raw.get("use_sliding_window") and (sliding or "layer_types" not in raw):
        raise BackboneError("use_sliding_window = true is not supported")


def _rope(raw: Mapping[str, Any]) -> tuple[float, RopeScaling | None]:
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    theta = float(rope.get("rope_theta", raw.get("rope_theta", 1e4)))
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return theta, None
    if kind != "llama3":
        raise BackboneError(f"rope type {kind!r} is not supported; supported: default, llama3")
    return theta, RopeScaling(
        factor=float(rope["factor"]),
        low_freq_factor=float(rope["low_freq_factor"]),
        high_freq_factor=float(rope["high_freq_factor"]),
        original_max_positions=rope["original_max_position_embeddings"],
    )
