"""Datasets in parts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbr import distributed as d
from fdbr import random, train


@given(
    count=st.integers(1, 9),
    size=st.integers(1, 4),
    equal=st.booleans(),
    keyed=st.booleans(),
    alone=st.booleans(),
    rows=st.booleans(),
)
def test_each_rank_has_a_part(count, size, equal, keyed, alone, rows):
    whole = {"x": np.arange(count)} if rows else [{"x": i} for i in range(count)]
    key = random.key(2) if keyed else None

    def f(comm):
        given = None if alone and comm.rank else whole
        part = d.scatter_dataset(given, comm, key, equal_lengths=equal)
        if not rows:
            return [example["x"] for example in part]
        if alone and size > 1:
            return part["x"].tolist()
        return [example["x"].item() for example in part]

    parts = d.run_in_threads(f, size)
    lengths = [len(part) for part in parts]
    everything = [x for part in parts for x in part]
    assert set(everything) == set(range(count))
    if equal:
        assert set(lengths) == {-(-count // size)}
    else:
        assert max(lengths) - min(lengths) <= 1
        assert len(everything) == count
    if not keyed:
        assert everything == sorted(everything)


def test_datasets_of_different_lengths_are_refused_on_all_ranks():
    seen = []

    def f(comm):
        try:
            d.scatter_dataset(np.arange(3 + comm.rank), comm)
        except ValueError as error:
            seen.append(str(error))

    d.run_in_threads(f, 2)
    assert seen[0] == seen[1]
    assert "same dataset, or rank 0 alone, and the others None; they have [3, 4]" in seen[0]
    with pytest.raises(ValueError, match=r"scatter_dataset: rank 0: dataset is an empty sequence"):
        d.scatter_dataset([], d.serial())


def test_empty_datasets_have_as_many_examples():
    def f(comm):
        dataset = d.empty_dataset(np.zeros((5, 2)) if comm.rank == 0 else None, comm)
        batches = train.Batches(dataset, 2)
        return len(dataset), dataset[4], list(batches), list(d.share(batches, d.serial()))

    one = (5, (), [(), (), ()], [(), (), ()])
    assert d.run_in_threads(f, 2) == [one, one]
    with pytest.raises(TypeError, match=r"fdbr\.distributed\.empty_dataset"):
        d.empty_dataset(3)
