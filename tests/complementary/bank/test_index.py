"""Search against a plain sort of all products."""

import numpy as np
import pytest

from jaxrl_guided.complementary.bank import index as index_lib
from jaxrl_guided.complementary.bank.index import Index, search
from jaxrl_guided.complementary.bank.records import Entry

DIM = 8


def entry(number, vector, task=""):
    return Entry("t", "c", np.asarray(vector, np.float32), task, id=number)


def filled(random, count, tasks=1):
    index = Index(DIM)
    vectors = random.normal(size=(count, DIM))
    born = [entry(3 * i + 1, vectors[i], f"task {i % tasks}") for i in range(count)]
    index.apply(1, born, [], [])
    return index


def sorted_all(view, queries, k, allowed):
    products = np.where(allowed, queries @ view.vectors.T, -np.inf).astype(np.float32)
    rows = np.argsort(-products, axis=1, kind="stable")[:, :k]
    return rows, np.take_along_axis(products, rows, axis=1)


@pytest.mark.parametrize("count", [1, 15, 16, 17, 1000])
@pytest.mark.parametrize("k", [1, 16])
@pytest.mark.parametrize("queries", [1, 5])
def test_search_is_exact(count, k, queries, monkeypatch):
    monkeypatch.setattr(index_lib, "_PRODUCTS", 80)
    random = np.random.default_rng(count)
    view = filled(random, count).view
    asked = random.normal(size=(queries, DIM)).astype(np.float32)
    rows, products = search(view, asked, k)
    expected_rows, expected = sorted_all(view, asked, k, np.ones(count, bool))
    found = min(k, count)
    np.testing.assert_array_equal(rows[:, :found], expected_rows[:, :found])
    np.testing.assert_allclose(products[:, :found], expected[:, :found], rtol=1e-5, atol=1e-6)
    assert np.all(rows[:, found:] == -1)
    assert np.all(products[:, found:] == -np.inf)


def test_of_equal_ones_older_come_first(monkeypatch):
    monkeypatch.setattr(index_lib, "_PRODUCTS", 4)
    index = Index(DIM)
    index.apply(1, [entry(i, np.full(DIM, i % 2)) for i in range(30)], [], [])
    rows, _ = search(index.view, np.ones((1, DIM)), 5)
    np.testing.assert_array_equal(rows, [[1, 3, 5, 7, 9]])


def test_the_dead_and_other_scopes_are_not_found():
    random = np.random.default_rng(0)
    index = filled(random, 60, tasks=3)
    before = index.view
    index.apply(2, [], [4, 7, 178], [])
    query = random.normal(size=(2, DIM)).astype(np.float32)
    allowed = ~np.isin(index.view.ids, [4, 7, 178])
    rows, _ = search(index.view, query, 60)
    np.testing.assert_array_equal(rows[:, :57], sorted_all(before, query, 57, allowed)[0])
    assert np.all(rows[:, 57:] == -1)
    only = index.task_number("task 2")
    rows, _ = search(index.view, query, 20, [only])
    mask = allowed & (before.tasks == only)
    np.testing.assert_array_equal(
        rows[:, : mask.sum()], sorted_all(before, query, mask.sum(), mask)[0]
    )
    assert before.alive.all()  # what others see stays


def test_an_empty_index_finds_nothing():
    rows, products = search(Index(DIM).view, np.ones((2, DIM)), 3)
    assert rows.shape == products.shape == (2, 3)
    assert np.all(rows == -1)


def test_a_view_stays_while_the_index_grows_and_is_packed():
    random = np.random.default_rng(0)
    index = filled(random, 200)
    view = index.view
    ids, vectors = view.ids.copy(), view.vectors.copy()
    for number in range(2000):
        index.apply(number, [entry(1000 + number, random.normal(size=DIM))], [], [])
        index.apply(number, [], [int(index.view.ids[index.view.alive][0])], [])
    np.testing.assert_array_equal(view.ids, ids)
    np.testing.assert_array_equal(view.vectors, vectors)
    assert index.view.alive.sum() == 200
    assert len(index._ids) <= 1024  # room does not grow with those that have died
    np.testing.assert_array_equal(index.view.frozen().ids, np.arange(2800, 3000))
    with pytest.raises(KeyError):
        index.view.of([1])
    np.testing.assert_array_equal(view.of([4, 1]), [1, 0])
