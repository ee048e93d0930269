"""Small parts of learners by themselves, in microseconds, on one core.

`python -m benchmarks.micro`: each part runs many times within one program, every time with other
numbers, all of its results being used; a peer that does the same stands beside it.
"""

import dataclasses
import functools
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import rlax
from jax.experimental import io_callback

from benchmarks import common, floor
from jaxrl_guided.backbones import decoder
from jaxrl_guided.backbones.config import BackboneConfig
from jaxrl_guided.backbones.params import init_params
from jaxrl_guided.envs.types import PyTree
from jaxrl_guided.learners.gae import generalised_advantages
from jaxrl_guided.learners.replay import Steps, draw, init_replay, insert
from jaxrl_guided.learners.shuffle import shuffled
from jaxrl_guided.networks.distributions import TanhNormal
from jaxrl_guided.runtime.markdown import number

NAME = "micro"
OURS = "ours"
BATCH = 256
GAMMA, LAMBDA = 0.99, 0.95

# One layer of SmolLM2-135M.
LAYER = BackboneConfig(
    vocab_size=32,
    hidden_size=576,
    intermediate_size=1536,
    num_layers=1,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
)

Step = Callable[[PyTree, jax.Array, PyTree], PyTree]
"""`(fixed, count i32[], carry) -> carry`: the part, once."""

Made = tuple[PyTree, PyTree, Mapping[str, Step]]
"""What stays fixed, the carry at the start, and by name what is repeated; `ours` is one of them."""


@dataclasses.dataclass(frozen=True)
class Part:
    """Something to measure.

    Attributes:
      name: what `--only` is matched with.
      make: gives what is to be repeated.
      repeats: of ours within one program.
      peer_repeats: of the peers, where they take much longer.
    """

    name: str
    make: Callable[[], Made]
    repeats: int
    peer_repeats: int | None = None

    def repeats_of(self, name: str) -> int:
        """Of a candidate."""
        if common.QUICK.value:
            return 2
        return self.repeats if name == OURS else self.peer_repeats or self.repeats


def advantages(envs: int, steps: int = 128) -> Made:
    """Advantages of a rollout in which 1 % of the steps end an episode."""
    rng = np.random.default_rng(0)
    reward, value, final = jnp.asarray(rng.standard_normal((3, steps, envs), np.float32))
    terminated, truncated = jnp.asarray(rng.random((2, steps, envs)) < 0.01)
    last = value[0]

    def ours(_: PyTree, count: jax.Array, past: jax.Array) -> jax.Array:
        # What was found before enters a little: nothing is left out or done once for all.
        rewards = reward + 1e-9 * past
        return generalised_advantages(
            rewards, terminated, truncated, value, final, last, GAMMA, LAMBDA
        )

    def theirs(_: PyTree, count: jax.Array, past: jax.Array) -> jax.Array:
        cut = truncated & ~terminated
        rewards = reward + 1e-9 * past + jnp.where(cut, GAMMA * final, 0.0)
        discount = jnp.where(terminated | truncated, 0.0, GAMMA)
        values = jnp.concatenate([value, last[None]])
        estimate = jax.vmap(
            rlax.truncated_generalized_advantage_estimation, (1, 1, None, 1), out_axes=1
        )
        return estimate(rewards, discount, LAMBDA, values)

    return None, jnp.zeros_like(reward), {OURS: ours, "rlax": theirs}


def shuffle(length: int) -> Made:
    """A permutation of the steps of a rollout."""
    key = jax.random.key(0)

    def ours(_: PyTree, count: jax.Array, past: jax.Array) -> jax.Array:
        return past ^ shuffled(jax.random.fold_in(key, count), length)

    def theirs(_: PyTree, count: jax.Array, past: jax.Array) -> jax.Array:
        return past ^ jax.random.permutation(jax.random.fold_in(key, count), length)

    return None, jnp.zeros(length, jnp.int32), {OURS: ours, "jax.random.permutation": theirs}


