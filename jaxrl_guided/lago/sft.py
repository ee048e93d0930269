"""Stage 1 of LaGO: supervised fine-tuning of the prior on expert trajectories.

Minimises the action NLL, -log pi_K(a_t | x, s_0 a_0 ... s_t), over expert steps, of
clipped raw actions where they are continuous (module `actions`). Episodes of one instruction are
packed into rows, so that a text is encoded once for many steps.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from jax.sharding import Mesh

from jaxrl_guided.backbones import sharding
from jaxrl_guided.envs.dataset import Episodes
from jaxrl_guided.lago.prior import (
    BATCHES,
    History,
    Prior,
    PriorSpec,
    PyTree,
    Steps,
    action_outputs,
    encode_texts,
    merge_trainable,
    seed_key,
    split_trainable,
)
from jaxrl_guided.runtime.ranges import COUNT, NOT_NEGATIVE, POSITIVE, PROPER_SHARE, check


@dataclasses.dataclass(frozen=True)
class SFTConfig:
    """Hyper-parameters of fine-tuning.

    Attributes:
      max_updates: optimiser steps at most.
      batch_rows, row_steps: rows in a batch, environment steps in a row.
      lr: peak rate of AdamW for projectors, head and adapters; linear warm-up, cosine to a tenth.
      backbone_lr: peak rate for the backbone's own weights (`finetune="full"`).
      warmup: share of the updates.
      weight_decay, max_grad_norm: as in AdamW, global norm.
      action_dropout: share of actions in the prefix that is hidden, against covariate shift.
      eval_every: updates between evaluations on held-out rows.
      eval_rows: held-out rows at most.
      patience: evaluations without improvement before stopping.
      remat: recompute activations in the backward pass, to save memory.
      seed: of initial weights and batches.
    """

    max_updates: int = 1000
    batch_rows: int = 16
    row_steps: int = 64
    lr: float = 1e-3
    backbone_lr: float = 1e-4
    warmup: float = 0.05
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    action_dropout: float = 0.1
    eval_every: int = 100
    eval_rows: int = 128
    patience: int = 5
    remat: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        counts = ("max_updates", "batch_rows", "row_steps", "eval_every", "eval_rows", "patience")
        check(self, COUNT, *counts, part="sft.")
        check(self, PROPER_SHARE, "warmup", "action_dropout", part="sft.")
        check(self, POSITIVE, "lr", "backbone_lr", "max_grad_norm", part="sft.")
        check(self, NOT_NEGATIVE, "weight_decay", "seed", part="sft.")


@struct.dataclass
class Rows:
    """Packed training data: `steps` with leading axis R and one group a row, and what counts.

    Attributes:
      steps: rows of T steps; `instruction` is `i32[R, 1]`.
      counts: `bool[R, T]`, expert steps, over which the loss is taken.
    """

    steps: Steps
    counts: jax.Array


def pack_rows(
    episodes: Episodes,
    row_steps: int,
    keep: np.ndarray | None = None,
    history: History = "episode",
) -> Rows:
    """Packs episodes of one instruction into rows of `row_steps` steps, first fit in order.

    Args:
      episodes: data with `observations` f32[M, S] (or a dictionary with `state`).
      row_steps: T.
      keep: `bool[E]`, which episodes to take; None takes all.
      history: `episode` keeps episodes together and cuts longer ones to their first T steps; for
        `none` each step is an episode of its own, so that rows are full and nothing is cut.
    """
    chosen = np.arange(len(episodes.lengths)) if keep is None else np.flatnonzero(keep)
    if not len(chosen):
        raise ValueError("no episodes to pack: the dataset is empty or nothing was kept")
    chosen = chosen[np.argsort(episodes.instruction[chosen], kind="stable")]
    starts, lengths = episodes.starts[chosen], episodes.lengths[chosen]
    texts = episodes.instruction[chosen]
    if history == "none":
        texts = np.repeat(texts, lengths)
        starts = np.repeat(starts, lengths) + _within(lengths)
        lengths = np.ones_like(starts)
    lengths = np.minimum(lengths, row_steps)
    row, offset, segment = _places(texts, lengths, row_steps)

    within = _within(lengths)
    source = np.repeat(starts, lengths) + within
    target = (np.repeat(row, lengths), np.repeat(offset, lengths) + within)
    observations = episodes.observations
    state = observations["state"] if isinstance(observations, dict) else observations

    def spread(values: np.ndarray) -> jax.Array:
        out = np.zeros((row[-1] + 1, row_steps, *values.shape[1:]), values.dtype)
        out[target] = values
        return jnp.asarray(out)

    instruction = np.zeros((row[-1] + 1, 1), np.int32)
    instruction[row, 0] = texts
    steps = Steps(
        state=spread(np.asarray(state[source], np.float32)),
        action=spread(np.asarray(episodes.actions[source])),
        position=spread(within),
        segment=spread(np.repeat(segment, lengths)),
        instruction=jnp.asarray(instruction),
    )
    return Rows(steps, spread(np.asarray(episodes.is_expert[source], bool)))


def _within(lengths: np.ndarray) -> np.ndarray:
    """Step numbers of episodes one behind another: 0, 1, … in each."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _places(
    instruction: np.ndarray, lengths: np.ndarray, row_steps: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, offset and segment of each episode; a new row for a new instruction or when full."""
    places = np.zeros((3, len(lengths)), np.int64)
    row, used, segment = -1, row_steps, 0
    previous = None
    for i, (name, length) in enumerate(zip(instruction.tolist(), lengths.tolist(), strict=True)):
        if name != previous or used + length > row_steps:
            row, used, segment = row + 1, 0, 0
        previous, segment = name, segment + 1
        places[:, i] = row, used, segment
        used += length
    return places[0], places[1], places[2]


@struct.dataclass
class SFTState:
    """Everything that fine-tuning needs to go on; a checkpoint of it resumes exactly."""

    trainable: PyTree
    opt_state: optax.OptState
    key: jax.Array
    step: jax.Array


@dataclasses.dataclass(frozen=True)
class SFT:
    """Pure functions of fine-tuning.

    Attributes:
      init: `prior -> (SFTState, fixed)`.
      update: `(state, fixed, rows, texts, n) -> (state, metrics)`, n jitted updates, state donated.
      evaluate: `(trainable, fixed, rows, texts) -> {"nll", "accuracy"}` over all rows; accuracy is
        the share of right modes, of continuous actions that of numbers within `actions.NEAR`.
      place: puts a pytree with a prior's weights on the mesh, and anything else on all of it.
    """

    init: Callable[[Prior], tuple[SFTState, PyTree]]
    update: Callable[..., tuple[SFTState, dict[str, jax.Array]]]
    evaluate: Callable[..., dict[str, jax.Array]]
    place: Callable[[PyTree], PyTree]


def make_sft(spec: PriorSpec, config: SFTConfig, mesh: Mesh | None = None) -> SFT:
    """Fine-tuning of a prior's trainable part; `texts` is `(tokens i32[I, P], length i32[I])`.

    Args:
      mesh: of `sharding.make_model_mesh`, among whose devices weights and the rows of updates are
        divided; the result is that of one device, the default, but for the order of sums. All that
        `update` and `evaluate` get must lie on it (`place`).

    Raises:
      ValueError: the rows of a batch do not divide among the devices.
    """
    mesh = mesh or sharding.make_model_mesh()
    check_rows(config, mesh)
    optimiser = make_optimiser(config)

    def place(tree: PyTree) -> PyTree:
        return jax.device_put(tree, sharding.shardings(mesh, spec.backbone, tree))

    def init(prior: Prior) -> tuple[SFTState, PyTree]:
        trainable, fixed = split_trainable(spec, prior)
        trainable = jax.tree.map(jnp.copy, place(trainable))  # own copy: updates donate it
        places = sharding.shardings(mesh, spec.backbone, jax.eval_shape(optimiser.init, trainable))
        moments = jax.jit(optimiser.init, out_shardings=places)(trainable)
        rest = place((seed_key(config.seed, BATCHES), jnp.int32(0)))
        return SFTState(trainable, moments, *rest), place(fixed)

    def one_update(
        state: SFTState, fixed: PyTree, rows: Rows, texts: tuple[jax.Array, jax.Array]
    ) -> tuple[SFTState, dict[str, jax.Array]]:
        key, row_key, drop_key = jax.random.split(state.key, 3)
        chosen = jax.random.randint(row_key, (config.batch_rows,), 0, rows.counts.shape[0])
        batch = jax.tree.map(lambda x: x[chosen], rows)
        batch = jax.lax.with_sharding_constraint(batch, sharding.of_rows(mesh))
        hidden = jax.random.bernoulli(drop_key, config.action_dropout, batch.counts.shape)

        def loss(trainable: PyTree) -> tuple[jax.Array, jax.Array]:
            prior = merge_trainable(trainable, fixed)
            nll, accuracy = _losses(spec, prior, batch, texts, hidden, config.remat)
            return nll, accuracy

        (nll, accuracy), grads = jax.value_and_grad(loss, has_aux=True)(state.trainable)
        updates, opt_state = optimiser.update(grads, state.opt_state, state.trainable)
        trainable = optax.apply_updates(state.trainable, updates)
        metrics = {"nll": nll, "accuracy": accuracy, "grad_norm": optax.global_norm(grads)}
        return SFTState(trainable, opt_state, key, state.step + 1), metrics

    def update(
        state: SFTState, fixed: PyTree, rows: Rows, texts: tuple[jax.Array, jax.Array], n: int
    ) -> tuple[SFTState, dict[str, jax.Array]]:
        state, metrics = jax.lax.scan(
            lambda state, _: one_update(state, fixed, rows, texts), state, length=n
        )
        # Otherwise the compiler may choose other places, and the next call compiles again.
        places = sharding.shardings(mesh, spec.backbone, state)
        state = jax.lax.with_sharding_constraint(state, places)
        return state, jax.tree.map(jnp.mean, metrics)

    def evaluate(
        trainable: PyTree, fixed: PyTree, rows: Rows, texts: tuple[jax.Array, jax.Array]
    ) -> dict[str, jax.Array]:
        prior = merge_trainable(trainable, fixed)

        def one_row(row: Rows) -> tuple[jax.Array, jax.Array, jax.Array]:
            batch = jax.tree.map(lambda x: x[None], row)
            shown = jnp.zeros_like(batch.counts)
            nll, accuracy = _losses(spec, prior, batch, texts, shown, remat=False)
            return nll, accuracy, row.counts.sum()

        nll, accuracy, count = jax.lax.map(one_row, rows, batch_size=config.batch_rows)
        total = jnp.maximum(count.sum(), 1)
        return {"nll": (nll * count).sum() / total, "accuracy": (accuracy * count).sum() / total}

    return SFT(
        init,
        jax.jit(update, static_argnames="n", donate_argnums=0),
        jax.jit(evaluate),
        place,
    )


def check_rows(config: SFTConfig, mesh: Mesh) -> None:
    """Raises ValueError unless the rows of a batch divide among the devices."""
    if config.batch_rows % (devices := mesh.shape[sharding.FSDP]):
        raise ValueError(
            f"sft.batch_rows must divide among the {devices} devices of --fsdp, "
            f"not {config.batch_rows}"
        )


def _losses(
    spec: PriorSpec,
    prior: Prior,
    rows: Rows,
    texts: tuple[jax.Array, jax.Array],
    hide: jax.Array,
    remat: bool,
) -> tuple[jax.Array, jax.Array]:
    """Mean NLL and accuracy over the steps that count; actions under `hide` are not shown."""
    actions, (tokens, length) = spec.actions, texts
    ids = rows.steps.instruction[:, 0]
    table = encode_texts(spec, prior, tokens[ids], length[ids], remat=remat)
    steps = dataclasses.replace(
        rows.steps,
        action=actions.hide(rows.steps.action, hide),
        instruction=jnp.arange(ids.shape[0], dtype=jnp.int32)[:, None],
    )
    policy = actions.distribution(action_outputs(spec, prior, table, steps, remat=remat))
    nll = actions.nll(policy, actions.raw(rows.steps.action))
    correct = actions.agreement(policy, rows.steps.action)
    total = jnp.maximum(rows.counts.sum(), 1)
    return (nll * rows.counts).sum() / total, (correct * rows.counts).sum() / total


def make_optimiser(config: SFTConfig) -> optax.GradientTransformation:
    """AdamW with one rate for new parts and one for pretrained weights; decay on matrices only."""
    peak = 1 + round(config.warmup * config.max_updates)
    end = 1 + max(peak, config.max_updates)

    def is_matrix(path: tuple[Any, ...], leaf: jax.Array) -> bool:
        name = path[-1].key  # the layers' vectors are stacked, so that their rank does not tell
        return leaf.ndim > 1 and name != "bias" and not name.endswith("norm")

    def adamw(lr: float) -> optax.GradientTransformation:
        schedule = optax.warmup_cosine_decay_schedule(0.0, lr, peak, end, lr / 10)
        return optax.adamw(
            lambda count: schedule(count + 1),  # the first update has a rate above zero
            weight_decay=config.weight_decay,
            mask=functools.partial(jax.tree.map_with_path, is_matrix),
        )

    def labels(params: PyTree) -> PyTree:
        return {
            name: jax.tree.map(lambda _, n=name: "backbone" if n == "base" else "new", part)
            for name, part in params.items()
        }

    return optax.chain(
        optax.clip_by_global_norm(config.max_grad_norm),
        optax.partition({"new": adamw(config.lr), "backbone": adamw(config.backbone_lr)}, labels),
    )
