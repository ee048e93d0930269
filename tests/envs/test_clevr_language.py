"""The four language levels: counts, meanings read by an independent parser, and no overlap."""

import hashlib
import re

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB

from jaxrl_guided.envs.clevr import feasible, grammar
from jaxrl_guided.envs.clevr.instructions import LEVELS, Kind, instruction_set

COLOURS = ["red", "blue", "green", "purple", "cyan"]
BEHIND, LEFT, FRONT, RIGHT = range(4)
REAL_WORDS = {"behind": 0, "rear": 0, "left": 1, "front": 2, "right": 3}
REPHRASE_WORDS = (
    {"beyond": 0, "back": 0, "nearer": 2, "twelve": 0, "nine": 1, "six": 2, "three": 3}
    | {stem + end: 0 for stem in ("backward",) for end in ("", "s")}
    | {stem + end: 2 for stem in ("forward",) for end in ("", "s")}
    | {stem + end: i for i, stem in ((1, "left"), (3, "right")) for end in ("ward", "wards")}
    | {
        stem + end: i
        for i, stem in enumerate(("north", "west", "south", "east"))
        for end in ("", "ern", "ward")
    }
)
EASY_WORDS = REAL_WORDS | {
    **{"backwards": 0, "back": 0, "leftwards": 1, "forwards": 2, "rightwards": 3},
}
FUNCTION_WORDS = set(
    [
        "a",
        "an",
        "the",
        "it",
        "its",
        "this",
        "these",
        "that",
        "and",
        "of",
        "to",
        "in",
        "on",
        "for",
        "from",
        "at",
        "than",
        "as",
        "how",
        "if",
        "so",
        "is",
        "be",
        "are",
        "were",
        "i",
        "me",
        "we",
        "you",
        "your",
        "would",
        "should",
        "could",
        "can",
        "must",
        "may",
        "much",
        "only",
        "just",
        "by",
        "where",
        "one",
        "two",
        "around",
        "until",
        "with",
        "let",
        "have",
        "has",
        "up",
    ]
)


def words(text):
    return re.findall(r"[a-z]+", text.lower())


def colours(text):
    return [COLOURS.index(word) for word in words(text) if word in COLOURS]


def direction(text, table):
    found = {table[word] for word in words(text) if word in table}
    assert len(found) == 1, text
    return found.pop()


def read_real(text):
    """(source, destination, direction) as a person reads it: the ball acted on is the source."""
    first, second = colours(text)
    destination_first = re.match(r"(The point|Find|Take) ", text) is not None
    pair = (second, first) if destination_first else (first, second)
    return *pair, direction(text, REAL_WORDS)


def read_rephrase(text):
    first, second = colours(text)
    where = direction(text, REPHRASE_WORDS)
    if "swap" in text:  # the present relation has to be turned round
        return first, second, (where + 2) % 4
    if "companion" in text:  # the first ball's place is told, seen from the second
        return second, first, (where + 2) % 4
    if re.match(r"(Give|Imagine|Using) ", text):
        return second, first, where
    return first, second, where


def first_goals(instructions):
    return [tuple(row) for row in instructions.relations[:, 0].tolist()]


def test_counts_and_shapes():
    sizes = {level: len(instruction_set(level)) for level in LEVELS}
    assert sizes == {
        "real": 4320,
        "real-train": 3240,
        "real-heldout": 1080,
        "rephrase": 800,
        "easy": 400,
        "hard": 1200,
        "hard-two": 300,
        "hard-three": 300,
        "hard-order": 20,
        "hard-sort": 20,
    }
    assert len(instruction_set("rephrase", confounded=True)) == 160
    assert (len(grammar.REAL_FRAMES), len(grammar.REPHRASE_STYLES)) == (18, 10)
    for level in LEVELS:
        instructions = instruction_set(level)
        assert instructions.kind.shape == (sizes[level],)
        assert instructions.relations.shape == (sizes[level], 3, 3)
        assert instructions.relations.dtype == instructions.kind.dtype == np.int32
        assert level == "hard" or len(set(instructions.texts)) == sizes[level]
        assert all(re.fullmatch(r"[A-Z][A-Za-z,:;' ]+[.?!]", text) for text in instructions.texts)
        assert not instructions.relations.flags.writeable


def test_every_real_sentence_reads_as_its_goal():
    instructions = instruction_set("real")
    assert [read_real(text) for text in instructions.texts] == first_goals(instructions)
    assert (instructions.relations[:, 1:] == -1).all()
    goals, counts = np.unique(instructions.relations[:, 0], axis=0, return_counts=True)
    assert len(goals) == 80
    assert (counts == 54).all()


