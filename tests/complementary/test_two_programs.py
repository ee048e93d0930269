"""Actor and extractor in programs of their own: the same run as in one, and what ends it."""

import contextlib
import dataclasses

import pytest

from jaxrl_guided.complementary import extractor, letters
from jaxrl_guided.complementary.bank import BANK_FILE, Bank
from jaxrl_guided.complementary.credit import CreditConfig
from jaxrl_guided.complementary.distant import DistantExtractor
from jaxrl_guided.complementary.extractor_program import ExtractorProgram, failures_told
from jaxrl_guided.complementary.job import run_complementary
from jaxrl_guided.complementary.operations import Operation
from jaxrl_guided.complementary.pairs import check_role, pair_of
from jaxrl_guided.complementary.preparation import prepare, prepare_extractor
from jaxrl_guided.complementary.presets import SMOKE
from jaxrl_guided.complementary.requests import Requests
from jaxrl_guided.complementary.training import ComplementaryRun
from jaxrl_guided.learners.language.run_config import JudgeConfig, WarmUpConfig
from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.metrics import read_metrics
from jaxrl_guided.runtime.post import CALLER, OPENER, PeerGone, Post
from jaxrl_guided.runtime.rundir import open_run
from jaxrl_guided.runtime.signals import StopFlag, Stopped

SHORT = dataclasses.replace(
    SMOKE,
    actor=dataclasses.replace(
        SMOKE.actor, warm_up=WarmUpConfig(updates=4, episodes=64, batch=4), slots=16
    ),
    extractor_model=dataclasses.replace(
        SMOKE.extractor_model, warm_up=WarmUpConfig(updates=4, batch=4), slots=16
    ),
    credit=CreditConfig(batch=2),
    judge=JudgeConfig(episodes=4, every=2),
    save_every=2,
)
"""So short that its extractor answers whatever it is asked within a turn: chunk ≥ max_tokens."""

SHORT = dataclasses.replace(SHORT, loop=dataclasses.replace(SHORT.loop, chunk=64))


@pytest.fixture(autouse=True)
def heard(monkeypatch):
    """Whatever so untrained an extractor says becomes an entry."""

    def parse(output, shown, most):
        return [Operation("add", title="said", content=repr(output))]

    monkeypatch.setattr(extractor, "parse", parse)


def run_here(path, config, cache):
    with (
        contextlib.closing(ComplementaryRun(prepare(config), warm_cache=cache)) as work,
        open_run(path, "test", config) as run,
    ):
        return run_complementary(work, run, StopFlag())


class InOneThread:
    """A line to a program that is given its turns whenever the actor writes.

    The actor is cut off when the program has saved the step `last`.
    """

    def __init__(self, post, program, last):
        self.post, self.program, self.last = post, program, last

    def __call__(self, unsent):
        found = self.post.swap(OPENER, unsent)
        for _ in range(2):  # it answers, and sends what it has answered
            self.program.turn()
        if self.program.over:
            self.program.end()
        if self.program.saved == self.last:
            raise PeerGone("cut off")
        return found + self.post.swap(OPENER, [])


def run_apart(path, config, cache, last=None):
    settled, prepared = prepare_extractor(config)
    post = Post()

    def line(unsent):
        return post.swap(CALLER, unsent)

    job = prepare(config, extractor=False)
    with (
        open_run(path / "extractor", "test", config) as theirs,
        ExtractorProgram(settled, prepared, line, theirs, StopFlag(), cache) as program,
        contextlib.ExitStack() as stack,
        open_run(path / "actor", "test", config) as ours,
    ):
        here = InOneThread(post, program, last)
        work = stack.enter_context(contextlib.closing(ComplementaryRun(job, None, cache, here)))
        result = run_complementary(work, ours, StopFlag())
        assert program.over
    return result


def entries_of(path):
    with Bank(path / BANK_FILE) as bank:
        return [(entry.title, entry.content, entry.generation) for entry in bank.entries()]


def without_times(path):
    late = ("seconds", "extractor_")  # metrics of its updates come with the next one
    return [
        {k: v for k, v in row.items() if not k.endswith(late[0]) and not k.startswith(late[1])}
        for row in read_metrics(path)
    ]


