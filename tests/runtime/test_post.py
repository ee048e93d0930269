"""Letters between two programs: none is lost, and each side knows whether the other is there."""

from jaxrl_guided.runtime.post import CALLER, OPENER, Post


def test_letters_come_once_and_in_order():
    post = Post()
    assert post.swap(OPENER, ["a", "b"]) == []
    assert post.swap(OPENER, ["c"]) == []
    assert post.swap(CALLER, ["x"]) == ["a", "b", "c"]
    assert post.swap(CALLER, []) == []
    assert post.swap(OPENER, []) == ["x"]


def test_a_side_is_taken_once():
    post = Post()
    assert post.join(CALLER)
    assert not post.join(CALLER)
    assert post.join(OPENER)


def test_silence_is_counted_from_the_last_sign_of_life():
    now = [0.0]
    post = Post(lambda: now[0])
    post.join(OPENER)
    now[0] = 100.0
    assert post.beat(OPENER) == 0  # nobody has joined whose silence there would be
    post.join(CALLER)
    now[0] = 107.0
    assert post.beat(OPENER) == 7
    assert post.beat(CALLER) == 0
    now[0] = 110.0
    assert post.beat(OPENER) == 3