@pytest.mark.parametrize("confounded", [False, True])
def test_every_rephrased_sentence_reads_as_its_goal(confounded):
    instructions = instruction_set("rephrase", confounded=confounded)
    assert [read_rephrase(text) for text in instructions.texts] == first_goals(instructions)
    assert len(np.unique(instructions.relations[:, 0], axis=0)) == 80


@pytest.mark.parametrize(
    "text, goal",
    [
        ("Take the cyan ball as it is and lay the green ball on the rear side of it.", (2, 4, 0)),
        ("I would much rather see the red sphere nearer to me than the blue sphere.", (0, 1, 2)),
        (
            "It annoys me how the red orb sits leftward of the blue orb; swap these two around.",
            (0, 1, 3),
        ),
        ("Nudge the purple marble leftward, just past the cyan marble.", (3, 4, 1)),
        ("Give the green globe a southern neighbour, namely the red globe.", (0, 2, 2)),
        ("Have the blue pearl finish close by, due west of its red companion.", (0, 1, 3)),
        (
            "Imagine a clock face centred upon the red bead: the cyan bead ought to occupy nine "
            "o'clock.",
            (4, 0, 1),
        ),
    ],
)
def test_hand_written_expectations(text, goal):
    levels = [instruction_set("real"), instruction_set("rephrase")]
    meanings = {
        t: g for level in levels for t, g in zip(level.texts, first_goals(level), strict=True)
    }
    assert meanings[text] == goal


def test_every_easy_sentence_names_its_ball_and_direction():
    instructions = instruction_set("easy")
    read = [(*colours(text), -1, direction(text, EASY_WORDS)) for text in instructions.texts]
    assert read == first_goals(instructions)
    assert (instructions.kind == Kind.ONE_STEP).all()
    _, counts = np.unique(instructions.relations[:, 0], axis=0, return_counts=True)
    assert counts.tolist() == [20] * 20


@pytest.mark.parametrize("level, size", [("hard-two", 2), ("hard-three", 3)])
@pytest.mark.parametrize("allow_conflicts", [False, True])
def test_conjunctions_read_as_their_goals(level, size, allow_conflicts):
    instructions = instruction_set(level, allow_conflicts=allow_conflicts)
    clause = re.compile(r"the (\w+) ball is ([a-z ]+?) the (\w+) ball")
    for text, relations in zip(instructions.texts, instructions.relations, strict=True):
        read = [
            (COLOURS.index(s), COLOURS.index(d), direction(x, REAL_WORDS))
            for s, x, d in clause.findall(text)
        ]
        assert read == [tuple(row) for row in relations[:size].tolist()]
        assert (relations[size:] == -1).all()


@pytest.mark.parametrize("level, size", [("hard-two", 2), ("hard-three", 3)])
def test_every_drawn_goal_set_has_a_witness(level, size):
    """Conditions are written out again here, from the rules of the benchmark."""
    axis = {BEHIND: (0, 1), LEFT: (-1, 0), FRONT: (0, -1), RIGHT: (1, 0)}
    sets = np.unique(instruction_set(level).relations, axis=0)
    assert len(sets) == 150
    for relations in sets:
        layout = feasible.find_witness(relations)
        assert layout is not None
        x, y = layout.T
        assert x.min() >= -0.47
        assert x.max() <= 0.47
        assert y.min() >= -0.17
        assert y.max() <= 0.57
        gaps = [np.hypot(*(layout[i] - layout[j])) for i in range(5) for j in range(i)]
        assert min(gaps) >= 0.26
        for source, destination, where in relations[:size]:
            offset = layout[source] - layout[destination]
            assert np.hypot(*offset) < 0.391
            cosine = offset @ axis[int(where)] / np.hypot(*offset)
            assert np.degrees(np.arccos(cosine)) < 45


@pytest.mark.parametrize(
    "goals",
    [
        [(0, 1, LEFT), (0, 1, RIGHT)],
        [(0, 1, LEFT), (1, 2, LEFT), (2, 0, LEFT)],
        [(0, 1, LEFT), (0, 2, RIGHT), (1, 2, BEHIND)],
    ],
)
def test_contradictions_have_no_witness(goals):
    assert feasible.find_witness(np.array(goals)) is None


def test_conflicts_are_drawn_only_when_allowed():
    free = instruction_set("hard-three", allow_conflicts=True).relations
    pairs = [{frozenset(goal[:2]) for goal in rows.tolist()} for rows in free]
    assert any(len(pair) < 3 for pair in pairs)


