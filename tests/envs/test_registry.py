"""Names of environments: what is known, what is near, and families that a module registers."""

import sys

import gymnasium
import pytest

from jaxrl_guided.envs import make, names, register, registry
from jaxrl_guided.envs.clevr import make_clevr


@pytest.mark.parametrize(
    "name, advice",
    [
        ("clevr/medium", "choose one of clevr/real, "),
        ("atari/pong", "choose one of clevr/…, gymnax/…, "),
        ("CartPole-v1", "did you mean gymnax/CartPole-v1 or gym/CartPole-v1[?]"),
        ("gymnax/CartPoel-v1", "did you mean gymnax/CartPole-v1[?]"),
        ("real", "did you mean clevr/real or metaworld/real[?]"),
        ("clever/real", "did you mean clevr/real"),
    ],
)
def test_unknown_names_are_answered_with_what_is_near_or_exists(name, advice):
    with pytest.raises(ValueError, match=f"environment: unknown '{name}'; {advice}"):
        make(name, num_envs=2)


def test_families_are_registered_once():
    with pytest.raises(ValueError, match="family: 'clevr' is already registered"):
        register("clevr", make_clevr, list)


def test_every_listed_environment_of_gymnasium_has_its_code():
    listed = {name for name in names() if name.startswith("gym/")}
    assert {"gym/CartPole-v1", "gym/Pendulum-v1"} <= listed
    assert not any(name.endswith(("-v2", "-v3")) and "Ant" in name for name in listed)
    for name in listed:
        made_by = gymnasium.spec(name.removeprefix("gym/")).entry_point
        assert callable(made_by) or gymnasium.envs.registration.load_env_creator(made_by)


MODULE = """
import dataclasses

from jaxrl_guided.envs import make, register


def make_mine(name, num_envs):
    return dataclasses.replace(make("gymnax/CartPole-v1", num_envs), name=f"own/{name}")


register("own", make_mine, lambda: ["cart"])
"""


def test_a_module_that_the_name_says_is_imported(tmp_path, monkeypatch):
    (tmp_path / "my_family.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_FAMILIES", dict(registry._FAMILIES))
    env = make("my_family:own/cart", num_envs=3)
    assert (env.name, env.num_envs) == ("own/cart", 3)
    assert not registry.on_host("my_family:own/cart")
    with pytest.raises(
        ValueError, match="unknown 'my_family:own/card'; did you mean my_family:own/cart"
    ):
        make("my_family:own/card")
    sys.modules.pop("my_family")


@pytest.mark.parametrize("module", ["nowhere", ".nowhere"])
def test_a_module_that_is_not_there_is_named(module):
    with pytest.raises(ValueError, match=f"'{module}:own/cart' needs the module '{module}': "):
        make(f"{module}:own/cart")


@pytest.mark.parametrize("line", ["raise KeyError('x')", "a b"])
def test_a_module_that_cannot_be_imported_is_named(line, tmp_path, monkeypatch):
    (tmp_path / "broken_module.py").write_text(line)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("broken_module:own/cart", "gym/broken_module:Cart-v0"):
        with pytest.raises(ValueError, match=f"'{name}' needs the module 'broken_module': "):
            make(name)


def test_a_name_without_its_module():
    assert registry.without_module("my_family:own/cart") == "own/cart"
    assert registry.without_module("gym/module:Cart-v0") == "gym/module:Cart-v0"
