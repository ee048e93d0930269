"""The offline stages as the scripts share them: collect Real's expert data, fine-tune the prior."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.sharding import Mesh

from jaxrl_guided.envs import dataset
from jaxrl_guided.envs.dataset import Episodes
from jaxrl_guided.lago.actions import from_map, recorded_map
from jaxrl_guided.lago.artifact import (
    PriorCard,
    TrainedPrior,
    load_prior,
    new_prior,
    save_prior,
)
from jaxrl_guided.lago.config import DataConfig, PriorConfig
from jaxrl_guided.lago.families import family_of
from jaxrl_guided.lago.prior import PyTree, merge_trainable
from jaxrl_guided.lago.sft import SFT, Rows, SFTState, make_sft, pack_rows
from jaxrl_guided.runtime.checkpoint import Checkpointer, content_hash
from jaxrl_guided.runtime.config import to_dict
from jaxrl_guided.runtime.errors import UserError, validation
from jaxrl_guided.runtime.files import PathLike
from jaxrl_guided.runtime.mesh import in_host_memory
from jaxrl_guided.runtime.metrics import MetricsWriter
from jaxrl_guided.runtime.progress import ProgressBar
from jaxrl_guided.runtime.rundir import RunDir
from jaxrl_guided.runtime.signals import StopFlag, Stopped

_CONSTANT, _NO_WEIGHT = 1e-5, 1e6
"""Deviation below which a number of a state counts as constant, and what stands for it."""

LEARNED_LEVEL = "real"
"""The one level of which anything is learned offline; the others test generalisation."""


def collect_data(config: DataConfig, horizon: int, path: PathLike, family: str) -> Episodes:
    """Collects the scripted expert's rollouts into the new dataset directory `path`.

    Args:
      family: of environments.
    """
    with ProgressBar("collect", config.episodes, unit="episodes") as bar:

        def progress(done: int, total: int) -> None:
            del total
            bar.update(done)

        episodes = family_of(family).collect(
            config.level,
            config.episodes,
            config.seed,
            horizon=horizon,
            random_fraction=config.random_fraction,
            progress=progress,
        )
    episodes.save(path)
    return episodes


def load_data(path: PathLike, env: str | None = None) -> Episodes:
    """Reads what priors and cloned policies learn from.

    Args:
      env: family of environments that it must be of; None for any that has instructions.

    Raises:
      UserError: missing, damaged, of another environment or level, or without expert steps.
    """
    with validation():
        episodes = dataset.load(path, env)
        family_of(str(episodes.metadata.get("env")))
    check_learned_level(episodes.metadata.get("level"), f"dataset {path}")
    _check_contents(episodes, f"dataset {path}")
    return episodes


def _check_contents(episodes: Episodes, where: str) -> None:
    """Raises UserError, which says `where`, for values that nothing can be learned from."""
    meta, states = episodes.metadata, episodes.observations
    if not isinstance(meta.get("horizon"), int):
        raise UserError(f"{where} has no whole number metadata.horizon")
    try:
        actions = from_map(meta.get("action_map"))
    except ValueError as error:
        raise UserError(f"{where} has no usable metadata.action_map: {error}") from None
    if not (isinstance(states, np.ndarray) and states.dtype.kind == "f" and states.ndim == 2):
        raise UserError(f"{where} must have observations f32[M, d]")
    if not actions.contains(episodes.actions):
        raise UserError(f"{where} has actions out of {actions.range}")
    texts = family_of(meta["env"]).instructions(LEARNED_LEVEL).texts
    for name, values, most in (
        ("instruction", episodes.instruction, len(texts) - 1),
        ("lengths", episodes.lengths, meta["horizon"]),
    ):
        if np.min(values) < 0 or np.max(values) > most:
            raise UserError(f"{where} has {name} out of 0 … {most}")
    if not np.isfinite(states).all():
        raise UserError(f"{where} has observations that are not finite")
    if not episodes.is_expert.any():
        raise UserError(f"{where} holds no step of the expert, so that nothing can be learned")


def check_learned_level(level: str | None, where: str) -> None:
    """Raises UserError, which says `where`, for any other level than Real."""
    if level != LEARNED_LEVEL:
        raise UserError(
            f"{where} is of level '{level}', but priors and cloned policies learn from level "
            f"'{LEARNED_LEVEL}' alone"
        )


def load_trained(path: PathLike, env: str) -> TrainedPrior:
    """A saved prior with its backbone, for the actions of the environment family `env`."""
    card, prior, tokenizer = load_prior(path, dict(family_of(env).action_map))
    return TrainedPrior(card.spec, prior, tokenizer, card.training["expert_steps"])


@struct.dataclass
class _Progress:
    """What a checkpoint of fine-tuning holds."""

    state: SFTState
    best: PyTree
    best_nll: jax.Array
    stale: jax.Array


def train_prior(
    config: PriorConfig,
    episodes: Episodes,
    run: RunDir,
    path: PathLike,
    stop: StopFlag,
    mesh: Mesh | None = None,
) -> PriorCard:
    """Fine-tunes a prior with early stopping on held-out Real and saves the best at `path`.

    Args:
      mesh: see `make_sft`.

    Raises:
      UserError: `path` exists, the episodes are not of Real, or `run` has begun with others.
      Stopped: asked to stop; the same call goes on from the last checkpoint.
    """
    if Path(path).exists():
        raise UserError(f"prior directory {path} exists; choose another or remove it")
    check_learned_level(episodes.metadata["level"], "the dataset")
    learned = family_of(episodes.metadata["env"]).instructions(LEARNED_LEVEL)
    held_out = learned.held_out[episodes.instruction]
    states = np.asarray(episodes.observations)
    fields: dict[str, Any] = {
        "state_size": states.shape[-1],
        "horizon": episodes.metadata["horizon"],
        "history": config.history,
        "finetune": config.finetune,
        "lora": config.lora,
        "dtype": config.dtype,
    } | from_map(episodes.metadata["action_map"]).fields
    mean, std = _statistics(states[~np.repeat(held_out, episodes.lengths)])
    with in_host_memory():  # one device may not hold what all of a mesh can
        spec, prior, tokenizer, backbone_hash = new_prior(
            config.backbone, fields, mean, std, config.sft.seed
        )
    with validation():
        sft = make_sft(spec, config.sft, mesh)
        train_rows = pack_rows(episodes, config.sft.row_steps, ~held_out, config.history)
        eval_rows = pack_rows(episodes, config.sft.row_steps, held_out, config.history)
    eval_rows = _sample_rows(eval_rows, config.sft.eval_rows)
    tokens, length = (jnp.asarray(x) for x in tokenizer.encode(learned.texts))
    state, fixed = sft.init(prior)
    best = jax.tree.map(jnp.array, state.trainable)
    progress = _Progress(state, best, *sft.place((jnp.float32(jnp.inf), jnp.int32(0))))
    data = (fixed, *sft.place((train_rows, eval_rows, (tokens, length))))
    meta = {"data": content_hash(episodes.arrays())}
    with Checkpointer(run.checkpoints, config) as checkpoints:
        if checkpoints.latest_step():
            progress, found = checkpoints.restore(progress)
            if found.get("data", meta["data"]) != meta["data"]:
                raise UserError(f"--run_dir={run.path} has begun with another dataset")
        progress = _tune(config, sft, progress, data, run, checkpoints, meta, stop)
    card = PriorCard(
        choice=config.backbone,
        spec=spec,
        action_map=recorded_map(episodes.metadata["action_map"]),
        backbone_hash=backbone_hash,
        seed=config.sft.seed,
        training={
            "config": to_dict(config),
            "episodes": episodes.num_episodes,
            "expert_steps": int(np.sum(episodes.is_expert)),
            "updates": int(progress.state.step),
            "held_out_nll": float(progress.best_nll),
        },
    )
    save_prior(path, card, merge_trainable(progress.best, fixed))
    return card


def _statistics(states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of each number; one that never varies is given no weight.

    Otherwise what the data has never shown, as a distractor of Meta-World, would be all that the
    prior sees.
    """
    # Summed in float32, a million times the same number would seem to vary.
    mean, std = states.mean(0, dtype=np.float64), states.std(0, dtype=np.float64)
    std = np.where(std < _CONSTANT, _NO_WEIGHT, std)
    return mean.astype(np.float32), std.astype(np.float32)


