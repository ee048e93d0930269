"""Imports go downwards only: no floor of the house knows the one above it."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = "jaxrl_guided"
FLOORS = [
    {f"{PACKAGE}.runtime"},
    {f"{PACKAGE}.envs"},
    {f"{PACKAGE}.networks", f"{PACKAGE}.backbones"},
    {f"{PACKAGE}.learners"},
    {f"{PACKAGE}.lago", f"{PACKAGE}.complementary"},
    {"experiments", "benchmarks"},
]
HEIGHT = {name: floor for floor, names in enumerate(FLOORS) for name in names}
STRANGERS = {  # these live on one floor and may not know each other
    f"{PACKAGE}.lago": f"{PACKAGE}.complementary",
    f"{PACKAGE}.complementary": f"{PACKAGE}.lago",
}


def area(module):
    """The part of the house that a dotted module name belongs to, or None."""
    parts = module.split(".")
    for name in (".".join(parts[:2]), parts[0]):
        if name in HEIGHT:
            return name
    return None


def imported(source, module, is_package=False):
    """Absolute names of all modules that a source imports, also inside functions."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")
                kept = parents[: len(parents) - node.level + is_package]
                base = ".".join([*kept, base]) if base else ".".join(kept)
            # `from package import name` may mean the module `package.name`.
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return names


def violations(source, module, is_package=False):
    """The imports of `module` that go upwards or to a stranger."""
    here = area(module)
    found = []
    for name in imported(source, module, is_package):
        there = area(name)
        if name.split(".")[0] == "tests":
            found.append(name)
        if here is None or there is None or here == there:
            continue
        if HEIGHT[there] > HEIGHT[here] or STRANGERS.get(here) == there:
            found.append(name)
    return found


def sources():
    for top in (PACKAGE, "experiments", "benchmarks"):
        yield from sorted((ROOT / top).rglob("*.py"))


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_downwards(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    is_package = parts[-1] == "__init__"
    module = ".".join(parts[:-1] if is_package else parts)
    assert violations(path.read_text(), module, is_package) == []


def test_every_package_has_a_floor():
    packages = {p.parent.name for p in (ROOT / PACKAGE).glob("*/__init__.py")}
    assert {f"{PACKAGE}.{name}" for name in packages} <= set(HEIGHT)


@pytest.mark.parametrize(
    "source, module",
    [
        ("import jaxrl_guided.lago.beta", "jaxrl_guided.learners.ppo"),
        ("from jaxrl_guided.lago import beta", "jaxrl_guided.learners.ppo"),
        ("from jaxrl_guided import lago", "jaxrl_guided.learners.ppo"),
        ("from ..lago import beta", "jaxrl_guided.learners.ppo"),
        ("from .. import lago", "jaxrl_guided.learners.ppo"),
        ("def f():\n    from jaxrl_guided import envs", "jaxrl_guided.runtime.config"),
        ("import jaxrl_guided.complementary", "jaxrl_guided.lago.prior"),
        ("from experiments import lago", "jaxrl_guided.lago.prior"),
        ("import tests.helpers", "experiments.lago"),
    ],
)
def test_the_check_finds_what_is_forbidden(source, module):
    assert violations(source, module)


@pytest.mark.parametrize(
    "source, module",
    [
        ("from jaxrl_guided.runtime import config", "jaxrl_guided.envs.types"),
        ("from . import guidance\nimport numpy", "jaxrl_guided.learners.ppo"),
        ("from jaxrl_guided.lago import prior", "experiments.lago"),
    ],
)
def test_the_check_lets_pass_what_is_allowed(source, module):
    assert violations(source, module) == []


def test_relative_imports_of_a_package_itself():
    assert imported("from . import a", "jaxrl_guided.lago", True)[0] == "jaxrl_guided.lago"
