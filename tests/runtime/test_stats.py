"""Statistics against closed forms and scipy."""

import numpy as np
import pytest
import scipy.stats

from jaxrl_guided.runtime.stats import (
    Estimate,
    bootstrap,
    iqm,
    mean_text,
    middle_text,
    paired_difference,
    paired_t,
)


def test_iqm_by_hand():
    assert iqm(np.array([100.0, 1.0, 2.0, -50.0])) == 1.5
    np.testing.assert_array_equal(iqm(np.array([[0, 1, 3, 9], [4, 4, 4, 4]]), axis=1), [2, 4])
    assert iqm(np.arange(8.0).reshape(2, 4)) == 3.5


def test_interval_of_two_seeds_is_exact():
    # Resampled means of (0, 1) are 0, ½, 1 with probability ¼, ½, ¼.
    assert bootstrap(np.array([0.0, 1.0])) == Estimate(0.5, 0.0, 1.0)
    assert bootstrap(np.array([0.0, 1.0]), confidence=0.4) == Estimate(0.5, 0.5, 0.5)


def test_interval_of_many_seeds_is_the_normal_one():
    values = np.random.default_rng(0).normal(3.0, 2.0, size=2000)
    estimate = bootstrap(values)
    half = 1.959964 * values.std() / np.sqrt(len(values))
    assert estimate.value == values.mean()
    assert estimate.low == pytest.approx(values.mean() - half, abs=0.05 * half)
    assert estimate.high == pytest.approx(values.mean() + half, abs=0.05 * half)


@pytest.mark.parametrize("statistic", [np.mean, np.median, iqm])
def test_interval_agrees_with_scipy(statistic):
    values = np.random.default_rng(1).exponential(size=30)
    ours = bootstrap(values, statistic, confidence=0.9, resamples=20_000)
    theirs = scipy.stats.bootstrap(
        (values,),
        statistic,
        confidence_level=0.9,
        n_resamples=20_000,
        method="percentile",
        rng=np.random.default_rng(2),
    ).confidence_interval
    width = theirs.high - theirs.low
    assert ours.low == pytest.approx(theirs.low, abs=0.04 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.04 * width)


def test_what_belongs_to_a_seed_stays_together():
    # Within a seed the tasks cancel, so that only resampling whole rows gives a zero interval.
    values = np.array([[-5.0, 5.0], [-1.0, 1.0], [3.0, -3.0]])
    assert bootstrap(values) == Estimate(0.0, 0.0, 0.0)


def test_pairing_removes_what_seeds_share():
    shared = np.random.default_rng(0).normal(scale=100.0, size=10)
    gain = np.linspace(1.0, 2.0, 10)
    estimate = paired_difference(shared + gain, shared)
    assert estimate.value == pytest.approx(1.5)
    assert 1.0 < estimate.low < 1.5 < estimate.high < 2.0


def test_interval_is_reproducible_and_depends_on_its_seed():
    values = np.random.default_rng(0).normal(size=12)
    assert bootstrap(values) == bootstrap(values)
    assert bootstrap(values) != bootstrap(values, seed=1)


def test_coverage_of_ten_seeds():
    # The percentile interval of 10 normal seeds is known to be a little short: about 90 %.
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(400):
        estimate = bootstrap(rng.normal(1.0, 1.0, size=10), resamples=500)
        hits += estimate.low <= 1.0 <= estimate.high
    assert 0.86 <= hits / 400 <= 0.95


def test_estimate_shows_itself():
    assert f"{Estimate(12.13, 8.04, 16.2):.1f}" == "12.1 [8.0, 16.2]"
    assert f"{Estimate(12.13, -8.04, 16.2):+.1f}" == "+12.1 [-8.0, +16.2]"
    assert f"{Estimate(12.13, np.nan, np.nan)}" == "12.1"


@pytest.mark.parametrize("values", [np.array(1.0), np.array([1.0]), np.array([1.0, np.nan])])
def test_bad_values(values):
    with pytest.raises(ValueError, match="values"):
        bootstrap(values)


def test_unpaired_seeds_are_refused():
    with pytest.raises(ValueError, match=r"same seeds, got shapes \(3,\), \(2,\)"):
        paired_difference(np.zeros(3), np.zeros(2))
    with pytest.raises(ValueError, match="confidence"):
        bootstrap(np.zeros(3), confidence=95)


def test_students_interval_by_its_table():
    ours, theirs = np.array([5.0, 9.0, 1.0]), np.array([4.0, 7.0, -2.0])
    # Gains 1, 2, 3: mean 2, deviation 1, and t(0.975; 2 degrees) = 4.302653.
    found, half = paired_t(ours, theirs), 4.302653 / np.sqrt(3)
    np.testing.assert_allclose(
        [found.value, found.low, found.high], [2, 2 - half, 2 + half], rtol=1e-5
    )
    for few in (ours[:1], ours[:2]):
        with pytest.raises(ValueError, match="same seeds, at least two"):
            paired_t(few, few[:1])


def test_few_seeds_have_students_interval():
    # Two numbers, mean 2, standard error 1: the quantile of one degree of freedom is 12.706.
    assert mean_text([1.0, 3.0]) == "2 [-10.71, 14.71]"
    assert mean_text([1.0]) == "1"
    many = [1.0, 2.0, 3.0, 4.0, 10.0]
    assert mean_text(many) == f"{bootstrap(np.array(many)):.4g}"
    assert middle_text(many) == f"{bootstrap(np.array(many), iqm):.4g}"
    assert middle_text(many[:4]) == ""
