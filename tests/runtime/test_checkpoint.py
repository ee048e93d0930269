"""Checkpoints: bit-exact round trips, refusals, crashes, hashes."""

import hashlib
import pathlib
import signal
import subprocess
import sys
import textwrap
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxrl_guided.runtime import checkpoint
from jaxrl_guided.runtime.checkpoint import Checkpointer, content_hash, file_hash
from jaxrl_guided.runtime.errors import UserError

REPOSITORY = pathlib.Path(__file__).parents[2]


class State(NamedTuple):
    params: dict
    opt_state: tuple
    key: jax.Array
    keys: jax.Array
    counts: list
    nothing: None


def make_state(seed=0, width=3):
    key = jax.random.key(seed)
    params = {
        "w": jax.random.normal(key, (2, width)),
        "half": jnp.ones(2, jnp.bfloat16) * seed,
        "on": jnp.asarray([True, False]),
    }
    opt_state = optax.adam(1e-3).init({"w": params["w"]})
    return State(params, opt_state, key, jax.random.split(key, 2), [jnp.int32(seed), seed], None)


def assert_equal(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    assert content_hash(left) == content_hash(right)


def test_round_trip_is_bit_exact_and_keeps_types(tmp_path):
    state = make_state(3)
    with Checkpointer(tmp_path / "c") as saver:
        saver.save(10, state, {"episodes": 4})
    with Checkpointer(tmp_path / "c", read_only=True) as loader:
        restored, meta = loader.restore(make_state(0))
        assert loader.latest_step() == 10
    assert meta == {"episodes": 4}
    assert_equal(restored, state)
    assert isinstance(restored, State)
    assert restored.counts[1] == 3
    assert type(restored.counts[1]) is int
    drawn = jax.random.normal(restored.key, (4,))
    np.testing.assert_array_equal(drawn, jax.random.normal(state.key, (4,)))
    for leaf, original in zip(jax.tree.leaves(restored), jax.tree.leaves(state), strict=True):
        assert type(leaf) is type(original)


def test_state_may_be_donated_right_after_saving(tmp_path):
    overwrite = jax.jit(lambda x: x * 0 - 1, donate_argnums=0)
    state = jnp.arange(100_000, dtype=jnp.float32)
    expected = np.array(state)
    with Checkpointer(tmp_path) as saver:
        saver.save(1, state)
        overwrite(state)
        restored, _ = saver.restore(jnp.zeros(100_000, jnp.float32))
    np.testing.assert_array_equal(restored, expected)


def test_newest_steps_are_kept_and_any_can_be_read(tmp_path):
    with Checkpointer(tmp_path, keep=2) as saver:
        for step in (1, 2, 11):
            saver.save(step, {"x": jnp.float32(step)})
        assert saver.restore({"x": jnp.float32(0)}, step=2)[0] == {"x": 2.0}
        assert saver.restore({"x": jnp.float32(0)})[0] == {"x": 11.0}
        with pytest.raises(UserError, match=r"no step 1; it holds \[2, 11\]"):
            saver.restore({"x": jnp.float32(0)}, step=1)


def test_saved_step_stays_and_an_older_one_is_refused(tmp_path):
    with Checkpointer(tmp_path) as saver:
        saver.save(5, {"x": jnp.float32(5)})
        saver.save(5, {"x": jnp.float32(6)})
        assert saver.restore({"x": jnp.float32(0)})[0] == {"x": 5.0}
        with pytest.raises(ValueError, match=r"step 4 cannot be saved: .* newer step 5"):
            saver.save(4, {"x": jnp.float32(4)})


def test_what_is_newer_is_forgotten_where_the_step_is_there(tmp_path):
    with Checkpointer(tmp_path, keep=3) as checkpoints:
        for step in (2, 4, 6):
            checkpoints.save(step, make_state(step))
        with pytest.raises(UserError, match=r"holds no step 3; it holds \[2, 4, 6\]"):
            checkpoints.go_back(3)
        checkpoints.go_back(6)
        assert checkpoints.latest_step() == 6
        checkpoints.go_back(2)
        assert checkpoints.latest_step() == 2
        checkpoints.save(4, make_state(9))  # another one than before
        assert_equal(checkpoints.restore(make_state(), 4)[0], make_state(9))
        checkpoints.go_back(0)
        assert checkpoints.latest_step() is None


def test_other_configuration_is_refused(tmp_path):
    with Checkpointer(tmp_path, {"ppo": {"lr": 0.1}}) as saver:
        saver.save(1, {"x": jnp.float32(1)})
    with Checkpointer(tmp_path, {"ppo": {"lr": 0.2}}, read_only=True) as loader:
        with pytest.raises(UserError, match=r"another configuration \(ppo.lr: 0.1, not 0.2\)"):
            loader.restore({"x": jnp.float32(0)})
        assert loader.stamp()["config"] == {"ppo": {"lr": 0.1}}
    with Checkpointer(tmp_path, read_only=True) as loader:
        assert loader.restore({"x": jnp.float32(0)})[0] == {"x": 1.0}


@pytest.mark.parametrize(
    "template, message",
    [
        ({"x": jnp.zeros(2, jnp.bfloat16)}, r"\['x'\]: 'float32\[2\]', not 'bfloat16\[2\]'"),
        ({"x": jnp.zeros(3)}, r"\['x'\]: 'float32\[2\]', not 'float32\[3\]'"),
        ({"y": jnp.zeros(2)}, r"\['x'\]: 'float32\[2\]', not None"),
        ({"x": [jnp.zeros(2)]}, r"\['x'\]\[0\]: None, not 'float32\[2\]'"),
        ({"x": jax.random.key(0)}, "key<fry>"),
    ],
)
def test_other_structure_is_refused(tmp_path, template, message):
    with Checkpointer(tmp_path) as saver:
        saver.save(1, {"x": jnp.zeros(2)})
        with pytest.raises(UserError, match=message):
            saver.restore(template)


def test_other_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "FORMAT", 99)
    with Checkpointer(tmp_path) as saver:
        saver.save(1, {"x": jnp.zeros(2)})
        monkeypatch.undo()
        with pytest.raises(UserError, match="has format 99, this version reads 1"):
            saver.restore({"x": jnp.zeros(2)})


