"""Whether arrays are equal up to rounding."""

import numpy as np
import pytest

from fdbr.testing import assert_allclose

X = np.array([[0.5, 1.25, 2.0], [0.75, 0.25, 1.5]])


def test_equal_arrays_of_any_module_pass(xp):
    x = xp.asarray(X)
    assert_allclose(x, X)
    assert_allclose(X, x)
    assert_allclose({"a": [x, 1.0]}, {"a": [X, 1.0]})
    assert_allclose([0.5, 1.25], np.array([0.5, 1.25]))
    assert_allclose(np.array([np.nan, np.inf]), np.array([np.nan, np.inf]))


def test_tolerances_follow_the_less_precise_dtype():
    near, far = X * (1 + 1e-6), X * (1 + 1e-4)
    assert_allclose(near.astype(np.float32), X)
    assert_allclose(far.astype(np.float16), X)
    for actual in (near, far, far.astype(np.float32)):
        with pytest.raises(AssertionError):
            assert_allclose(actual, X)
    assert_allclose(far, X, rtol=1e-3)
    assert_allclose(X + 1e-4, X, atol=1e-3)


@pytest.mark.parametrize(
    ("actual", "desired", "words"),
    [
        (X, X[:1], ["shapes differ", "float64[2,3], not float64[1,3]"]),
        (X, X[0, 0], ["float64[2,3], not float64[]"]),
        ({"a": 1.0}, {"b": 1.0}, ["structures differ"]),
        ({"a": [1.0, X]}, {"a": [1.0, X + (X > 1.9)]}, ["at ['a'][1]", "element [0, 2]", "3.0"]),
        (np.array([1, 2]), np.array([1, 3]), ["element [1]", "0 is allowed"]),
        (np.array([1.0, np.nan]), np.array([1.0, 2.0]), ["element [1] is nan, not 2.0"]),
        (np.array([1.0, 2.0]), np.array([1.0, np.inf]), ["element [1] is 2.0, not inf"]),
        (1.0, 1.5, ["it is 1.0, not 1.5"]),
        (np.array([1.0, 3.0, 9.0]), np.array([1.0, 2.0, 3.0]), ["[2] is 9.0", "2 of 3 elements"]),
    ],
)
def test_differences_are_named(actual, desired, words):
    with pytest.raises(AssertionError) as caught:
        assert_allclose(actual, desired)
    for word in words:
        assert word in str(caught.value)


def test_arrays_on_different_devices_are_compared_in_one_tree(xp):
    mixed = {"a": xp.asarray(X), "b": X}
    assert_allclose(mixed, {"a": X, "b": xp.asarray(X)})
    with pytest.raises(AssertionError, match=r"at \['b'\]: element \[0, 2\] is 2.0, not 3.0"):
        assert_allclose(mixed, {"a": X, "b": xp.asarray(X + (X == 2.0))})
