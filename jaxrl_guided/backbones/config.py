"""Shape and constants of a decoder; reads Hugging Face's `config.json`, old and new form."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.ranges import INT32, NOT_NEGATIVE, POSITIVE

_MOST_LAYERS = 10_000  # far beyond any; a damaged file that says more would be read for hours


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
            if field.type is int:
                read_size(vars(self), field.name)
        if self.num_layers > _MOST_LAYERS:
            raise BackboneError(
                f"num_layers must be at most {_MOST_LAYERS:,}, got {self.num_layers}"
            )
        if self.num_heads % self.num_kv_heads:
            raise BackboneError(
                f"num_kv_heads = {self.num_kv_heads} must divide num_heads = {self.num_heads}"
            )
        if self.head_dim % 2:
            raise BackboneError(f"head_dim must be even, got {self.head_dim}")
        if not POSITIVE.holds(self.rope_theta) or not NOT_NEGATIVE.holds(self.norm_eps):
            raise BackboneError(
                f"rope_theta must be positive and norm_eps not negative, both finite "
                f"in float32, got {self.rope_theta} and {self.norm_eps}"
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
          BackboneError: unsupported model type or feature, or an entry that is missing or of
            another type; names it.
        """
        family = raw.get("model_type")
        if family not in ("llama", "qwen2", "qwen3"):
            raise BackboneError(
                f"model_type {family!r} is not supported; supported are llama, qwen2, qwen3"
            )
        _refuse_unsupported(raw)
        try:
            heads, width = read_size(raw, "num_attention_heads"), read_size(raw, "hidden_size")
            theta, scaling = _rope(raw)
            bias = _flag(raw, "attention_bias")
            return cls(
                vocab_size=read_size(raw, "vocab_size"),
                hidden_size=width,
                intermediate_size=read_size(raw, "intermediate_size"),
                num_layers=read_size(raw, "num_hidden_layers"),
                num_heads=heads,
                num_kv_heads=read_size(raw, "num_key_value_heads", heads),
                head_dim=read_size(raw, "head_dim", 128 if family == "qwen3" else width // heads),
                rope_theta=theta,
                rope_scaling=scaling,
                norm_eps=read_number(raw, "rms_norm_eps", 1e-6),
                tie_embeddings=_flag(raw, "tie_word_embeddings"),
                qkv_bias=bias or family == "qwen2",
                o_bias=bias and family != "qwen2",
                qk_norm=family == "qwen3",
                max_positions=read_size(raw, "max_position_embeddings", 2048),
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
    if _flag(raw, "mlp_bias"):
        raise BackboneError("mlp_bias = true is not supported")
    kinds = raw.get("layer_types")
    if kinds is not None and not isinstance(kinds, list):
        raise BackboneError(f"layer_types must be a list, got {kinds!r}")
    sliding = kinds is None or "sliding_attention" in kinds
    if _flag(raw, "use_sliding_window") and sliding:
        raise BackboneError("use_sliding_window = true is not supported")


def _rope(raw: Mapping[str, Any]) -> tuple[float, RopeScaling | None]:
    rope: dict[str, Any] = {}
    for name in ("rope_scaling", "rope_parameters"):
        if (given := raw.get(name)) is not None and not isinstance(given, dict):
            raise BackboneError(f"{name} must be an object {{…}}, got {given!r}")
        rope = given or rope
    theta = read_number(rope if "rope_theta" in rope else raw, "rope_theta", 1e4)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return theta, None
    if kind != "llama3":
        raise BackboneError(f"rope type {kind!r} is not supported; supported: default, llama3")
    return theta, RopeScaling(
        factor=read_number(rope, "factor"),
        low_freq_factor=read_number(rope, "low_freq_factor"),
        high_freq_factor=read_number(rope, "high_freq_factor"),
        original_max_positions=read_size(rope, "original_max_position_embeddings"),
    )


def read_size(raw: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """An entry that is a positive integer; null stands for the default, if there is one.

    Raises:
      KeyError: it is missing and has no default.
      BackboneError: it is something else; names it.
    """
    value = raw[name] if default is None else raw.get(name)
    if value is None and default is not None:
        return default
    if type(value) is not int or value < 1 or not INT32.holds(value):
        raise BackboneError(f"{name} must be a positive integer {INT32.text}, got {value!r}")
    return value


def read_number(raw: Mapping[str, Any], name: str, default: float | None = None) -> float:
    """An entry that is a number, not negative; otherwise as `read_size`."""
    value: Any = raw[name] if default is None else raw.get(name)
    if value is None and default is not None:
        return default
    if type(value) not in (int, float) or not NOT_NEGATIVE.holds(value):
        raise BackboneError(f"{name} must be a number {NOT_NEGATIVE.text}, got {value!r}")
    return float(value)


def _flag(raw: Mapping[str, Any], name: str) -> bool:
    value = raw.get(name)
    if value is not None and not isinstance(value, bool):
        raise BackboneError(f"{name} must be true or false, got {value!r}")
    return bool(value)