def test_absent_and_empty_directories_are_named(tmp_path):
    with pytest.raises(UserError, match="nowhere does not exist"):
        Checkpointer(tmp_path / "nowhere", read_only=True)
    assert not (tmp_path / "nowhere").exists()
    with Checkpointer(tmp_path) as saver, pytest.raises(UserError, match="holds no checkpoint"):
        saver.restore({"x": jnp.zeros(2)})


def test_unwritable_directory_is_named():
    with pytest.raises(UserError, match="/proc/checkpoints"):
        Checkpointer("/proc/checkpoints")


def test_keep_must_be_positive(tmp_path):
    with pytest.raises(UserError, match="keep"):
        Checkpointer(tmp_path, keep=0)


def saved_files(root, part):
    return sorted(p for p in (root / "1" / part).rglob("*") if p.is_file() and p.stat().st_size)


@pytest.mark.parametrize("part", ["state", "stamp"])
def test_truncated_files_are_reported_as_damage(tmp_path, part):
    template = {"x": jnp.zeros(1000)}
    with Checkpointer(tmp_path) as saver:
        saver.save(1, {"x": jax.random.normal(jax.random.key(0), (1000,))})
    data = max(saved_files(tmp_path, part), key=lambda path: path.stat().st_size)
    if part == "stamp":
        data = tmp_path / "1" / "stamp" / "metadata"
    data.write_bytes(data.read_bytes()[: data.stat().st_size // 2])
    with (
        Checkpointer(tmp_path, read_only=True) as loader,
        pytest.raises(UserError, match=r"checkpoint step 1 in .* is damaged; make it anew"),
    ):
        loader.restore(template)


def test_flipped_bit_is_reported_as_damage(tmp_path):
    with Checkpointer(tmp_path) as saver:
        saver.save(1, {"x": jax.random.normal(jax.random.key(0), (1000,))})
    data = max(saved_files(tmp_path, "state"), key=lambda path: path.stat().st_size)
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    with (
        Checkpointer(tmp_path, read_only=True) as loader,
        pytest.raises(UserError, match="checkpoint step 1 in"),
    ):
        loader.restore({"x": jnp.zeros(1000)})


@pytest.mark.slow
def test_kill_during_saves_loses_no_finished_checkpoint(tmp_path):
    script = f"""
        import jax.numpy as jnp
        from jaxrl_guided.runtime.checkpoint import Checkpointer
        with Checkpointer({str(tmp_path)!r}) as saver:
            start = saver.latest_step() or 0
            for step in range(start + 1, start + 1000):
                saver.save(step, {{"x": jnp.full(500_000, step, jnp.float32)}}, {{"step": step}})
                print(step, flush=True)
    """
    template = {"x": jnp.zeros(500_000, jnp.float32)}
    finished = 0
    for round_number in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )
        for _ in range(2 + round_number):
            finished = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read().split("\n")[:-1]
        finished = int(rest[-1]) if rest else finished
        child.wait()
        child.stdout.close()
        with Checkpointer(tmp_path, read_only=True) as loader:
            state, meta = loader.restore(template)
        assert meta["step"] >= finished
        np.testing.assert_array_equal(state["x"], np.full(500_000, meta["step"], np.float32))


def test_content_hash_reads_structure_types_and_bytes():
    base = {"a": jnp.zeros(2), "b": jnp.ones(2)}
    assert content_hash(base) == content_hash({"b": np.ones(2, np.float32), "a": jnp.zeros(2)})
    others = [
        {"a": jnp.ones(2), "b": jnp.zeros(2)},
        {"a": jnp.zeros(2), "c": jnp.ones(2)},
        {"a": jnp.zeros(2, jnp.int32), "b": jnp.ones(2)},
        {"a": jnp.zeros((2, 1)), "b": jnp.ones(2)},
        {"a": -jnp.zeros(2), "b": jnp.ones(2)},
    ]
    assert len({content_hash(tree) for tree in [base, *others]}) == 6
    assert content_hash(jax.random.key(0)) != content_hash(jax.random.key(1))


def test_content_hash_by_hand():
    expected = hashlib.sha256(b"['a']:int32[2];" + np.asarray([1, 2], "<i4").tobytes())
    assert content_hash({"a": jnp.asarray([1, 2])}) == expected.hexdigest()


def test_file_hash(tmp_path):
    (tmp_path / "f").write_bytes(b"abc")
    assert file_hash(tmp_path / "f") == hashlib.sha256(b"abc").hexdigest()
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "g").write_bytes(b"xyz")
    assert file_hash(tmp_path) == hashlib.sha256(b"d/g:xyzf:abc").hexdigest()
    with pytest.raises(UserError, match="absent"):
        file_hash(tmp_path / "absent")


