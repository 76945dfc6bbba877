"""Datasets in batches."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import random, train

KEY = random.key(0)
COUNTS = st.integers(1, 30)
SIZES = st.integers(1, 12)


def rows(batches, epoch=0, start=0):
    return [batch.tolist() for batch in batches.epoch(epoch, start)]


@given(COUNTS, SIZES, st.booleans(), st.integers(0, 5))
def test_every_example_comes_once_an_epoch(count, size, shuffled, epoch):
    batches = train.Batches(np.arange(count), size, key=KEY if shuffled else None)
    parts = rows(batches, epoch)
    assert sorted(itertools.chain(*parts)) == list(range(count))
    assert len(parts) == len(batches)
    assert all(len(part) == size for part in parts[:-1])


@given(COUNTS, SIZES, st.integers(0, 5))
def test_without_a_key_the_order_is_that_of_the_dataset(count, size, epoch):
    assert np.concatenate(rows(train.Batches(np.arange(count), size), epoch)).tolist() == [
        *range(count)
    ]


@given(COUNTS, SIZES, st.integers(0, 5), st.data())
def test_an_epoch_begun_later_gives_the_batches_that_were_left(count, size, epoch, data):
    batches = train.Batches(np.arange(count), size, key=KEY)
    start = data.draw(st.integers(0, len(batches)))
    assert rows(batches, epoch, start) == rows(batches, epoch)[start:]


def test_the_order_is_a_function_of_key_and_epoch():
    first, again = (train.Batches(np.arange(50), 10, key=KEY) for _ in range(2))
    other = train.Batches(np.arange(50), 10, key=random.key(1))
    assert rows(first, 3) == rows(again, 3)
    assert rows(first, 3) == rows(first, 3)
    assert rows(first, 3) != rows(first, 4)
    assert rows(first, 3) != rows(other, 3)


def test_epochs_may_be_read_in_iterations():
    batches = train.Batches(np.arange(20), 5, key=KEY)
    one, other = batches.epoch(0), batches.epoch(1)
    mixed = [(a.tolist(), b.tolist()) for a, b in zip(one, other, strict=True)]
    assert mixed == list(zip(rows(batches, 0), rows(batches, 1), strict=True))


def test_iterating_gives_the_first_epoch():
    batches = train.Batches(np.arange(20), 5, key=KEY)
    assert [batch.tolist() for batch in batches] == rows(batches, 0)


@given(COUNTS, SIZES)
def test_smaller_batches_can_be_dropped(count, size):
    if size > count:
        with pytest.raises(ValueError, match=f"{count} examples make no batch of {size}"):
            train.Batches(np.arange(count), size, drop_last=True)
        return
    batches = train.Batches(np.arange(count), size, drop_last=True)
    assert [len(part) for part in rows(batches)] == [size] * (count // size)
    assert len(batches) == count // size


def test_a_key_does_not_shuffle_when_told_so():
    assert rows(train.Batches(np.arange(4), 4, key=KEY, shuffle=False)) == [[0, 1, 2, 3]]


def test_datasets_are_trees_and_so_are_their_batches():
    dataset = {"image": np.arange(12.0).reshape(6, 2), "label": (np.arange(6), None)}
    for batch in train.Batches(dataset, 4, key=KEY):
        assert batch["label"][1] is None
        np.testing.assert_array_equal(batch["image"][:, 0], 2 * batch["label"][0])


def test_a_list_of_examples_is_stacked():
    examples = [{"x": np.full(2, float(i)), "y": i} for i in range(5)]
    batches = train.Batches(examples, 3)
    first, last = list(batches)
    assert first["x"].shape == (3, 2)
    assert first["x"].dtype == np.float64
    assert last["y"].tolist() == [3, 4]


def test_a_sequence_of_another_kind_is_stacked_too():
    class Squares:
        def __len__(self):
            return 4

        def __getitem__(self, i):
            return np.array([i, i * i])

    assert rows(train.Batches(Squares(), 4)) == [[[0, 0], [1, 1], [2, 4], [3, 9]]]


def test_a_tuple_is_a_tree_of_arrays():
    x, y = next(iter(train.Batches((np.zeros((4, 3)), np.ones(4)), 2)))
    assert x.shape == (2, 3)
    assert y.shape == (2,)


@pytest.mark.parametrize("key", [None, KEY])
def test_batches_are_read_only_copies(key):
    data = np.arange(6.0)
    batch = next(iter(train.Batches(data, 6, key=key)))
    with pytest.raises(ValueError, match="read-only"):
        batch[0] = 1
    before = batch.copy()
    data[:] = -1
    assert (batch == before).all()


def test_batches_are_frozen():
    with pytest.raises(fdbr.tree.FrozenError):
        train.Batches(np.arange(3), 1).size = 2


@pytest.mark.parametrize("size", [0, -3])
def test_a_size_that_is_not_positive_is_refused(size):
    with pytest.raises(ValueError, match=f"size must be at least 1, got {size}"):
        train.Batches(np.arange(3), size)


def test_a_size_that_is_no_integer_is_refused():
    with pytest.raises(TypeError, match=r"size must be an integer, got float 2\.0"):
        train.Batches(np.arange(3), 2.0)


def test_arrays_of_different_lengths_are_named():
    with pytest.raises(ValueError, match=r"\['x'\] has 3, \['y'\]\[0\] has 4"):
        train.Batches({"x": np.zeros(3), "y": [np.zeros(4)]}, 2)


@pytest.mark.parametrize("dataset", [np.zeros((0, 3)), [], {}, {"x": None}])
def test_an_empty_dataset_is_refused(dataset):
    with pytest.raises(ValueError, match="empty"):
        train.Batches(dataset, 1)


@pytest.mark.parametrize("leaf", [np.float32(1), np.zeros(()), 3.0, "text"])
def test_a_leaf_without_a_first_axis_is_named(leaf):
    with pytest.raises(TypeError, match=r"at \['y'\]"):
        train.Batches({"x": np.zeros(3), "y": leaf}, 1)


def test_examples_of_different_shapes_are_refused():
    with pytest.raises(ValueError, match=r"shapes \[\(2,\), \(3,\)\] cannot be stacked"):
        train.Batches([np.zeros(2), np.zeros(3)], 1)


def test_examples_of_different_structures_are_refused():
    for collate in (train.collate_stack, train.collate_ragged, train.collate_padded()):
        with pytest.raises(ValueError, match=r"train\.collate.*example 2 does not fit example 1"):
            collate([{"x": 1}, {"y": 1}])
        for one, other in ((1, None), (None, 1)):
            with pytest.raises(ValueError, match=r"train\.collate_.* some have None where others"):
                collate([{"x": one}, {"x": other}])


def test_shuffling_without_a_key_is_refused():
    with pytest.raises(ValueError, match=r"key=fdbr.random.key\(seed\)"):
        train.Batches(np.arange(3), 1, shuffle=True)


def test_a_start_beyond_the_epoch_is_refused_at_once():
    batches = train.Batches(np.arange(3), 1)
    with pytest.raises(ValueError, match="start is 4, but an epoch has 3 batches"):
        batches.epoch(0, 4)
    with pytest.raises(ValueError, match="number must be at least 0"):
        batches.epoch(-1)
    with pytest.raises(TypeError, match="start must be an integer"):
        batches.epoch(0, 0.5)


def test_batches_are_arrays_of_the_module_of_the_dataset(xp, to_numpy):
    data = xp.asarray(np.arange(10.0))
    for batch, expected in zip(
        train.Batches(data, 4, key=KEY), train.Batches(np.arange(10.0), 4, key=KEY), strict=True
    ):
        assert type(batch) is type(data)
        np.testing.assert_array_equal(to_numpy(batch), expected)


def test_masked_elements_are_refused_for_batches_would_lose_the_mask():
    masked = np.ma.array(np.arange(6.0).reshape(3, 2), mask=[[0, 0], [0, 1], [0, 0]])
    for dataset in (masked, {"x": masked}, list(masked), [masked] * 3):
        with pytest.raises(TypeError, match=r"masked.*filled"):
            list(train.Batches(dataset, size=2, shuffle=False))
    with pytest.raises(TypeError, match=r"masked.*filled"):
        train.collate_padded()([masked, masked])
    (batch,) = train.Batches(np.ma.array(np.arange(3.0)), size=3, shuffle=False)
    assert batch.tolist() == [0.0, 1.0, 2.0]
