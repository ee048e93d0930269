"""The shop in text: pages, actions, and who succeeds in it."""

import random

import pytest

from jaxrl_guided.envs.text.registry import make_demonstrator, make_text_task
from jaxrl_guided.envs.webshop.catalogue import synthetic_catalogue
from jaxrl_guided.envs.webshop.goals import draw_goal
from jaxrl_guided.envs.webshop.text_task import WebShopText


def play(task, answer, seed):
    """The last reply of an episode."""
    observation = task.reset(seed).observation
    for _ in range(task.max_turns):
        reply = task.step(answer(observation))
        observation = reply.observation
        if reply.terminated:
            break
    return reply


@pytest.mark.parametrize(
    "options",
    [{}, {"mode": "rich"}, {"compact": True}, {"products": 40, "page_size": 4, "compact": True}],
)
def test_a_scripted_shopper_gets_what_is_asked_for(options):
    task, shopper = make_text_task("webshop", **options), make_demonstrator("webshop")
    won = 0
    for seed in range(200):
        shopper.reset(seed)
        reply = play(task, shopper.answer, seed)
        assert reply.acted
        won += reply.success
    assert won >= 0.95 * 200


def test_a_random_visitor_does_not():
    task, rng, won = WebShopText(), random.Random(0), 0

    def anything(observation):
        offered = observation.rpartition("\nActions: ")[2].split(", click[")
        if offered == ["search[KEYWORDS]"]:
            words = observation.partition("Instruction: [SEP] ")[2].split()
            return f"search[{' '.join(rng.sample(words, 3))}]".replace("[[", "[")
        return f"click[{rng.choice(offered).removeprefix('click[').removesuffix(']')}]"

    for seed in range(400):
        won += play(task, anything, seed).success
    assert won < 0.05 * 400


def test_a_visit_by_hand():
    task = WebShopText(products=40, page_size=2)
    opening = task.reset(3)
    asked = opening.description.removeprefix("WebShop: ")
    head = f"Instruction: [SEP] {asked} [SEP] "
    assert opening.observation == f"{head}Search\nActions: search[KEYWORDS]"

    product = task._goal.product
    shown = task.step(f"<think>hm</think><answer>search[{product.title}]</answer>").observation
    assert shown.startswith(f"{head}Back to Search [SEP] Page 1 (Total results: ")
    assert (
        f"[SEP] Next > [SEP] {product.asin} [SEP] {product.title} [SEP] ${product.price}" in shown
    )
    second = task.step("click[Next >]").observation
    assert "Page 2" in second
    assert product.asin not in second
    assert task.step("click[< prev]").observation == shown

    item = task.step(f"click[{product.asin}]").observation
    values = " [SEP] ".join(
        f"{name} [SEP] {' [SEP] '.join(values)}" for name, values in product.options.items()
    )
    assert item.startswith(
        f"{head}Back to Search [SEP] < Prev [SEP] {values} [SEP] {product.title} [SEP] Price: "
        f"${product.price} [SEP] Description [SEP] Features [SEP] Reviews [SEP] Buy Now"
    )
    features = task.step("click[features]").observation
    assert " [SEP] ".join(["Back to Search", "< Prev", *product.features]) in features
    task.step("click[< Prev]")
    for value in task._goal.options.values():
        task.step(f"click[{value}]")
    reply = task.step("click[buy now]")
    assert reply.success
    assert reply.terminated
    assert reply.rewards == {"task": 1.0}


@pytest.mark.parametrize(
    "answer, note",
    [
        ("I would like tea", "no action; answer search[KEYWORDS] or click[VALUE]"),
        ("click[buy now]", "'buy now' cannot be clicked here"),
        ("<answer>tea</answer>", "no action"),
        ("search[]", "no action"),
    ],
)
def test_what_is_no_action_changes_nothing(answer, note):
    task = WebShopText(products=40)
    shown = task.reset(0).observation
    reply = task.step(answer)
    assert not reply.acted
    assert reply.rewards == {}
    assert reply.observation.startswith(f"Note: {note}")
    assert reply.observation.endswith(shown)


def test_one_searches_on_the_search_page_only():
    task = WebShopText(products=40)
    task.reset(0)
    task.step("search[shirt]")
    reply = task.step("search[lamp]")
    assert not reply.acted
    assert reply.observation.startswith("Note: there is no search bar here")
    assert task.step("click[back to search]").observation.endswith("Actions: search[KEYWORDS]")


def test_words_that_nobody_knows_find_nothing():
    task = WebShopText(products=40)
    task.reset(0)
    assert "(Total results: 0)" in task.step("search[qqq zzz]").observation


def test_choices_are_marked_where_buttons_are():
    task = WebShopText(products=40, mode="rich")
    task.reset(3)
    product, (value, *_) = task._goal.product, task._goal.options.values()
    task.step(f"search[{product.title}]")
    before = task.step(f"click[{product.asin}]").observation
    assert f"[button] {value} [button_]" in before
    after = task.step(f"click[{value}]").observation
    assert f"[clicked button] {value} [clicked button_]" in after
    results = task.step("click[< prev]").observation
    assert f"[clicked button] {product.asin} [clicked button_]" in results


def test_seeds_are_goals_and_ceilings():
    products = synthetic_catalogue(100, 0)
    goals = [draw_goal(products, seed) for seed in range(200)]
    assert goals == [draw_goal(synthetic_catalogue(100, 0), seed) for seed in range(200)]
    assert len({goal.instruction for goal in goals}) > 190
    for goal in goals:
        assert goal.ceiling is None or goal.product.price < goal.ceiling <= goal.product.price + 40
        assert set(goal.attributes) <= set(goal.product.attributes)
        assert all(value in goal.product.options[name] for name, value in goal.options.items())


def test_products_differ_and_small_catalogues_are_the_beginning_of_large_ones():
    products = synthetic_catalogue(1000, 7)
    assert len({product.asin for product in products}) == 1000
    assert all(len(product.asin) == 10 for product in products)
    assert products[:50] == synthetic_catalogue(50, 7)
    assert products[:50] != synthetic_catalogue(50, 8)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"mode": "html"}, "mode must be one of text, rich, not 'html'"),
        ({"products": 0}, "products must be at least 1, not 0"),
        ({"page_size": 0}, "page_size must be at least 1, not 0"),
        ({"max_turns": 0}, "max_turns must be at least 1, not 0"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        WebShopText(**options)


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs bm25s and thefuzz; install jaxrl_guided\[webshop"):
        WebShopText()