def _chunk() -> Steps:
    """A step of Pendulum."""
    real, no = jnp.ones((1, 1)), jnp.zeros((1, 1), jnp.bool_)
    return Steps(jnp.ones((1, 1, 3)), real[..., None], real, no, no, jnp.ones((1, 1, 3)))


def insertion(capacity: int) -> Made:
    """A step into a replay."""
    chunk = _chunk()

    def ours(_: PyTree, count: jax.Array, replay: PyTree) -> PyTree:
        return insert(replay, dataclasses.replace(chunk, reward=chunk.reward + count))

    return None, init_replay(chunk, capacity), {OURS: ours}


def drawing(capacity: int) -> Made:
    """A batch from a full replay, and without replacement as other libraries draw."""
    empty = init_replay(_chunk(), capacity)
    replay = dataclasses.replace(empty, inserted=jnp.int32(capacity))
    key = jax.random.key(0)

    def total(batch: PyTree) -> jax.Array:
        return sum((leaf.sum(dtype=jnp.float32) for leaf in jax.tree.leaves(batch)), jnp.float32(0))

    def ours(replay: PyTree, count: jax.Array, past: jax.Array) -> jax.Array:
        batch = draw(replay, jax.random.fold_in(key, count), BATCH, GAMMA)
        return past + total(batch)

    def theirs(replay: PyTree, count: jax.Array, past: jax.Array) -> jax.Array:
        rows = jax.random.choice(jax.random.fold_in(key, count), capacity, (BATCH,), replace=False)
        return past + total(jax.tree.map(lambda leaf: leaf[rows], replay.steps))

    return replay, jnp.float32(0), {OURS: ours, "without replacement": theirs}


def log_probability(size: int = 6, rows: int = 8192) -> Made:
    """Density of a sampled squashed Gaussian action, and its gradient through the sample."""
    rng = np.random.default_rng(0)
    mean, noise = jnp.asarray(0.5 * rng.standard_normal((2, rows, size), np.float32))
    bounds = (-1.0,) * size, (1.0,) * size

    def ours(mean: jax.Array) -> jax.Array:
        return TanhNormal(mean, jnp.zeros(size), *bounds).log_prob(mean + noise).sum()

    def theirs(mean: jax.Array) -> jax.Array:
        import distrax

        normal = distrax.MultivariateNormalDiag(mean, jnp.ones_like(mean))
        raw = mean + noise
        slope = distrax.Block(distrax.Tanh(), 1).forward_log_det_jacobian(raw)
        return (normal.log_prob(raw) - slope).sum()

    def step(log_prob: Callable[[jax.Array], jax.Array]) -> Step:
        def act(_: PyTree, count: jax.Array, mean: jax.Array) -> jax.Array:
            value, grad = jax.value_and_grad(log_prob)(mean)
            return mean - (1e-6 + 1e-12 * value) * grad

        return act

    steps = {OURS: step(ours)}
    if importlib.util.find_spec("distrax"):
        steps["distrax"] = step(theirs)
    return None, mean, steps


def decoder_layer(rows: int = 8, tokens: int = 64) -> Made:
    """A layer of SmolLM2-135M over texts; beside it its matrix products alone."""
    params = init_params(LAYER, seed=0)
    place = jnp.broadcast_to(jnp.arange(tokens), (rows, tokens))
    attention = floor.Attention(rows, tokens, tokens)
    given = floor.operands(LAYER, floor.Shapes(1, rows * tokens, (attention,)))

    def ours(fixed: PyTree, _: jax.Array, carry: PyTree) -> PyTree:
        x, *others = carry
        return decoder.apply(LAYER, fixed[0], x, place)[0], *others

    def products(fixed: PyTree, _: jax.Array, carry: PyTree) -> PyTree:
        x, rest, queries, used = carry
        rest, queries, more = floor.run_products(1, fixed[1]._replace(x=rest, queries=queries))
        return x, rest, queries, used + more

    x = jax.random.normal(jax.random.key(0), (rows, tokens, LAYER.hidden_size))
    start = (x, given.x, given.queries, jnp.float32(0))
    return (params, given), start, {OURS: ours, "matrix products alone": products}


