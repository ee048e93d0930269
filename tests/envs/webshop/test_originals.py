"""WebShop's own files: read as its code reads them; what is wrong with one is said in a line."""

import json

import pytest

from jaxrl_guided.envs.webshop.originals import read_originals
from jaxrl_guided.envs.webshop.text_task import WebShopText

ITEM = {
    "asin": "B09AAAAAAA",
    "name": "Mint Shampoo, 8 Ounce",
    "query": " Shampoo ",
    "product_category": "Beauty › Hair Care › Shampoo",
    "full_description": "For dry hair.",
    "small_description": ["Paraben free", "Vegan"],
    "pricing": "$1,010.50",
    "customization_options": {
        "Size": [{"value": " 8 oz/Small "}, {"value": "16 oz"}],
        "Scent": None,
    },
}
ATTRIBUTES = {"B09AAAAAAA": {"attributes": ["paraben free", "dry hair"]}}
PEOPLE = {
    "B09AAAAAAA": [
        {
            "instruction": "i need a paraben free shampoo.",
            "instruction_attributes": ["paraben free"],
            "instruction_options": ["16 oz"],
        },
        {"instruction": "anything", "instruction_attributes": [], "instruction_options": []},
    ]
}


def item(**changes):
    return {**ITEM, **changes}


@pytest.fixture
def write(tmp_path):
    def write(items=(ITEM,), attributes=ATTRIBUTES, people=PEOPLE, size="_1000"):
        files = {
            f"items_shuffle{size}.json": items,
            f"items_ins_v2{size}.json": attributes,
            "items_human_ins.json": people,
        }
        for name, content in files.items():
            text = content if isinstance(content, str) else json.dumps(content)
            (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path)

    return write


@pytest.mark.parametrize("size", ["", "_1000"])
def test_products_and_goals_are_read(write, size):
    (product,), (goal,) = read_originals(write(size=size))
    assert product.query == "shampoo"
    assert product.price == 1010.5
    assert product.options == {"size": ("8 oz | small", "16 oz")}
    assert product.attributes == ("paraben free", "dry hair")
    assert goal.instruction == "i need a paraben free shampoo"
    assert goal.attributes == ("paraben free",)
    assert goal.options == {"0": "16 oz"}
    assert goal.ceiling is None  # nothing is above so high a price


def test_prices_are_single_missing_or_between_two(write):
    items = [
        item(asin="B000000001", pricing="$3.50"),
        item(asin="B000000002", pricing=None),
        item(asin="B000000003", pricing="$10.00 to $20.00"),
        item(asin="nan"),
        item(asin="B0000000044"),
        item(asin="B000000001", pricing="$9.00"),
    ]
    people = {"B000000001": PEOPLE["B09AAAAAAA"]}
    products, (goal,) = read_originals(write(items, people=people))
    assert [product.asin for product in products] == [f"B00000000{n}" for n in (1, 2, 3)]
    assert [product.price for product in products[:2]] == [3.5, 100.0]
    assert 10 <= products[2].price <= 20
    assert read_originals(write(items, people=people))[0][2].price == products[2].price
    assert goal.instruction == (
        f"i need a paraben free shampoo, and price lower than {goal.ceiling:.2f} dollars"
    )
    assert goal.ceiling in (20.0, 30.0, 40.0)


def test_it_is_played(write):
    task = WebShopText(data=write())
    assert task.instances == 1
    task.reset(0)
    task.step("search[shampoo]")
    task.step("click[b09aaaaaaa]")
    task.step("click[16 oz]")
    reply = task.step("click[buy now]")
    assert reply.rewards == {"task": 1.0}
    assert reply.success


@pytest.mark.parametrize(
    "files, message",
    [
        ({"items": "{"}, "items_shuffle_1000.json' cannot be read as JSON"),
        ({"items": {}}, "items_shuffle_1000.json' must hold a JSON list"),
        ({"people": []}, "items_human_ins.json' must hold a JSON object"),
        ({"items": [{"asin": "B1"}]}, "product 0 of .* lacks name, query, product_category, full_"),
        ({"items": [7]}, "product 0 of .* lacks all fields"),
        ({"items": [item(customization_options={"a": [{}]})]}, "product 0 of .* KeyError"),
        ({"people": {}}, "has no instruction about a product"),
        ({"people": {"B09AAAAAAA": [{"instruction": "x"}]}}, "an instruction for B09AAAAAAA in"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(write, files, message):
    with pytest.raises(ValueError, match=message):
        read_originals(write(**files))


def test_a_directory_without_the_files(tmp_path):
    with pytest.raises(ValueError, match="is no directory; give one with WebShop's files"):
        WebShopText(data=str(tmp_path / "none"))
    with pytest.raises(ValueError, match=r"has no items_shuffle_1000\.json or items_s"):
        WebShopText(data=str(tmp_path))
