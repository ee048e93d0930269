"""Which backbone makes the better prior: pretrained or random, short or long, frozen, LoRA or full.

Every row of the table gets the same rows of data in the same order, as many updates, and as many
learning rates to choose from on held-out Real (LaGO, section 5 of the reference).
"""

import dataclasses
import functools
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl_guided.backbones.load import NANO
from jaxrl_guided.backbones.presets import PRESETS
from jaxrl_guided.envs.clevr.instructions import instruction_set
from jaxrl_guided.envs.dataset import Episodes
from jaxrl_guided.lago.artifact import BackboneChoice, freeze
from jaxrl_guided.lago.config import OnlineConfig, PriorConfig
from jaxrl_guided.lago.following import instruction_following
from jaxrl_guided.lago.judge import judge_prior, judge_random
from jaxrl_guided.lago.offline import load_data, load_trained, train_prior
from jaxrl_guided.lago.presets import FULL
from jaxrl_guided.lago.prior import Finetune
from jaxrl_guided.lago.sft import SFTConfig
from jaxrl_guided.lago.sources import Sources, hash_sources, record_sources
from jaxrl_guided.learners.evaluate import EvaluationConfig
from jaxrl_guided.runtime import cells, files, rundir
from jaxrl_guided.runtime.config import from_dict, to_dict
from jaxrl_guided.runtime.errors import validation
from jaxrl_guided.runtime.files import PathLike
from jaxrl_guided.runtime.metrics import read_metrics
from jaxrl_guided.runtime.ranges import COUNT, check, check_choice
from jaxrl_guided.runtime.rundir import RunDir
from jaxrl_guided.runtime.signals import StopFlag, Stopped, catch_signals

LEVELS = ("real-heldout", "rephrase", "easy")
"""Where priors act: sentences that choosing may see, and two levels that it may not."""

FOLLOWED = ("real-heldout", "rephrase")
"""Levels whose texts have twins with the opposite direction."""

PRIOR = "prior"
"""Directory of the fine-tuned prior within its run."""

_SFT = SFTConfig(
    max_updates=256,
    batch_rows=16,
    row_steps=32,
    eval_every=128,
    eval_rows=64,
    patience=256,  # no early stop, so that all see equally many tokens; the best is kept
)
_FROM_SCRATCH = dataclasses.replace(_SFT, backbone_lr=3e-4)
"""Random weights trained in full start from a higher rate than pretrained ones."""


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of the table: what it is called and the prior that it trains."""

    title: str
    prior: PriorConfig


def _row(
    title: str, name: str, layers: int | None, finetune: Finetune, random_weights: bool = False
) -> Row:
    sft = _FROM_SCRATCH if random_weights else _SFT
    choice = BackboneChoice(name, layers, random_weights)
    return Row(title, PriorConfig(choice, FULL.prior.history, finetune, FULL.prior.lora, sft))


_SMOLLM2 = "smollm2-135m-instruct"
ROWS = {
    "nano-full": _row("nano (random), full", "nano", None, "full", True),
    "smollm2-8-frozen": _row("SmolLM2-135M, 8 layers, frozen", _SMOLLM2, 8, "frozen"),
    "smollm2-8-lora": _row("SmolLM2-135M, 8 layers, LoRA", _SMOLLM2, 8, "lora"),
    "smollm2-8-full": _row("SmolLM2-135M, 8 layers, full", _SMOLLM2, 8, "full"),
    "smollm2-30-lora": _row("SmolLM2-135M, 30 layers, LoRA", _SMOLLM2, None, "lora"),
    "random-8-lora": _row("random weights, 8 layers, LoRA", _SMOLLM2, 8, "lora", True),
    "random-8-full": _row("random weights, 8 layers, full", _SMOLLM2, 8, "full", True),
}
SEEDS = (0, 1, 2)


@dataclasses.dataclass(frozen=True)
class BackboneCell:
    """One row with one seed.

    Attributes:
      row: one of `ROWS`.
      prior: what is trained; `sft.seed` is the seed of weights and batches.
      rates: factors on the learning rates; the best on held-out Real after `trial_updates` is used.
      trial_updates: updates of each trial.
      env: environment family.
      episodes: of each evaluation; the same ones in every cell.
      states: first states of held-out episodes on which instruction following is asked.
    """

    row: str
    prior: PriorConfig
    rates: tuple[float, ...] = (1.0, 3.0, 10.0)
    trial_updates: int = 32
    env: str = "clevr"
    episodes: int = 500
    states: int = 1000

    def __post_init__(self) -> None:
        check_choice(self, "row", ROWS)
        if not self.rates or min(self.rates) <= 0:
            raise ValueError(f"rates must be positive factors, not {self.rates}")
        check(self, COUNT, "trial_updates", "episodes", "states")

    @property
    def seed(self) -> int:
        """Of weights and batches."""
        return self.prior.sft.seed


def backbone_cells() -> dict[str, BackboneCell]:
    """All cells by id, as `smollm2-8-lora-0`."""
    return {
        f"{name}-{seed}": BackboneCell(name, _with_sft(row.prior, seed=seed))
        for seed in SEEDS
        for name, row in ROWS.items()
    }


def _with_sft(config: PriorConfig, **changes: Any) -> PriorConfig:
    return dataclasses.replace(config, sft=dataclasses.replace(config.sft, **changes))


def cell_identity(config: BackboneCell, sources: Sources) -> dict[str, Any]:
    """What decides a cell's result."""
    return {"config": to_dict(config), "data": sources.data}


