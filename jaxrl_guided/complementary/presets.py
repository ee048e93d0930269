"""Named runs for `experiments.complementary`."""

import dataclasses
from collections.abc import Mapping

from jaxrl_guided.backbones.lora import LoraConfig
from jaxrl_guided.complementary.actor import ActorConfig
from jaxrl_guided.complementary.consolidation import MergeConfig
from jaxrl_guided.complementary.credit import CreditConfig
from jaxrl_guided.complementary.extractor import ExtractorConfig
from jaxrl_guided.complementary.retrieval import RetrievalConfig
from jaxrl_guided.complementary.run_config import ComplementaryConfig, ModelConfig
from jaxrl_guided.envs.text.source import parts_of
from jaxrl_guided.learners.language import presets
from jaxrl_guided.learners.language.run_config import JudgeConfig, ScratchConfig, WarmUpConfig

_SHAPE = ScratchConfig(
    hidden_size=64, intermediate_size=128, num_layers=2, num_heads=4, vocab_size=1500
)

_SMALL: Mapping[str, tuple[str, ...]] = {
    "minihack": ("compact=true", "max_turns=12"),
    "webshop": ("compact=true", "max_turns=7", "products=20", "page_size=2"),
    "alfworld": (
        "compact=true",
        "max_turns=10",
        "small=true",
        "rooms=1",
        "types=pick_and_place_simple",
    ),
    "sokoban": ("compact=true",),
}
"""Options of tasks for small models, by the beginning of their names."""

_SHORT = {**_SMALL, "minihack": ("compact=true", "max_turns=4")}
_PAPER: Mapping[str, tuple[str, ...]] = {"minihack": ("max_turns=30",)}


def _options(task: str, settings: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Those of a task, or of each task of a mix."""
    parts = parts_of(task, ())
    found = [(part, option) for part in parts for option in settings.get(part.family, ())]
    return tuple(f"{part.label}.{option}" if parts[1:] else option for part, option in found)


NANO = ComplementaryConfig(
    options=_SMALL["minihack"],
    actor=ModelConfig(
        scratch=_SHAPE,
        warm_up=WarmUpConfig(updates=300, episodes=1000, batch=16),
        learning_rate=4e-4,
        max_tokens=12,
        max_length=512,
        slots=32,
        micro_batch=8,
    ),
    extractor_model=ModelConfig(
        scratch=_SHAPE,
        warm_up=WarmUpConfig(updates=300, batch=16),
        learning_rate=4e-4,
        max_tokens=128,
        max_length=640,
        slots=16,
        micro_batch=8,
    ),
    acting=ActorConfig(instances=4),
    extractor=ExtractorConfig(compact=True, most=2, merge=MergeConfig()),
    credit=CreditConfig(),
    retrieval=RetrievalConfig(recency="steps", recent=2),
    capacity=200,
    judge=JudgeConfig(episodes=128, every=25),
)

NANO_MIX = dataclasses.replace(
    NANO,
    task="mix3",
    options=_options("mix3", _SMALL),
    actor=dataclasses.replace(
        NANO.actor,
        warm_up=WarmUpConfig(updates=3000, episodes=3000, batch=16, learning_rate=3e-3),
        max_tokens=40,
        max_length=640,
    ),
    extractor_model=dataclasses.replace(
        NANO.extractor_model, warm_up=WarmUpConfig(updates=1200, batch=16), max_length=768
    ),
    acting=dataclasses.replace(NANO.acting, instances=6),
    judge=JudgeConfig(episodes=126, every=25),
)

_TINY = ScratchConfig(hidden_size=32, intermediate_size=64, num_layers=1, num_heads=2)

SMOKE = dataclasses.replace(
    NANO,
    options=_SHORT["minihack"],
    actor=dataclasses.replace(
        NANO.actor,
        scratch=_TINY,
        warm_up=WarmUpConfig(updates=20, episodes=64, batch=8),
        max_length=320,
        slots=8,
    ),
    extractor_model=dataclasses.replace(
        NANO.extractor_model,
        scratch=_TINY,
        warm_up=WarmUpConfig(updates=20, batch=8),
        max_tokens=48,
        max_length=448,
        slots=8,
    ),
    acting=dataclasses.replace(NANO.acting, instances=2, rollouts=4, guided=2, warm_up=1),
    credit=CreditConfig(batch=4),
    steps=4,
    offline_steps=1,
    save_every=2,
    judge=JudgeConfig(episodes=8, every=2),
)

_SMOLLM2 = ModelConfig(
    "smollm2-135m-instruct",
    finetune="lora",
    lora=LoraConfig(16),
    warm_up=presets.SMOLLM2.warm_up,
    learning_rate=1e-4,
    max_tokens=24,
    max_length=1024,
    slots=8,
    micro_batch=1,
)

SMOLLM2 = dataclasses.replace(
    NANO,
    actor=_SMOLLM2,
    extractor_model=dataclasses.replace(_SMOLLM2, max_tokens=192, max_length=1280),
    embedder="minilm",
    judge=JudgeConfig(episodes=32, every=25),
)

_LARGE = ModelConfig(
    "qwen2.5_7b",
    random_weights=True,
    warm_up=WarmUpConfig(updates=0),
    learning_rate=1e-6,
    max_tokens=512,
    max_length=16_384,
    slots=128,
    micro_batch=8,
    dtype="bfloat16",
)

QWEN = dataclasses.replace(
    NANO,
    options=_PAPER["minihack"],
    actor=_LARGE,
    extractor_model=dataclasses.replace(_LARGE, backbone="qwen3_4b", max_tokens=4096, slots=64),
    acting=ActorConfig(instances=16),
    extractor=ExtractorConfig(),
    embedder="minilm",
    capacity=20_000,
    retrieval=RetrievalConfig(),
    steps=145,
    judge=JudgeConfig(episodes=128, every=5),
)

_MIXED = {"nano": "nano_mix"}
"""Presets of which another one has the sizes for several tasks."""


def on_task(name: str, task: str) -> ComplementaryConfig:
    """A preset on a task or a mix, with the options that fit its models.

    Raises:
      ValueError: there is no such mix.
    """
    name = _MIXED.get(name, name) if len(parts_of(task, ())) > 1 else name
    settings = {"qwen": _PAPER, "smoke": _SHORT}.get(name, _SMALL)
    return dataclasses.replace(PRESETS[name], task=task, options=_options(task, settings))


PRESETS = {"nano": NANO, "nano_mix": NANO_MIX, "smollm2": SMOLLM2, "qwen": QWEN, "smoke": SMOKE}
