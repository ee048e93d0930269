"""Fixtures shared by the tests of LaGO."""

import jax
import pytest

from jaxrl_guided.lago.prior import encode_texts
from tests.lago.toys import small_prior, toy_texts


@pytest.fixture(scope="session", params=["episode", "none"])
def scored_prior(request):
    """(spec, prior, text table) of both kinds of history."""
    spec, prior = small_prior(request.param)
    return spec, prior, jax.jit(lambda p, t: encode_texts(spec, p, *t))(prior, toy_texts())
