"""Parts of datasets, and folds."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbr import random, train

KEYS = st.sampled_from([None, random.key(3)])
COUNTS = st.integers(2, 40)


def flat(parts):
    return [*itertools.chain(*parts)]


def members(parts):
    return [[int(value) for value in part] for part in parts]


@given(COUNTS, st.data(), KEYS)
def test_parts_share_nothing_and_miss_nothing(count, data, key):
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    sizes = [*sizes, count]
    dataset = np.arange(sum(sizes))
    for parts in (
        train.split(dataset, sizes, key),
        train.split(dataset, [size / sum(sizes) for size in sizes], key),
    ):
        found = members(parts)
        assert [len(part) for part in found] == sizes
        assert sorted(flat(found)) == dataset.tolist()
    if key is None:
        assert flat(found) == dataset.tolist()


@given(COUNTS, st.data(), KEYS)
def test_equal_parts_differ_by_one_at_most(count, data, key):
    n = data.draw(st.integers(1, count))
    found = members(train.split_n(np.arange(count), n, key))
    assert sorted(flat(found)) == list(range(count))
    assert max(map(len, found)) - min(map(len, found)) <= 1


@given(COUNTS, st.data(), KEYS)
def test_each_example_is_tested_in_one_fold(count, data, key):
    n = data.draw(st.integers(2, count))
    made = train.folds(np.arange(count), n, key)
    assert sorted(flat(members([test for _, test in made]))) == list(range(count))
    for training, test in made:
        assert sorted(flat(members([training, test]))) == list(range(count))


@given(st.lists(st.integers(0, 2), min_size=10, max_size=40), KEYS)
def test_parts_have_labels_in_like_proportions(labels, key):
    dataset = np.array(labels)
    for _, test in train.folds(dataset, 2, key, labels=labels):
        for label in set(labels):
            assert abs(members([test])[0].count(label) - labels.count(label) / 2) <= 1.5


def test_one_number_is_the_first_of_two_parts():
    assert [*map(len, train.split(np.arange(10), 7))] == [7, 3]
    assert [*map(len, train.split(np.arange(10), 0.25))] == [2, 8]


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ([5, 4], ValueError), ([0.5, 0.4], ValueError), (10, ValueError), (1.5, ValueError),
        ([0.01, 0.99], ValueError), ("half", TypeError), ([True], TypeError), ([], TypeError),
        (float("nan"), ValueError),
    ],
)  # fmt: skip
def test_sizes_that_do_not_add_up_are_refused(parts, error):
    with pytest.raises(error, match=r"fdbr\.train\.split: "):
        train.split(np.arange(10), parts)