def run_backbone(
    config: BackboneCell, data: PathLike, run_dir: PathLike | None, out: PathLike | None = None
) -> dict[str, Any]:
    """Chooses a learning rate, fine-tunes, and evaluates; each part is kept once it is done.

    The weights are removed at the end: what counts is the numbers.

    Args:
      data: Real's dataset directory.
      run_dir: of this cell; None makes a new one.
      out: the result's JSON file; None writes the summary only.

    Returns:
      JSON data: `config`, `data` (hash of the dataset), `rate`, `trials` (held-out nll by rate,
      None if it diverged), `updates`, `steps` (environment steps seen), `held_out` {step, nll,
      accuracy} and `levels`, success and following by level.

    Raises:
      UserError: bad input, found before anything is written.
      Stopped: by a signal; the same call goes on.
    """
    if out is not None:
        files.check_new(out, "result")
    episodes = load_data(data, config.env)
    with validation():
        config.prior.check_backbone()
    identity = cell_identity(config, hash_sources(None, data))
    with (
        rundir.open_run(run_dir, f"backbone-{config.row}", identity) as run,
        catch_signals() as stop,
    ):
        try:
            record = {**identity, **_measure(config, episodes, run, stop)}
        except Stopped:  # named by the cell, not by the part that was at work
            raise Stopped(f"the same command goes on with --run_dir={run.path}") from None
        run.write_summary(record, result_text(record))
        if out is not None:
            cells.write_result(out, identity, record)
        shutil.rmtree(_work(run), ignore_errors=True)
    return record


def result_text(record: Mapping[str, Any]) -> str:
    """A cell's numbers for people."""
    title, held_out = ROWS[record["config"]["row"]].title, record["held_out"]
    shown = f"nll {held_out['nll']:.3f}, accuracy {100 * held_out['accuracy']:.1f} %"
    lines = [f"# {title}", "", f"- held-out Real: {shown}, learning rates x {record['rate']}"]
    for level, numbers in record["levels"].items():
        percent = ", ".join(f"{name} {100 * value:.1f} %" for name, value in numbers.items())
        lines.append(f"- {level}: {percent}")
    return "\n".join(lines) + "\n"


def _work(run: RunDir) -> Path:
    return Path(run.path) / "work"


