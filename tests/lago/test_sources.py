"""Hashes of what cells have read."""

import hashlib

import pytest

from jaxrl_guided.lago.sources import Sources, hash_sources
from jaxrl_guided.runtime.errors import UserError
from tests.lago.tiny import expert_episodes, write_prior


def test_sources_are_the_contents_of_the_directories(tmp_path):
    prior, data = write_prior(tmp_path / "prior"), tmp_path / "data"
    expert_episodes().save(data)
    found = hash_sources(prior, data)
    index = (data / "dataset.json").read_bytes()
    assert found.data == hashlib.sha256(index).hexdigest()
    assert hash_sources(None, None) == Sources(None, None)
    (prior / "prior.json").write_text((prior / "prior.json").read_text() + "\n")
    changed = hash_sources(prior, data)
    assert (changed.prior == found.prior, changed.data == found.data) == (False, True)
    expert_episodes(seed=1).save(data.parent / "other")
    assert hash_sources(prior, data.parent / "other").data != found.data
    with pytest.raises(UserError, match=r"cannot read .*nothing/dataset.json"):
        hash_sources(prior, data.parent / "nothing")
