"""A small package with tests, for tests: words, counted and wrapped."""

import difflib
import pathlib

SOURCE = '''
"""Words of a text."""


def words(text):
    """Words in lower case, without marks at their ends."""
    found = []
    for word in text.split():
        word = word.strip(".,;:!?").lower()
        if word:  # marks alone are none
            found.append(word)
    return found


def count(text, least=1):
    """How often each word stands in a text, of those that stand there often enough."""
    counts = {}
    for word in words(text):
        counts[word] = counts.get(word, 0) + 1
    return {word: number for word, number in counts.items() if number >= least}


def ratio(part, whole):
    """A share, or nothing of nothing."""
    if not whole:
        return 0.0
    return part / whole


def wrap(text, width):
    """Lines of whole words, none longer than the width unless a word is."""
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = line + " " + word if line else word
    return lines + [line] if line else lines


def between(value, low, high):
    """Whether a value is within two others, these included."""
    return low <= value and value <= high
'''

TESTS = """
import pytest

from letters import words as w


def test_words():
    assert w.words("One, two! ... Two") == ["one", "two", "two"]


def test_count():
    assert w.count("a b a") == {"a": 2, "b": 1}


def test_count_least():
    assert w.count("a b a", 2) == {"a": 2}


@pytest.mark.parametrize("part, share", [(1, 0.5), (2, 1.0)])
def test_ratio(part, share):
    assert w.ratio(part, 2) == share


def test_ratio_of_nothing():
    assert w.ratio(1, 0) == 0.0


def test_wrap():
    assert w.wrap("aa bb cc dd", 5) == ["aa bb", "cc dd"]
    assert w.wrap("", 5) == []


def test_between():
    assert w.between(1, 1, 2) and w.between(2, 1, 2) and not w.between(3, 1, 2)


@pytest.mark.skip(reason="never")
def test_skipped():
    assert False
"""


def _patch(old: str, new: str) -> str:
    lines = (SOURCE.lstrip().replace("part / whole", text).splitlines(True) for text in (old, new))
    return "".join(difflib.unified_diff(*lines, "a/letters/words.py", "b/letters/words.py"))


BUG = _patch("part / whole", "part * whole")
FIX = _patch("part * whole", "part / whole")
RATIO = ("tests/test_words.py::test_ratio[1-0.5]", "tests/test_words.py::test_ratio[2-1.0]")
OTHERS = tuple(
    f"tests/test_words.py::test_{name}"
    for name in ("words", "count", "count_least", "ratio_of_nothing", "wrap", "between")
)


def write(folder: pathlib.Path) -> pathlib.Path:
    """Writes the package, with what must not be seen beside it."""
    files = {
        "letters/__init__.py": "",
        "letters/words.py": SOURCE.lstrip(),
        "tests/test_words.py": TESTS.lstrip(),
        "conftest.py": "",
        "pytest.ini": "[pytest]\n",
        "build/lib/letters/words.py": SOURCE.lstrip(),
        "letters/__pycache__/words.cpython-311.pyc": "",
    }
    for name, text in files.items():
        path = folder / "letters-1.0" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "letters-1.0"


def task(**changed: object) -> dict:
    """A line of a file of tasks: the share of a part is wrong."""
    return {
        "instance_id": "letters-1",
        "repo": "letters-1.0",
        "problem_statement": "ratio(1, 2) is 2, not 0.5.",
        "bug_patch": BUG,
        "patch": FIX,
        "FAIL_TO_PASS": list(RATIO),
        "PASS_TO_PASS": list(OTHERS),
        **changed,
    }
