"""Frozen dataclasses as configuration: command-line overrides, JSON, hashes and differences.

Each field becomes a flag (`--config.ppo.lr=3e-4`). Overrides are applied to the chosen preset and
the dataclasses are rebuilt through their constructors, so that `__post_init__` checks them as well.
"""

import dataclasses
import hashlib
import inspect
import json
import math
import re
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar, Union

from absl import flags
from ml_collections import config_dict, config_flags

from jaxrl_guided.runtime.errors import UserError

T = TypeVar("T")

flags.disclaim_key_flags()  # what `define` makes belongs to the script that calls it, for --help

_QUOTED = re.compile(r"^(['\"])(.*)\1$")

_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def _optional(annotation: Any) -> Any:
    """The X of `X | None`, or None when the annotation is something else."""
    if typing.get_origin(annotation) not in (Union, types.UnionType):
        return None
    inner = [arg for arg in typing.get_args(annotation) if arg is not type(None)]
    if len(inner) != 1 or len(inner) == len(typing.get_args(annotation)):
        raise TypeError(f"configuration fields cannot have the type {annotation}")
    return inner[0]


def _item_types(annotation: Any, length: int) -> tuple[Any, ...]:
    """The types of a tuple's items, for a tuple of `length` items."""
    args = typing.get_args(annotation)
    if len(args) == 2 and args[1] is Ellipsis:
        return (args[0],) * length
    if len(args) != length:
        raise ValueError(f"must have {len(args)} items, got {length}")
    return args


def parse_text(annotation: Any, text: str) -> Any:
    """Reads a flag's text as a value of the annotated type (`1e6` is an int, `a,b` a tuple).

    Raises:
      ValueError: the text does not fit; the message says what would.
    """
    inner = _optional(annotation)
    if inner is not None:
        return None if text.lower() in ("none", "null") else parse_text(inner, text)
    origin = typing.get_origin(annotation)
    if origin is Literal:
        choices = {str(choice): choice for choice in typing.get_args(annotation)}
        return _coerce(annotation, choices.get(text, text))
    if origin is tuple:
        items = _split(text.strip())
        if len(items) == 1 and items[0][:1] + items[0][-1:] in ("()", "[]"):
            items = _split(items[0][1:-1])
        items = [_QUOTED.sub(r"\2", item.strip()) for item in items if item.strip()]
        return tuple(map(parse_text, _item_types(annotation, len(items)), items))
    if annotation is bool and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    if annotation in (int, float):
        return _coerce(annotation, _number(text))
    return _coerce(annotation, text)


def _split(text: str) -> list[str]:
    """Splits at the commas that stand in no bracket."""
    items, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            items.append("")
        else:
            items[-1] += character
    return items


def _number(text: str) -> Any:
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _coerce(annotation: Any, value: Any) -> Any:
    """Checks a value against an annotation; lists become tuples, integral floats ints."""
    inner = _optional(annotation)
    if inner is not None:
        return None if value is None else _coerce(inner, value)
    origin = typing.get_origin(annotation)
    if origin is Literal:
        choices = typing.get_args(annotation)
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(map(str, choices))}; got {value!r}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError(f"must be a list, got {value!r}")
        return tuple(map(_coerce, _item_types(annotation, len(value)), value))
    if annotation in (int, float):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"must be a number, got {value!r}")
        if annotation is int and not (isinstance(value, int) or value.is_integer()):
            raise ValueError(f"must be a whole number, got {value!r}")
        if not math.isfinite(value):  # JSON has no such number, so that no run could be resumed
            raise ValueError(f"must be a finite number, got {value!r}")
        return annotation(value)
    if annotation in (bool, str):
        if not isinstance(value, annotation):
            kind = "true or false" if annotation is bool else "text"
            raise ValueError(f"must be {kind}, got {value!r}")
        return value
    if dataclasses.is_dataclass(annotation):
        raise ValueError(f"must be a group of fields, got {value!r}")
    raise TypeError(f"configuration fields cannot have the type {annotation}")


def _nested(annotation: Any) -> Any:
    """The dataclass that a field holds (also as `X | None`), or None for a plain value."""
    for candidate in (annotation, _optional(annotation)):
        if dataclasses.is_dataclass(candidate):
            return candidate
    return None


_ADDED = "added"


