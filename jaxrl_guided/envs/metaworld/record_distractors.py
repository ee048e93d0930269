"""Records the poses of `distractors`.

python -m jaxrl_guided.envs.metaworld.record_distractors
"""

import numpy as np

from jaxrl_guided.envs.metaworld.distractors import PATH
from jaxrl_guided.envs.metaworld.env import MetaWorldEnv
from jaxrl_guided.envs.metaworld.expert import expert_action
from jaxrl_guided.envs.metaworld.tasks import ENTITIES, TASKS, pose

EPISODES = 16
"""Of each task, with seeds 0, 1, …; evaluations hash their seeds to other ones."""

POSES = 128


def record() -> np.ndarray:
    """`f32[12, POSES, 7]`: poses of each entity, drawn from episodes of the scripted expert."""
    seen: dict[str, list[np.ndarray]] = {entity: [] for entity in ENTITIES}
    for name, task in TASKS.items():
        env = MetaWorldEnv(name, distractor=False)
        for seed in range(EPISODES):
            obs, _ = env.reset(seed=seed)
            done = False
            while not done:
                for entity in task.entities:
                    seen[entity].append(obs["state"][pose(entity)])
                obs, _, terminated, truncated, _ = env.step(expert_action(name, obs["state"]))
                done = terminated or truncated
        env.close()
    rng = np.random.default_rng(0)
    return np.stack([rng.choice(poses, POSES, replace=False) for poses in seen.values()])


if __name__ == "__main__":
    np.save(PATH, record())
