"""The bank against a simple one in memory, and what it keeps when things go wrong."""

import collections
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jaxrl_guided.complementary.bank import Bank, BankError, Event, Usage, Write, open_past
from jaxrl_guided.complementary.bank.database import SCHEMA, Database
from jaxrl_guided.complementary.bank.log import Log, StaleVersion
from jaxrl_guided.runtime.errors import StorageError
from tests.complementary.bank.drafts import DIM, deed, do, draft, state

ROOT = pathlib.Path(__file__).parents[3]
CAPACITY = 5


@pytest.fixture
def path(tmp_path):
    return tmp_path / "bank.sqlite"


class Model:
    """A bank of lists and sums, with all that was ever in it."""

    def __init__(self):
        self.alive, self.next = {}, 1
        self.events = collections.defaultdict(list)

    def write(self, titles, deletes):
        if not set(deletes) <= set(self.alive):
            return
        for entry in deletes:
            del self.alive[entry]
        for title in titles:
            self.alive[self.next] = title
            self.next += 1
        for entry in sorted(self.alive)[:-CAPACITY]:
            del self.alive[entry]

    def usage(self, entry):
        shown = [e for e in self.events[entry] if e.kind == "retrieved"]
        credits = [e for e in self.events[entry] if e.kind == "credited"]
        last = shown[-1] if shown else Event("retrieved", 0, at=-np.inf, step=-1)
        return Usage(len(shown), last.at, last.step, len(credits), sum(e.value for e in credits))


