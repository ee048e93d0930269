"""What a shop sells, and what is asked for in it."""

import dataclasses
import re
from collections.abc import Mapping, Sequence

_WORD = re.compile(r"[a-z0-9]+")


@dataclasses.dataclass(frozen=True)
class Product:
    """One thing to buy.

    Attributes:
      asin: its number, in capital letters and digits.
      title: as it is shown.
      query: what its kind is called, in the words of somebody who looks for one.
      category: from department to kind, joined by ` › `.
      price: in dollars; what a buyer pays.
      attributes: short properties; shown nowhere by themselves, the texts tell most of them.
      options: values to choose from, by the option's name, all in small letters.
      description: a paragraph.
      features: in a line each.
      reviews: in a line each.
    """

    asin: str
    title: str
    query: str
    category: str
    price: float
    attributes: Sequence[str]
    options: Mapping[str, Sequence[str]]
    description: str
    features: Sequence[str]
    reviews: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Goal:
    """What an episode asks for.

    Attributes:
      instruction: in words.
      product: one that is right in everything; others may be too.
      attributes: that the bought one must have.
      options: values that must be chosen, by the option's name.
      ceiling: dollars that it must not cost more than; None for any price.
    """

    instruction: str
    product: Product
    attributes: Sequence[str]
    options: Mapping[str, str]
    ceiling: float | None


def words_of(text: str) -> list[str]:
    """Words and numbers in small letters, in their order; marks between them are left out."""
    return _WORD.findall(text.lower())
