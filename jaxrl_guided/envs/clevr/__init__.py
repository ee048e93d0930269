"""CLEVR-Robot in pure JAX: instructions in English push balls (LaGO, arXiv 2606.24669)."""

from jaxrl_guided.envs.clevr.env import make_clevr
from jaxrl_guided.envs.clevr.physics import push

__all__ = ["make_clevr", "push"]
