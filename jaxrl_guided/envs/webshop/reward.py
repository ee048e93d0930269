"""What a purchase is worth: Yao et al. 2022 (WebShop), section 3.1 and its code."""

from collections.abc import Iterable, Mapping

from thefuzz import fuzz

from jaxrl_guided.envs.webshop.product import Goal, Product, words_of

_ALIKE = 85
"""What `token_set_ratio` has to exceed for two texts to be the same."""

_SMALL = frozenset(words_of("a an and at by for from in is it of on or pack set the this to with"))
_COLOURS = words_of(
    "black white grey gray silver red maroon burgundy crimson coral pink magenta purple violet "
    "lavender blue navy teal turquoise aqua green olive mint yellow gold orange beige ivory cream "
    "brown khaki tan copper bronze"
)
_EXACT = ("size",)
"""Options that nothing but the same text matches."""


def score(goal: Goal, bought: Product, chosen: Mapping[str, str]) -> float:
    """r_type · (attributes + options that match + [price ≤ ceiling]) / (how many there are + 1).

    Args:
      chosen: values of options, by the option's name.

    Returns:
      From 0 to 1; 1 is what was asked for. Choices that match count at most once for each option
      of the goal, which the original leaves open.
    """
    right = (
        sum(_has(bought, attribute) for attribute in goal.attributes)
        + min(len(goal.options), options_right(goal, bought, chosen))
        + (goal.ceiling is None or bought.price <= goal.ceiling)
    )
    return type_score(goal.product, bought) * right / (len(goal.attributes) + len(goal.options) + 1)


def options_right(goal: Goal, bought: Product, chosen: Mapping[str, str]) -> int:
    """How many choices are like one that is asked for, or stand in the product's own texts."""
    wanted = [_colour(value) for value in goal.options.values()]
    right = 0
    for name, value in chosen.items():
        plain = _colour(value)
        alike = plain in wanted if name.lower() in _EXACT else _is_among(plain, wanted)
        right += alike or _says(bought, plain)
    return right


def type_score(wanted: Product, bought: Product) -> float:
    """1 for the same kind of product, .5 or .1 for one less alike, 0 for nothing in common.

    Kinds are the same when the query is, when two levels of the category are, or when more than a
    fifth of the wanted title's words stand in the bought one's. The original counts nouns that a
    tagger finds; here all words count except the smallest.
    """
    words = _words(wanted.title)
    shared = len(words & _words(bought.title)) / len(words) if words else 0.2
    levels = set(_levels(wanted)) & set(_levels(bought))
    if shared == 0:
        return 0.0
    if shared < 0.1:
        return 0.1
    return 1.0 if wanted.query == bought.query or len(levels) >= 2 or shared > 0.2 else 0.5


def _has(product: Product, attribute: str) -> bool:
    """The product has an attribute like it, or a text of it says so."""
    return _is_among(attribute, product.attributes) or _says(product, attribute.lower())


def _says(product: Product, words: str) -> bool:
    texts = (product.title, " ".join(product.features), product.description)
    return any(words in text.lower() for text in texts)


def _colour(value: str) -> str:
    """The plain color that a value names; any other value as it is."""
    return next((colour for colour in _COLOURS if colour in value), value)


def _is_among(wanted: str, values: Iterable[str]) -> bool:
    return any(fuzz.token_set_ratio(value, wanted) > _ALIKE for value in values)


def _words(title: str) -> frozenset[str]:
    return frozenset(words_of(title)) - _SMALL


def _levels(product: Product) -> list[str]:
    return [level.strip() for level in product.category.split("›")]