ids = st.integers(1, 12)
actions = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 3), st.lists(ids, max_size=3, unique=True)),
    st.tuples(st.just("retrieved"), ids, st.integers(0, 9)),
    st.tuples(st.just("credited"), ids, st.sampled_from([-1, 1])),
    st.tuples(st.just("reopen")),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("back")),
    st.tuples(st.just("compact")),
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(actions, max_size=25))
def test_all_operations_agree_with_a_simple_bank(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("bank") / "bank.sqlite"
    open_bank = lambda **more: Bank(path, DIM, capacity=CAPACITY, durability="normal", **more)  # noqa: E731
    bank, model = open_bank(), Model()
    kept = None  # a checkpoint's version and what it holds
    for number, (name, *values) in enumerate(steps):
        if name == "write":
            count, deletes = values
            born = bank.write(Write(tuple(draft(i) for i in range(count)), tuple(deletes)))
            assert (born is None) == (not set(deletes) <= set(model.alive))
            before = model.next
            model.write([f"title {i}" for i in range(count)], deletes)
            if born is not None:
                # Ids are never used again: what other branches wrote has taken some.
                first = born[0].id if born else before
                model.alive = {
                    (e + first - before if e >= before else e): t for e, t in model.alive.items()
                }
                model.next += first - before
        elif name in ("retrieved", "credited"):
            entry, value = values
            event = Event(name, entry, number, value * (name == "credited"), number, value)
            bank.record([event])
            if entry in model.alive:
                model.events[entry].append(event)
        elif name == "reopen":
            bank.close()
            bank = open_bank()
        elif name == "checkpoint":
            kept = bank.checkpoint("kept"), state(open_past(path, bank.version)), len(bank)
        elif name == "compact":
            bank.compact()
        elif name == "back" and kept:
            bank.close()
            bank = open_bank(version=kept[0])
            assert state(open_past(path, kept[0])) == kept[1]
            back = {entry.id: entry.title for entry in bank.entries()}
            assert len(back) == kept[2]
            model.alive = back
            model.events = collections.defaultdict(list)
            for entry in back:
                model.events[entry] = replayed(bank.usage(entry), entry)
        assert {entry.id: entry.title for entry in bank.entries()} == model.alive
        assert {e: bank.usage(e) for e in model.alive} == {e: model.usage(e) for e in model.alive}
        check_view(bank)
    bank.close()


def replayed(usage, entry):
    """Events with the sums of a usage that was checked when it was kept."""
    shown = [Event("retrieved", entry, at=usage.last_at, step=usage.last_step)] * usage.retrievals
    ups = (usage.credits + usage.total) / 2
    return shown + [
        Event("credited", entry, value=1.0 if i < ups else -1.0) for i in range(usage.credits)
    ]


def check_view(bank):
    """The index shows what the bank holds."""
    view, entries = bank.view.frozen(), bank.entries()
    assert view.version == bank.version
    np.testing.assert_array_equal(view.ids, [entry.id for entry in entries])
    np.testing.assert_array_equal(
        view.vectors, np.array([entry.vector for entry in entries]).reshape(-1, DIM)
    )
    shown = [bank.usage(entry.id) for entry in entries]
    np.testing.assert_array_equal(view.retrievals, [usage.retrievals for usage in shown])
    np.testing.assert_array_equal(view.last_at, [usage.last_at for usage in shown])
    np.testing.assert_array_equal(view.last_step, [usage.last_step for usage in shown])


def test_a_write_is_whole_or_not_at_all(path):
    with Bank(path, DIM) as bank:
        first, second = bank.write(Write((draft(1), draft(2))))
        before = bank.version
        assert bank.write(Write((draft(3),), (first.id, 99))) is None
        assert (bank.version, len(bank)) == (before, 2)
        (merged,) = bank.write(
            Write((draft(3, operation="merge", parents=(1, 2)),), (first.id, second.id))
        )
        assert [entry.title for entry in bank.entries()] == ["title 3"]
        assert merged.parents == (1, 2)
        assert bank.write(Write((draft(4),), (first.id,))) is None


def test_usage_begins_anew_when_an_entry_is_updated(path):
    with Bank(path, DIM) as bank:
        (old,) = bank.write(Write((draft(1),)))
        bank.record(
            [Event("retrieved", old.id, 7, at=3.0, step=2), Event("credited", old.id, 7, 1)]
        )
        assert bank.usage(old.id) == Usage(1, 3.0, 2, 1, 1.0)
        (new,) = bank.write(Write((draft(2, operation="update", parents=(old.id,)),), (old.id,)))
        assert bank.usage(new.id) == Usage()
        bank.record([Event("credited", old.id, 8, -1)])  # of an episode that had begun before
        assert bank.usage(new.id) == Usage()
    entry, events = Log(Database(path, read_only=True)).history(old.id)
    assert entry.title == "title 1"
    assert [event.kind for event in events] == [
        "born", "retrieved", "credited", "died", "credited"
    ]  # fmt: skip
    assert events[3].note == "update"


def test_the_oldest_make_room(path):
    with Bank(path, DIM, capacity=3) as bank:
        for number in range(5):
            bank.write(Write((draft(number),)))
        assert [entry.title for entry in bank.entries()] == ["title 2", "title 3", "title 4"]
        (kept,) = bank.write(Write((draft(5),), (3,)))
        assert [entry.id for entry in bank.entries()] == [4, 5, kept.id]
        with pytest.raises(ValueError, match="4 entries for a capacity of 3"):
            bank.write(Write(tuple(draft(i) for i in range(4))))


def test_any_past_bank_can_be_read(path):
    versions = {}
    with Bank(path, DIM) as bank:
        for number in range(30):
            do(bank, deed(bank, number))
            versions[bank.version] = state(open_past(path))
        assert versions[bank.version][0] == state(bank._contents)[0]
    for version, found in versions.items():
        assert state(open_past(path, version)) == found
    assert state(open_past(path, 0)) == ([], {})


def test_a_branch_sees_what_came_before_it_and_nothing_else(path):
    with Bank(path, DIM, run="first") as bank:
        bank.write(Write((draft(1),)))
        named = bank.checkpoint("step 1")
        bank.record([Event("retrieved", 1)])
        bank.write(Write((draft(2),), (1,)))
        left = bank.version
    with Bank(path, run="second", version=named) as bank:
        assert bank.branch == 2
        assert [entry.title for entry in bank.entries()] == ["title 1"]
        assert bank.usage(1) == Usage()
        bank.write(Write((draft(3),)))
        assert [entry.id for entry in bank.entries()] == [1, 3]
        head = bank.version
    with Bank(path) as bank:  # goes on with the newest branch
        assert (bank.branch, bank.version) == (2, head)
    with Bank(path, version=left) as bank:  # the end of the old branch is no new one
        assert (bank.branch, [entry.id for entry in bank.entries()]) == (1, [2])
    branches = Log(Database(path, read_only=True)).branches()
    assert branches == [(1, "first", None, 0, left), (2, "second", 1, named, head)]


def test_compact_drops_what_no_kept_version_needs(path):
    with Bank(path, DIM) as bank:
        bank.write(Write((draft(1), draft(2), draft(3))))
        bank.write(Write((draft(4),), (1,)))
        named = bank.checkpoint("kept")
        bank.record([Event("retrieved", 2), Event("retrieved", 3)])
        bank.write(Write((draft(5),), (2, 3)))
        before = {v: state(open_past(path, v)) for v in (named, bank.version)}
        between = bank.version - 1
        assert bank.compact() == (1, 2)  # entry 1, which was born and died
        assert bank.compact() == (0, 0)
        for version, found in before.items():
            assert state(open_past(path, version)) == found
        with pytest.raises(StaleVersion, match=rf"no version {between}: there are .*kept"):
            open_past(path, between)
        do(bank, Write((draft(6),)))
        assert [entry.id for entry in bank.entries()] == [4, 5, 6]
    with Bank(path, version=named) as bank:
        assert [entry.id for entry in bank.entries()] == [2, 3, 4]
        bank.compact()
        assert bank.write(Write((draft(7),)))[0].id == 7  # 5 and 6 are gone, their numbers too


def test_bad_drafts_and_events_are_refused(path):
    with Bank(path, DIM) as bank:
        bank.write(Write((draft(1),)))
        for vector in (np.zeros(DIM + 1), np.full(DIM, np.nan)):
            bad = type(draft(1))("bad", "", vector)
            with pytest.raises(ValueError, match="the vector of 'bad' must be 4 finite numbers"):
                bank.write(Write((draft(2), bad)))
        with pytest.raises(ValueError, match="deleted twice"):
            bank.write(Write((), (1, 1)))
        with pytest.raises(ValueError, match="only retrievals and credits"):
            bank.record([Event("died", 1)])
        assert (bank.version, len(bank)) == (1, 1)


def test_many_threads_read_and_write(path):
    failures, stop = [], threading.Event()

    def guarded(work):
        def run():
            try:
                while not stop.is_set():
                    work()
            except BaseException as error:
                failures.append(error)
                stop.set()

        return run

    with Bank(path, DIM, capacity=50, durability="normal") as bank:
        mine = threading.local()

        def write():
            mine.random = random = getattr(mine, "random", np.random.default_rng())
            alive = bank.entries()
            gone = (alive[random.integers(len(alive))].id,) if len(alive) > 5 else ()
            bank.write(Write((draft(int(random.integers(1000))),), gone))

        def read():
            view = bank.view
            assert len(view.ids) == len(view.alive) == len(view.vectors)
            assert np.all(np.diff(view.ids) > 0)
            for row in np.flatnonzero(view.alive)[:5]:
                entry = bank.get(int(view.ids[row]))
                assert entry is None or np.array_equal(entry.vector, view.vectors[row])

        def use():
            for entry in bank.entries()[:3]:
                bank.record([Event("retrieved", entry.id)])

        works = [write] * 3 + [read] * 4 + [use] * 2
        threads = [threading.Thread(target=guarded(work)) for work in works]
        for thread in threads:
            thread.start()
        time.sleep(1.0)
        stop.set()
        for thread in threads:
            thread.join()
        assert not failures
        check_view(bank)
        live = state(bank._contents)
    assert state(open_past(path)) == live


def test_one_process_writes_and_others_read(path):
    with Bank(path, DIM) as bank:
        bank.write(Write((draft(1),)))
        with pytest.raises(BankError, match=r"bank.sqlite is being written by the process \d+"):
            Bank(path)
        assert len(open_past(path).entries) == 1
        bank.write(Write((draft(2),)))
        assert len(open_past(path).entries) == 2
    bank.close()
    with pytest.raises(ValueError, match=r"the bank .*bank.sqlite is closed"):
        bank.write(Write((draft(3),)))


def unchanged(path, pattern, **arguments):
    """Opening fails with one line that names the file, and leaves it as it is."""
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(BankError, match=pattern) as caught:
        Bank(path, **arguments)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (path.read_bytes() if path.is_file() else None) == before


def test_what_is_no_bank_is_refused(path, tmp_path):
    unchanged(path, "is new: say how many numbers")
    with pytest.raises(BankError, match="there is no such bank"):
        open_past(path)
    path.write_text("no database at all, " * 100)
    unchanged(path, "cannot be opened: file is not a database", dim=DIM)
    path.unlink()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine(x)")
    other.close()
    unchanged(path, "is a database, but no bank of this library", dim=DIM)
    unchanged(tmp_path, "cannot be opened", dim=DIM)


def test_banks_of_other_formats_and_vectors_are_refused(path):
    with Bank(path, DIM, "hashed-4") as bank:
        bank.write(Write((draft(1),)))
    unchanged(path, "its vectors have 4 numbers, not 5", dim=5)
    unchanged(path, "are of the embedder 'hashed-4', not of 'other'", dim=4, embedder="other")
    with pytest.raises(StaleVersion, match="no version 9: there are 0 to 1"):
        Bank(path, version=9)
    with sqlite3.connect(path) as newer:
        newer.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    newer.close()
    unchanged(path, f"is of format {SCHEMA + 1}, this library reads up to {SCHEMA}: update it")


def test_a_damaged_file_is_refused(path):
    with Bank(path, DIM) as bank:
        for number in range(200):
            bank.write(Write((draft(number),)))
    data = bytearray(path.read_bytes())
    data[4096 * 3 : 4096 * 6] = bytes(4096 * 3)
    path.write_bytes(data)
    unchanged(path, "damaged|cannot be opened: database disk image is malformed")


def test_a_full_disk_loses_nothing(path):
    with Bank(path, DIM) as bank:
        bank.write(Write((draft(1),)))
        pages, size = (
            bank._log.database.one(f"PRAGMA {x}")[0] for x in ("page_count", "page_size")
        )
        bank._log.database.execute(f"PRAGMA max_page_count = {pages + 2}")
        big = type(draft(1))("big", "x" * 10 * size, draft(1).vector)
        with pytest.raises(
            StorageError, match=r"cannot write .*bank.sqlite: database or disk is full"
        ):
            bank.write(Write((big,)))
        assert (bank.version, len(bank)) == (1, 1)
        check_view(bank)
        bank.write(Write((draft(2),)))
    assert [entry.title for entry in open_past(path).entries.values()] == ["title 1", "title 2"]


def test_directories_that_cannot_be_written_or_read():
    """As another user, since nothing forbids root to write."""
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        path = place / "bank.sqlite"
        with Bank(path, DIM) as bank:
            bank.write(Write((draft(1),)))
        code = (
            "import os\n"
            "from jaxrl_guided.complementary.bank import Bank, BankError, open_past\n"
            "if os.getuid() == 0:\n    os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
            f"path = {str(path)!r}\n"
            "for work in (lambda: print(len(open_past(path).entries)), lambda: Bank(path)):\n"
            "    try:\n        work()\n    except BankError as error:\n        print(error)\n"
        )
        said = []
        for mode in (0o555, 0o000):
            place.chmod(mode)
            done = subprocess.run(
                [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
            )
            place.chmod(0o755)
            assert done.returncode == 0, done.stderr
            said += done.stdout.splitlines()
        assert said[0] == "1"
        assert said[1] == f"{path} cannot be written: Permission denied"
        assert said[2:] == [f"{path} cannot be read: Permission denied"] * 2


def killed(path, random, durability):
    """Starts a writer, kills it at some instant; returns the last version it was sure of."""
    command = [sys.executable, "-m", "tests.complementary.bank.drafts", str(path), durability]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    time.sleep(random.uniform(0, 0.1))
    process.kill()
    told = process.stdout.read().split("\n")
    process.wait()
    process.stdout.close()
    return max([int(line) for line in told[:-1]], default=0)


def reopens_after(path, random, kills, durability):
    twin = path.with_name("twin.sqlite")
    for _ in range(kills):
        sure = killed(path, random, durability)
        with Bank(path, DIM) as bank, Bank(twin, DIM, durability="normal") as expected:
            assert bank.version >= sure
            while expected.version < bank.version:
                do(expected, deed(expected, expected.version))
            assert expected.version == bank.version
            assert state(bank._contents) == state(expected._contents)


@pytest.mark.parametrize("durability", ["full", "normal"])
def test_a_killed_bank_opens_with_all_that_was_acknowledged(path, durability):
    reopens_after(path, np.random.default_rng(0), 2, durability)


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["full", "normal"])
def test_a_bank_killed_hundreds_of_times(path, durability):
    reopens_after(path, np.random.default_rng(1), 150, durability)


def test_a_copy_of_a_killed_bank_is_whole(path):
    killed(path, np.random.default_rng(2), "normal")
    copy = path.with_name("copy.sqlite")
    for suffix in ("", "-wal"):
        if (source := path.with_name(path.name + suffix)).exists():
            shutil.copy(source, copy.with_name(copy.name + suffix))
    assert state(open_past(copy)) == state(open_past(path))
