"""Policy-gradient updates of a language model, as pure functions and one host loop around them.

A batch is cut into micro-batches by length. Their gradients add up to that of the batch exactly,
because each token's weight in the batch's loss is known before (`advantages.token_weights`).
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from jax.sharding import Mesh

from jaxrl_guided.backbones import sharding
from jaxrl_guided.backbones.config import BackboneConfig
from jaxrl_guided.backbones.log_probs import Scores, score_tokens
from jaxrl_guided.backbones.lora import LoraConfig, init_lora
from jaxrl_guided.backbones.params import Params
from jaxrl_guided.learners.language.advantages import AGGREGATIONS, Aggregation, token_weights
from jaxrl_guided.learners.language.batches import MicroBatch, Sample, micro_batches
from jaxrl_guided.learners.language.objectives import (
    CISPOConfig,
    GRPOConfig,
    Metrics,
    Objective,
    token_losses,
)
from jaxrl_guided.runtime.ranges import COUNT, NOT_NEGATIVE, POSITIVE, check, check_choice

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class LanguageLearnerConfig:
    """How a language model is trained.

    Attributes:
      backbone: shape of the decoder.
      objective: loss of a token.
      lora: adapters that are trained on a base that stays; None trains all weights.
      aggregation: how tokens' losses make one number.
      fixed_length: divides the sum over a sequence's tokens under `aggregation="fixed_length"`.
      learning_rate: constant.
      weight_decay: of AdamW.
      max_grad_norm: global norm to which gradients are cut.
      micro_batch: rows whose activations are in memory at a time.
      lengths: ascending numbers of tokens for which programs are compiled.
      remat: compute activations again in the backward pass.
      compute_dtype: of matrix products; weights, gradients and moments keep their own.

    Raises:
      ValueError: a number is out of range, a KL penalty has no reference (it needs adapters), or
        CISPO's tokens are not all of one weight, as its loss has them.
    """

    backbone: BackboneConfig
    objective: Objective = dataclasses.field(default_factory=GRPOConfig)
    lora: LoraConfig | None = None
    aggregation: Aggregation = "seq_mean_token_mean"
    fixed_length: int = 0
    learning_rate: float = 1e-6
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    micro_batch: int = 4
    lengths: tuple[int, ...] = (128, 256, 512, 1024, 2048)
    remat: bool = True
    compute_dtype: jax.typing.DTypeLike = jnp.float32

    def __post_init__(self) -> None:
        check_choice(self, "aggregation", AGGREGATIONS)
        if (self.aggregation == "fixed_length") != (self.fixed_length > 0):
            raise ValueError(
                "fixed_length must be positive with aggregation fixed_length and 0 otherwise, got "
                f"{self.fixed_length} with {self.aggregation}"
            )
        check(self, POSITIVE, "learning_rate", "max_grad_norm")
        check(self, NOT_NEGATIVE, "weight_decay")
        check(self, COUNT, "micro_batch")
        if not self.lengths or min(self.lengths) < 2 or list(self.lengths) != sorted(self.lengths):
            raise ValueError(f"lengths must be ascending numbers from 2 on, got {self.lengths}")
        if isinstance(self.objective, CISPOConfig) and self.aggregation != "token_mean":
            raise ValueError(
                f"aggregation must be token_mean with CISPO, not {self.aggregation}: its loss is a "
                "mean over the tokens of the batch"
            )
        if self.has_reference and self.lora is None:
            raise ValueError("kl_weight needs lora: the reference is the base without adapters")

    @property
    def has_reference(self) -> bool:
        """The loss compares with the base without adapters."""
        return isinstance(self.objective, GRPOConfig) and self.objective.kl_weight > 0

    @property
    def lora_scale(self) -> float:
        """α / r."""
        return 1.0 if self.lora is None else self.lora.scale


@struct.dataclass
class LanguageState:
    """What an update changes.

    Attributes:
      trained: adapters, or all weights. Never donated: a sampler may go on reading them, and they
        are free when it takes newer ones.
      optimizer: its state; donated.
      step: `i32`, optimiser steps so far: the version of the weights.
    """

    trained: Params
    optimizer: optax.OptState
    step: jax.Array


@struct.dataclass
class Gradient:
    """Sums over micro-batches."""

    trained: Params
    metrics: Metrics


def init_language(config: LanguageLearnerConfig, base: Params, key: jax.Array) -> LanguageState:
    """New adapters on `base`, or `base` itself."""
    trained = base if config.lora is None else init_lora(config.backbone, config.lora, key)
    return LanguageState(trained, _optimizer(config).init(trained), jnp.zeros((), jnp.int32))


def restart(config: LanguageLearnerConfig, state: LanguageState) -> LanguageState:
    """The same weights with an optimizer that knows nothing yet; the version goes on."""
    return LanguageState(state.trained, _optimizer(config).init(state.trained), state.step)


def score(
    config: LanguageLearnerConfig, base: Params | None, trained: Params | None, batch: MicroBatch
) -> Scores:
    """Scores what was spoken; `trained=None` with adapters is the reference."""
    params, lora = (trained, None) if config.lora is None else (base, trained)
    assert params is not None
    return score_tokens(
        config.backbone,
        params,
        batch.tokens,
        batch.spoken,
        batch.temperature,
        lora=lora,
        lora_scale=config.lora_scale,
        remat=config.remat,
        compute_dtype=config.compute_dtype,
    )


def score_log_probs(
    config: LanguageLearnerConfig, base: Params | None, trained: Params | None, batch: MicroBatch
) -> jax.Array:
    """Log-probabilities of `score`; compiled by itself, no entropy is computed."""
    return score(config, base, trained, batch).log_prob


def gradient_of(
    config: LanguageLearnerConfig, base: Params | None, trained: Params, batch: MicroBatch
) -> Gradient:
    """What a micro-batch adds to the gradient of its batch."""

    def loss_of(trained: Params) -> tuple[jax.Array, Metrics]:
        scores = score(config, base, trained, batch)
        losses, metrics = token_losses(config.objective, scores.log_prob, batch)
        loss = (losses * batch.weight).sum()
        entropy = (scores.entropy * batch.weight).sum()
        return loss, {**metrics, "loss": loss, "entropy": entropy}

    return Gradient(*jax.grad(loss_of, has_aux=True)(trained))


def apply_gradient(
    config: LanguageLearnerConfig,
    gradient: Gradient,
    optimizer: optax.OptState,
    trained: Params,
    step: jax.Array,
) -> tuple[LanguageState, Metrics]:
    """One optimiser step. A gradient that is not finite changes nothing and is counted."""
    norm = optax.global_norm(gradient.trained)
    updates, moments = _optimizer(config).update(gradient.trained, optimizer, trained)
    stepped = LanguageState(optax.apply_updates(trained, updates), moments, step + 1)
    sound = jnp.isfinite(norm)
    before = LanguageState(trained, optimizer, step)
    kept = jax.tree.map(lambda new, old: jnp.where(sound, new, old), stepped, before)
    return kept, {**gradient.metrics, "grad_norm": norm, "skipped": (~sound).astype(jnp.float32)}


class LanguageLearner:
    """The host loop: programs for each length, compiled when first needed.

    Args:
      config: of the learner.
      base: weights that stay, under `config.lora`; None without. They are never donated.
      mesh: of `sharding.make_model_mesh`, among whose devices weights and the rows of micro-batches
        are divided; the result is that of one device but for the order of sums. States must lie on
        it (`place`). None: everything is where it is given.

    Raises:
      ValueError: `base` without adapters or adapters without it, or rows do not divide.
    """

    def __init__(
        self,
        config: LanguageLearnerConfig,
        base: Params | None = None,
        mesh: Mesh | None = None,
    ) -> None:
        if (base is None) != (config.lora is None):
            raise ValueError("base goes with lora: give both or neither")
        if mesh is not None and config.micro_batch % mesh.shape[sharding.FSDP]:
            raise ValueError(
                f"micro_batch must divide among the {mesh.shape[sharding.FSDP]} devices of fsdp, "
                f"got {config.micro_batch}"
            )
        self.config, self._mesh = config, mesh
        self._base = None if base is None else self.place(base)
        self._log_probs = jax.jit(score_log_probs, static_argnums=0)
        self._first = jax.jit(_gradient, static_argnums=(0, 1))
        self._add = jax.jit(_added, static_argnums=(0, 1), donate_argnums=5)
        self._apply = jax.jit(_apply, static_argnums=(0, 1), donate_argnums=(2, 3))

    def place(self, tree: T) -> T:
        """Puts weights, a state or anything with weights in it on the mesh."""
        if self._mesh is None:
            return tree
        return jax.device_put(tree, sharding.shardings(self._mesh, self.config.backbone, tree))

    def update(
        self, state: LanguageState, samples: Sequence[Sample], minibatches: int = 1
    ) -> tuple[LanguageState, dict[str, float]]:
        """Learns from a batch, once.

        Args:
          state: its optimizer is donated, its weights stay usable.
          samples: of the batch; at least one with a spoken token.
          minibatches: optimiser steps; each takes its share of the samples, in order.

        Returns:
          The state, and means of the metrics over the optimiser steps.

        Raises:
          ValueError: no token is spoken, a sample is too long, an id is not in the vocabulary, or
            there are more minibatches than samples.
        """
        self._check(samples, minibatches)
        parts = [list(part) for part in np.array_split(np.arange(len(samples)), minibatches)]
        batches = [
            self._scored([samples[i] for i in part], state, first=number == 0)
            for number, part in enumerate(parts)
        ]
        rows: list[Metrics] = []
        for batch in batches:
            static = self.config, self._mesh
            gradient = self._first(*static, self._base, state.trained, batch[0])
            for micro in batch[1:]:
                gradient = self._add(*static, self._base, state.trained, micro, gradient)
            state, metrics = self._apply(
                *static, gradient, state.optimizer, state.trained, state.step
            )
            rows.append(metrics)
        host: Any = jax.device_get(rows)
        return state, {name: float(np.mean([row[name] for row in host])) for name in host[0]}

    def _check(self, samples: Sequence[Sample], minibatches: int) -> None:
        if not any(np.any(sample.spoken) for sample in samples):
            raise ValueError("there is nothing to learn from: no sample has a spoken token")
        if not 0 < minibatches <= len(samples):
            raise ValueError(
                f"minibatches must be within 1 … {len(samples)} samples, got {minibatches}"
            )
        vocabulary = self.config.backbone.vocab_size
        for number, sample in enumerate(samples):
            if np.min(sample.tokens) < 0 or np.max(sample.tokens) >= vocabulary:
                raise ValueError(f"sample {number} has ids outside 0 … {vocabulary - 1}")

    def _scored(
        self, samples: Sequence[Sample], state: LanguageState, first: bool
    ) -> list[MicroBatch]:
        """Micro-batches with what is known before the batch's first optimiser step."""
        config, found = self.config, []
        weights = self._weights(samples)
        for micro in micro_batches(samples, weights, config.micro_batch, config.lengths):
            if self._mesh is not None:
                micro = jax.device_put(micro, sharding.of_rows(self._mesh))
            old = reference = None
            if isinstance(config.objective, GRPOConfig) and not first:
                old = self._log_probs(config, self._base, state.trained, micro)
            if config.has_reference:
                reference = self._log_probs(config, self._base, None, micro)
            found.append(dataclasses.replace(micro, old=old, reference=reference))
        return found

    def _weights(self, samples: Sequence[Sample]) -> list[np.ndarray]:
        width = max(len(sample.tokens) for sample in samples)
        spoken = np.zeros((len(samples), width), bool)
        for row, sample in enumerate(samples):
            spoken[row, : len(sample.tokens)] = sample.spoken
        parts = np.array([sample.part for sample in samples])
        weight = token_weights(spoken, parts, self.config.aggregation, self.config.fixed_length)
        return [row[: len(sample.tokens)] for row, sample in zip(weight, samples, strict=True)]


