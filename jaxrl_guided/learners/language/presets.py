"""Named runs for `experiments.train_llm`."""

from jaxrl_guided.learners.language.run_config import (
    ImproveConfig,
    JudgeConfig,
    LanguageRunConfig,
    ScratchConfig,
    WarmUpConfig,
)

NANO = LanguageRunConfig()

SMOKE = LanguageRunConfig(
    scratch=ScratchConfig(hidden_size=32, intermediate_size=64, num_layers=1, num_heads=2),
    warm_up=WarmUpConfig(updates=4, episodes=64, batch=16),
    improve=ImproveConfig(steps=3, instances=4, rollouts=4),
    judge=JudgeConfig(episodes=16, every=2),
    micro_batch=16,
)

SMOLLM2 = LanguageRunConfig(
    task="minihack/Room-5x5",
    options=("max_turns=8",),
    backbone="smollm2-135m-instruct",
    finetune="lora",
    warm_up=WarmUpConfig(updates=0),
    improve=ImproveConfig(steps=50, instances=4, rollouts=4, learning_rate=1e-4),
    judge=JudgeConfig(episodes=32, every=10),
    max_tokens=24,
    max_length=2048,
    micro_batch=1,
)

PRESETS = {"nano": NANO, "smollm2": SMOLLM2, "smoke": SMOKE}
