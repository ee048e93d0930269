"""Pools of host environments: the same numbers as by hand, and every fault is one clear error."""

import concurrent.futures
import contextlib
import errno
import functools
import gc
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import time

import gymnasium
import numpy as np
import pytest

from jaxrl_guided.envs.bridge.pool import Pool
from jaxrl_guided.envs.bridge.remote import HostEnvError
from jaxrl_guided.envs.bridge.slot import episode_seed
from tests.envs.bridge import hosts
from tests.envs.processes import status

WORKERS = [0, 2]


def make(factory=hosts.Counter, num_envs=4, **options):
    options = {"max_steps": 50, "info": ("success",), "name": "gym/Counter", "workers": 2} | options
    return Pool(factory=factory, num_envs=num_envs, **options)


def children(parent=None):
    """Workers of a process, by default of this one."""
    found = set()
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        now = status(path.parent.name)
        if now is not None and now[1] == (parent or os.getpid()):
            with contextlib.suppress(OSError):
                if b"bridge.worker" in path.read_bytes():
                    found.add(path.parent.name)
    return found


@pytest.mark.parametrize("workers, spares", [(0, False), (0, True), (2, False), (2, True)])
def test_transitions_are_those_of_stepping_by_hand(workers, spares):
    pool = Pool("gym/CartPole-v1", hosts.cartpole, 3, workers=workers, max_steps=30, spares=spares)
    seeds = np.array([5, 6, 2**32 - 1], np.uint32)
    obs = pool.reset(seeds)[""]
    envs, episodes, lengths = [hosts.cartpole() for _ in seeds], [0] * 3, [0] * 3
    expected = [
        env.reset(seed=episode_seed(int(seed), 0))[0] for env, seed in zip(envs, seeds, strict=True)
    ]
    np.testing.assert_array_equal(obs, np.float32(expected))
    rng, endings = np.random.default_rng(0), set()
    for _ in range(1000):
        actions = rng.integers(2, size=3)
        step = pool.step(actions)
        for i, env in enumerate(envs):
            final, reward, terminated, truncated, _ = env.step(actions[i])
            lengths[i] += 1
            truncated = (truncated or lengths[i] == 30) and not terminated
            now = final
            if terminated or truncated:
                endings.add(terminated)
                episodes[i] += 1
                lengths[i] = 0
                now, _ = env.reset(seed=episode_seed(int(seeds[i]), episodes[i]))
            np.testing.assert_array_equal(step.final_obs[""][i], np.float32(final))
            np.testing.assert_array_equal(step.obs[""][i], np.float32(now))
            assert (step.reward[i], step.terminated[i], step.truncated[i], step.episode[i]) == (
                reward,
                terminated,
                truncated,
                episodes[i],
            )
    assert endings == {True, False}
    pool.close()


@pytest.mark.parametrize("workers", WORKERS)
def test_nested_observations_offsets_and_info(workers):
    pool = make(workers=workers, num_envs=2)
    obs = pool.reset(np.array([1, 2], np.uint32))
    assert {name: (x.shape, x.dtype.name) for name, x in obs.items()} == {
        "draw": ((2,), "float32"),
        "inner/sum": ((2, 2), "float32"),
        "kind": ((2,), "int32"),
    }
    assert obs["kind"].tolist() == [0, 0]  # counted from zero
    assert len(set(obs["draw"])) == 2
    for number in range(1, 6):
        step = pool.step(np.array([0, 3]))  # -1 and 2 to the environment
        assert step.final_obs["inner/sum"].tolist() == [
            [-number, number],
            [2 * number, -2 * number],
        ]
        assert step.info["success"].tolist() == [float(number == 5)] * 2
    assert step.terminated.all()
    assert step.obs["inner/sum"].tolist() == [[0, 0], [0, 0]]
    pool.close()


