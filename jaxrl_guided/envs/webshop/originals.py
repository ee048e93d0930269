"""WebShop's own files, which a user has: its products and what people asked for.

Its data may not be handed on; https://github.com/princeton-nlp/WebShop tells where it is.
"""

import hashlib
import json
import pathlib
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jaxrl_guided.envs.webshop.goals import draw_ceiling, spoken
from jaxrl_guided.envs.webshop.product import Goal, Product

PRODUCTS = ("items_shuffle_1000.json", "items_shuffle.json")
ATTRIBUTES = ("items_ins_v2_1000.json", "items_ins_v2.json")
PEOPLE = "items_human_ins.json"
_NEEDED = ("asin", "name", "query", "product_category", "full_description", "small_description")
_PRICE = re.compile(r"\$\s*([\d,]+(?:\.\d+)?)")
_NO_PRICE = 100.0
_LONGEST_ASIN = 10


def read_originals(directory: str) -> tuple[list[Product], list[Goal]]:
    """Products and goals of a directory, in an order that is always the same.

    Args:
      directory: with one of `PRODUCTS`, one of `ATTRIBUTES` (of the same size), and `PEOPLE`.

    Returns:
      All products, and a goal for each instruction of people that names attributes.

    Raises:
      ValueError: a file is missing, is no JSON, or a product lacks a field.
    """
    place = pathlib.Path(directory).expanduser()
    if not place.is_dir():
        raise ValueError(f"data: '{directory}' is no directory; give one with WebShop's files")
    file = _first(place, PRODUCTS)
    attributes = _load(_first(place, ATTRIBUTES), dict)
    people = _load(_first(place, (PEOPLE,)), dict)
    products = {product.asin: product for product in _products(file, attributes)}
    goals = [
        goal
        for asin, product in products.items()
        for index, told in enumerate(people.get(asin, ()))
        if (goal := _goal(product, told, f"{asin} {index}", place / PEOPLE)) is not None
    ]
    if not goals:
        raise ValueError(f"data: '{place / PEOPLE}' has no instruction about a product of {file}")
    random.Random(0).shuffle(goals)
    return list(products.values()), goals


def _first(place: pathlib.Path, names: Sequence[str]) -> pathlib.Path:
    for name in names:
        if (place / name).is_file():
            return place / name
    raise ValueError(f"data: '{place}' has no {' or '.join(names)}; give WebShop's data directory")


def _load(file: pathlib.Path, kind: type) -> Any:
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"data: '{file}' cannot be read as JSON: {error}") from None
    if not isinstance(read, kind):
        raise ValueError(f"data: '{file}' must hold a JSON {'list' if kind is list else 'object'}")
    return read


def _products(file: pathlib.Path, attributes: Mapping[str, Any]) -> Iterator[Product]:
    """The first of each number; numbers that are none are left out, as in the original."""
    known = set[str]()
    for index, item in enumerate(_load(file, list)):
        if not isinstance(item, dict) or (lacking := [key for key in _NEEDED if key not in item]):
            what = ", ".join(lacking) if isinstance(item, dict) else "all fields"
            raise ValueError(f"data: product {index} of '{file}' lacks {what}")
        asin = item["asin"]
        if asin == "nan" or len(asin) > _LONGEST_ASIN or asin in known:
            continue
        known.add(asin)
        try:
            yield _product(item, attributes.get(asin, {}))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"data: product {index} of '{file}' is not as WebShop writes it: {error!r}"
            ) from None


def _product(item: Mapping[str, Any], known: Mapping[str, Any]) -> Product:
    features = item["small_description"] or []
    options = {
        name.lower(): tuple(dict.fromkeys(_value(content) for content in contents))
        for name, contents in (item.get("customization_options") or {}).items()
        if contents
    }
    return Product(
        asin=item["asin"],
        title=item["name"],
        query=item["query"].lower().strip(),
        category=item["product_category"],
        price=_price(item),
        attributes=tuple(known.get("attributes", ())),
        options=options,
        description=item["full_description"] or "",
        features=tuple(features if isinstance(features, list) else [features]),
    )


def _value(content: Mapping[str, str]) -> str:
    return content["value"].strip().replace("/", " | ").lower()


def _price(item: Mapping[str, Any]) -> float:
    """The price, or one between two that stand there; always the same one for a product."""
    told = [float(price.replace(",", "")) for price in _PRICE.findall(item.get("pricing") or "")]
    if len(told) < 2:
        return told[0] if told else _NO_PRICE
    share = int.from_bytes(hashlib.sha256(item["asin"].encode()).digest()[:8], "big") / 2**64
    return round(told[0] + share * (told[1] - told[0]), 2)


def _goal(product: Product, told: Any, key: str, file: pathlib.Path) -> Goal | None:
    """An instruction of people with a ceiling of its own; None where it names no attributes."""
    try:
        attributes, asked = told["instruction_attributes"], told["instruction_options"]
        instruction = told["instruction"].strip(".")
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"data: an instruction for {product.asin} in '{file}' is not as WebShop writes it: "
            f"{error!r}"
        ) from None
    if not attributes:
        return None
    options = asked if isinstance(asked, dict) else {str(n): value for n, value in enumerate(asked)}
    ceiling = draw_ceiling(product.price, random.Random(f"goal {key}"))
    return Goal(instruction + spoken({}, ceiling), product, tuple(attributes), options, ceiling)
