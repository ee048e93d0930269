"""Speed of LaGO's scoring pass on rollouts of CLEVR-Robot's Real level under random actions.

`python -m benchmarks.prior_scoring`: beside the matrix products of the same forward alone (the
floor), the machine's peak, and an agent loop that reads the whole prefix again at every step.

Useful tokens are the state and action tokens of the rollout's steps and each distinct text once.
Computed tokens count the padding of texts and the carried prefixes of open episodes, too; waste is
computed / useful. "With texts" the distinct texts of the rollout are encoded in the measured time;
a run encodes all texts once and then pays for the scoring only.
"""

import concurrent.futures
import dataclasses
import functools
import multiprocessing
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from benchmarks import common, floor
from benchmarks.peers.naive_scoring import naive_score
from benchmarks.priors import HORIZON, History, untrained_prior
from jaxrl_guided.backbones import attention
from jaxrl_guided.backbones.decoder import Prefix
from jaxrl_guided.backbones.lora import merge_lora
from jaxrl_guided.backbones.tokenizer import Tokenizer
from jaxrl_guided.envs import make
from jaxrl_guided.envs.clevr.instructions import instruction_set
from jaxrl_guided.envs.clevr.table import NUM_ACTIONS
from jaxrl_guided.lago.artifact import TEXT_CHUNK, BackboneChoice, freeze
from jaxrl_guided.lago.guidance import GuidanceConfig
from jaxrl_guided.lago.prior import Prior, PriorSpec, encode_texts
from jaxrl_guided.lago.scoring import (
    OpenEpisodes,
    layout,
    no_open_episodes,
    rows_per_chunk,
    score,
)
from jaxrl_guided.runtime import versions

NAME = "prior_scoring"
FLOOR_GOAL = 0.85
WASTE_GOAL = 1.3
NAIVE_ENVS, NAIVE_STEPS = 8, 8

_BACKBONE = flags.DEFINE_string(
    "backbone", "smollm2-135m-instruct", "Name or directory, as `backbones.load` takes it."
)

Rollout = tuple[jax.Array, jax.Array, jax.Array, jax.Array]
"""`(state, action, instruction, done)`, `[T, N, …]`."""

Visited = tuple[OpenEpisodes | None, Rollout]
"""The episodes that were running, and the rollout."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One rollout."""

    history: History
    num_envs: int
    steps: int

    def __str__(self) -> str:
        return f"history {self.history}, {self.num_envs} × {self.steps} steps"


@dataclasses.dataclass(frozen=True)
class Plan:
    """What one process measures; `layers` of the backbone are kept."""

    backbone: str
    layers: int | None
    cases: tuple[Case, ...]
    repeats: int


FULL_CASES = (
    Case("none", 64, 128),
    Case("episode", 32, 128),
    Case("episode", 32, 256),
)
QUICK_CASES = (Case("none", 16, 64), Case("episode", 8, 64))


def random_rollouts(case: Case) -> tuple[Rollout, Rollout]:
    """Two rollouts in a row under random actions; the second starts within running episodes."""
    env = make("clevr/real", num_envs=case.num_envs, horizon=HORIZON)

    def step(carry: Any, key: jax.Array) -> tuple[Any, Rollout]:
        state, obs = carry
        action = jax.random.randint(key, (case.num_envs,), 0, NUM_ACTIONS)
        state, result = env.step(state, action)
        return (state, result.obs), (obs["state"], action, obs["instruction"], result.done)

    start_key, keys = jax.random.key(0), jax.random.split(jax.random.key(1), 2 * case.steps)
    rows = jax.jit(lambda start: jax.lax.scan(step, start, keys)[1])(env.reset(start_key))
    split = case.steps
    return jax.tree.map(lambda x: x[:split], rows), jax.tree.map(lambda x: x[split:], rows)


@dataclasses.dataclass(frozen=True)
class Subject:
    """A prior with merged adapters, and its two kinds of text input."""

    spec: PriorSpec
    prior: Prior
    tokenizer: Tokenizer

    @classmethod
    def build(cls, backbone: str, layers: int | None) -> "Subject":
        """New heads and adapters on a backbone: speed does not depend on their training."""
        spec, prior, tokenizer = untrained_prior(BackboneChoice(backbone, layers))
        base = merge_lora(prior.base, prior.adapters, spec.lora.scale)
        return cls(spec, dataclasses.replace(prior, base=base, adapters={}), tokenizer)


