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
    task="minihack/Room-Random-5x5",
    options=("compact=true", "max_turns=8"),
    backbone="smollm2-135m-instruct",
    finetune="lora",
    # Without it the model names no action in the form that is asked for, and learns nothing.
    warm_up=WarmUpConfig(updates=40, episodes=256, batch=8, learning_rate=5e-4),
    improve=ImproveConfig(steps=50, instances=4, rollouts=4, learning_rate=1e-4),
    judge=JudgeConfig(episodes=32, every=10),
    max_tokens=24,
    max_length=640,
    micro_batch=4,
)

PRESETS = {"nano": NANO, "smollm2": SMOLLM2, "smoke": SMOKE}
