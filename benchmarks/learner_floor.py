"""What no learner beats: its environment alone, and the matrix products of its networks alone.

Products only: no activations, losses, optimisers, random numbers or copies.
"""

import itertools
import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_guided.envs.types import PyTree, VectorEnv
from jaxrl_guided.learners.evaluate import uniform_action

Product = tuple[int, int, int]
"""`[m, k] @ [k, n]` as (m, k, n)."""

REPEATS = 3
_ENVIRONMENT_STEPS = 20_000
_OPERATIONS = 2e8


def forward(sizes: Sequence[int], rows: int) -> Counter[Product]:
    """Products of a pass through layers of these sizes."""
    return Counter((rows, k, n) for k, n in itertools.pairwise(sizes))


def weight_grads(sizes: Sequence[int], rows: int) -> Counter[Product]:
    """Products that give the gradients of the weights."""
    return Counter((k, rows, n) for k, n in itertools.pairwise(sizes))


def input_grads(sizes: Sequence[int], rows: int, of_input: bool = False) -> Counter[Product]:
    """Products that give the gradients of what enters each layer, the first only if wanted."""
    pairs = list(itertools.pairwise(sizes))
    return Counter((rows, n, k) for k, n in (pairs if of_input else pairs[1:]))


def times(products: Counter[Product], count: int) -> Counter[Product]:
    """All of them `count` times."""
    return Counter({shape: count * number for shape, number in products.items()})


def ppo_products(inputs: int, outputs: int, task: dict[str, Any]) -> Counter[Product]:
    """Products of one iteration: a rollout, and epochs over it."""
    envs, steps, hidden = task["num_envs"], task["rollout_steps"], task["hidden"]
    rows = envs * steps // task["minibatches"]
    total: Counter[Product] = Counter()
    for sizes in ((inputs, *hidden, outputs), (inputs, *hidden, 1)):
        total += times(forward(sizes, envs), steps)
        learn = forward(sizes, rows) + weight_grads(sizes, rows) + input_grads(sizes, rows)
        total += times(learn, task["epochs"] * task["minibatches"])
    return total


def sac_products(inputs: int, size: int, task: dict[str, Any]) -> Counter[Product]:
    """Products of one step in each environment and an update for each, two critics."""
    rows, hidden = task["batch"], task["hidden"]
    actor, critic = (inputs, *hidden, 2 * size), (inputs + size, *hidden, 1)
    target = forward(actor, rows) + times(forward(critic, rows), 2)
    critics = times(
        forward(critic, rows) + weight_grads(critic, rows) + input_grads(critic, rows), 2
    )
    through = forward(critic, rows) + input_grads(critic, rows, of_input=True)
    policy = forward(actor, rows) + weight_grads(actor, rows) + input_grads(actor, rows)
    update = target + critics + policy + times(through, 2)
    return forward(actor, task["num_envs"]) + times(update, task["num_envs"])


def products_seconds(products: Counter[Product]) -> float:
    """Seconds for all of them, each shape timed for itself."""
    return sum(count * _product_seconds(*shape) for shape, count in products.items())


def _product_seconds(m: int, k: int, n: int) -> float:
    rng = np.random.default_rng(0)
    left, right = (jnp.asarray(rng.random(s, np.float32) / k) for s in ((m, k), (k, n)))
    calls = max(10, math.ceil(_OPERATIONS / (2 * m * k * n)))

    def body(_: jax.Array, left: jax.Array) -> jax.Array:
        # One number of each product enters the next one: none is left out.
        return left.at[0, 0].set((left @ right)[0, 0])

    run = jax.jit(lambda left: jax.lax.fori_loop(0, calls, body, left))
    return _median_seconds(run, left) / calls


def environment_seconds(env: VectorEnv) -> float:
    """Seconds of one step of one of the environments, random actions drawn before."""
    steps = max(16, _ENVIRONMENT_STEPS // env.num_envs)
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), steps)
    actions = jax.jit(jax.vmap(lambda key: uniform_action(env, key)))(keys)

    def body(state: PyTree, action: jax.Array) -> tuple[PyTree, jax.Array]:
        state, after = env.step(state, action)
        used = [leaf.sum(dtype=jnp.float32) for leaf in jax.tree.leaves((after.obs, after.reward))]
        return state, sum(used, jnp.float32(0))

    run = jax.jit(lambda state: jax.lax.scan(body, state, actions))
    return _median_seconds(run, state) / (steps * env.num_envs)


def _median_seconds(run: Any, argument: Any) -> float:
    jax.block_until_ready(run(argument))
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(run(argument))
        seconds.append(time.perf_counter() - start)
    return sorted(seconds)[REPEATS // 2]
