"""From the learner's weights to the sampler's."""

from typing import NamedTuple

import jax
from jax.sharding import Mesh

from jaxrl_guided.backbones import sharding
from jaxrl_guided.backbones.params import Params, unstack
from jaxrl_guided.backbones.turns import Weights
from jaxrl_guided.learners.language.learner import LanguageLearnerConfig, LanguageState


class Versioned(NamedTuple):
    """Weights to sample with.

    Attributes:
      weights: of the sampler.
      version: the optimiser step that they are of.
    """

    weights: Weights
    version: int


class HandOver:
    """Gives a sampler the weights of a learner's state.

    Adapters are handed over as they are, beside a base that is laid out for sampling once. Weights
    that are trained whole are laid out anew each time. On a mesh nothing is laid out: where learner
    and sampler have the same mesh, the arrays are the same ones, else copies on the sampler's. No
    update donates what was handed over (`LanguageState`), so that a sampler may go on reading it.

    Args:
      config: of the learner.
      base: its weights that stay, or None.
      mesh: of the sampler; None: it works where the learner does, on one device.
    """

    def __init__(
        self,
        config: LanguageLearnerConfig,
        base: Params | None,
        mesh: Mesh | None = None,
    ) -> None:
        self._config, self._mesh = config, mesh
        self._lay_out = jax.jit(unstack, static_argnames="fuse")
        self._base = None if base is None else self._decoder(base)

    def __call__(self, state: LanguageState) -> Versioned:
        """The weights of a state."""
        if self._base is None:
            weights = Weights(self._decoder(state.trained))
        else:
            weights = Weights(self._base, self._placed(state.trained))
        return Versioned(weights, int(state.step))

    def _decoder(self, params: Params) -> Params:
        return self._lay_out(params, fuse=True) if self._mesh is None else self._placed(params)

    def _placed(self, tree: Params) -> Params:
        if self._mesh is None:
            return tree
        return jax.device_put(tree, sharding.shardings(self._mesh, self._config.backbone, tree))
