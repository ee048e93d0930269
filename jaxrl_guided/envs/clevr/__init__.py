"""CLEVR-Robot in pure JAX: five balls, one pusher, instructions in English (LaGO, section 5)."""

from jaxrl_guided.envs.clevr.env import make_clevr
from jaxrl_guided.envs.clevr.physics import push

__all__ = ["make_clevr", "push"]
