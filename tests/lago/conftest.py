"""Fixtures shared by the tests of LaGO."""

import dataclasses

import jax
import pytest

from jaxrl_guided.envs import registry
from jaxrl_guided.envs.clevr.instructions import LEVELS
from jaxrl_guided.lago.families import FAMILIES
from jaxrl_guided.lago.prior import encode_texts
from tests.lago.toy_env import AIM_MAP, make_aim, make_toy
from tests.lago.toy_host import make_held
from tests.lago.toys import small_prior, toy_texts


@pytest.fixture(autouse=True)
def quick_compilation():
    """Toy programs compile for seconds and run for milliseconds."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


KINDS = {"discrete": {}, "continuous": {"num_actions": 0, "action_size": 3}}


@pytest.fixture(
    scope="session",
    params=[(history, kind) for kind in KINDS for history in ("episode", "none")],
    ids="-".join,
)
def scored_prior(request):
    """(spec, prior, text table) of both kinds of history and of actions."""
    history, kind = request.param
    spec, prior = small_prior(history, **KINDS[kind])
    return spec, prior, jax.jit(lambda p, t: encode_texts(spec, p, *t))(prior, toy_texts())


@pytest.fixture
def toy_family(monkeypatch):
    """Environments `toy/LEVEL`, `aim/LEVEL` and `held/LEVEL`, for the length of a test.

    The last ones are stepped by the host. Texts are those of CLEVR-Robot.
    """
    for name, make in (("toy", make_toy), ("aim", make_aim), ("held", make_held)):
        on_host = name == "held"
        family = registry._Family(make, lambda: LEVELS, lambda level: level in LEVELS, on_host)
        monkeypatch.setitem(registry._FAMILIES, name, family)
        actions = FAMILIES["clevr"].action_map if name == "toy" else AIM_MAP
        ours = dataclasses.replace(FAMILIES["clevr"], action_map=actions)
        monkeypatch.setitem(FAMILIES, name, ours)
