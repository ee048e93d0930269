"""Episode datasets: round trip, selection, and every refusal."""

import dataclasses
import json
import os

import numpy as np
import pytest

from jaxrl_guided.envs import dataset
from jaxrl_guided.envs.dataset import Episodes


def make(lengths=(2, 1, 3), dictionary=False, **changes):
    lengths = np.array(lengths, np.int32)
    steps = int(lengths.sum())
    done = np.zeros(steps, bool)
    done[np.cumsum(lengths) - 1] = True
    state = np.arange(steps * 2, dtype=np.float32).reshape(steps, 2)
    final = -np.arange(len(lengths) * 2, dtype=np.float32).reshape(-1, 2)
    fields = {
        "observations": {"state": state, "id": np.arange(steps)} if dictionary else state,
        "actions": np.arange(steps, dtype=np.int32) * 7,
        "rewards": np.linspace(0, 1, steps, dtype=np.float32),
        "terminated": done & (np.arange(steps) != steps - 1),
        "truncated": done & (np.arange(steps) == steps - 1),
        "is_expert": np.arange(steps) % 2 == 0,
        "final_observations": {"state": final, "id": np.arange(len(lengths))}
        if dictionary
        else final,
        "instruction": np.arange(len(lengths), dtype=np.int32) + 5,
        "lengths": lengths,
        "metadata": {"env": "clevr/real", "texts": ["a", "b"]},
    }
    return Episodes(**(fields | changes))


def assert_equal(ours, theirs):
    assert ours.metadata == theirs.metadata
    assert ours.arrays().keys() == theirs.arrays().keys()
    for name, array in ours.arrays().items():
        assert array.dtype == theirs.arrays()[name].dtype
        np.testing.assert_array_equal(array, theirs.arrays()[name], err_msg=name)


@pytest.mark.parametrize("dictionary", [False, True])
def test_round_trip_by_memory_map(tmp_path, dictionary):
    episodes = make(dictionary=dictionary)
    episodes.save(tmp_path / "deep" / "data")
    loaded = dataset.load(tmp_path / "deep" / "data", family="clevr")
    assert_equal(loaded, episodes)
    assert isinstance(loaded.actions, np.memmap)
    assert os.listdir(tmp_path / "deep") == ["data"]


def test_select_takes_whole_episodes_in_order():
    chosen = make((2, 1, 3), dictionary=True).select(np.array([2, 0]))
    assert chosen.actions.tolist() == [21, 28, 35, 0, 7]
    assert chosen.observations["state"][:, 0].tolist() == [6, 8, 10, 0, 2]
    assert chosen.final_observations["state"].tolist() == [[-4, -5], [0, -1]]
    assert chosen.instruction.tolist() == [7, 5]
    assert chosen.starts.tolist() == [0, 3]
    assert (chosen.num_episodes, chosen.num_steps) == (2, 5)
    masked = make((2, 1, 3)).select(np.array([False, True, True]))
    assert masked.actions.tolist() == [14, 21, 28, 35]


def test_an_existing_directory_is_refused_and_untouched(tmp_path):
    make().save(tmp_path / "data")
    before = (tmp_path / "data" / "actions.npy").read_bytes()
    with pytest.raises(ValueError, match="data: exists already; choose a new dataset directory"):
        make((4,)).save(tmp_path / "data")
    assert (tmp_path / "data" / "actions.npy").read_bytes() == before
    (tmp_path / "empty").mkdir()
    make().save(tmp_path / "empty")
    assert dataset.load(tmp_path / "empty").num_episodes == 3


def test_a_failed_save_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="metadata: cannot be written as JSON"):
        make(metadata={"env": "x", "bad": {1, 2}}).save(tmp_path / "data")
    assert os.listdir(tmp_path) == []


def test_another_family_of_environments_is_refused(tmp_path):
    make().save(tmp_path / "data")
    with pytest.raises(ValueError, match="data: holds episodes of 'clevr/real', but 'toy/…' is"):
        dataset.load(tmp_path / "data", family="toy")


def test_missing_files_are_named(tmp_path):
    with pytest.raises(ValueError, match="nowhere: is no dataset directory"):
        dataset.load(tmp_path / "nowhere")
    make().save(tmp_path / "data")
    (tmp_path / "data" / "rewards.npy").unlink()
    with pytest.raises(ValueError, match=r"rewards\.npy: is missing"):
        dataset.load(tmp_path / "data")


@pytest.mark.parametrize("keep", [0, 40, -3])
def test_a_truncated_array_is_named(tmp_path, keep):
    make().save(tmp_path / "data")
    file = tmp_path / "data" / "actions.npy"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"actions\.npy: is truncated"):
        dataset.load(tmp_path / "data")


@pytest.mark.parametrize(
    "other, message",
    [
        (np.arange(5, dtype=np.int32), r"actions\.npy: shape is \[5\], but was written as \[6\]"),
        (np.arange(6.0), r"actions\.npy: dtype is float64, but was written as int32"),
        (np.arange(6, dtype=np.int32), r"actions\.npy: sha256 is"),
    ],
)
def test_an_exchanged_array_is_named(tmp_path, other, message):
    make().save(tmp_path / "data")
    np.save(tmp_path / "data" / "actions.npy", other)
    with pytest.raises(ValueError, match=message):
        dataset.load(tmp_path / "data")


def test_a_damaged_index_is_named(tmp_path):
    make().save(tmp_path / "data")
    file = tmp_path / "data" / "dataset.json"
    index = json.loads(file.read_text())
    del index["arrays"]["lengths"]
    file.write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"dataset\.json: lists no lengths"):
        dataset.load(tmp_path / "data")
    file.write_text(json.dumps(index | {"format": "other"}))
    with pytest.raises(ValueError, match="has format 'other'; this version reads"):
        dataset.load(tmp_path / "data")
    file.write_text("{")
    with pytest.raises(ValueError, match="is not readable as JSON"):
        dataset.load(tmp_path / "data")


def test_inconsistent_fields_are_named():
    good = make()
    with pytest.raises(ValueError, match="actions: has 5 rows, but lengths say 3 episodes with 6"):
        dataclasses.replace(good, actions=good.actions[:5])
    with pytest.raises(ValueError, match="instruction: has 2 rows"):
        dataclasses.replace(good, instruction=good.instruction[:2])
    with pytest.raises(ValueError, match="lengths: do not match the steps marked"):
        dataclasses.replace(good, lengths=np.array([1, 2, 3], np.int32))
    with pytest.raises(ValueError, match="lengths: every episode needs at least one step"):
        dataclasses.replace(good, lengths=np.array([3, 0, 3], np.int32))
    with pytest.raises(ValueError, match="metadata: needs 'env'"):
        dataclasses.replace(good, metadata={})


@pytest.mark.parametrize(
    "damage", [{"metadata": [1]}, {"arrays": None}, {"arrays": {"actions": 1}}]
)
def test_an_index_that_is_no_index_is_named(tmp_path, damage):
    index = {"format": "jaxrl_guided.episodes/1", "metadata": {"env": "x/y"}, "arrays": {}}
    (tmp_path / "dataset.json").write_text(json.dumps(index | damage))
    with pytest.raises(ValueError, match=r"dataset.json: is damaged, it "):
        dataset.load(tmp_path)