def test_what_environments_leave_behind_goes_with_their_process(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pool = make(functools.partial(hosts.Littering, "die", at=1), workers=1)
    pool.reset(np.arange(4, dtype=np.uint32))
    assert len(list(tmp_path.glob("*/*"))) >= 4
    with pytest.raises(HostEnvError, match="died"):
        pool.step(np.zeros(4, int))
    pool.close()
    assert list(tmp_path.iterdir()) == []


FAULTS = {
    "raise": r"environment 0 failed in step: KeyError: 'lost the key'",
    "die": r"gym/Counter: the process of environments 0 to 0 has died with exit code 7 in step",
    "hang": r"gym/Counter: the process of environments 0 to 0 has not answered step within 1 s",
    "nan": r"environment 0 failed in step: ValueError: observation 'draw' is not finite",
    "shape": r"observation 'draw' has shape \(3,\), the space says \(\)",
}


def one_faulty(fault, once, at=2):
    """The factory of the first worker, whose flag file is there, makes the faulty one."""
    once.write_text("")
    return functools.partial(hosts.Counter, fault, at, once=str(once))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_error_and_ends_the_pool(fault, tmp_path):
    pool = make(functools.partial(hosts.Counter, fault), num_envs=1, timeout=1.0, workers=1)
    pool.reset(np.zeros(1, np.uint32))
    pool.step(np.ones(1, int))
    with pytest.raises(HostEnvError, match=FAULTS[fault]):
        pool.step(np.ones(1, int))
    with pytest.raises(HostEnvError, match="closed, or has failed before"):
        pool.step(np.ones(1, int))
    pool.close()


def test_a_fault_in_this_process_ends_the_pool_too():
    pool = make(functools.partial(hosts.Counter, "raise"), num_envs=2, workers=0)
    pool.reset(np.zeros(2, np.uint32))
    pool.step(np.ones(2, int))
    with pytest.raises(HostEnvError, match="environment 0 failed in step"):
        pool.step(np.ones(2, int))
    with pytest.raises(HostEnvError, match="closed, or has failed before"):
        pool.step(np.ones(2, int))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_a_counted_restart_if_wanted(fault, tmp_path):
    factory = one_faulty(fault, tmp_path / "once")
    pool = make(factory, num_envs=2, timeout=2.0, on_error="restart")
    reset = pool.reset(np.arange(2, dtype=np.uint32))
    before = pool.step(np.ones(2, int))
    after = pool.step(np.ones(2, int))
    (lost,) = np.flatnonzero(after.restarted)
    kept = 1 - lost
    assert after.truncated[lost]
    assert not after.terminated[lost]
    assert after.reward[lost] == 0
    for name in before.obs:  # it stays where it was
        np.testing.assert_array_equal(after.final_obs[name][lost], before.obs[name][lost])
    assert after.obs["inner/sum"][lost].tolist() == [0, 0]
    assert after.obs["draw"][lost] != reset["draw"][lost]  # another episode
    assert after.episode.tolist() == [int(i == lost) for i in range(2)]
    assert not after.truncated[kept]
    for _ in range(5):
        step = pool.step(np.ones(2, int))
        assert not step.restarted.any()
    pool.close()


def test_an_environment_that_always_fails_ends_the_work():
    pool = make(functools.partial(hosts.Counter, "raise", 0), num_envs=1, on_error="restart")
    with pytest.raises(HostEnvError, match="environment 0 failed in reset"):
        pool.reset(np.zeros(1, np.uint32))


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("action, right", [(4, "0 to 3"), (-1, "0 to 3")])
def test_actions_out_of_range_are_refused(workers, action, right):
    pool = make(workers=workers)
    pool.reset(np.zeros(4, np.uint32))
    with pytest.raises(HostEnvError, match=f"action {action} must lie in {right}"):
        pool.step(np.array([0, 0, 0, action]))


def test_a_bad_action_is_no_reason_for_a_new_environment():
    pool = make(on_error="restart")
    pool.reset(np.zeros(4, np.uint32))
    with pytest.raises(HostEnvError, match="action 4 must lie in 0 to 3"):
        pool.step(np.array([0, 0, 0, 4]))


def test_a_polite_stop_of_the_whole_group_leaves_workers_to_their_parent():
    before = children()
    pool = make()
    pool.reset(np.zeros(4, np.uint32))
    workers = children() - before
    for signum in (signal.SIGTERM, signal.SIGINT):
        for worker in workers:
            os.kill(int(worker), signum)
        pool.step(np.ones(4, int))
    assert children() - before == workers
    pool.close()
    assert children() == before


def test_a_pool_outlives_the_thread_that_made_it():
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        pool = thread.submit(make).result()
    pool.reset(np.zeros(4, np.uint32))
    pool.step(np.ones(4, int))
    pool.close()


def test_what_closes_while_others_still_work_is_silent(capfd):
    """The first worker's error closes the pool before the second has answered."""
    pool = make(functools.partial(hosts.Slow, seconds=0.3), num_envs=2)
    pool.reset(np.zeros(2, np.uint32))
    with pytest.raises(HostEnvError, match="action 4 must lie"):
        pool.step(np.array([4, 0]))
    assert capfd.readouterr().err == ""


def test_no_memory_is_one_error(monkeypatch):
    def refuse(descriptor, offset, size):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(HostEnvError, match=r"bytes of shared memory for 4 .*: No space left"):
        make()


def test_what_cannot_be_replaced_ends_the_pool_and_leaks_nothing(monkeypatch):
    gc.collect()
    before, descriptors = children(), len(os.listdir("/proc/self/fd"))
    pool = make(on_error="restart")
    pool.reset(np.zeros(4, np.uint32))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    os.kill(int(min(children() - before)), signal.SIGKILL)
    with pytest.raises(HostEnvError, match=r"started 4 times: .* exit code 1 in start"):
        pool.step(np.ones(4, int))
    assert children() == before
    del pool
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_killed_workers_are_named_or_replaced():
    before = children()
    pool = make(on_error="restart")
    pool.reset(np.zeros(4, np.uint32))
    pool.step(np.ones(4, int))
    victim = min(children() - before)
    os.kill(int(victim), signal.SIGKILL)
    step = pool.step(np.ones(4, int))
    assert step.restarted.sum() == 2
    assert victim not in children()
    pool.close()
    assert children() == before
    pool.close()


@pytest.mark.parametrize("workers, spares, count", [(0, True, 3), (2, False, 3), (2, True, 6)])
def test_environments_are_closed(workers, spares, count, tmp_path):
    said = tmp_path / "said"
    factory = functools.partial(hosts.Counter, closing=str(said))
    pool = make(factory, num_envs=3, workers=workers, spares=spares)
    said.unlink()  # by the one that was asked for its spaces
    pool.close()
    assert said.read_text() == "closed\n" * count


def test_a_killed_worker_with_spares_is_replaced():
    pool = make(num_envs=4, on_error="restart", spares=True)
    pool.reset(np.zeros(4, np.uint32))
    for _ in range(3):
        os.kill(int(children().pop()), signal.SIGKILL)
        step = pool.step(np.zeros(4, int))
        assert step.restarted.sum() == 2
    pool.close()


def test_two_pools_do_not_meet():
    first, second = make(), make()
    a = first.reset(np.zeros(4, np.uint32))
    b = second.reset(np.ones(4, np.uint32))
    first.step(np.ones(4, int))
    assert second.step(np.zeros(4, int)).obs["inner/sum"][0].tolist() == [-1, 1]
    assert not np.array_equal(a["draw"], b["draw"])
    first.close()
    second.step(np.zeros(4, int))
    second.close()


@pytest.mark.parametrize("workers", WORKERS)
def test_open_episodes_are_played_again(workers):
    pool, twin = make(workers=workers), make(workers=workers)
    seeds = np.arange(4, dtype=np.uint32)
    pool.reset(seeds)
    rng = np.random.default_rng(0)
    played = rng.integers(4, size=(8, 4))
    for actions in played:
        step = pool.step(actions)
    assert step.episode.tolist() == [1] * 4
    times = np.full(4, 3)
    assert twin.restore(seeds, step.episode, times, played[5:].T, step.obs, 8) == {}
    for actions in rng.integers(4, size=(9, 4)):
        ours, theirs = pool.step(actions), twin.step(actions)
        for name in ours.obs:
            np.testing.assert_array_equal(ours.obs[name], theirs.obs[name])
        np.testing.assert_array_equal(ours.terminated, theirs.terminated)
    pool.close()
    twin.close()


def test_an_episode_that_cannot_be_played_again_is_truncated():
    pool, twin = make(hosts.Unseeded), make(hosts.Unseeded)
    seeds = np.arange(4, dtype=np.uint32)
    pool.reset(seeds)
    step = pool.step(np.zeros(4, int))
    once = np.ones(4, int)
    reasons = twin.restore(seeds, step.episode, once, np.zeros((4, 1), int), step.obs, clock=1)
    assert reasons == dict.fromkeys(range(4), "observation 'draw' differs after 1 steps")
    after = twin.step(np.zeros(4, int))
    assert after.truncated.all()
    assert after.restarted.all()
    np.testing.assert_array_equal(after.final_obs["draw"], step.obs["draw"])
    assert not twin.step(np.zeros(4, int)).truncated.any()
    pool.close()
    twin.close()


@pytest.mark.parametrize("on_error", ["raise", "restart"])
def test_a_process_that_dies_in_playing_again(on_error):
    factory = functools.partial(hosts.Counter, "die", 2)
    pool = make(factory, num_envs=1, workers=1, on_error=on_error)
    seeds, nothing = np.zeros(1, np.uint32), np.zeros((1, 2), int)
    obs = pool.reset(seeds)
    arguments = seeds, np.zeros(1, int), np.full(1, 2), nothing, obs
    if on_error == "raise":
        with pytest.raises(HostEnvError, match="exit code 7 in replay"):
            pool.restore(*arguments, clock=2)
        with pytest.raises(HostEnvError, match="closed, or has failed before"):
            pool.step(nothing[:, 0])
        return
    assert "exit code 7 in replay" in pool.restore(*arguments, clock=2)[0]
    step = pool.step(nothing[:, 0])
    assert step.restarted.all()
    np.testing.assert_array_equal(step.final_obs["draw"], obs["draw"])
    pool.close()


def test_playing_again_has_the_time_of_all_its_steps():
    pool = make(functools.partial(hosts.Slow, seconds=0.4), num_envs=1, workers=1, timeout=1.0)
    seeds = np.zeros(1, np.uint32)
    pool.reset(seeds)
    for _ in range(4):
        step = pool.step(np.ones(1, int))
    played = np.ones((1, 4), int)
    assert pool.restore(seeds, np.zeros(1, int), np.full(1, 4), played, step.obs, clock=4) == {}
    pool.close()


PARENT = """
    import signal, sys
    import numpy as np
    from jaxrl_guided.envs.bridge.pool import Pool
    from tests.envs.bridge import hosts
    import functools

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background has none
    pool = Pool("gym/Counter", functools.partial(hosts.Counter, sys.argv[1], 3), 2, workers=2,
                max_steps=9)
    pool.reset(np.zeros(2, np.uint32))
    pool.step(np.ones(2, int))
    print("ready", flush=True)
    while True:
        pool.step(np.ones(2, int))
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("fault", ["", "hang", "hold"])
def test_no_process_outlives_the_parent(sent, fault):
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT), fault],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert parent.stdout.readline() == "ready\n"
        workers = children(parent.pid)
        assert len(workers) == 2
        parent.send_signal(sent)
        assert parent.wait(30) != 0
    finally:
        parent.kill()
    end = time.monotonic() + 10
    while any(map(status, workers)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(status, workers))


@pytest.mark.parametrize(
    "options",
    [
        {"num_envs": 0},
        {"workers": -1},
        {"workers": 2.5},
        {"timeout": 0.0},
        {"timeout": 1e12},
        {"timeout": "abc"},
        {"max_steps": 10**11},
        {"info": "success"},
        {"on_error": "ignore"},
    ],
)
def test_bad_numbers_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        make(**options)


def test_rewards_have_the_range_of_float32():
    pool = make(functools.partial(hosts.Counter, "rich"), num_envs=1, workers=0)
    pool.reset(np.zeros(1, np.uint32))
    pool.step(np.ones(1, int))
    with pytest.raises(HostEnvError, match=r"reward is not finite in float32: 1e\+39"):
        pool.step(np.ones(1, int))


def test_an_environment_that_ends_the_process_is_an_error_in_this_one_too():
    with pytest.raises(HostEnvError, match="describe failed: SystemExit: 4"):
        make(functools.partial(sys.exit, 4), workers=0)


def test_info_that_is_no_number_is_named():
    pool = make(workers=0, info=("text",))
    pool.reset(np.zeros(4, np.uint32))
    with pytest.raises(HostEnvError, match="info 'text' is not a number: 'no number'"):
        pool.step(np.zeros(4, int))


def test_observations_must_hold_something():
    class Empty(hosts.Counter):
        def __init__(self):
            super().__init__()
            self.observation_space = gymnasium.spaces.Dict()

    with pytest.raises(
        HostEnvError, match=r"ValueError: observations must hold an array, not Dict"
    ):
        make(Empty, workers=0)


def test_an_error_tells_first_what_happened():
    class Broken(hosts.Counter):
        def __init__(self):
            raise RuntimeError("no init today:\n put data in\n /somewhere")

    with pytest.raises(HostEnvError) as error:
        make(Broken)
    assert error.value.told == "RuntimeError: no init today:\n put data in\n /somewhere"
    assert "Traceback" in str(error.value)


def test_a_time_limit_is_needed():
    with pytest.raises(HostEnvError, match="has no time limit; give max_steps"):
        make(max_steps=None)


def test_workers_do_not_import_jax():
    code = "import sys, jaxrl_guided.envs.bridge.worker; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
