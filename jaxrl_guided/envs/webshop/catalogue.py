"""A catalogue of products that do not exist, made from a seed."""

import dataclasses
import random
import re
from collections.abc import Mapping, Sequence

from jaxrl_guided.envs.webshop.product import Product

_LETTERS = "0123456789ABCDEFGHJKLMNPQRSTVWXYZ"
_WORD = re.compile(r"[\w-]+")
_COLOURS = _WORD.findall("black white red navy green grey pink purple teal beige orange silver")
_SIZES = _WORD.findall("x-small small medium large x-large xx-large")
_BRANDS = _WORD.findall(
    "Alvora Brintel Cassaro Dunmere Elkova Fennick Gralto Harwyn Istara Jorvell Kestra Lumisk "
    "Morvane Nordell Orival Pellano Quenby Rostina Solvik Tarnow Ulvane Verrin Wexley Zandor"
)


@dataclasses.dataclass(frozen=True)
class _Kind:
    """A kind of product: `noun` on a shelf, what it can be like, what can be chosen, its price."""

    shelf: str
    noun: str
    attributes: Sequence[str]
    options: Mapping[str, Sequence[str]]
    price: tuple[int, int]


def _kind(
    shelf: str, noun: str, attributes: str, price: tuple[int, int], **options: Sequence[str]
) -> _Kind:
    return _Kind(shelf, noun, attributes.split(", "), options, price)


_CLOTH = {"size": _SIZES, "color": _COLOURS}
_SHOES = {"size": [str(number) for number in range(5, 13)], "color": _COLOURS}
_SKIN = "fragrance free, cruelty free, paraben free, sulfate free, dry skin, sensitive skin"
_FOOD = "gluten free, sugar free, low sodium, non gmo, dairy free, high protein, artisan made"

_KINDS = (
    _kind(
        "Beauty › Hair Care",
        "shampoo",
        f"{_SKIN}, damaged hair, curly hair",
        (6, 34),
        scent=("coconut", "lavender", "mint", "citrus"),
        size=("8 ounce", "16 ounce", "32 ounce"),
    ),
    _kind(
        "Beauty › Skin Care",
        "body lotion",
        f"{_SKIN}, long lasting, plant based",
        (5, 40),
        scent=("rose", "vanilla", "almond", "cucumber"),
        size=("4 ounce", "10 ounce"),
    ),
    _kind(
        "Beauty › Makeup",
        "lipstick",
        "long lasting, cruelty free, matte finish, highly pigmented, easy apply, paraben free",
        (4, 26),
        color=("ruby", "coral", "nude", "plum", "berry"),
    ),
    _kind(
        "Beauty › Oral Care",
        "toothbrush",
        "soft bristles, easy clean, travel size, eco friendly, sensitive teeth, battery powered",
        (3, 45),
        color=_COLOURS[:6],
        size=("2 pack", "4 pack"),
    ),
    _kind(
        "Clothing › Men",
        "polo shirt",
        "machine wash, slim fit, moisture wicking, short sleeve, "
        "cotton spandex, wrinkle free, classic fit",
        (12, 60),
        **_CLOTH,
    ),
    _kind(
        "Clothing › Men",
        "cargo pants",
        "machine wash, elastic waist, straight leg, water resistant, stretch fabric, relaxed fit",
        (18, 80),
        **_CLOTH,
    ),
    _kind(
        "Clothing › Women",
        "maxi dress",
        "hand wash, long sleeve, high waist, floral print, "
        "polyester spandex, v neck, unique design",
        (15, 90),
        **_CLOTH,
    ),
    _kind(
        "Clothing › Women",
        "yoga leggings",
        "high waist, tummy control, moisture wicking, quick drying, machine wash, squat proof",
        (10, 55),
        **_CLOTH,
    ),
    _kind(
        "Shoes › Men",
        "hiking boots",
        "water resistant, slip resistant, rubber sole, ankle support, arch support, steel toe",
        (35, 160),
        **_SHOES,
    ),
    _kind(
        "Shoes › Women",
        "walking sandals",
        "memory foam, rubber sole, open toe, arch support, light weight, ankle strap",
        (15, 85),
        **_SHOES,
    ),
    _kind(
        "Electronics › Audio",
        "wireless headphones",
        "noise cancelling, long battery life, "
        "fast charging, water resistant, hands free, high fidelity",
        (18, 260),
        color=_COLOURS[:6],
    ),
    _kind(
        "Electronics › Phones",
        "phone case",
        "shock absorbing, wireless charging, slim fit, scratch resistant, heavy duty, clear back",
        (6, 40),
        color=_COLOURS,
        model=("model s10", "model s12", "model s14", "model x2"),
    ),
    _kind(
        "Electronics › Video",
        "projector",
        "high brightness, dual band, easy setup, light weight, built in speakers, low noise",
        (60, 480),
        color=_COLOURS[:3],
    ),
    _kind(
        "Electronics › Cables",
        "charging cable",
        "fast charging, gold plated, nylon braided, high speed, heavy duty, tangle free",
        (4, 28),
        size=("3 feet", "6 feet", "10 feet"),
        color=_COLOURS[:6],
    ),
    _kind(
        "Home › Furniture",
        "bookshelf",
        "easy assemble, solid wood, space saving, wall mounted, steel frame, mid century",
        (40, 320),
        color=("walnut", "oak", "white", "black"),
    ),
    _kind(
        "Home › Furniture",
        "office chair",
        "lumbar support, height adjustable, high density foam, "
        "easy assemble, breathable mesh, heavy duty",
        (55, 390),
        color=_COLOURS[:6],
    ),
    _kind(
        "Home › Lighting",
        "table lamp",
        "energy efficient, glass shade, brushed nickel, dimmable, usb port, easy install",
        (14, 130),
        color=("brass", "bronze", "white", "black"),
    ),
    _kind(
        "Home › Bedding",
        "throw blanket",
        "machine washable, super soft, double sided, light weight, "
        "king sized, exquisite workmanship",
        (12, 75),
        color=_COLOURS,
        size=("50 x 60 inches", "60 x 80 inches", "90 x 90 inches"),
    ),
    _kind(
        "Home › Window",
        "blackout curtains",
        "machine washable, thermal insulated, easy install, "
        "grommet top, noise reducing, eco friendly",
        (16, 95),
        color=_COLOURS,
        size=("52 x 63 inches", "52 x 84 inches", "52 x 96 inches"),
    ),
    _kind(
        "Grocery › Snacks",
        "protein bars",
        f"{_FOOD}, keto friendly",
        (8, 42),
        flavor=("peanut", "chocolate", "lemon", "caramel"),
        size=("6 count", "12 count", "24 count"),
    ),
    _kind(
        "Grocery › Drinks",
        "green tea",
        f"{_FOOD}, caffeine free, individually wrapped",
        (4, 36),
        flavor=("jasmine", "ginger", "peach", "original"),
        size=("20 bags", "50 bags", "100 bags"),
    ),
    _kind(
        "Grocery › Pantry",
        "pasta sauce",
        f"{_FOOD}, fat free",
        (3, 24),
        flavor=("basil", "garlic", "spicy", "mushroom"),
        size=("1 jar", "3 jars", "6 jars"),
    ),
    _kind(
        "Garden › Tools",
        "pruning shears",
        "stainless steel, non slip, carbon steel, rust resistant, soft grip, easy clean",
        (8, 52),
        color=_COLOURS[:5],
    ),
    _kind(
        "Sports › Camping",
        "sleeping bag",
        "water resistant, light weight, cold weather, easy carry, machine washable, double zipper",
        (22, 150),
        color=_COLOURS[:8],
        size=("regular", "long", "double"),
    ),
)

