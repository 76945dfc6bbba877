"""Classes as rows of the identity matrix."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops, testing
from fdbr.ops.nn.one_hot import ones_at


@given(
    testing.arrays(
        st.sampled_from(["int8", "uint8", "int64"]), min_side=0, min_value=0, max_value=3
    ),
    st.sampled_from([None, 2, -1]),
    st.sampled_from(["float32", "bool", "int16", None]),
    st.data(),
)
def test_one_hot_is_one_at_the_class_and_zero_elsewhere(
    xp, to_numpy, indices, ignored, dtype, data
):
    axis = data.draw(st.integers(-indices.ndim - 1, indices.ndim))
    settings = {"dtype": dtype, "axis": axis, "ignore_label": ignored}
    found = ops.one_hot(xp.asarray(indices), 4, **settings)
    assert str(found.dtype) == (dtype or "float64")
    rows = np.moveaxis(to_numpy(found), axis, -1)
    assert rows.shape == (*indices.shape, 4)
    for place in np.ndindex(rows.shape):
        label = indices[place[:-1]]
        assert rows[place] == (place[-1] == label and label != ignored)


def test_one_hot_takes_part_in_transformations(xp, to_numpy):
    labels, x = xp.asarray([2, 0, -1]), xp.asarray(np.arange(9.0).reshape(3, 3))

    def loss(x, labels):
        return ops.sum(x**2 * ops.one_hot(labels, 3, ignore_label=-1))

    slope = to_numpy(fdbr.grad(loss)(x, labels))
    assert slope.tolist() == [[0, 0, 4], [6, 0, 0], [0, 0, 0]]
    rows = fdbr.vmap(fdbr.grad(loss))(x, labels)
    assert np.array_equal(to_numpy(rows), slope)
    assert np.array_equal(to_numpy(fdbr.jit(fdbr.grad(loss))(x, labels)), slope)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((np.array([1.0]), 3), "indices must be integers, not float64"),
        ((np.array([1]), -1), "num_classes must be at least 0"),
        ((np.array([1]), 2.5), "num_classes must be an integer"),
        ((np.array([1, 3]), 3), "indices from 1 to 3 for 3 classes"),
        ((np.array([-1]), 3), "indices from -1 to -1 for 3 classes"),
        ((np.array([1]), 3, 2), "axis 2 is out of range for 2 dimensions"),
    ],
)
def test_one_hot_says_what_does_not_fit(args, message):
    axis = args[2] if len(args) == 3 else -1
    with pytest.raises((TypeError, ValueError), match=rf"^fdbr.ops.one_hot: {message}"):
        ops.one_hot(*args[:2], axis=axis)


@pytest.mark.parametrize("dtype", ["float32", "bool", "int64", None])
def test_many_classes_are_marked_as_few_are(monkeypatch, dtype):
    indices = np.random.default_rng(0).integers(-1, 120, (9, 70)).astype("int16")
    found = ops.one_hot(indices, 120, dtype=dtype, ignore_label=-1)
    desired = np.eye(120, dtype=dtype)[np.maximum(indices, 0)]
    desired[indices < 0] = 0
    assert found.dtype == desired.dtype
    np.testing.assert_array_equal(found, desired)
    monkeypatch.setattr(ones_at, "host", ones_at.definition)
    expected = ops.one_hot(indices, 120, dtype=dtype, ignore_label=-1)
    np.testing.assert_array_equal(found, expected)
