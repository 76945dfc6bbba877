"""Batches made of examples of different lengths."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbr import train

LENGTHS = st.lists(st.integers(0, 6), min_size=1, max_size=6)


@given(LENGTHS, st.integers(1, 4))
def test_padded_examples_and_their_masks(lengths, multiple):
    examples = [{"x": np.full((n, 2), n, "f4"), "n": n} for n in lengths]
    batch, mask = train.collate_padded(-1, masks=True, multiple=multiple)(examples)
    longest = -(-max(lengths) // multiple) * multiple
    assert batch["x"].shape == (len(lengths), longest, 2)
    assert batch["x"].dtype == np.float32
    assert batch["n"].tolist() == lengths
    assert mask["n"] is None
    assert mask["x"].sum(axis=1).tolist() == lengths
    for row, kept, n in zip(batch["x"], mask["x"], lengths, strict=True):
        assert (row[kept] == n).all()
        assert (row[~kept] == -1).all()


def test_a_length_is_kept_and_not_exceeded():
    collate = train.collate_padded(length=4)
    assert collate([np.zeros(2), np.zeros(3)]).shape == (2, 4)
    with pytest.raises(ValueError, match="has the length 5, more than length=4"):
        collate([np.zeros(5)])


def test_other_axes_must_agree():
    with pytest.raises(ValueError, match="differ in more than their first axis"):
        train.collate_padded()([np.zeros((2, 1)), np.zeros((2, 2))])


@given(LENGTHS)
def test_ragged_examples_stay_apart(lengths):
    dataset = [{"x": np.arange(n), "n": n} for n in lengths]
    batch = next(iter(train.Batches(dataset, 10, collate=train.collate_ragged)))
    assert [len(x) for x in batch["x"]] == lengths
    assert batch["n"].tolist() == lengths


def test_a_function_of_the_user_makes_batches_of_lists():
    batches = train.Batches(np.arange(5), 2, collate=sum)
    assert list(batches) == [1, 5, 4]
