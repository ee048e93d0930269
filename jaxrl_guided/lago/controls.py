"""Priors spoilt on purpose, to see what guidance by a wrong prior costs."""

import dataclasses

import jax
import jax.numpy as jnp

from jaxrl_guided.envs.clevr.table import OPPOSITE
from jaxrl_guided.lago.artifact import TrainedPrior
from jaxrl_guided.lago.config import Control

_SEED = 0
"""Of the random prior."""


def spoil(prior: TrainedPrior, control: Control) -> TrainedPrior:
    """A prior whose action head is changed.

    Args:
      control: `reversed` gives every push the chance of the opposite one, `random` shuffles the
        numbers of the head, so that what it says is as sure as before and means nothing.
    """
    if control == "none":
        return prior
    head = prior.prior.heads["policy"]
    if control == "reversed":
        head = {name: values[..., OPPOSITE] for name, values in head.items()}
    else:
        keys = jax.random.split(jax.random.key(_SEED), len(head))
        head = {
            name: jax.random.permutation(key, jnp.ravel(values)).reshape(values.shape)
            for key, (name, values) in zip(keys, sorted(head.items()), strict=True)
        }
    heads = prior.prior.heads | {"policy": head}
    return dataclasses.replace(prior, prior=dataclasses.replace(prior.prior, heads=heads))