_SAYINGS = (
    "The {noun} is {a} and {b}.",
    "Made for everyday use: {a}, {b}.",
    "You asked for something {a}; this {noun} is {b} as well.",
)
_OPINIONS = (
    "Does what it says, and arrived on time.",
    "Good for the price.",
    "Not quite the color that I expected.",
    "I bought a second one for a friend.",
    "Works, but the package was damaged.",
)


def synthetic_catalogue(products: int, seed: int) -> list[Product]:
    """Products of all kinds in turn, no two of which have the same number.

    Args:
      products: how many; those of a smaller catalogue of the same seed are its first ones.
    """
    return [_product(index, seed) for index in range(products)]


def _product(index: int, seed: int) -> Product:
    rng = random.Random(f"{seed} {index}")
    kind = _KINDS[index % len(_KINDS)]
    has = rng.sample(kind.attributes, rng.randint(3, 5))
    brand, low, high = rng.choice(_BRANDS), *kind.price
    options = {
        name: tuple(
            sorted(rng.sample(values, rng.randint(2, min(5, len(values)))), key=values.index)
        )
        for name, values in kind.options.items()
    }
    # Attributes are told here and there: the title has one or two, the rest has to be looked for.
    shown = has[: rng.randint(1, 2)]
    saying = rng.choice(_SAYINGS).format(noun=kind.noun, a=has[0], b=has[-1])
    return Product(
        asin=_asin(index, seed),
        title=" ".join([brand, *(word.title() for word in shown), kind.noun.title()]),
        query=kind.noun,
        category=f"{kind.shelf} › {kind.noun.title()}",
        price=rng.randint(low, high - 1) + rng.choice((0.49, 0.95, 0.99)),
        attributes=tuple(has),
        options=options,
        description=f"{brand} {kind.noun}. {saying}",
        features=tuple(has[len(shown) :]),
        reviews=tuple(rng.sample(_OPINIONS, rng.randint(0, 3))),
    )


def _some(values: Sequence[str], rng: random.Random) -> Sequence[str]:
    """Two to five of them, in their order."""
    taken = rng.sample(values, rng.randint(2, min(5, len(values))))
    return tuple(value for value in values if value in taken)


def _asin(index: int, seed: int) -> str:
    """`B`, four characters that differ for all products, and five that are noise."""
    noise = random.Random(f"asin {seed} {index}").choices(_LETTERS, k=5)
    base, number = len(_LETTERS), index
    digits = [_LETTERS[number // base**place % base] for place in range(4)]
    return "B" + "".join(digits + noise)
