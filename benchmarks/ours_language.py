"""Our sampler and learner as contenders of `benchmarks.sampler` and `benchmarks.llm_train`.

Tasks are those of `peers/language_torch.py`; `form` of sampling is `slots`, or `again`, which reads
the whole conversation in each turn.
"""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.floor import Shapes, operands, run_products
from benchmarks.peers import protocol
from jaxrl_guided.backbones.config import BackboneConfig
from jaxrl_guided.backbones.lora import LoraConfig
from jaxrl_guided.backbones.params import init_params, linear_shapes, unstack
from jaxrl_guided.backbones.sampler import Request, Sampler
from jaxrl_guided.backbones.turns import Rules, Weights
from jaxrl_guided.learners.language.batches import Sample
from jaxrl_guided.learners.language.learner import (
    LanguageLearner,
    LanguageLearnerConfig,
    init_language,
)

_STREAM_BYTES = 1 << 29
"""Read to find the memory's bandwidth; far more than caches hold."""


class Answer(protocol.Contender):
    """Answers turn by turn."""

    def prepare(self) -> float | None:
        task = self.task
        self.backbone = BackboneConfig.from_hf(task["config"])
        params = init_params(self.backbone, 0)
        self.weights = jax.block_until_ready(
            Weights(jax.jit(unstack, static_argnums=1)(params, True))
        )
        size = task["turns"] * (task["new_tokens"] + task["answer_tokens"])
        rules = Rules(self.backbone, size=size, max_tokens=task["answer_tokens"])
        self.sampler = Sampler(rules, task["rows"])
        return protocol.timed(self.run, 0)[1]

    def run(self, seed: int) -> tuple[int, float]:
        task, random = self.task, np.random.default_rng(seed)
        rows, again = task["rows"], task["form"] == "again"
        told = [np.zeros(0, np.int32)] * rows
        start = time.perf_counter()
        for turn in range(task["turns"]):
            shape = (rows, task["new_tokens"])
            new = random.integers(3, self.backbone.vocab_size, shape, dtype=np.int32)
            if again:
                told = [np.concatenate(pair) for pair in zip(told, new, strict=True)]
            requests = {
                slot: Request(
                    told[slot] if again else new[slot],
                    seed=rows * (task["turns"] * seed + turn) + slot,
                    fresh=again or turn == 0,
                )
                for slot in range(rows)
            }
            done = self.sampler.answer(self.weights, requests)
            if again:
                told = [np.concatenate([told[slot], done[slot].tokens]) for slot in range(rows)]
        return rows * task["turns"] * task["answer_tokens"], time.perf_counter() - start

    def floor(self) -> dict[str, float]:
        """Seconds of the products of one more token in each row, and of reading all weights."""
        rows, width = self.task["rows"], self.backbone.hidden_size
        given = operands(self.backbone, Shapes(1, rows, ()))
        head = jnp.ones((width, self.backbone.vocab_size), jnp.float32)
        x = jnp.ones((rows, width), jnp.float32)
        last = jax.jit(lambda x, head: jnp.matmul(x, head, precision=jax.lax.Precision.HIGHEST))
        stream = jnp.ones(_STREAM_BYTES // 4, jnp.float32)
        total = jax.jit(jnp.sum)
        weights = sum(a * b for a, b in linear_shapes(self.backbone).values())
        weights = self.backbone.num_layers * weights + head.size
        return {
            "products_seconds": _best(run_products, 1, given) + _best(last, x, head),
            "bandwidth": _STREAM_BYTES / _best(total, stream),
            "weights_bytes": 4.0 * weights,
        }


def _best(function: Any, *arguments: Any, repeats: int = 5) -> float:
    """Least seconds of a call after the first."""
    jax.block_until_ready(function(*arguments))
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        seconds.append(time.perf_counter() - start)
    return min(seconds)


class Learn(protocol.Contender):
    """One GRPO step on adapters."""

    def prepare(self) -> float | None:
        task = self.task
        backbone = BackboneConfig.from_hf(task["config"])
        base = init_params(backbone, 0)
        config = LanguageLearnerConfig(
            backbone,
            lora=LoraConfig(task["rank"], 2.0 * task["rank"]),
            micro_batch=task["micro_batch"],
            lengths=(task["length"],),
            learning_rate=1e-5,
        )
        self.learner = LanguageLearner(config, base)
        self.state = init_language(config, base, jax.random.key(0))
        return protocol.timed(self.run, 0)[1]

    def run(self, seed: int) -> tuple[int, float]:
        task, random = self.task, np.random.default_rng(seed)
        length, vocabulary = task["length"], task["config"]["vocab_size"]
        samples = [
            Sample(
                random.integers(3, vocabulary, length, dtype=np.int32),
                np.arange(length) > 0,
                -random.random(length, np.float32),
                float(random.normal()),
            )
            for _ in range(task["rows"])
        ]
        start = time.perf_counter()
        for _ in range(task["steps"]):
            self.state, _ = self.learner.update(self.state, samples)
        jax.block_until_ready(self.state.trained)
        return task["steps"] * task["rows"] * length, time.perf_counter() - start


if __name__ == "__main__":
    protocol.serve(lambda task: {"sample": Answer, "train": Learn}[task["work"]](task))
