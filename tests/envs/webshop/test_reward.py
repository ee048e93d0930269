"""What a purchase is worth, case by case, from the rules of the original's code."""

import dataclasses

import pytest

from jaxrl_guided.envs.webshop.product import Goal, Product
from jaxrl_guided.envs.webshop.reward import options_right, score, type_score

WANTED = Product(
    asin="B000000001",
    title="Alvora Slim Fit Polo Shirt",
    query="polo shirt",
    category="Clothing › Men › Polo Shirt",
    price=24.99,
    attributes=("slim fit", "machine wash"),
    options={"size": ("small", "large"), "color": ("navy", "red")},
    description="A shirt.",
    features=("wrinkle free",),
)
GOAL = Goal(
    "…", WANTED, ("slim fit", "machine wash"), {"size": "large", "color": "navy"}, ceiling=30.0
)
CHOSEN = {"size": "large", "color": "navy"}


def like(**changes):
    return dataclasses.replace(WANTED, **changes)


@pytest.mark.parametrize(
    "bought, chosen, expected",
    [
        (WANTED, CHOSEN, 5 / 5),
        (WANTED, {"size": "large"}, 4 / 5),
        (WANTED, {}, 3 / 5),
        (WANTED, {"size": "x-large", "color": "navy"}, 4 / 5),  # sizes must be the same
        (WANTED, {"size": "large", "color": "dark navy"}, 5 / 5),  # colors alike are
        (like(price=30.0), CHOSEN, 5 / 5),
        (like(price=30.01), CHOSEN, 4 / 5),
        (like(attributes=("slim fit",)), CHOSEN, 4 / 5),
        (like(attributes=()), CHOSEN, 4 / 5),  # the title says slim fit
        (like(attributes=(), features=("Machine wash cold",)), CHOSEN, 5 / 5),
        (like(attributes=("fit slim", "machine wash")), CHOSEN, 5 / 5),
    ],
)
def test_parts_that_are_right_over_all_parts(bought, chosen, expected):
    assert score(GOAL, bought, chosen) == pytest.approx(expected)


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({}, 1.0),
        ({"query": "shirt"}, 1.0),  # category and title are the same
        ({"query": "shirt", "category": "Clothing › Men › Shirts"}, 1.0),
        ({"query": "x", "category": "Y", "title": "Polo Shirt"}, 1.0),  # 2 of 5 words
        ({"query": "x", "category": "Y", "title": "Red Shirt"}, 0.5),  # 1 of 5 is no more than .2
        ({"query": "x", "category": "Y", "title": "Red Lamp"}, 0.0),
        ({"title": "Red Lamp"}, 0.0),  # as the original: no word in common is nothing
    ],
)
def test_kinds_of_product(changes, expected):
    assert type_score(WANTED, like(**changes)) == expected


def test_a_word_in_twenty_is_a_tenth():
    words = like(title=" ".join(f"word{n}" for n in range(20)))
    assert type_score(words, like(title="word3 lamp")) == 0.1


def test_a_title_without_words_counts_as_one_fifth():
    assert type_score(like(title="for the"), like(query="x", category="Y")) == 0.5


def test_choices_of_the_product_that_its_own_texts_name_are_right():
    bought = like(options={"fit": ("slim fit",)})
    assert options_right(GOAL, bought, {"fit": "slim fit"}) == 1
    assert options_right(GOAL, bought, {"fit": "loose"}) == 0


def test_more_choices_than_asked_for_give_no_more_than_one():
    goal = dataclasses.replace(GOAL, options={"color": "navy"})
    assert score(goal, WANTED, {"color": "navy", "fit": "slim fit"}) == 1.0


def test_any_price_is_right_without_a_ceiling():
    assert score(dataclasses.replace(GOAL, ceiling=None), like(price=999.0), CHOSEN) == 1.0