def round_trip(numbers: int = 64) -> Made:
    """A call of the host within a program and back, as a step of host environments makes it."""

    def add_one(x: jax.Array) -> np.ndarray:
        return np.asarray(x) + np.float32(1)

    shape = jax.ShapeDtypeStruct((numbers,), jnp.float32)

    def ours(_: PyTree, count: jax.Array, x: jax.Array) -> jax.Array:
        found: jax.Array = io_callback(add_one, shape, x, ordered=True)
        return found

    def theirs(_: PyTree, count: jax.Array, x: jax.Array) -> jax.Array:
        found: jax.Array = jax.pure_callback(add_one, shape, x)
        return found

    return None, jnp.zeros(numbers), {OURS: ours, "jax.pure_callback": theirs}


PARTS = (
    Part("GAE, 128 steps of 64 environments", lambda: advantages(64), 500),
    Part("GAE, 128 steps of 1024 environments", lambda: advantages(1024), 50),
    Part("shuffle of 8,192 steps", lambda: shuffle(8_192), 1_000, 10),
    Part("shuffle of 131,072 steps", lambda: shuffle(131_072), 100, 1),
    Part("replay of 4,096 steps: insert one", lambda: insertion(4_096), 200_000),
    Part("replay of 1,048,576 steps: insert one", lambda: insertion(1_048_576), 200_000),
    Part("replay of 4,096 steps: draw 256", lambda: drawing(4_096), 2_000, 50),
    Part("replay of 1,048,576 steps: draw 256", lambda: drawing(1_048_576), 2_000, 1),
    Part("tanh log-probability and gradient, 8,192 × 6", log_probability, 200),
    Part("decoder layer of 576 units, 8 texts of 64 tokens", decoder_layer, 10),
    Part("callback with 64 numbers, there and back", round_trip, 1_000),
)


def measure(part: Part) -> common.Row:
    """The part's row."""
    fixed, start, steps = part.make()

    def program(name: str, step: Step) -> Callable[[], Any]:
        # All numbers are arguments, so that nothing is computed when the program is compiled; the
        # carry goes on from call to call in its place, so that nothing is copied.
        def repeat(fixed: PyTree, carry: PyTree) -> PyTree:
            body = functools.partial(step, fixed)
            return jax.lax.fori_loop(0, part.repeats_of(name), body, carry)

        run = jax.jit(repeat, donate_argnums=1)
        carry = jax.tree.map(jnp.copy, start)

        def call() -> PyTree:
            nonlocal carry
            carry = run(fixed, carry)
            return carry

        return call

    calls = {name: program(name, step) for name, step in steps.items()}
    times = common.measure_interleaved(calls, 2 if common.QUICK.value else 5)
    scale = {name: 1e6 / part.repeats_of(name) for name in times}
    micro = {name: scale[name] * timing.median for name, timing in times.items()}
    notes = [
        f"{name} {number(scale[name] * timing.low)} to {number(scale[name] * timing.high)}"
        + ("" if timing.valid else f" ({timing.note})")
        for name, timing in times.items()
    ]
    return common.Row(
        case=part.name,
        metric="time",
        unit="µs",
        ours=micro.pop(OURS),
        peers=micro,
        note="; ".join(notes),
    )


def run() -> None:
    """Measures, prints and writes."""
    common.check_only([part.name for part in PARTS])
    common.pin_to_core()
    rows = [measure(part) for part in PARTS if common.fits(part.name)]
    common.write_results(NAME, rows, common.results_path(NAME))


if __name__ == "__main__":
    common.main(run)
