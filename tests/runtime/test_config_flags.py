"""Configuration: flags, JSON, hashes and the messages of bad input."""

import dataclasses
import hashlib
import json
import math
import sys
from typing import Literal

import pytest
from absl import flags

from jaxrl_guided.runtime import config as config_lib
from jaxrl_guided.runtime.errors import UserError


@dataclasses.dataclass(frozen=True)
class Optimizer:
    lr: float = 3e-4
    steps: int = 10
    sizes: tuple[int, ...] = (64, 64)
    betas: tuple[float, float] = (0.9, 0.999)
    names: tuple[str, ...] = ()
    schedule: Literal["constant", "linear"] = "constant"
    nesterov: bool = False
    clip: float | None = None

    def __post_init__(self) -> None:
        if self.lr <= 0:
            raise ValueError(f"lr must be positive, got {self.lr}")


@dataclasses.dataclass(frozen=True)
class Run:
    optimizer: Optimizer = Optimizer()
    guidance: Optimizer | None = None
    env: str = "clevr/real"


PRESETS = {"smoke": Run(), "full": Run(optimizer=Optimizer(steps=1000), env="clevr/hard")}


def parse(*arguments, presets=PRESETS, base=None):
    values = flags.FlagValues()
    defined = config_lib.define(presets, flag_values=values)
    values(["program", *arguments])
    return defined.build(base)


def test_without_flags_the_first_preset_is_built():
    assert parse() == PRESETS["smoke"]


def test_preset_is_chosen_before_overrides_whatever_their_order():
    expected = Run(optimizer=Optimizer(steps=1000, lr=0.5), env="clevr/hard")
    assert parse("--preset=full", "--config.optimizer.lr=.5") == expected
    assert parse("--config.optimizer.lr=.5", "--preset=full") == expected


@pytest.mark.parametrize(
    "argument, field, value",
    [
        ("lr=3e-4", "lr", 3e-4),
        ("lr=2", "lr", 2.0),
        ("steps=1e6", "steps", 1_000_000),
        ("steps=1_000", "steps", 1000),
        ("steps=-3", "steps", -3),
        ("sizes=128", "sizes", (128,)),
        ("sizes=(1, 2,3)", "sizes", (1, 2, 3)),
        ("sizes=()", "sizes", ()),
        ("betas=.5,1e-1", "betas", (0.5, 0.1)),
        ("names=a,b", "names", ("a", "b")),
        ("names=['a', \"b\"]", "names", ("a", "b")),
        ("schedule=linear", "schedule", "linear"),
        ("nesterov", "nesterov", True),
        ("nesterov=true", "nesterov", True),
        ("nesterov=0", "nesterov", False),
        ("clip=2", "clip", 2.0),
        ("clip=none", "clip", None),
    ],
)
def test_overrides_take_the_field_type(argument, field, value):
    built = getattr(parse(f"--config.optimizer.{argument}").optimizer, field)
    assert built == value
    assert type(built) is type(value)
    if isinstance(value, tuple):
        assert [type(item) for item in built] == [type(item) for item in value]


def test_flag_value_may_stand_apart_and_no_prefix_negates():
    assert parse("--config.optimizer.steps", "7").optimizer.steps == 7
    on = {"on": Run(optimizer=Optimizer(nesterov=True))}
    assert parse("--noconfig.optimizer.nesterov", presets=on).optimizer.nesterov is False


def test_text_stays_text():
    assert parse("--config.env=007").env == "007"


def test_override_of_an_absent_dataclass_creates_it():
    assert parse("--config.guidance.steps=3").guidance == Optimizer(steps=3)
    assert parse().guidance is None


