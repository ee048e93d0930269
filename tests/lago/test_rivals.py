"""LaGO against its rivals: made-up seeds whose margins are known."""

import numpy as np
import pytest

from jaxrl_guided.lago.families import FAMILIES
from jaxrl_guided.lago.rivals import compare, difference, excess, goal, goal_text, headline


def scores(**arms):
    return {
        arm: {name: dict(enumerate(values)) for name, values in columns.items()}
        for arm, columns in arms.items()
    }


def test_differences_are_paired_by_seed():
    ours = {0: 0.2, 1: 0.9, 2: 0.5, 7: 0.0}
    theirs = {2: 0.4, 0: 0.1, 1: 0.8}
    found, seeds = difference(ours, theirs)
    assert seeds == 3
    # Each seed gains exactly ten points, however far apart the seeds are.
    np.testing.assert_allclose([found.value, found.low, found.high], 10, atol=1e-9)
    assert difference({0: 0.5, 1: 0.5}, {1: 0.4, 2: 0.4}) is None


def test_excess_over_one_run_keeps_the_spread_of_ours():
    found, seeds = excess({3: 0.25, 8: 0.75}, 0.375)
    # Resampled means of (−12.5, 37.5) are −12.5, 12.5 and 37.5.
    assert (found.value, found.low, found.high) == (12.5, -12.5, 37.5)
    assert seeds == 2
    assert excess({0: 0.5}, 0.25) is None


@pytest.mark.parametrize(
    "lago, ppo, words",
    [
        ([0.5, 0.6, 0.7] * 2, [0.3, 0.4, 0.5] * 2, "above PPO on real: +20.0 [+20.0, +20.0]"),
        ([0.3, 0.4, 0.5] * 2, [0.5, 0.6, 0.7] * 2, "below PPO on real: -20.0 [-20.0, -20.0]"),
        ([0.6, 0.4, 0.5] * 2, [0.5, 0.5, 0.5] * 2, "not clearly above PPO on real: +0.0 ["),
        ([0.5] * 5, [0.5] * 5, "not clearly above PPO on real: +0.0 [+0.0, +0.0] points, 5"),
        ([0.9] * 4, [0.5] * 4, "not judged against PPO on real: +40.0 [+40.0, +40.0] points, 4"),
    ],
)
def test_comparisons_say_above_below_or_neither(lago, ppo, words):
    (found,) = compare(scores(lago={"real": lago}, ppo={"real": ppo}), ["real"])
    assert str(found).startswith(f"LaGO is {words}")
    assert str(found).endswith("seeds, fewer than 5." if len(lago) < 5 else "seeds.")


def test_the_headline_names_what_lago_is_not_above():
    ours = {"real": [0.5] * 5, "easy": [0.5] * 5}
    low, high = {name: [0.25] * 5 for name in ours}, {name: [0.75] * 5 for name in ours}
    found = compare(scores(lago=ours, ppo=low, ppo_bc=high), ["real", "easy"])
    assert headline(found) == "LaGO is below: PPO from BC (real, easy)."
    found = compare(scores(lago=ours, ppo_bc=high, kickstart=ours), ["real", "easy"])
    assert headline(found) == (
        "LaGO is below: PPO from BC (real, easy). "
        "LaGO is not clearly above: kickstarting (beta to 0) (real, easy)."
    )
    found = compare(scores(lago=ours, ppo=low, prior={"real": [0.25]}), ["real", "easy"])
    assert headline(found) == "LaGO is above: PPO (real, easy); prior as controller (real)."
    assert headline([]) == "No comparison with LaGO is finished yet."
    few = compare(scores(lago={"real": [0.5] * 4}, ppo=low), ["real"])
    assert headline(few) == "No comparison with LaGO is judged, all have fewer than 5 seeds."


def test_the_goal_needs_the_interval_above_zero():
    ours, theirs = [0.0, 1.0] * 5, [0.25] * 10
    wide = goal(scores(lago={"mean": ours}, ppo={"mean": [0.0, 0.5] * 5}), FAMILIES["clevr"])
    assert wide["value"] == pytest.approx(25)
    assert wide["met"] is True
    # As far above on average, but only because of some seeds.
    wild = goal(scores(lago={"mean": [-0.5, 1.25] * 5}, ppo={"mean": theirs}), FAMILIES["clevr"])
    assert wild["value"] == pytest.approx(12.5)
    assert wild["interval"][0] < 0
    assert wild["met"] is False


def test_the_goal_is_that_of_the_family():
    """12.4 points with five seeds: too few on CLEVR-Robot, too little on Meta-World."""
    found = scores(lago={"mean": [0.374] * 5}, ppo={"mean": [0.25] * 5})
    assert goal(found, FAMILIES["clevr"])["met"] is None
    assert goal(found, FAMILIES["metaworld"])["met"] is False
    text = goal_text(goal(found, FAMILIES["clevr"]), FAMILIES["clevr"])
    assert text.startswith("Goal: Mean success of LaGO at least 12.1 points above PPO")
    assert text.endswith("Not judged yet: +12.4 [+12.4, +12.4] points with 5 of 10 seeds.")


def test_sac_has_its_own_pair_and_stays_out_of_the_headline():
    good, bad = [0.9] * 5, [0.1] * 5
    found = compare(
        scores(
            lago={"mean": good},
            ppo={"mean": bad},
            lago_sac={"mean": bad},
            sac={"mean": good},
        ),
        [],
    )
    assert str(found[-1]) == (
        "LaGO with SAC is below SAC on mean: -80.0 [-80.0, -80.0] points, 5 seeds."
    )
    assert headline(found) == "LaGO is above: PPO (mean)."
