"""Which product an episode asks for, in words."""

import random
from collections.abc import Mapping, Sequence

from jaxrl_guided.envs.webshop.product import Goal, Product

_CEILINGS = tuple(10.0 * step for step in range(1, 100))
_ASKED = (
    "I am looking for {noun} that is {attributes}",
    "Find me {noun}, {attributes}",
    "Please get {noun} for me which is {attributes}",
    "I want to buy {noun}: it must be {attributes}",
)


def draw_goal(products: Sequence[Product], seed: int) -> Goal:
    """A goal about one of the products; the seed decides all of it, its ceiling too."""
    rng = random.Random(f"goal {seed}")
    product = rng.choice(products)
    few = min(len(product.attributes), rng.randint(1, 3))
    attributes = tuple(rng.sample(product.attributes, few))
    options = {name: rng.choice(values) for name, values in product.options.items()}
    ceiling = draw_ceiling(product.price, rng)
    instruction = rng.choice(_ASKED).format(noun=product.query, attributes=_joined(attributes))
    return Goal(instruction + spoken(options, ceiling), product, attributes, options, ceiling)


def draw_ceiling(price: float, rng: random.Random) -> float | None:
    """One of the next steps of ten dollars above a price, as the original draws it."""
    above = [ceiling for ceiling in _CEILINGS if ceiling > price][:4]
    return max(rng.sample(above, 2)) if len(above) > 1 else None


def spoken(options: Mapping[str, str], ceiling: float | None) -> str:
    """The end of an instruction: options and price."""
    chosen = "".join(f", {name}: {value}" for name, value in options.items())
    return chosen + (f", and price lower than {ceiling:.2f} dollars" if ceiling else "")


def _joined(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1])] * (len(parts) > 1) + [parts[-1]])