def test_two_programs_make_the_run_of_one(tmp_path):
    cache = tmp_path / "cache"
    here = run_here(tmp_path / "here", SHORT, cache)
    apart = run_apart(tmp_path / "apart", SHORT, cache)
    assert {**here, "minutes": 0} == {**apart, "minutes": 0}
    ours, theirs = tmp_path / "here", tmp_path / "apart"
    assert entries_of(ours) == entries_of(theirs / "actor")
    assert len(entries_of(ours)) > 0
    assert without_times(ours) == without_times(theirs / "actor")
    for name in ("actor", "extractor"):
        both = (ours / name, theirs / name / name)
        one, two = ((path / "model.safetensors").read_bytes() for path in both)
        assert one == two
    assert any("loss" in row for row in read_metrics(theirs / "extractor"))
    assert not (theirs / "actor" / "extractor").exists()


@pytest.mark.slow
def test_both_go_on_after_a_stop(tmp_path):
    cache = tmp_path / "cache"
    run_apart(tmp_path / "whole", SHORT, cache)
    cut = tmp_path / "cut"
    for last in (2, 4):  # with each of them the extractor has a step that the actor has not
        with pytest.raises(PeerGone, match="cut off"):
            run_apart(cut, SHORT, cache, last)
    run_apart(cut, SHORT, cache)
    whole = tmp_path / "whole"
    assert entries_of(whole / "actor") == entries_of(cut / "actor")
    assert without_times(whole / "actor") == without_times(cut / "actor")
    for name in ("actor", "extractor"):
        both = (path / name / name / "model.safetensors" for path in (whole, cut))
        one, two = (path.read_bytes() for path in both)
        assert one == two


@contextlib.contextmanager
def serving(path, post):
    """The extractor's program in `path`, and its line."""
    settled, prepared = prepare_extractor(SHORT)

    def line(unsent):
        return post.swap(CALLER, unsent)

    with (
        failures_told(line),
        open_run(path, "test", SHORT) as run,
        ExtractorProgram(settled, prepared, line, run, StopFlag()) as program,
    ):
        yield program


def begun(post, pair, step):
    """The actor's side, after its first letter."""
    distant = DistantExtractor(lambda unsent: post.swap(OPENER, unsent), Requests())
    distant.begin_at(pair, step, lambda: None)
    return distant


def test_an_extractor_that_has_not_the_checkpoint_says_so_to_both(tmp_path):
    post = Post()
    distant = begun(post, "a", 6)
    with pytest.raises(UserError, match="holds no checkpoint"), serving(tmp_path, post) as program:
        program.turn()
    with pytest.raises(PeerGone, match=r"the extractor's program has ended: .* no checkpoint"):
        distant.await_begun()


def test_directories_of_different_runs_do_not_go_together(tmp_path):
    post = Post()
    begun(post, "a", 0)
    with serving(tmp_path, post) as program:
        program.turn()
        post.swap(OPENER, [letters.Save(2)])
        program.turn()
    begun(post, "b", 0)
    with (
        pytest.raises(UserError, match="belongs to another run than the actor's --run_dir"),
        serving(tmp_path, post) as program,
    ):
        program.turn()
    assert (tmp_path / "checkpoints" / "2").is_dir()


def test_a_directory_has_one_role(tmp_path):
    with open_run(tmp_path / "a", "test", SHORT) as run:
        check_role(run, "both")
        pair = pair_of(run)
        assert pair_of(run) == pair
        check_role(run, "actor")
        with pytest.raises(UserError, match="holds a run of --role=actor, not both"):
            check_role(run, "both")
    with open_run(tmp_path / "b", "test", SHORT) as run:
        (run.checkpoints / "5").mkdir(parents=True)
        with pytest.raises(UserError, match="holds a run of --role=both, not extractor"):
            check_role(run, "extractor")


def test_an_arm_without_extractor_has_no_program_of_it():
    with pytest.raises(UserError, match="arm baseline has no extractor"):
        prepare_extractor(dataclasses.replace(SHORT, arm="baseline"))


def test_a_wait_for_the_other_program_can_be_stopped():
    distant = DistantExtractor(lambda unsent: [], Requests())
    looks = iter([None, None])

    def check():
        if next(looks, "stop") == "stop":
            raise Stopped("here")

    distant.begin_at("a", 0, check)
    with pytest.raises(Stopped, match="here"):
        distant.save(3)


def test_letters_of_one_kind_alone_end_a_wait():
    come = [[letters.Begun()], [letters.Saved(2)], [letters.Ended()]]
    distant = DistantExtractor(lambda unsent: come.pop(0), Requests())
    distant.end()
    assert not come