def test_damage_with_an_earlier_step_says_how_to_go_on(tmp_path):
    with Checkpointer(tmp_path) as saver:
        for step in (1, 2):
            saver.save(step, {"x": jnp.zeros(3)})
    (tmp_path / "2" / "stamp" / "metadata").write_text("{")
    with Checkpointer(tmp_path, read_only=True) as loader:
        with pytest.raises(
            UserError, match=r"step 2 in .* is damaged; remove 2/ to use the one be"
        ):
            loader.restore({"x": jnp.ones(3)})
        assert loader.restore({"x": jnp.ones(3)}, step=1)[0]["x"].tolist() == [0, 0, 0]


def test_a_path_that_orbax_takes_for_a_pattern_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"below a directory with '\['"):
        Checkpointer(tmp_path / "a[1]" / "checkpoints")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["~", "a b", "*", "ü", "{x}", "?"])
def test_other_paths_are_taken_as_they_are(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with Checkpointer(f"{name}/checkpoints") as saver:
        saver.save(1, {"x": jnp.arange(3)})
    assert (tmp_path / name / "checkpoints" / "1").is_dir()
    with Checkpointer(f"{name}/checkpoints", read_only=True) as loader:
        assert loader.restore({"x": jnp.zeros(3, jnp.int32)})[0]["x"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), ValueError("RESOURCE_EXHAUSTED: no space")]
)
def test_a_full_disk_is_named(tmp_path, monkeypatch, error):
    def save(*given, **options):
        raise error

    with Checkpointer(tmp_path) as saver:
        monkeypatch.setattr(saver._manager, "save", save)
        with pytest.raises(UserError, match=f"{tmp_path} cannot be written: .*[nN]o space"):
            saver.save(1, {"x": jnp.zeros(3)})
        error = ValueError("a bug")
        with pytest.raises(ValueError, match=r"^a bug$"):
            saver.save(1, {"x": jnp.zeros(3)})


@pytest.mark.parametrize("saved_by, read_by", [(1, 2), (2, 1), (2, 2)])
def test_runs_of_one_and_of_several_processes_read_each_others(
    saved_by, read_by, tmp_path, monkeypatch
):
    """Of several processes none has all arrays, so none knows the hash."""
    state = {"a": jnp.arange(3.0)}

    def open_by(processes):
        if processes > 1:
            monkeypatch.setattr(checkpoint, "_local_hash", lambda state: None)
        return Checkpointer(tmp_path)

    with open_by(saved_by) as saver:
        saver.save(1, state)
    monkeypatch.undo()
    with open_by(read_by) as reader:
        np.testing.assert_array_equal(reader.restore(state)[0]["a"], state["a"])