def _sample_rows(rows: Rows, most: int) -> Rows:
    """At most `most` rows, equally spaced."""
    count = rows.counts.shape[0]
    chosen = np.linspace(0, count - 1, min(count, most)).astype(int)
    return jax.tree.map(lambda x: x[chosen], rows)


def _tune(
    config: PriorConfig,
    sft: SFT,
    progress: _Progress,
    data: tuple[PyTree, Rows, Rows, tuple[jax.Array, jax.Array]],
    run: RunDir,
    checkpoints: Checkpointer,
    meta: dict[str, str],
    stop: StopFlag,
) -> _Progress:
    """Updates and evaluations in turn until nothing improves; saves after each evaluation."""
    fixed, train_rows, eval_rows, texts = data
    limit, done = config.sft.max_updates, int(progress.state.step)
    name = f"fine-tune {config.backbone.name}"
    with (
        MetricsWriter(run.path, resume_step=done if done else -1) as metrics,
        ProgressBar(name, limit, done, unit="updates") as bar,
    ):
        while done < limit and int(progress.stale) < config.sft.patience:
            count = min(config.sft.eval_every, limit - done)
            state, train_metrics = sft.update(progress.state, fixed, train_rows, texts, n=count)
            done += count
            judged = sft.evaluate(state.trainable, fixed, eval_rows, texts)
            nll = float(judged["nll"])
            if not np.isfinite(nll):
                raise FloatingPointError(f"update {done}: held-out nll is {nll}")
            better = nll < float(progress.best_nll)
            progress = _Progress(
                state,
                jax.tree.map(jnp.array, state.trainable) if better else progress.best,
                jnp.float32(nll) if better else progress.best_nll,
                jnp.int32(0) if better else progress.stale + 1,
            )
            numbers = {f"train_{k}": float(v) for k, v in train_metrics.items()}
            numbers |= {f"held_out_{k}": float(v) for k, v in judged.items()}
            metrics.write(done, numbers)
            bar.update(done, **{k: numbers[k] for k in ("held_out_nll", "held_out_accuracy")})
            checkpoints.save(done, progress, meta)
            if stop.requested:
                raise Stopped(f"the same command goes on with --run_dir={run.path}")
    return progress
