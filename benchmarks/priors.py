"""Priors for speed measurements: new heads on a backbone cost what trained ones cost."""

from typing import Literal

import numpy as np

from jaxrl_guided.backbones.tokenizer import Tokenizer
from jaxrl_guided.envs.clevr.table import NUM_ACTIONS, NUM_BALLS
from jaxrl_guided.lago.artifact import BackboneChoice, new_prior
from jaxrl_guided.lago.prior import Prior, PriorSpec

History = Literal["none", "episode"]

HORIZON = 50


def untrained_prior(
    choice: BackboneChoice, history: History = "episode"
) -> tuple[PriorSpec, Prior, Tokenizer]:
    """A prior with adapters for CLEVR-Robot."""
    size = 2 * NUM_BALLS
    fields = {
        "state_size": size,
        "num_actions": NUM_ACTIONS,
        "horizon": HORIZON,
        "history": history,
    }
    mean, std = np.zeros(size, np.float32), np.ones(size, np.float32)
    spec, prior, tokenizer, _ = new_prior(choice, fields, mean, std, seed=0)
    return spec, prior, tokenizer
