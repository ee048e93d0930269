"""The pages of the shop: what they show, what can be clicked, and where a click leads."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from jaxrl_guided.envs.webshop.product import Product

FOUND = 50
"""Products that a search returns at most."""

PARTS = ("Description", "Features", "Reviews")
_BACK, _NEXT, _PREVIOUS, _BUY = "Back to Search", "Next >", "< Prev", "Buy Now"


@dataclasses.dataclass(frozen=True)
class Page:
    """Where a visitor is.

    Attributes:
      kind: of page; `done` after a purchase.
      found: what the last search returned, best first.
      number: of the page of results, from 0.
      product: that is looked at or was bought.
      chosen: values of its options, by name.
      part: one of `PARTS`.
      seen: products that were looked at.
    """

    kind: Literal["search", "results", "item", "part", "done"] = "search"
    found: Sequence[Product] = ()
    number: int = 0
    product: Product | None = None
    chosen: Mapping[str, str] = dataclasses.field(default_factory=dict)
    part: str = ""
    seen: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class Piece:
    """A text on a page.

    Attributes:
      leads: the page that a click on it leads to; None for what cannot be clicked.
      marked: it is a product that was looked at, or a choice that was made.
    """

    text: str
    leads: Page | None = None
    marked: bool = False


def results(page: Page, found: Sequence[Product]) -> Page:
    """The page that a search leads to."""
    return Page("results", found, seen=page.seen)


def pieces(page: Page, size: int) -> list[Piece]:
    """What a page shows, in the order of reading.

    Args:
      size: products on a page of results.
    """
    return list(_SHOWN[page.kind](page, size))


def clickable(shown: Sequence[Piece]) -> dict[str, Page]:
    """Where clicks lead, by what is clicked, in small letters; of two alike the first counts."""
    leads: dict[str, Page] = {}
    for piece in shown:
        if piece.leads is not None:
            leads.setdefault(piece.text.lower(), piece.leads)
    return leads


def _search(page: Page, size: int) -> Iterator[Piece]:
    yield Piece("Search")


def _results(page: Page, size: int) -> Iterator[Piece]:
    yield Piece(_BACK, Page(seen=page.seen))
    yield Piece(f"Page {page.number + 1} (Total results: {len(page.found)})")
    first, end = page.number * size, (page.number + 1) * size
    if page.number:
        yield Piece(_PREVIOUS, dataclasses.replace(page, number=page.number - 1))
    if end < len(page.found):
        yield Piece(_NEXT, dataclasses.replace(page, number=page.number + 1))
    for product in page.found[first:end]:
        item = dataclasses.replace(
            page, kind="item", product=product, chosen={}, seen=page.seen | {product.asin}
        )
        yield Piece(product.asin, item, product.asin in page.seen)
        yield Piece(product.title)
        yield Piece(f"${product.price:.2f}")


def _item(page: Page, size: int) -> Iterator[Piece]:
    assert page.product is not None
    yield Piece(_BACK, Page(seen=page.seen))
    yield Piece(_PREVIOUS, dataclasses.replace(page, kind="results", product=None))
    for name, values in page.product.options.items():
        yield Piece(name)
        for value in values:
            chosen = dataclasses.replace(page, chosen={**page.chosen, name: value})
            yield Piece(value, chosen, page.chosen.get(name) == value)
    yield Piece(page.product.title)
    yield Piece(f"Price: ${page.product.price:.2f}")
    for part in PARTS:
        yield Piece(part, dataclasses.replace(page, kind="part", part=part))
    yield Piece(_BUY, dataclasses.replace(page, kind="done"))


def _part(page: Page, size: int) -> Iterator[Piece]:
    assert page.product is not None
    yield Piece(_BACK, Page(seen=page.seen))
    yield Piece(_PREVIOUS, dataclasses.replace(page, kind="item"))
    product = page.product
    texts = {
        "Description": [product.description],
        "Features": product.features,
        "Reviews": product.reviews or ["None yet"],
    }
    for text in texts[page.part]:
        yield Piece(text)


def _done(page: Page, size: int) -> Iterator[Piece]:
    yield Piece("Thank you for shopping with us!")


_SHOWN: Mapping[str, Callable[[Page, int], Iterator[Piece]]] = {
    "search": _search,
    "results": _results,
    "item": _item,
    "part": _part,
    "done": _done,
}
