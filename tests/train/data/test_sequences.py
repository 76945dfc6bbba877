"""Datasets as sequences, and datasets made of datasets."""

import itertools
import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbr import random, train

KEY = random.key(0)
PART = st.lists(st.integers(0, 99), min_size=1, max_size=8)


class Counted:
    """A sequence that counts how often an example is read."""

    def __init__(self, count):
        self.count, self.read = count, []

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        self.read.append(i)
        return {"x": np.full(3, i)}


def test_a_sequence_is_read_when_a_batch_is_asked_for():
    dataset = Counted(1000)
    epoch = train.Batches(dataset, 2).epoch(0)
    assert dataset.read == []
    next(epoch)
    assert dataset.read == [0, 1]


def test_a_start_reads_nothing_of_what_it_leaves_out():
    dataset = Counted(1000)
    next(train.Batches(dataset, 2).epoch(0, start=300))
    assert dataset.read == [600, 601]


def test_a_large_list_is_stacked_batch_by_batch():
    row = np.broadcast_to(np.float64(1), (2**21,))  # takes no memory, and says that it would
    batches = train.Batches([row] * 8, 1)
    assert next(iter(batches)).shape == (1, 2**21)
    assert isinstance(batches.dataset, list)


def test_examples_are_read_together_where_they_can_be():
    class Together(Counted):
        def __getitems__(self, indices):
            return [{"x": np.array(i)} for i in indices]

    dataset = Together(6)
    assert next(train.Batches(dataset, 4).epoch(0))["x"].tolist() == [0, 1, 2, 3]
    assert dataset.read == []


def test_an_error_in_a_dataset_keeps_its_kind_and_tells_the_example():
    class Broken(Counted):
        def __getitem__(self, i):
            if i == 7:
                raise KeyError("no such image")
            return i

    epoch = train.Batches(Broken(9), 2).epoch(4)
    with pytest.raises(KeyError) as caught:
        list(epoch)
    assert "example 7 (batch 3 of epoch 4)" in caught.value.__notes__[0]


# --- arrays in files ----------------------------------------------------------------


@pytest.mark.parametrize("view", [lambda a: a, lambda a: a[:, ::2], lambda a: a.T[:, :5].T])
def test_rows_of_a_mapped_array_are_read_alone(tmp_path, view):
    array = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", "f4", (50, 6))
    array[:] = np.arange(300).reshape(50, 6)
    array.flush()
    mapped = view(np.load(tmp_path / "x.npy", mmap_mode="r"))
    batches = train.Batches({"x": mapped}, 3, KEY)
    for batch, order in zip(batches, train.Batches(np.arange(len(mapped)), 3, KEY), strict=True):
        assert type(batch["x"]) is np.ndarray
        np.testing.assert_array_equal(batch["x"], mapped[order])
        assert not np.shares_memory(batch["x"], mapped)


def test_a_mapped_array_larger_than_memory_is_no_trouble(tmp_path):
    path = tmp_path / "sparse"
    with open(path, "wb") as file:
        file.truncate(2**42)  # of which the disk holds nothing
    mapped = np.memmap(path, "u1", "r", shape=(2**30, 4096))
    batches = train.Batches(mapped, 4, sampler=lambda key, epoch: np.array([0, 2**30 - 1]))
    assert next(iter(batches)).shape == (2, 4096)


