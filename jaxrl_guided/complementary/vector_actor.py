"""The second kind of actor: PPO in many environments, half of them with experience to look at.

A step is one iteration of PPO in one program, on a copy of the bank. Before it the copy is renewed;
after it, what was shown and how episodes ended is written down, and some episodes are told to the
extractor, which meanwhile has done a few tokens of its own work.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence

import jax
import numpy as np

from jaxrl_guided.complementary.bank import Bank, Event
from jaxrl_guided.complementary.credit import credit
from jaxrl_guided.complementary.dual import Background
from jaxrl_guided.complementary.embedded import Extended, excerpt
from jaxrl_guided.complementary.episode_book import Entered, EpisodeBook, Seen, Told
from jaxrl_guided.envs.text.telling import Teller
from jaxrl_guided.envs.types import TimeStep
from jaxrl_guided.learners.interaction import collect, witnessed
from jaxrl_guided.learners.ppo import PPO, PPOState
from jaxrl_guided.learners.train import check_finite, count_nonfinite, iteration_of, summarise


class VectorActor:
    """Steps of PPO with experience.

    Args:
      extended: environments with experience.
      ppo: on `extended.env`.
      bank: whose entries are shown, and in which that and outcomes are written down.
      teller: tells episodes to the extractor; None: none are told.
      background: the extractor's side; None: the bank gets no entries from here.
      told: environments of each half whose episodes are told.
      task: scope of what is asked and learned.
      clock: seconds.

    Raises:
      ValueError: a half has fewer environments than `told`.
    """

    def __init__(
        self,
        extended: Extended,
        ppo: PPO,
        bank: Bank,
        teller: Teller | None = None,
        background: Background | None = None,
        told: int = 1,
        task: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        guided, envs = extended.guided, extended.env.num_envs
        columns: list[int] = []
        if teller is not None and background is not None:
            if not 0 <= told <= min(guided, envs - guided):
                raise ValueError(
                    f"told must be between 0 and the environments of a half, {guided} guided and "
                    f"{envs - guided} free, not {told}"
                )
            columns = [*range(told), *range(guided, guided + told)]
        self._extended, self._ppo, self._bank = extended, ppo, bank
        self._background, self._task, self._clock = background, task, clock
        self._book = EpisodeBook(guided, bank.get, columns, teller, task)
        run = functools.partial(_iterate, extended, ppo, np.array(columns, int))
        self._run = jax.jit(run, donate_argnums=0)

    def init(self, key: jax.Array) -> PPOState:
        """The state at the start; what its episodes are shown is written down."""
        state = jax.jit(self._ppo.init)(key)
        self._bank.record(self._open(state))
        return state

    @property
    def numbers(self) -> Sequence[int]:
        """Numbers of the open episodes; for checkpoints, beside the state."""
        return self._book.numbers

    def resume(self, state: PPOState, numbers: Sequence[int]) -> None:
        """Goes on with a state that was saved with these numbers of its open episodes."""
        self._open(state, numbers)

    def step(self, state: PPOState) -> tuple[PPOState, dict[str, float]]:
        """One iteration; the state is donated.

        Returns:
          The state, and metrics: those of PPO, of the extractor's updates, `success_guided` and
          `success_free` of the halves in which episodes ended, and `retrievals`.

        Raises:
          FloatingPointError: see `train`.
          StorageError: the bank cannot be written.
        """
        number, now = iteration_of(state), self._clock()
        if self._background is not None:
            self._background.next_step(number)
            self._background.begin()
        state, rows, seen = self._run(self._renewed(state, number, now))
        rows = {name: np.asarray(leaf)[None] for name, leaf in rows.items()}
        check_finite(rows, number)
        entered = self._book.enter(jax.device_get(seen), now, number)
        metrics = {name: float(value) for name, value in summarise(rows).items()}
        metrics |= _outcomes(entered) | self._write_down(entered, number)
        return state, metrics

    def _open(self, state: PPOState, numbers: Sequence[int] = ()) -> Sequence[Event]:
        shown, lengths = jax.device_get((state.env_state.shown, state.episodes.length))
        return self._book.open(shown, lengths, self._clock(), iteration_of(state), numbers)

    def _renewed(self, state: PPOState, number: int, now: float) -> PPOState:
        """With the bank as it is now; vectors are sent again only where entries have changed."""
        old = state.env_state.bank
        bank = excerpt(
            self._extended.retrieval, self._bank, len(old.ids), now, number, self._task, old
        )
        env_state = dataclasses.replace(state.env_state, bank=bank)
        return dataclasses.replace(state, env_state=env_state)

    def _write_down(self, entered: Entered, number: int) -> dict[str, float]:
        self._bank.record(entered.retrieved)
        if self._background is None:
            credit(self._bank, None, entered.outcomes, number)
            return {}
        self._background.extractor.credit(entered.outcomes)
        metrics: dict[str, float] = {}
        for experience in entered.experiences:
            metrics |= self._background.add(experience)
        self._background.end_step()
        return metrics | self._background.finish()


def _iterate(
    extended: Extended, ppo: PPO, told: np.ndarray, state: PPOState
) -> tuple[PPOState, dict[str, jax.Array], Seen]:
    """PPO's iteration, and what the host is to know of its episodes."""

    def look(action: jax.Array, after: TimeStep) -> Seen:
        steps = Told((), action[told], after.reward[told])
        solved, found = after.info["solved"], after.info["found"]
        return Seen(after.terminated, after.truncated, solved, found, steps)

    state, rollout, seen = collect(extended.env, witnessed(ppo.interaction, look), state)
    state, metrics = ppo.update(state, rollout)
    metrics["nonfinite_params"] = count_nonfinite(state.trained)
    obs = jax.tree.map(lambda leaf: leaf[:, told], extended.plain(rollout.obs))
    return state, metrics, seen._replace(told=seen.told._replace(obs=obs))


def _outcomes(entered: Entered) -> dict[str, float]:
    success = np.array([outcome.success for outcome in entered.outcomes], float)
    guided = np.array([outcome.guided for outcome in entered.outcomes], bool)
    found = {"retrievals": float(len(entered.retrieved))}
    for name, half in (("guided", guided), ("free", ~guided)):
        if half.any():
            found[f"success_{name}"] = float(success[half].mean())
    return found