def test_order_and_sort_texts():
    order, sort = instruction_set("hard-order"), instruction_set("hard-sort")
    assert (order.kind == Kind.ORDER).all()
    assert (sort.kind == Kind.SORT).all()
    assert (order.relations == -1).all()
    assert (sort.relations == -1).all()
    named = [list(dict.fromkeys(colours(text))) for text in order.texts]
    by_pairs = next(i for i, text in enumerate(order.texts) if text.startswith("Build"))
    assert re.findall(r"(\w+) right of (\w+)", order.texts[by_pairs]) == [
        ("blue", "red"), ("green", "blue"), ("purple", "green"), ("cyan", "purple"),
    ]  # fmt: skip
    for i, (text, names) in enumerate(zip(order.texts, named, strict=True)):
        assert {"left", "leftmost", "right"} & set(words(text))
        reversed_row = text.startswith("Cyan goes to the right end")
        assert i == by_pairs or names == ([4, 3, 2, 1, 0] if reversed_row else [0, 1, 2, 3, 4])
    for text in sort.texts:
        assert set(colours(text)) in ({2}, {0, 1, 2, 3, 4})


def test_hard_meets_each_family_equally_often():
    hard = instruction_set("hard")
    goals = (hard.relations[:, :, 0] >= 0).sum(1)
    family = np.where(hard.kind == Kind.RELATIONS, goals, 10 + hard.kind)
    assert np.unique(family, return_counts=True)[1].tolist() == [300, 300, 300, 300]
    for name in ("hard-two", "hard-three", "hard-order", "hard-sort"):
        assert set(instruction_set(name).texts) <= set(hard.texts)


def test_held_out_real_is_disjoint_and_balanced():
    real, train, held_out = map(instruction_set, ("real", "real-train", "real-heldout"))
    assert not set(train.texts) & set(held_out.texts)
    assert set(train.texts) | set(held_out.texts) == set(real.texts)
    new_goals = set(first_goals(real)) - set(first_goals(train))
    assert len(new_goals) == 8
    assert [sum(goal[2] == i for goal in new_goals) for i in range(4)] == [2, 2, 2, 2]
    # The same relation told from the other ball is held out with it.
    assert {(d, s, (i + 2) % 4) for s, d, i in new_goals} == new_goals

    def frames(instructions):
        colour = "|".join(COLOURS)
        phrase = "|".join(p for phrases in grammar.REAL_DIRECTIONS for p in phrases)
        return {re.sub(colour, "C", re.sub(phrase, "X", text)) for text in instructions.texts}

    assert len(frames(train)) == 15
    assert len(frames(real) - frames(train)) == 3
    assert not any(instruction_set(level).held_out.any() for level in ("real-train", "rephrase"))


def test_rephrase_shares_no_content_word_with_real():
    """No common verb, noun or direction word means no common frame or direction phrase either."""
    real = {word for text in instruction_set("real").texts for word in words(text)}
    rephrase = {word for text in instruction_set("rephrase").texts for word in words(text)}
    assert not (real & rephrase) - FUNCTION_WORDS - set(COLOURS)
    assert not (set(REAL_WORDS) | {"ball", "side"}) & FUNCTION_WORDS


@pytest.mark.parametrize("classifier", [LogisticRegression(max_iter=500), MultinomialNB()])
def test_bag_of_words_from_real_does_not_find_the_direction_in_rephrase(classifier):
    train, held_out, rephrase = map(instruction_set, ("real-train", "real-heldout", "rephrase"))
    counter = CountVectorizer(token_pattern=r"[A-Za-z]+").fit(train.texts)
    classifier.fit(counter.transform(train.texts), train.relations[:, 0, 2])

    def accuracy(level):
        return classifier.score(counter.transform(level.texts), level.relations[:, 0, 2])

    assert accuracy(held_out) > 0.95
    assert accuracy(rephrase) <= 0.35


def test_styles_cross_directions_unless_confounded():
    def directions_by_style(confounded):
        instructions = instruction_set("rephrase", confounded=confounded)
        nouns = [
            "sphere",
            "orb",
            "marble",
            "globe",
            "bead",
            "pearl",
            "pellet",
            "bauble",
            "spheroid",
            "stone",
        ]
        found = {noun: set() for noun in nouns}
        for text, where in zip(
            instructions.texts, instructions.relations[:, 0, 2].tolist(), strict=True
        ):
            (noun,) = set(nouns) & set(words(text))
            found[noun].add(where)
        return [where for where in found.values() if where]

    assert directions_by_style(False) == [{0, 1, 2, 3}] * 10
    assert directions_by_style(True) == [{0}, {0}, {1}, {1}, {2}, {2}, {3}, {3}]


def test_wording_is_pinned():
    """A change of wording voids results: this value may change only together with them."""
    text = "\n".join(line for level in LEVELS for line in instruction_set(level).texts)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "dd27d22ba94f00ff"


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="level: unknown 'medium'; choose one of real"):
        instruction_set("medium")
    with pytest.raises(ValueError, match="confounded"):
        instruction_set("real", confounded=True)
    with pytest.raises(ValueError, match="allow_conflicts"):
        instruction_set("easy", allow_conflicts=True)