def test_datasets_of_hdf5_are_columns(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.arange(20).reshape(10, 2)
        file["y"] = np.arange(10)
        batches = train.Batches({"x": file["x"], "y": file["y"]}, 4, KEY)
        for batch in batches.epoch(1):
            np.testing.assert_array_equal(batch["x"][:, 0], 2 * batch["y"])


# --- datasets made of datasets ------------------------------------------------------


def kinds(values):
    """A dataset of numbers as arrays, and as a sequence."""
    return [np.array(values), list(values), train.map_examples(lambda x: x, np.array(values))]


def listed(dataset):
    return [int(value) for value in dataset]


@given(PART, st.data())
def test_a_subset_has_the_chosen_examples(values, data):
    indices = data.draw(st.lists(st.integers(-len(values), len(values) - 1), min_size=1))
    for dataset in kinds(values):
        part = train.subset(dataset, indices)
        assert listed(part) == [values[i] for i in indices]
        assert train.gather(part).tolist() == listed(part)
        assert listed(part[::-1]) == listed(part)[::-1]


@given(st.lists(PART, min_size=1, max_size=4), st.integers(1, 5))
def test_concatenated_datasets_come_one_after_another(parts, size):
    whole = list(itertools.chain(*parts))
    for choose in range(3):
        dataset = train.concatenate(*[kinds(part)[choose] for part in parts])
        assert listed(dataset) == whole
        batches = train.Batches(dataset, size, KEY)
        expected = train.Batches(np.array(whole), size, KEY)
        for batch, other in zip(batches, expected, strict=True):
            np.testing.assert_array_equal(batch, other)


@given(PART)
def test_zipped_datasets_are_side_by_side(values):
    for dataset in kinds(values):
        pairs = train.zip_examples(dataset, np.arange(len(values)))
        named = train.zip_examples(x=dataset, y=np.arange(len(values)))
        x, y = train.gather(pairs)
        assert x.tolist() == values
        assert train.gather(named)["y"].tolist() == y.tolist() == list(range(len(values)))
        assert pairs[-1] == (values[-1], len(values) - 1)


def test_a_transformation_without_a_key_is_applied_to_each_example():
    dataset = train.map_examples(lambda e: {"y": e["x"] * 2}, {"x": np.arange(4)})
    assert train.gather(dataset)["y"].tolist() == [0, 2, 4, 6]


def noisy():
    def noise(key, x):
        return x + random.uniform(key)

    return train.map_examples(noise, np.arange(10.0), KEY)


def test_what_augmentation_makes_depends_on_key_epoch_and_example_alone():
    dataset = noisy()
    first, second = (train.gather(dataset.in_epoch(epoch)) for epoch in (0, 1))
    assert (first != second).all()
    batches = train.Batches(dataset, 3, random.key(5))
    for epoch, expected in enumerate((first, second)):
        found = np.sort(np.concatenate(list(batches.epoch(epoch))))
        np.testing.assert_array_equal(found, expected)


def test_augmentation_reaches_through_datasets_of_datasets():
    dataset = noisy()
    second = train.gather(dataset.in_epoch(1))
    for made in (
        train.subset(dataset, range(10)),
        train.concatenate(train.subset(dataset, range(4)), train.subset(dataset, range(4, 10))),
        train.map_examples(operator.itemgetter(0), train.zip_examples(dataset, np.arange(10))),
    ):
        found = np.concatenate(list(train.Batches(made, 4).epoch(1)))
        np.testing.assert_array_equal(found, second)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: train.subset(np.arange(3), [3]), IndexError, "no example 3: dataset has 3"),
        (lambda: train.subset(np.arange(3), [0.5]), TypeError, "must be integers"),
        (lambda: train.concatenate(), TypeError, "at least one"),
        (lambda: train.zip_examples([1], [1, 2]), ValueError, r"they have \[1, 2\]"),
        (lambda: train.zip_examples([1], x=[1]), TypeError, "all with names or all without"),
        (lambda: train.map_examples(len, iter([1])), TypeError, "give it to fdbr.train.Stream"),
        (lambda: train.map_examples(len, [1])[1], IndexError, "no example 1: the dataset has 1"),
    ],
)
def test_what_makes_no_dataset_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


# --- those of other libraries -------------------------------------------------------


def test_a_dataset_of_pytorch_is_a_sequence():
    torch = pytest.importorskip("torch")
    data = torch.utils.data
    pairs = data.TensorDataset(torch.arange(6.0).reshape(3, 2), torch.arange(3))
    x, y = next(iter(train.Batches(pairs, 2)))
    assert x.tolist() == [[0, 1], [2, 3]]
    assert type(y) is np.ndarray
    assert y.dtype == np.int64
    part = data.Subset(pairs, [2, 0])
    assert train.gather(part)[1].tolist() == [2, 0]


def test_a_dataset_of_hugging_face_is_a_sequence():
    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_dict({"x": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "y": [1, 2, 3]})
    batch = next(iter(train.Batches(made.with_format("numpy"), 2)))
    assert batch["x"].tolist() == [[1, 2], [3, 4]]
    assert batch["y"].tolist() == [1, 2]
    stream = train.Stream(made.to_iterable_dataset().with_format("numpy"), 2)
    assert [batch["y"].tolist() for batch in stream.epoch(3)] == [[1, 2], [3]]
    assert [batch["y"].tolist() for batch in stream.epoch(3, start=1)] == [[3]]
