"""Examples of any shape in one file."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fdbr import train

ARRAYS = hnp.arrays(
    st.sampled_from(["u1", "<f4", ">f8", "i8", "?", "c8", "U3"]).map(np.dtype),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | ARRAYS
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)


def same(a, b):
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype.newbyteorder("=")
        assert a.shape == b.shape
        assert a.tobytes() == b.astype(a.dtype).tobytes()
        return True
    assert type(a) is type(b)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return a == b


@given(st.lists(TREES, min_size=1, max_size=4))
def test_what_is_written_is_read(tmp_path_factory, examples):
    path = tmp_path_factory.mktemp("examples") / "file"
    assert train.write_examples(path, iter(examples)) == len(examples)
    found = train.read_examples(path)
    assert len(found) == len(examples)
    assert all(map(same, found, examples))


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "texts"
    train.write_examples(path, [{"x": np.arange(n), "n": np.int32(n)} for n in (5, 2, 3)])
    return path


def test_batches_are_made_of_them_in_other_processes_too(path):
    batches = train.Batches(train.read_examples(path), 2, collate=train.collate_ragged)
    for source in (batches, train.prefetch(batches, 1, processes=True)):
        assert [[len(x) for x in batch["x"]] for batch in source] == [[5, 2], [3]]


def test_every_damage_is_found(path):
    content = path.read_bytes()
    for place in range(0, len(content), 3):
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        if path.read_bytes()[-4:] != content[-4:]:
            continue  # these bytes fill up
        with pytest.raises(ValueError, match="texts"):
            list(train.read_examples(path))
    for end in range(0, len(content), 7):
        path.write_bytes(content[:end])
        with pytest.raises(ValueError, match="texts"):
            train.read_examples(path)


def test_what_cannot_be_written_leaves_the_file_as_it_was(path):
    before = path.read_bytes()
    for examples, error in (([1, object()], TypeError), ([{1: 2}], TypeError), ([], ValueError)):
        with pytest.raises(error, match=r"fdbr\.train\.write_examples"):
            train.write_examples(path, examples)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["texts"]