def _gradient(
    config: LanguageLearnerConfig,
    mesh: Mesh | None,
    base: Params | None,
    trained: Params,
    batch: MicroBatch,
) -> Gradient:
    return _pinned(config, mesh, gradient_of(config, base, trained, batch))


def _added(
    config: LanguageLearnerConfig,
    mesh: Mesh | None,
    base: Params | None,
    trained: Params,
    batch: MicroBatch,
    gradient: Gradient,
) -> Gradient:
    more = gradient_of(config, base, trained, batch)
    return _pinned(config, mesh, jax.tree.map(jnp.add, gradient, more))


def _apply(
    config: LanguageLearnerConfig,
    mesh: Mesh | None,
    gradient: Gradient,
    optimizer: optax.OptState,
    trained: Params,
    step: jax.Array,
) -> tuple[LanguageState, Metrics]:
    applied = apply_gradient(config, gradient, optimizer, trained, step)
    return _pinned(config, mesh, applied)


def _pinned(config: LanguageLearnerConfig, mesh: Mesh | None, tree: T) -> T:
    """Otherwise the compiler may choose other places, and the next call compiles again."""
    if mesh is None:
        return tree
    places = sharding.shardings(mesh, config.backbone, tree)
    return jax.lax.with_sharding_constraint(tree, places)


def _optimizer(config: LanguageLearnerConfig) -> optax.GradientTransformation:
    return optax.chain(
        optax.clip_by_global_norm(config.max_grad_norm),
        optax.adamw(config.learning_rate, weight_decay=config.weight_decay),
    )