@pytest.mark.parametrize(
    "argument, message",
    [
        ("--config.optimizer.lrr=1", "config.optimizer.lrr.*config.optimizer.lr"),
        ("--config.optimizer.steps=1.5", "config.optimizer.steps=1.5.*whole number"),
        ("--config.optimizer.steps=nan", "config.optimizer.steps.*whole number"),
        ("--config.optimizer.steps=true", "config.optimizer.steps.*number"),
        ("--config.optimizer.lr=fast", "config.optimizer.lr.*number.*fast"),
        ("--config.optimizer.betas=1,2,3", "config.optimizer.betas.*2 items, got 3"),
        ("--config.optimizer.schedule=cosine", "config.optimizer.schedule.*constant, linear"),
        ("--config.optimizer.nesterov=maybe", "config.optimizer.nesterov.*true or false"),
        ("--config.optimizer=1", "config.optimizer"),
        ("--preset=huge", "preset=huge.*smoke"),
    ],
)
def test_bad_flags_are_named_when_they_are_parsed(argument, message):
    with pytest.raises(flags.Error, match=message):
        parse(argument)


def test_constructor_refusals_name_the_flag():
    with pytest.raises(UserError, match=r"^--config\.optimizer\.lr: lr must be positive"):
        parse("--config.optimizer.lr=-1")


def test_json_round_trip_is_exact():
    built = parse("--config.optimizer.sizes=1,2", "--config.guidance.clip=1")
    text = json.dumps(config_lib.to_dict(built))
    assert config_lib.from_dict(Run, json.loads(text)) == built


@pytest.mark.parametrize(
    "values, message",
    [
        ({"optimiser": {}}, r"config\.optimiser is not known.*optimizer, guidance, env"),
        ({"optimizer": {"steps": "3"}}, r"config\.optimizer\.steps must be a number"),
        ({"optimizer": {"steps": True}}, r"config\.optimizer\.steps must be a number"),
        ({"optimizer": {"sizes": 3}}, r"config\.optimizer\.sizes must be a list"),
        ({"optimizer": 3}, r"config\.optimizer"),
        ({"env": None}, r"config\.env must be text"),
    ],
)
def test_bad_json_names_the_field(values, message):
    with pytest.raises(UserError, match=message):
        config_lib.from_dict(Run, values)


def test_json_that_is_no_group_of_fields_is_refused():
    with pytest.raises(UserError, match=r"--cell must be a group of fields, got \[1\]"):
        config_lib.from_dict(Run, [1], "--cell")


def test_values_in_a_refusal_are_not_taken_for_fields():
    @dataclasses.dataclass(frozen=True)
    class Choice:
        arm: str = "ppo"
        ppo: int = 0

        def __post_init__(self):
            raise ValueError(f"arm must be ppo, not {self.arm}")

    with pytest.raises(UserError, match=r"^config\.arm: arm must be ppo, not sac$"):
        config_lib.from_dict(Choice, {"arm": "sac"})


def test_hash_is_the_digest_of_sorted_json():
    @dataclasses.dataclass(frozen=True)
    class Small:
        b: int = 1
        a: tuple[int, ...] = (2,)

    expected = hashlib.sha256(b'{"a":[2],"b":1}').hexdigest()[:16]
    assert config_lib.config_hash(Small()) == expected
    assert config_lib.config_hash({"b": 1, "a": [2]}) == expected
    assert config_lib.config_hash(Small(b=2)) != expected


def test_hash_tells_small_floats_apart():
    assert config_lib.config_hash({"x": 0.1}) != config_lib.config_hash(
        {"x": math.nextafter(0.1, 1)}
    )


def test_hash_does_not_depend_on_how_a_number_is_written():
    assert config_lib.config_hash(Run(optimizer=Optimizer(lr=1))) == config_lib.config_hash(
        parse("--config.optimizer.lr=1")
    )


def test_differences_name_fields():
    ours = config_lib.to_dict(Run())
    theirs = config_lib.to_dict(Run(optimizer=Optimizer(lr=1.0), guidance=Optimizer()))
    lines = config_lib.differences(ours, theirs)
    assert "optimizer.lr: 0.0003, not 1.0" in lines
    assert [line.split(":")[0] for line in lines] == ["guidance", "optimizer.lr"]
    assert config_lib.differences(ours, config_lib.to_dict(Run())) == []


def test_unsupported_annotation_is_a_programming_error():
    @dataclasses.dataclass(frozen=True)
    class Bad:
        x: int | str = 1

    with pytest.raises(TypeError, match=r"type int \| str"):
        parse("--config.x=1", presets={"only": Bad()})


