"""The levels' sentences: twenty a task, and Rephrase has other words than Real."""

import hashlib
import re

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from jaxrl_guided.envs.metaworld.instructions import LEVELS, instruction_set
from jaxrl_guided.envs.metaworld.tasks import CATEGORIES, TASKS

REAL = (
    "reach", "push", "pick-place", "button-press", "door-unlock", "door-open", "window-open",
    "faucet-open", "coffee-push", "coffee-button",
)  # fmt: skip
EASY = (
    "reach-wall", "push-wall", "pick-place-wall", "button-press-wall", "door-lock", "door-close",
    "window-close", "faucet-close",
)  # fmt: skip
HARD = ("make-coffee", "locked-door-open", "hammer", "soccer")


def words(text):
    return set(re.findall(r"[a-z]+", text.lower()))


FUNCTION_WORDS = words(
    "a an the it its i me we you your that this there "
    "of to in into on at by for from off out over up with without through along away until "
    "so but and or than then as if no not do is are be can should must let go s"
)


def test_tasks_of_the_levels():
    assert CATEGORIES == {"real": REAL, "rephrase": REAL, "easy": EASY, "hard": HARD}
    alone = {f"{level}-{task}" for level, tasks in CATEGORIES.items() for task in tasks}
    assert set(LEVELS) == {*CATEGORIES, *REAL, *EASY, *HARD, *alone, "real-heldout"}
    assert set(TASKS) == {*REAL, *EASY, *HARD}


@pytest.mark.parametrize("level", [*CATEGORIES, *TASKS])
def test_twenty_different_sentences_a_task(level):
    instructions = instruction_set(level)
    names = CATEGORIES.get(level, (level,))
    assert len(instructions) == 20 * len(names) == len(set(instructions.texts))
    assert instructions.tasks == tuple(name for name in names for _ in range(20))
    for text in instructions.texts:
        assert re.fullmatch(r"[A-Z][A-Za-z,:;' ]+[.?!]", text), text


def test_a_task_alone_has_its_categorys_sentences():
    real = instruction_set("real")
    assert instruction_set("push").texts == real.texts[20:40]
    assert instruction_set("soccer").texts == instruction_set("hard").texts[60:]
    np.testing.assert_array_equal(real.of(["push", "reach"]), np.arange(40))
    np.testing.assert_array_equal(real.of(()), np.arange(200))


@pytest.mark.parametrize("level", CATEGORIES)
def test_a_task_has_the_words_of_its_category(level):
    whole = instruction_set(level)
    for task in CATEGORIES[level]:
        alone, rows = instruction_set(f"{level}-{task}"), whole.of([task])
        assert alone.texts == tuple(whole.texts[i] for i in rows)
        assert alone.tasks == (task,) * 20
        np.testing.assert_array_equal(alone.held_out, whole.held_out[rows])


def test_held_out_sentences_are_a_level():
    real, kept = instruction_set("real"), instruction_set("real-heldout")
    assert len(kept) == 20
    pairs = zip(real.texts, real.tasks, real.held_out, strict=True)
    assert list(zip(kept.texts, kept.tasks, strict=True)) == [
        (text, task) for text, task, held_out in pairs if held_out
    ]
    assert kept.held_out.all()


def test_no_sentence_means_two_tasks():
    texts = [text for level in CATEGORIES for text in instruction_set(level).texts]
    assert len(texts) == len(set(texts)) == 640


def test_rephrase_shares_no_content_word_with_real():
    real, rephrase = (
        set().union(*map(words, instruction_set(level).texts)) for level in ("real", "rephrase")
    )
    assert (real & rephrase) - FUNCTION_WORDS == set()
    things = {"gripper", "hand", "puck", "goal", "button", "door", "window", "faucet", "mug"}
    assert not FUNCTION_WORDS & (things | {"push", "press", "open", "unlock", "turn", "pull"})


def test_bag_of_words_from_real_does_not_find_the_task_in_rephrase():
    real, rephrase = instruction_set("real"), instruction_set("rephrase")
    counter = CountVectorizer(token_pattern=r"[A-Za-z]+").fit(real.texts)
    tasks = np.array(real.tasks)
    learned, held_out = ~real.held_out, real.held_out
    model = LogisticRegression(max_iter=500)
    model.fit(counter.transform(np.array(real.texts)[learned]), tasks[learned])

    def accuracy(texts, names):
        return model.score(counter.transform(texts), names)

    assert accuracy(np.array(real.texts)[held_out], tasks[held_out]) > 0.8
    assert accuracy(rephrase.texts, rephrase.tasks) <= 0.25


def test_a_tenth_of_real_is_held_out():
    real = instruction_set("real")
    assert real.held_out.reshape(10, 20).sum(1).tolist() == [2] * 10
    assert not real.held_out.flags.writeable
    for level in (name for name in LEVELS if not name.startswith("real")):
        assert not instruction_set(level).held_out.any()


def test_wording_is_pinned():
    """A change of wording voids results: this value may change only together with them."""
    text = "\n".join(line for level in CATEGORIES for line in instruction_set(level).texts)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "5c90b60b0c173fb0"


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="level: unknown 'medium'; choose one of real"):
        instruction_set("medium")
    with pytest.raises(ValueError, match=r"tasks: must be out of reach-wall, .* 'easy', not push"):
        instruction_set("easy").of(["push"])
