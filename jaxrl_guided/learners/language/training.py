"""Rounds of a run of a language model on a text task: imitation, then play and learning."""

import time
from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import Mesh

from jaxrl_guided.backbones.params import Params
from jaxrl_guided.backbones.sampler import Sampler
from jaxrl_guided.backbones.sharding import shardings
from jaxrl_guided.backbones.turns import Rules
from jaxrl_guided.learners.language.advantages import batch_advantages, group_advantages
from jaxrl_guided.learners.language.batches import Sample
from jaxrl_guided.learners.language.hand_over import HandOver
from jaxrl_guided.learners.language.learner import (
    LanguageLearner,
    LanguageState,
    init_language,
    restart,
)
from jaxrl_guided.learners.language.preparation import LanguageJob
from jaxrl_guided.learners.language.rollouts import Episode, Rollouts, Start, Watch, outcomes_of
from jaxrl_guided.learners.language.run_config import ImproveConfig

_BATCHES, _EPISODES, _SHUFFLES = range(3)
"""What numbers of a run are drawn for."""


class LanguageRun:
    """A prepared run: programs, slots and tasks. A round is a function of its number and state.

    Args:
      job: what is run.
      mesh: of `sharding.make_model_mesh`, among whose devices weights, micro-batches and slots are
        divided; None: one device.

    Raises:
      ValueError: micro-batches or slots do not divide.
    """

    def __init__(self, job: LanguageJob, mesh: Mesh | None = None) -> None:
        config, backbone = job.config, job.backbone
        self.job = job
        self.imitation, self.gradients = config.learners(backbone.config)
        base: Params | None = backbone.params if config.finetune == "lora" else None
        if base is not None and mesh is not None:  # once, for all who read it
            base = jax.device_put(base, shardings(mesh, backbone.config, base))
        self._imitate = LanguageLearner(self.imitation, base, mesh)
        self._improve = LanguageLearner(self.gradients, base, mesh)
        self._hand_over = HandOver(self.gradients, base, mesh=mesh)
        rules = Rules(
            backbone.config,
            size=config.max_length - 1,  # what was drawn last is never read
            max_tokens=config.max_tokens,
            stop_ids=job.chat.stop_ids,
            lora_scale=self.gradients.lora_scale,
            compute_dtype=self.gradients.compute_dtype,
        )
        rows, dtype = config.slots or config.improve.episodes, self.gradients.compute_dtype
        sampler = Sampler(rules, rows, cache_dtype=dtype, mesh=mesh)
        self._source = job.make_source()
        self._rollouts = Rollouts(sampler, job.chat, backbone.tokenizer, self._source.make)

    @property
    def rounds(self) -> int:
        """Updates of the warm-up and steps of the policy gradients."""
        return self.job.config.warm_up.updates + self.job.config.improve.steps

    def init(self) -> LanguageState:
        """The start."""
        config = self.job.config
        base, key = self.job.backbone.params, jax.random.key(config.seed)
        return self._imitate.place(init_language(self.imitation, base, key))

    def round(
        self, number: int, state: LanguageState, watch: Watch | None = None
    ) -> tuple[LanguageState, dict[str, float]]:
        """Round `number` of `rounds`; the state's optimizer is donated.

        Args:
          watch: see `Rollouts.play`; what it raises leaves the state as it was.
        """
        warm = self.job.config.warm_up.updates
        if number < warm:
            return self._imitate.update(state, self._demonstrations(number))
        if number == warm:
            state = self._improve.place(restart(self.gradients, state))
        return self._play_and_learn(number, state, watch)

    def judge(self, state: LanguageState, watch: Watch | None = None) -> dict[str, list[Episode]]:
        """The episodes for evaluation: `success`, sampled, and `success_greedy`."""
        config = self.job.config
        seeds = self.job.seeds.judged[: config.judge.episodes]
        weights, version = self._hand_over(state)
        found = {}
        for name, heat in (("success", config.improve.temperature), ("success_greedy", 0.0)):
            starts = [Start(seed, draws=seed, temperature=heat) for seed in seeds]
            found[name] = self._rollouts.play(starts, weights, version, watch)
        return found

    def close(self) -> None:
        """Closes the tasks."""
        self._rollouts.close()
        self._source.close()

    def _random(self, number: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.job.config.seed, number, purpose])

    def _demonstrations(self, number: int) -> list[Sample]:
        random, samples = self._random(number, _BATCHES), self.job.samples
        return [
            samples[i] for i in random.integers(len(samples), size=self.job.config.warm_up.batch)
        ]

    def _play_and_learn(
        self, number: int, state: LanguageState, watch: Watch | None
    ) -> tuple[LanguageState, dict[str, float]]:
        config = self.job.config.improve
        begun = time.perf_counter()
        episodes = self._rollouts.play(self._starts(number), *self._hand_over(state), watch)
        played = time.perf_counter()
        random = self._random(number, _SHUFFLES)
        samples, flat = samples_of(config, episodes, random)
        state, learned = self._improve.update(state, samples, config.minibatches)
        numbers = outcomes_of(episodes)._asdict() | learned
        numbers |= self.job.seeds.successes(episodes, "success")
        numbers["flat_groups"] = flat
        numbers["play_seconds"] = played - begun
        numbers["learn_seconds"] = time.perf_counter() - played
        return state, numbers

    def _starts(self, number: int) -> list[Start]:
        config = self.job.config.improve
        chosen = self.job.seeds.draw(self._random(number, _EPISODES), config.instances)
        first = (self.job.config.seed << 64) + (number << 32)
        return [
            Start(
                chosen[group],
                draws=first + group * config.rollouts + rollout,
                temperature=config.temperature,
                group=group,
            )
            for group in range(config.instances)
            for rollout in range(config.rollouts)
        ]


def samples_of(
    config: ImproveConfig,
    episodes: Sequence[Episode],
    random: np.random.Generator,
    split: bool = True,
) -> tuple[list[Sample], float]:
    """Episodes with their advantages, and the share of groups that teach nothing.

    Args:
      random: for `shuffle_rewards`.
      split: a group's parts are groups of their own (split-group GRPO, arXiv 2603.17621 §3).
    """
    rewards = np.array([episode.total_reward for episode in episodes], np.float32)
    halves = np.array([(episode.start.group, episode.start.part) for episode in episodes])
    groups = np.unique(halves, axis=0, return_inverse=True)[1] if split else halves[:, 0]
    if config.shuffle_rewards:
        rewards = random.permutation(rewards)
    advantages, flat = group_advantages(rewards, groups, config.norm)
    if config.compare != "group":
        advantages = batch_advantages(rewards) if config.compare == "batch" else rewards
    samples = [
        Sample(
            episode.tokens,
            episode.spoken,
            episode.log_probs,
            float(advantage),
            episode.start.temperature,
            episode.start.part,
        )
        for episode, advantage in zip(episodes, advantages, strict=True)
    ]
    return samples, flat