def test_overrides_may_be_put_on_another_base():
    def slower(run):
        optimizer = dataclasses.replace(run.optimizer, lr=run.optimizer.lr / 2, steps=7)
        return dataclasses.replace(run, optimizer=optimizer, env="clevr/easy")

    built = parse("--config.optimizer.lr=.5", "--config.env=x", base=slower)
    assert built == Run(optimizer=Optimizer(lr=0.5, steps=7), env="x")


@pytest.mark.parametrize("number", ["inf", "-inf", "nan", "1e400"])
def test_numbers_that_json_does_not_have_are_refused(number):
    with pytest.raises(flags.Error, match=f"config.optimizer.lr={number}: must be a finite num"):
        parse(f"--config.optimizer.lr={number}")
    with pytest.raises(UserError, match=r"config.lr must be a finite number, got inf"):
        config_lib.from_dict(Optimizer, {"lr": math.inf})


@dataclasses.dataclass(frozen=True)
class Documented:
    """A group of settings.

    Attributes:
      rate: of Adam: the first one,
        and the last.
      low, high: bounds `[low, high]`.
      alpha: α; scales by α / r.
      rank: r.
      clip: ε below 1.

    Raises:
      ValueError: never.
    """

    rate: float = 0.5
    low: int = 0
    high: int = 1
    silent: str = "x"
    alpha: float = 2.0
    rank: int = 4
    clip: float = 0.2


def test_flags_say_what_the_docstring_says():
    values = flags.FlagValues()
    config_lib.define({"only": Run(), "other": Run()}, flag_values=values)
    assert values["config.optimizer.lr"].help == "Default of preset only: 0.0003."
    values = flags.FlagValues()
    config_lib.define({"only": Documented()}, flag_values=values)
    helps = {f.name: values[f"config.{f.name}"].help for f in dataclasses.fields(Documented)}
    assert helps == {
        "rate": "Of Adam: the first one, and the last. Default of preset only: 0.5.",
        "low": "Bounds `[low, high]`. Default of preset only: 0.",
        "high": "Bounds `[low, high]`. Default of preset only: 1.",
        "silent": "Default of preset only: 'x'.",
        # Symbols are no words that begin a sentence.
        "alpha": "α; scales by α / r. Default of preset only: 2.0.",
        "rank": "r. Default of preset only: 4.",
        "clip": "ε below 1. Default of preset only: 0.2.",
    }


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ("", "smoke: 10"),
        ("--help --preset=full", "full: 1000"),
        ("--preset full --help", "full: 1000"),
        ("--preset=smoke -preset=full", "full: 1000"),
        ("--preset=huge", "smoke: 10"),
        ("--config.preset=full", "smoke: 10"),
    ],
)
def test_help_shows_the_values_of_the_preset_that_is_named(monkeypatch, arguments, shown):
    monkeypatch.setattr(sys, "argv", ["program", *arguments.split()])
    values = flags.FlagValues()
    config_lib.define(PRESETS, flag_values=values)
    assert values["config.optimizer.steps"].help == f"Default of preset {shown}."


def test_a_list_is_given_once():
    with pytest.raises(flags.IllegalFlagValueError, match=r"optimizer.sizes=2: already defined"):
        parse("--config.optimizer.sizes=1", "--config.optimizer.sizes=2")
    assert parse("--config.env=a", "--config.env=b").env == "b"


def test_commas_within_brackets_and_single_quotes_belong_to_an_item():
    names = parse("--config.optimizer.names=a=['x','y'],b=(1,2),'c',d='e'").optimizer.names
    assert names == ("a=['x','y']", "b=(1,2)", "c", "d='e'")
    assert parse("--config.optimizer.names=['a', \"b\"]").optimizer.names == ("a", "b")
    assert parse("--config.optimizer.names=()").optimizer.names == ()
    nested = "a=[(1,2),(3,4)]", "b={'x':1,'y':2}"
    assert parse(f"--config.optimizer.names={','.join(nested)}").optimizer.names == nested
    assert parse("--config.optimizer.names=[a],[b]").optimizer.names == ("[a]", "[b]")
