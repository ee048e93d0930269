"""What every environment must keep, checked without running it."""

import jax

from jaxrl_guided.envs.types import Dict


def types(tree):
    """Shape, dtype and weak type of every leaf, and the structure."""
    leaves, structure = jax.tree.flatten(tree)
    return [(x.shape, x.dtype, x.weak_type) for x in leaves], structure


def fits(space, leaf, num_envs):
    """Whether an observation has the space's structure, shapes and types."""
    if isinstance(space, Dict):
        return set(space.spaces) == set(leaf) and all(
            fits(sub, leaf[name], num_envs) for name, sub in space.spaces.items()
        )
    return leaf.shape == (num_envs, *space.shape) and leaf.dtype == space.dtype


def check(env):
    """Reset and step agree, spaces are true, and the flags have the types that learners expect."""
    state, obs = jax.eval_shape(env.reset, jax.random.key(0))
    action = jax.ShapeDtypeStruct((env.num_envs, *env.action_space.shape), env.action_space.dtype)
    after, step = jax.eval_shape(env.step, state, action)
    assert types(after) == types(state)
    assert types(step.obs) == types(obs)
    assert types(step.final_obs) == types(obs)
    assert not any(weak for *_, weak in types((state, obs))[0])
    assert fits(env.observation_space, obs, env.num_envs)
    assert (step.reward.shape, step.reward.dtype) == ((env.num_envs,), "float32")
    for flag in (step.terminated, step.truncated):
        assert (flag.shape, flag.dtype) == ((env.num_envs,), "bool")
    assert all(leaf.shape[:1] == (env.num_envs,) for leaf in jax.tree.leaves(step.info))
