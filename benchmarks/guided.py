"""Environment steps per second of PPO on CLEVR-Robot, alone and guided by a nano prior.

Part of `benchmarks.ppo`: whole iterations (rollout, scoring, epochs) on one core, compiled before.
The prior is not trained: it shows what guidance costs, not what it gains. The success of the
training episodes in the last measurement stands beside each speed.
"""

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import common
from benchmarks.priors import HORIZON, History, untrained_prior
from jaxrl_guided.envs.clevr.instructions import instruction_set
from jaxrl_guided.lago.artifact import BackboneChoice, freeze
from jaxrl_guided.lago.config import OnlineConfig
from jaxrl_guided.lago.guidance import FrozenPrior, GuidanceConfig, make_guidance
from jaxrl_guided.lago.judge import level_env, make_network
from jaxrl_guided.learners.guidance import Guidance
from jaxrl_guided.learners.ppo import PPOConfig, make_ppo
from jaxrl_guided.learners.train import make_chunk, summarise

GOAL = 0.5
LEVEL = "real"
NANO = BackboneChoice("nano", num_layers=2)


@dataclasses.dataclass(frozen=True)
class Case:
    """A size of PPO and how much of it is run.

    Attributes:
      num_envs, rollout_steps: of one iteration.
      histories: of the priors; each makes a guided arm.
      iterations: in one measurement.
      repeats: measurements, after one that is not timed.
    """

    num_envs: int
    rollout_steps: int
    histories: tuple[History, ...]
    iterations: int
    repeats: int

    @property
    def name(self) -> str:
        return f"clevr/{LEVEL}, {self.num_envs} environments"

    @property
    def steps(self) -> int:
        """Environment steps of one measurement."""
        return self.num_envs * self.rollout_steps * self.iterations


FULL_CASES = (Case(64, 128, ("none", "episode"), 12, 5), Case(256, 128, ("none",), 3, 5))
QUICK_CASES = (Case(64, 128, ("none",), 1, 3),)


def nano_guidance(history: History) -> tuple[Guidance, FrozenPrior]:
    """The hook and its frozen prior."""
    spec, prior, tokenizer = untrained_prior(NANO, history)
    frozen = freeze(spec, prior, tokenizer, instruction_set(LEVEL).texts)
    return make_guidance(spec, GuidanceConfig()), frozen


class Arm:
    """PPO whose state goes on from call to call.

    Attributes:
      compile_seconds: tracing and compilation of the measured program.
      summary: metrics of the last call.
    """

    def __init__(self, case: Case, history: History | None) -> None:
        online = OnlineConfig(level=LEVEL, features="hashed", horizon=HORIZON)
        config = PPOConfig(
            total_steps=case.steps * (1 + case.repeats),
            num_envs=case.num_envs,
            rollout_steps=case.rollout_steps,
        )
        guidance: Guidance | None = None
        self._frozen: FrozenPrior | None = None
        if history is not None:
            guidance, self._frozen = nano_guidance(history)
        env = level_env(online, LEVEL, case.num_envs)
        ppo = make_ppo(env, make_network(online, LEVEL, env), config, guidance)
        self._state = jax.jit(ppo.init)(jax.random.key(0))
        self._count = jnp.int32(case.iterations)
        chunk = jax.jit(make_chunk(ppo.iterate, case.iterations).run, donate_argnums=0)
        start = time.perf_counter()
        self._run = chunk.lower(self._state, self._frozen, self._count).compile()
        self.compile_seconds = time.perf_counter() - start
        self.summary: dict[str, Any] = {}

    def __call__(self) -> jax.Array:
        """One measurement's iterations."""
        self._state, metrics = self._run(self._state, self._frozen, self._count)
        self.summary = summarise({name: np.asarray(rows) for name, rows in metrics.items()})
        return self._state.iteration


def measure(case: Case) -> list[common.Row]:
    """A row for each arm, guided ones beside PPO alone."""
    arms = {"PPO": Arm(case, None)}
    arms |= {
        f"guided by an untrained nano prior, history {history}": Arm(case, history)
        for history in case.histories
    }
    times = common.measure_interleaved(arms, case.repeats)
    speed = {name: case.steps / timing.median for name, timing in times.items()}
    rows = []
    for name, arm in arms.items():
        guided = name != "PPO"
        success = (
            f"training success {arm.summary['success']:.2f}" if "success" in arm.summary else ""
        )
        notes = [success, f"compiled in {arm.compile_seconds:.1f} s", times[name].note]
        valid = times[name].valid and times["PPO"].valid
        rows.append(
            common.Row(
                case=f"{case.name}, {name}, one core",
                metric="environment steps per second",
                unit="1/s",
                ours=speed[name],
                peers={"PPO alone": speed["PPO"]} if guided else {},
                goal=f"≥ {GOAL} of PPO alone" if guided else "",
                met=speed[name] >= GOAL * speed["PPO"] if guided and valid else None,
                note="; ".join(filter(None, notes)),
            )
        )
    return rows


def cases() -> tuple[Case, ...]:
    """All that there are, those of a quick run after `--quick`."""
    return QUICK_CASES if common.QUICK.value else FULL_CASES


def rows() -> list[common.Row]:
    """Measures those cases that `--only` leaves over."""
    return [row for case in cases() if common.fits(case.name) for row in measure(case)]