@dataclasses.dataclass(frozen=True)
class Counts:
    """Tokens of one scored rollout.

    Attributes:
      steps: of states and actions.
      texts: of the distinct texts, each once.
      scored: computed by the scoring pass.
      encoded: computed for the distinct texts.
    """

    steps: int
    texts: int
    scored: int
    encoded: int

    @property
    def waste(self) -> float:
        """Computed / useful, texts included."""
        return (self.scored + self.encoded) / (self.steps + self.texts)


def score_shapes(spec: PriorSpec, case: Case, text_size: int, chunk_tokens: int) -> floor.Shapes:
    """The products of `scoring.score`."""
    if spec.history == "none":
        rows = case.num_envs * case.steps
        tokens = rows_per_chunk(rows, 1, chunk_tokens)
        return floor.Shapes(-(-rows // tokens), tokens, (floor.Attention(tokens, 1, text_size),))
    steps = spec.horizon + case.steps
    per_chunk = rows_per_chunk(case.num_envs, 2 * steps, chunk_tokens)
    block, reach = attention.block_sizes(2 * spec.horizon)
    if reach >= 2 * steps:
        block = reach = 2 * steps
    own = floor.Attention(per_chunk * -(-2 * steps // block), block, reach)
    text = floor.Attention(per_chunk * steps, 2, text_size)
    return floor.Shapes(-(-case.num_envs // per_chunk), per_chunk * 2 * steps, (own, text))


def text_shapes(texts: int, size: int) -> floor.Shapes:
    """The products of `encode_texts`."""
    own = floor.Attention(TEXT_CHUNK, size, size)
    return floor.Shapes(-(-texts // TEXT_CHUNK), TEXT_CHUNK * size, (own,))


def measure(
    subject: Subject, case: Case, table: Prefix, plan: Plan, machine: str
) -> list[common.Row]:
    """All rows of a case.

    Args:
      table: every text of Real, encoded.
      machine: what it runs on, for the table.
    """
    spec = dataclasses.replace(subject.spec, history=case.history)
    warm, rollout = random_rollouts(case)
    open_ = no_open_episodes(spec, case.num_envs)
    if open_ is not None:
        _, open_ = layout(open_, *warm)
    names = [instruction_set("real").texts[i] for i in np.unique(rollout[2])]
    tokens, length = subject.tokenizer.encode(names)
    text_size, chunk = table.keys.shape[2], GuidanceConfig().chunk_tokens
    shapes = score_shapes(spec, case, text_size, chunk), text_shapes(*tokens.shape)
    counts = Counts(
        steps=case.num_envs * case.steps * spec.tokens_per_step,
        texts=int(length.sum()),
        scored=shapes[0].chunks * shapes[0].tokens,
        encoded=shapes[1].chunks * shapes[1].tokens,
    )
    times = common.measure_interleaved(
        _candidates(subject, spec, (open_, rollout), table, (tokens, length), shapes, chunk),
        plan.repeats,
    )
    return _rows(f"{case}, {machine}", spec, case, counts, shapes, times)


def _candidates(
    subject: Subject,
    spec: PriorSpec,
    visited: Visited,
    table: Prefix,
    texts: tuple[np.ndarray, np.ndarray],
    shapes: tuple[floor.Shapes, floor.Shapes],
    chunk_tokens: int,
) -> dict[str, Callable[[], Any]]:
    """What is timed: `encode` and `score` with their `floor`s, the `peak`, the `naive` loop."""
    prior, (open_, rollout) = subject.prior, visited
    layers = {k: v for k, v in prior.base.items() if k not in ("embed", "lm_head")}
    frozen = dataclasses.replace(prior, base=layers)
    score_all = jax.jit(functools.partial(score, spec, chunk_tokens=chunk_tokens))
    encode = jax.jit(functools.partial(encode_texts, spec, chunk=TEXT_CHUNK))
    square = jnp.ones((floor.PEAK_SIZE, floor.PEAK_SIZE))
    score_operands, text_operands = (floor.operands(spec.backbone, s) for s in shapes)
    few, all_texts = naive_part(visited), subject.tokenizer.encode(instruction_set("real").texts)
    return {
        "score": lambda: score_all(frozen, table, open_, rollout)[0],
        "score floor": lambda: floor.run_products(shapes[0].chunks, score_operands),
        "encode": lambda: encode(prior, *texts),
        "encode floor": lambda: floor.run_products(shapes[1].chunks, text_operands),
        "peak": lambda: floor.peak(square, square),
        "naive": lambda: naive_score(spec, prior, *all_texts, *few),
    }


def naive_part(visited: Visited) -> Visited:
    """The first steps of the first environments, for the naive loop."""
    open_, rollout = jax.tree.map(np.asarray, visited)
    return (
        jax.tree.map(lambda x: x[:NAIVE_ENVS], open_),
        jax.tree.map(lambda x: x[:NAIVE_STEPS, :NAIVE_ENVS], rollout),
    )


def _rows(
    title: str,
    spec: PriorSpec,
    case: Case,
    counts: Counts,
    shapes: tuple[floor.Shapes, floor.Shapes],
    times: dict[str, common.Timing],
) -> list[common.Row]:
    seconds = {name: timing.median for name, timing in times.items()}
    ours, least = (seconds[f"score{of}"] + seconds[f"encode{of}"] for of in ("", " floor"))
    useful, steps = counts.steps + counts.texts, case.num_envs * case.steps
    naive_steps = min(NAIVE_ENVS, case.num_envs) * min(NAIVE_STEPS, case.steps)
    naive = naive_steps / seconds["naive"]
    work = sum(floor.operations(spec.backbone, part) for part in shapes)
    peak = floor.PEAK_OPERATIONS / seconds["peak"]

    def row(metric: str, value: float, uses: tuple[str, ...] = (), **more: Any) -> common.Row:
        noisiest = max((times[name] for name in uses), key=lambda time: time.spread, default=None)
        void = noisiest.note if noisiest else ""
        if void:
            more["met"] = None
        note = "; ".join(filter(None, [more.pop("note", ""), void]))
        unit = "1/s" if "per second" in metric else "1"
        return common.Row(title, metric, unit, value, note=note, **more)

    mine = ("score", "encode")
    floors = ("score floor", "encode floor")
    return [
        row(
            "useful tokens per second",
            useful / ours,
            mine + floors,
            peers={"products alone": useful / least},
            goal=f"≥ {FLOOR_GOAL} of the products alone",
            met=least / ours >= FLOOR_GOAL,
            note=f"{least / ours:.2f} of the products alone",
        ),
        row(
            "speed relative to a 2048³ product",
            work / ours / peak,
            (*mine, "peak"),
            peers={"products alone": work / least / peak},
        ),
        row(
            "steps per second",
            steps / ours,
            (*mine, "naive"),
            peers={"naive": naive},
            note=f"{steps / ours / naive:.1f} × naive",
        ),
        row(
            "steps per second, texts encoded before",
            steps / seconds["score"],
            ("score", "score floor"),
            peers={"products alone": steps / seconds["score floor"]},
            note=f"{seconds['score floor'] / seconds['score']:.2f} of the products alone",
        ),
        row(
            "computed / useful tokens",
            counts.waste,
            goal=f"≤ {WASTE_GOAL}",
            met=counts.waste <= WASTE_GOAL,
        ),
    ]


def measure_plan(plan: Plan, one_core: bool) -> list[common.Row]:
    """Measures all cases, in a process of its own: cores are fixed when JAX starts."""
    if one_core:
        common.pin_to_core()
    cores = len(versions.cores())
    subject = Subject.build(plan.backbone, plan.layers)
    texts = instruction_set("real").texts
    table = freeze(subject.spec, subject.prior, subject.tokenizer, texts).texts
    machine = "one core" if cores == 1 else f"{cores} cores"
    return [row for case in plan.cases for row in measure(subject, case, table, plan, machine)]


def run() -> None:
    """Measures, prints and writes."""
    common.check_only()
    plan = Plan(_BACKBONE.value, 8, FULL_CASES, repeats=5)
    if common.QUICK.value:
        plan = Plan(_BACKBONE.value, 2, QUICK_CASES, repeats=3)
    rows = []
    context = multiprocessing.get_context("spawn")
    for one_core in (True, False) if len(versions.cores()) > 1 else (True,):
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
            rows += pool.submit(measure_plan, plan, one_core).result()
    common.write_results(NAME, rows, common.results_path(NAME))


if __name__ == "__main__":
    common.main(run)
