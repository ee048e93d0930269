"""Parts of the observation, each against NetHack's own names or a few lines of plain Python."""

import numpy as np
import pytest
from nle import nethack

from jaxrl_guided.envs.minihack.host import Host, HostConfig
from jaxrl_guided.envs.minihack.observe import PARTS, crop, inventory, stats
from jaxrl_guided.envs.minihack.symbols import SYMBOL, SYMBOLS, glyph_table


def shown(task, *names, seed=0):
    """The first observation of a game."""
    host = Host(task, HostConfig(observe=names))
    obs, _ = host.reset(seed=seed)
    host.close()
    return obs


@pytest.mark.parametrize("place", [(0, 0), (78, 20), (40, 10), (3, 19), (77, 1)])
def test_a_crop_is_the_cells_around(place):
    cells = np.random.default_rng(0).integers(1, 99, (21, 79))
    column, row = place
    expected = [
        [cells[r, c] if 0 <= r < 21 and 0 <= c < 79 else -7 for c in range(column - 4, column + 5)]
        for r in range(row - 4, row + 5)
    ]
    assert crop(cells, np.array([column, row, 3]), -7).tolist() == expected


def test_crops_are_of_the_maps():
    names = ("glyphs", "chars", "colors", "symbols")
    obs = shown("River", *names, *(f"{name}_crop" for name in names), "blstats")
    column, row = obs["blstats"][:2]
    assert chr(obs["chars_crop"][4, 4]) == "@"
    for name in names:
        whole, part = obs[name], obs[f"{name}_crop"]
        assert part.shape == (9, 9)
        for (r, c), value in np.ndenumerate(part):
            if 0 <= row + r - 4 < 21 and 0 <= column + c - 4 < 79:
                assert value == whole[row + r - 4, column + c - 4]


def test_what_a_step_gave_stays_as_it_was():
    host = Host("Room-5x5", HostConfig(observe=tuple(PARTS)))
    obs, _ = host.reset(seed=0)
    kept = {name: part.copy() for name, part in obs.items()}
    for _ in range(3):
        host.step(5)
    for name, part in obs.items():
        np.testing.assert_array_equal(part, kept[name])
    host.close()


TERRAIN = {
    "wall": "wall",
    "doorway": "doorway",
    "open door": "open door",
    "closed door": "closed door",
    "iron bars": "bars or tree",
    "tree": "bars or tree",
    "floor of a room": "floor",
    "corridor": "corridor",
    "lit corridor": "corridor",
    "staircase up": "stairs up",
    "staircase down": "stairs down",
    "ladder up": "stairs up",
    "ladder down": "stairs down",
    "altar": "furniture",
    "grave": "furniture",
    "opulent throne": "furniture",
    "sink": "furniture",
    "fountain": "furniture",
    "water": "water",
    "ice": "ice",
    "molten lava": "lava",
    "lowered drawbridge": "floor",
    "raised drawbridge": "wall",
    "air": "floor",
    "cloud": "floor",
}


def test_terrain_is_what_nethack_calls_it():
    symbols = glyph_table()[nethack.GLYPH_CMAP_OFF :]
    assert [SYMBOLS[symbols[number]] for number in (0, 20)] == ["unseen", "dark floor"]
    for number in set(range(65)) - {0, 20}:  # which NetHack gives one name
        explained = nethack.symdef.from_idx(number).explanation
        assert SYMBOLS[symbols[number]] == TERRAIN.get(explained, "trap"), explained