def _once(run: RunDir, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """`make()`, or what it gave to an earlier process in the same run directory."""
    path = Path(run.path) / f"{name}.json"
    if not path.exists():
        files.write_json(path, make())
    found: dict[str, Any] = files.read_json(path)
    return found


def _measure(
    config: BackboneCell, episodes: Episodes, run: RunDir, stop: StopFlag
) -> dict[str, Any]:
    """The numbers of a cell, each part by `_once`."""
    fine_tune = functools.partial(_fine_tune, config.prior, episodes, stop)
    trials = {}
    for rate in config.rates:
        name = f"trial-{rate}"
        trial = functools.partial(_trial, fine_tune, _work(run) / name, rate, config.trial_updates)
        trials[rate] = _once(run, name, trial)["nll"]
        shutil.rmtree(_work(run) / name, ignore_errors=True)  # of a trial, the numbers count
    finished = {rate: nll for rate, nll in trials.items() if nll is not None}
    if not finished:
        raise FloatingPointError(f"{config.row}: fine-tuning diverged at all rates {config.rates}")
    rate = min(finished, key=lambda rate: finished[rate])
    sft, tuned = config.prior.sft, _work(run) / "tuned"
    held_out = _once(run, "held_out", lambda: fine_tune(tuned, rate, sft.max_updates))
    levels = {}
    for level in LEVELS:
        if stop.requested:
            raise Stopped
        judge = functools.partial(_judge, config, episodes, tuned / PRIOR, level)
        levels[level] = _once(run, f"level-{level}", judge)
    return {
        "rate": rate,
        "trials": {str(rate): nll for rate, nll in trials.items()},
        "updates": sft.max_updates,
        "steps": sft.max_updates * sft.batch_rows * sft.row_steps,
        "held_out": held_out,
        "levels": levels,
    }


def _fine_tune(
    config: PriorConfig, episodes: Episodes, stop: StopFlag, work: Path, rate: float, updates: int
) -> dict[str, Any]:
    """Trains the prior `work/prior`; its step, nll and accuracy on held-out Real."""
    sft = config.sft
    rates = {"lr": rate * sft.lr, "backbone_lr": rate * sft.backbone_lr}
    config = _with_sft(config, max_updates=updates, **rates)
    if not (work / PRIOR).exists():
        with rundir.open_run(work, "prior", config) as run:
            train_prior(config, episodes, run, work / PRIOR, stop)
    best = min(read_metrics(work), key=lambda row: row["held_out_nll"])
    return {
        "step": best["step"],
        "nll": best["held_out_nll"],
        "accuracy": best["held_out_accuracy"],
    }


def _trial(
    fine_tune: Callable[[Path, float, int], dict[str, Any]], work: Path, rate: float, updates: int
) -> dict[str, Any]:
    """A short fine-tuning; nll None if it diverged."""
    try:
        return fine_tune(work, rate, updates)
    except FloatingPointError:
        return {"nll": None}


def _judge(config: BackboneCell, episodes: Episodes, prior: Path, level: str) -> dict[str, Any]:
    """Success of the prior as controller and of random actions, and instruction following."""
    trained = load_trained(prior, config.env)
    instructions = instruction_set(level)
    online = OnlineConfig(
        env=config.env,
        level=level,
        arm="prior",
        seeds=(config.seed,),
        horizon=episodes.metadata["horizon"],
        eval=EvaluationConfig(episodes=config.episodes),
    )
    frozen = freeze(trained.spec, trained.prior, trained.tokenizer, instructions.texts)
    acted = judge_prior(online, trained.spec, frozen, level)
    found = {
        "success": acted["success"][0],
        "sampled_success": acted["sampled_success"][0],
        "random_success": judge_random(online, level)["success"][0],
    }
    if level in FOLLOWED:
        held_out = instruction_set(episodes.metadata["level"]).held_out[episodes.instruction]
        scenes = episodes.starts[held_out][: config.states]
        states = np.asarray(episodes.observations)[scenes]
        following = instruction_following(trained.spec, frozen, instructions, states)
        found["following"] = following
    return found


_FLOP_PER_MINUTE = 60 * 100e9
"""What one core does in matrix products of these shapes, roughly."""

_TEXT_TOKENS = 22
_EVALUATED_TEXTS = sum(len(instruction_set(level)) for level in LEVELS)


def make_cells(wanted: Mapping[str, BackboneCell], sources: Sources) -> list[cells.Cell]:
    """All cells of the grid; with the dataset they decide which results are theirs."""
    return [cells.Cell(name, cell_identity(cell, sources)) for name, cell in wanted.items()]


def estimate_minutes(cell: cells.Cell) -> float:
    """Expected minutes on one core, from the matrix products of the backbone's layers."""
    config = from_dict(BackboneCell, cell.config["config"])
    prior, sft = config.prior, config.prior.sft
    shape = NANO if prior.backbone.name == "nano" else PRESETS["smollm2_135m"]
    heads = 2 * (shape.num_heads + shape.num_kv_heads) * shape.head_dim
    layer = shape.hidden_size * (heads + 3 * shape.intermediate_size)
    weights = layer * (prior.backbone.num_layers or shape.num_layers)
    per_step = 2 if prior.history == "episode" else 1

    row = _TEXT_TOKENS + per_step * sft.row_steps
    updates = sft.max_updates + len(config.rates) * config.trial_updates
    passes = 3 if prior.finetune == "full" else 2  # forward, to inputs, to weights
    trained = passes * updates * sft.batch_rows * row
    checks = sft.max_updates / sft.eval_every + len(config.rates)
    checked = checks * sft.eval_rows * row
    acted = 2 * 2 * config.episodes * FULL.online.horizon * per_step  # Easy takes one step
    read = _EVALUATED_TEXTS * _TEXT_TOKENS
    return 2 + 2 * weights * (trained + checked + acted + read) / _FLOP_PER_MINUTE


def run_in_processes(
    wanted: Mapping[str, BackboneCell],
    data: PathLike,
    work: PathLike,
    results: PathLike,
    program: Sequence[str],
    **options: Any,
) -> cells.GridReport:
    """Runs the unfinished cells, each in a process on one core.

    Args:
      data: Real's dataset directory.
      work: directory for the cells' run directories.
      results: directory for their JSON files.
      program: command line of the script that runs a cell.
      **options: `cores`, `only`, `max_minutes` of `cells.run_grid`.

    Raises:
      UserError: a bad option, or finished cells are of another configuration or dataset.
    """
    listed = record_sources(functools.partial(make_cells, wanted), None, data, results)
    options["estimate_minutes"] = estimate_minutes
    return cells.run_scripts(listed, wanted, {"data": data}, program, work, results, **options)