def added(default: Any) -> Any:
    """A field that came after results were made with the dataclass.

    While it has its default it is left out of `to_dict`, and so of hashes and of the identity of
    what was made before.
    """
    return dataclasses.field(default=default, metadata={_ADDED: True})


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        named = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        for field in dataclasses.fields(value):
            if field.metadata.get(_ADDED) and named[field.name] == field.default:
                del named[field.name]
        return {name: _plain(item) for name, item in named.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def to_dict(config: Any) -> dict[str, Any]:
    """A configuration as JSON data: nested dictionaries, tuples as lists."""
    return _plain(config)


def from_dict(cls: type[T], values: Mapping[str, Any], where: str = "config") -> T:
    """Builds the (nested) dataclass `cls` from what `to_dict` gave; absent fields take defaults.

    Raises:
      UserError: a field is unknown, missing, of another type or refused by `__post_init__`. The
        message names it as `where.field`.
    """
    if not isinstance(values, Mapping):
        raise UserError(f"{where} must be a group of fields, got {values!r}")
    annotations = typing.get_type_hints(cls)
    unknown = sorted(set(values) - set(annotations))
    if unknown:
        known = ", ".join(annotations)
        raise UserError(f"{where}.{unknown[0]} is not known; the fields of {where} are {known}")
    arguments = {}
    for name, value in values.items():
        nested = _nested(annotations[name])
        if nested is not None and isinstance(value, Mapping):
            arguments[name] = from_dict(nested, value, f"{where}.{name}")
            continue
        try:
            arguments[name] = _coerce(annotations[name], value)
        except ValueError as error:
            raise UserError(f"{where}.{name} {error}") from error
    try:
        return cls(**arguments)
    except UserError:
        raise
    except (ValueError, TypeError) as error:
        raise UserError(f"{_culprits(where, annotations, str(error))}: {error}") from error


def _culprits(where: str, names: Mapping[str, Any], message: str) -> str:
    """The full names of the fields that a constructor's message speaks of, as `x must be …`."""
    subject = message.partition(" must ")[0]
    found = [f"{where}.{name}" for name in names if re.search(rf"\b{name}\b", subject)]
    return ", ".join(found) or where


def _canonical(value: Any) -> Any:
    """1.0 and 1 are the same number, whichever of them a preset says for a float field."""
    if isinstance(value, Mapping):
        return {name: _canonical(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def config_hash(config: Any) -> str:
    """16 hex digits that are equal for equal configurations (dataclass or its `to_dict`)."""
    text = json.dumps(
        _canonical(_plain(config)), sort_keys=True, ensure_ascii=True, separators=(",", ":")
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """The fields in which two configurations (JSON data) differ, as `ppo.lr: 0.1, not 0.2`."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        lines = []
        for name in sorted({*ours, *theirs}):
            inner = f"{path}.{name}" if path else name
            lines += differences(ours.get(name), theirs.get(name), inner)
        return lines
    return [] if ours == theirs else [f"{path}: {ours!r}, not {theirs!r}"]


class _Leaf(typing.NamedTuple):
    """A plain field: dotted path, annotation, default, and what its docstring says of it."""

    path: str
    annotation: Any
    value: Any
    meaning: str


def _leaves(cls: Any, config: Any, path: str = "") -> Iterator[_Leaf]:
    """Yields every plain field."""
    meanings = meanings_of(cls)
    for name, annotation in typing.get_type_hints(cls).items():
        value = getattr(config, name)
        nested = _nested(annotation)
        if nested is None:
            yield _Leaf(f"{path}{name}", annotation, value, meanings.get(name, ""))
        else:
            yield from _leaves(nested, nested() if value is None else value, f"{path}{name}.")


def meanings_of(cls: Any) -> dict[str, str]:
    """What the `Attributes:` part of a class's docstring says of each field, as a sentence."""
    base = cls.__base__
    found = {} if base is object else meanings_of(base)
    _, _, attributes = inspect.cleandoc(cls.__doc__ or "").partition("Attributes:\n")
    for entry in re.split(r"\n(?=  \w)", "\n" + attributes.partition("\n\n")[0]):
        names, colon, text = " ".join(entry.split()).partition(": ")
        if colon:
            text = text.removesuffix(".") + "."
            if re.match("[a-z]{2}", text):  # a word; symbols stay as they are
                text = text[0].upper() + text[1:]
            found.update(dict.fromkeys(names.split(", "), text))
    return found


def _set(tree: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        if tree.get(parent) is None:
            tree[parent] = {}
        tree = tree[parent]
    tree[last] = value


class _FieldParser(flags.ArgumentParser):
    """Gives absl the parser of an annotated field."""

    def __init__(self, annotation: Any):
        self.annotation = annotation
        kind = f"a value of type {getattr(annotation, '__name__', annotation)}"
        if typing.get_origin(annotation) is Literal:
            kind = f"one of {', '.join(map(str, typing.get_args(annotation)))}"
        self.syntactic_help = kind

    def parse(self, argument: str) -> Any:
        return parse_text(self.annotation, argument)

    def flag_type(self) -> str:
        return str(getattr(self.annotation, "__name__", self.annotation))


@dataclasses.dataclass(frozen=True)
class ConfigFlags(Generic[T]):
    """The flags of a configuration, as `define` made them."""

    presets: Mapping[str, T]
    name: str
    flag_values: flags.FlagValues

    def given(self) -> list[str]:
        """The flags that the command line names, as `--config.ppo.lr`."""
        changed = config_flags.get_override_values(self.flag_values[self.name])
        preset = ["--preset"] if self.flag_values["preset"].present else []
        return preset + [f"--{self.name}.{path}" for path in changed]

    def refuse(self, parts: Collection[str], reader: str) -> None:
        """Raises UserError for flags of parts of the configuration that `reader` does not read."""
        unread = tuple(f"--{self.name}.{part}." for part in parts)
        if found := [flag for flag in self.given() if flag.startswith(unread)]:
            raise UserError(f"{reader} does not read {', '.join(found)}; leave it out")

    @property
    def preset(self) -> str:
        """Name of the chosen preset."""
        return str(self.flag_values["preset"].value)

    def prefer(self, preset: str) -> None:
        """Makes another preset the one that is chosen where the command line names none."""
        if not self.flag_values["preset"].present:
            self.flag_values["preset"].value = preset

    def build(self, base: Callable[[T], T] | None = None) -> T:
        """The chosen preset with the command line's overrides, validated by its constructors.

        Args:
          base: gives, for the configuration that would be built, what the overrides are applied to
            instead of the preset.

        Raises:
          UserError: an override is refused; the message names its flag.
        """
        built = self._overridden(self.presets[self.preset])
        return built if base is None else self._overridden(base(built))

    def _overridden(self, config: T) -> T:
        tree = to_dict(config)
        for path, value in config_flags.get_override_values(self.flag_values[self.name]).items():
            _set(tree, path, value)
        return from_dict(type(config), tree, f"--{self.name}")


def _preset_in(arguments: Sequence[str], names: Sequence[str]) -> str:
    """The preset that a command line names last, or the first one."""
    given = re.findall(r"(?:^| )--?preset[= ](\S+)", " ".join(arguments))
    return given[-1] if given and given[-1] in names else names[0]


def define(
    presets: Mapping[str, T],
    name: str = "config",
    flag_values: flags.FlagValues = flags.FLAGS,
) -> ConfigFlags[T]:
    """Defines `--preset` and one flag `--NAME.field.field` per field of the presets' dataclass.

    Args:
      presets: named configurations of one frozen dataclass; the first is the default. A field may
        be bool, int, float, str, a Literal, a tuple of these, a dataclass, or any of them or None.
        Overriding a field of an absent (None) dataclass creates it from its defaults.
      name: prefix of the flags.
      flag_values: where to define them.
    """
    names = list(presets)
    default = presets[names[0]]
    leaves = list(_leaves(type(default), default))
    tree: dict[str, Any] = {}
    for leaf in leaves:
        # Of type object, so that our own parser alone decides: that of ml_collections refuses 1e6
        # for integers and reads `a,b` as a tuple of one.
        _set(tree, leaf.path, config_dict.FieldReference(leaf.value, field_type=object))
    flags.DEFINE_enum("preset", names[0], names, "Named configuration.", flag_values=flag_values)
    # ml_collections makes a flag for each override that it finds in `sys_argv`. Naming every field
    # there defines them all, so that --help lists them and a mistyped name is found by absl.
    config_flags.DEFINE_config_dict(
        name,
        config_dict.ConfigDict(tree),
        help_string="Overrides of the preset's fields.",
        flag_values=flag_values,
        sys_argv=["", *(f"--{name}.{leaf.path}" for leaf in leaves)],
    )
    script = str(flag_values.find_module_defining_flag("preset"))
    shown = _preset_in(sys.argv, names)  # whose values --help shows
    values = {leaf.path: leaf.value for leaf in _leaves(type(default), presets[shown])}
    for leaf in leaves:
        flag = flag_values[f"{name}.{leaf.path}"]
        flag_values.register_key_flag_for_module(script, flag)
        flag.parser = _FieldParser(leaf.annotation)
        flag.boolean = leaf.annotation is bool
        # The second of two lists would replace the first, which nobody means.
        flag.allow_overwrite = typing.get_origin(leaf.annotation) is not tuple
        flag.help = f"{leaf.meaning} Default of preset {shown}: {values.get(leaf.path)!r}.".strip()
    return ConfigFlags(presets, name, flag_values)