@pytest.mark.parametrize(
    "name, symbol",
    [
        ("brown mold", "monster that stays"),
        ("floating eye", "monster of level 1 or 2"),
        ("newt", "monster of level 0"),
        ("jackal", "monster of level 0"),
        ("killer bee", "monster of level 1 or 2"),
        ("soldier ant", "monster of level 3 to 5"),
        ("cockatrice", "monster of level 3 to 5"),
        ("minotaur", "monster of level 6 or more"),
    ],
)
def test_monsters_are_classed_by_danger(name, symbol):
    (number,) = (i for i in range(nethack.NUMMONS) if nethack.permonst(i).mname == name)
    table = glyph_table()
    assert SYMBOLS[table[nethack.GLYPH_MON_OFF + number]] == symbol
    assert SYMBOLS[table[nethack.GLYPH_RIDDEN_OFF + number]] == symbol
    assert SYMBOLS[table[nethack.GLYPH_PET_OFF + number]] == "pet"
    assert SYMBOLS[table[nethack.GLYPH_BODY_OFF + number]] == "food"
    assert SYMBOLS[table[nethack.GLYPH_STATUE_OFF + number]] == "statue"


@pytest.mark.parametrize(
    "name, symbol",
    [
        ("long sword", "weapon"),
        ("leather armor", "armour"),
        ("skeleton key", "tool"),
        ("food ration", "food"),
        ("boulder", "boulder"),
        ("gold piece", "gold"),
        ("diamond", "gem or rock"),
        ("amulet of life saving", "ring or amulet"),
        ("heavy iron ball", "other thing"),
    ],
)
def test_objects_are_classed_by_use(name, symbol):
    (number,) = (
        i for i in range(nethack.NUM_OBJECTS) if nethack.OBJ_NAME(nethack.objclass(i)) == name
    )
    assert SYMBOLS[glyph_table()[nethack.GLYPH_OBJ_OFF + number]] == symbol


def test_every_symbol_is_that_of_some_glyph():
    of_glyphs = {SYMBOLS[symbol] for symbol in np.unique(glyph_table())}
    assert of_glyphs == set(SYMBOLS) - {"you"}


def test_water_and_lava_have_one_character_and_two_symbols():
    obs = shown("River-Lava", "chars", "symbols")
    where = {name: obs["symbols"] == SYMBOL[name] for name in ("water", "lava")}
    assert all(cells.sum() > 3 for cells in where.values())
    assert {chr(c) for cells in where.values() for c in obs["chars"][cells]} == {"}"}


def test_stats_are_nethacks_numbers_scaled():
    numbers = np.zeros(27, np.int64)
    given = {
        "X": 39,
        "Y": 5,
        "DEPTH": 2,
        "AC": -3,
        "XP": 4,
        "HUNGER": 3,
        "CAP": 1,
        "HP": 6,
        "HPMAX": 8,
        "CONDITION": nethack.BL_MASK_BLIND | nethack.BL_MASK_RIDE,
    }
    for name, value in given.items():
        numbers[getattr(nethack, f"NLE_BL_{name}")] = value
    expected = [0.5, 0.25, 0.2, -0.3, 0.4, 0.5, 0.2, 0.75, 0.1]
    conditions = [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1]
    np.testing.assert_allclose(stats(numbers, 0.1), expected + conditions, rtol=1e-6)
    order = ("STONE", "SLIME", "STRNGL", "FOODPOIS", "TERMILL", "BLIND", "DEAF", "STUN", "CONF")
    for place, name in enumerate((*order, "HALLU", "LEV", "FLY", "RIDE")):
        numbers[nethack.NLE_BL_CONDITION] = getattr(nethack, f"BL_MASK_{name}")
        assert np.flatnonzero(stats(numbers, 0.1)[9:]).tolist() == [place]


def test_stats_of_a_finished_game_are_finite():
    assert np.isfinite(stats(np.zeros(27, np.int64), 1.0)).all()


def test_the_inventory_counts_entries_by_class():
    classes = np.full(55, nethack.MAXOCLASSES, np.uint8)
    classes[:6] = [nethack.WEAPON_CLASS] * 5 + [nethack.TOOL_CLASS]
    expected = np.zeros(18)
    expected[nethack.WEAPON_CLASS], expected[nethack.TOOL_CLASS] = 1, 0.25
    np.testing.assert_array_equal(inventory(classes), expected)
