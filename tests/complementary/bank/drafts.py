"""Drafts for tests, and writing for as long as nobody ends it: `python -m …drafts PATH SEED`."""

import sys

import numpy as np

from jaxrl_guided.complementary.bank import Bank, Draft, Event, Write

DIM = 4


def draft(number, **fields):
    """The draft of a number."""
    vector = np.random.default_rng(number).normal(size=DIM).astype(np.float32)
    return Draft(f"title {number}", f"content {number}", vector, **fields)


def deed(bank, number):
    """What is done as the deed of a number, to a bank with the deeds before it."""
    random = np.random.default_rng(number)
    ids = [entry.id for entry in bank.entries()]
    kind = random.integers(4) if ids else 0
    if kind == 0:
        return Write(tuple(draft(10 * number + i) for i in range(random.integers(1, 4))))
    chosen = tuple(int(i) for i in random.choice(ids, min(2, len(ids)), replace=False))
    if kind == 1:
        merged = draft(number, operation="merge", parents=chosen)
        return Write((merged,), chosen, "merge")
    if kind == 2:
        return [Event("retrieved", entry, episode=number, at=float(number)) for entry in chosen]
    return [Event("credited", entry, episode=number, value=1.0) for entry in chosen]


def do(bank, what):
    """Does a deed."""
    if isinstance(what, Write):
        assert bank.write(what) is not None
    else:
        bank.record(what)


def state(contents):
    """What tells two banks apart, of `Contents`."""
    return (
        [
            (e.id, e.title, e.content, e.vector.tobytes(), e.parents, e.operation)
            for e in contents.entries.values()
        ],
        contents.usage,
    )


if __name__ == "__main__":
    path, durability = sys.argv[1:]
    with Bank(path, DIM, durability=durability) as endless:
        while True:
            do(endless, deed(endless, endless.version))
            print(endless.version, flush=True)
