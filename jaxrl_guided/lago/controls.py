"""Priors spoilt on purpose, to see what guidance by a wrong prior costs."""

import dataclasses

import jax
import jax.numpy as jnp

from jaxrl_guided.envs.clevr.table import OPPOSITE
from jaxrl_guided.lago.actions import ContinuousActions
from jaxrl_guided.lago.artifact import TrainedPrior
from jaxrl_guided.lago.config import Control
from jaxrl_guided.lago.prior import PriorSpec

_SEED = 0
"""Of the random prior."""


def spoil(prior: TrainedPrior, control: Control) -> TrainedPrior:
    """A prior whose action head is changed.

    Args:
      control: `reversed` gives every push the chance of the opposite one, and every continuous
        action that of its negative; `random` shuffles the numbers of the head, so that what it says
        is as sure as before and means nothing.
    """
    if control == "none":
        return prior
    head = prior.prior.heads["policy"]
    if control == "reversed":
        head = {name: _opposite(prior.spec, values) for name, values in head.items()}
    else:
        keys = jax.random.split(jax.random.key(_SEED), len(head))
        head = {
            name: jax.random.permutation(key, jnp.ravel(values)).reshape(values.shape)
            for key, (name, values) in zip(keys, sorted(head.items()), strict=True)
        }
    heads = prior.prior.heads | {"policy": head}
    return dataclasses.replace(prior, prior=dataclasses.replace(prior.prior, heads=heads))


def _opposite(spec: PriorSpec, values: jax.Array) -> jax.Array:
    """Columns of the head that say the opposite: of a Gaussian, means of the other sign."""
    if isinstance(spec.actions, ContinuousActions):
        return values.at[..., : spec.action_size].multiply(-1)
    return values[..., OPPOSITE]
