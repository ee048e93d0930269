"""Products and the search among them."""

import functools
import logging
from collections.abc import Sequence

import numpy as np

from jaxrl_guided.envs.webshop.catalogue import synthetic_catalogue
from jaxrl_guided.envs.webshop.product import Product, words_of


class Shop:
    """What is sold, ranked by BM25 of the products' texts.

    Args:
      products: at least one.
    """

    def __init__(self, products: Sequence[Product]) -> None:
        import bm25s

        logging.getLogger("bm25s").setLevel(logging.WARNING)  # else it tells of each index
        self.products = products
        self._index = bm25s.BM25()
        self._index.index([words_of(_text(product)) for product in products], show_progress=False)

    def search(self, keywords: str, most: int) -> list[Product]:
        """Products with a word of the keywords, best first; of equal ones the first in the shop."""
        known = [word for word in words_of(keywords) if word in self._index.vocab_dict]
        if not known:
            return []
        scores = self._index.get_scores(known)
        order = np.argsort(-scores, kind="stable")[:most]
        return [self.products[index] for index in order if scores[index] > 0]


@functools.lru_cache(maxsize=4)
def synthetic_shop(products: int, seed: int) -> Shop:
    """A shop with a catalogue of our own; shared by all who ask for the same one."""
    return Shop(synthetic_catalogue(products, seed))


def _text(product: Product) -> str:
    """All that a visitor can read of a product."""
    options = (f"{name} {' '.join(values)}" for name, values in product.options.items())
    return " ".join([product.title, product.description, *product.features, *options])
