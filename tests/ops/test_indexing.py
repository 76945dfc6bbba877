"""Reading and writing elements by every kind of key that NumPy knows."""

from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given

import fdbr
from fdbr import ops
from fdbr.testing import assert_allclose, check_grads
from ops.cases import few

SHAPES = hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=3)


# --- keys ---------------------------------------------------------------------------


@st.composite
def mixed_keys(draw: Any, shape: tuple[int, ...]) -> Any:
    """A tuple of ints, slices, index arrays, lists, masks, new axes and an ellipsis, in any order.

    All index arrays have one length, which is the number of true elements of the mask if there
    is one, so that they broadcast.
    """
    masked = draw(st.sampled_from([None, *range(len(shape))]))
    mask = None if masked is None else draw(hnp.arrays(bool, shape[masked]))
    length = draw(st.integers(0, 3)) if mask is None else int(mask.sum())
    parts: list[Any] = []
    for axis, n in enumerate(shape):
        if axis == masked:
            parts.append(draw(st.sampled_from([mask, mask.tolist()])))
            continue
        places = st.lists(st.integers(-n, n - 1), min_size=length, max_size=length)
        parts.append(
            draw(
                st.one_of(
                    st.slices(n),
                    st.integers(-n, n - 1),
                    places,
                    places.map(lambda p: np.array(p, dtype=int)),
                    st.integers(-n, n - 1).map(np.int64),
                    st.integers(-n, n - 1).map(np.array),
                )
            )
        )
    start = draw(st.integers(0, len(parts)))
    stop = draw(st.integers(start, len(parts)))
    if masked is None or not start <= masked < stop:
        parts[start:stop] = [...]
    if draw(st.booleans()):
        parts.insert(draw(st.integers(0, len(parts))), None)
    return tuple(parts)


@st.composite
def keyed(draw: Any) -> Any:
    """A shape, and a key for arrays of it."""
    shape = draw(SHAPES)
    key = draw(
        st.one_of(
            hnp.basic_indices(shape, allow_newaxis=True),
            hnp.integer_array_indices(shape, result_shape=hnp.array_shapes(max_dims=2, max_side=3)),
            hnp.arrays(bool, shape),
            mixed_keys(shape),
        )
    )
    return shape, key


def on(xp: Any, key: Any) -> Any:
    """A key with its arrays in an array module."""
    if isinstance(key, tuple):
        return tuple(on(xp, part) for part in key)
    return xp.asarray(key) if isinstance(key, np.ndarray) else key


def numbers(shape: tuple[int, ...]) -> Any:
    """Different numbers in a shape."""
    return np.arange(1.0, 1 + np.prod(shape, dtype=int)).reshape(shape)


def places(shape: tuple[int, ...], key: Any) -> Any:
    """The number of the element, in row-major order, at each place that a key names."""
    return np.arange(np.prod(shape, dtype=int)).reshape(shape)[key]


# --- reading ------------------------------------------------------------------------


@given(keyed())
def test_elements_are_those_of_numpy(xp, drawn):
    shape, key = drawn
    x = numbers(shape)
    desired = x[key]
    mine, k = xp.asarray(x), on(xp, key)
    assert_allclose(ops.getitem(mine, k), desired)
    out, _ = fdbr.vjp(lambda x: x[k], mine)
    assert_allclose(out, desired)
    assert_allclose(ops.at(mine)[k].get(), desired)


@given(keyed())
def test_the_gradient_collects_the_cotangents_of_every_naming(xp, drawn):
    shape, key = drawn
    k = on(xp, key)
    out, pullback = fdbr.vjp(lambda x: x[k], xp.asarray(numbers(shape)))
    weights = numbers(out.shape) % 7 - 3
    desired = np.zeros(shape)
    np.add.at(desired.reshape(-1), np.asarray(places(shape, key)).reshape(-1), weights.reshape(-1))
    (gradient,) = pullback(xp.asarray(weights) if weights.ndim or xp is not np else weights[()])
    assert_allclose(gradient, desired)


@few()
@given(keyed())
def test_second_derivatives_of_elements_are_right(drawn):
    shape, key = drawn
    assume(np.prod(shape, dtype=int) <= 12)
    check_grads(lambda x: x[key] ** 2, numbers(shape))


@pytest.mark.parametrize(
    "key",
    [
        0,
        np.int64(-1),
        slice(None, None, -1),
        None,
        ...,
        (),
        [2, 0, 0],
        (np.array([[0, 1], [2, -1]]),),
        (slice(None), [1, 0]),
        ([0, 2], slice(None), [1, 1]),
        (0, slice(None), [1, 1]),
        (np.array([0, 2]), None, ..., 1),
        (np.array([[0], [2]]), np.array([1, 0])),
        np.array([True, False, True]),
        (slice(None), np.array([True, False])),
        np.zeros((3, 2), dtype=bool),
        [],
        np.zeros(0, dtype=int),
        (1, 1, 1),
        np.uint8(1),
        (2, np.array([], dtype=int)),
    ],
    ids=repr,
)
def test_each_kind_of_key_reads_writes_and_differentiates_as_numpy(xp, key):
    x, k = numbers((3, 2, 2)), on(xp, key)
    mine = xp.asarray(x)
    out, pullback = fdbr.vjp(lambda x: x[k], mine)
    assert_allclose(out, x[key])
    desired = np.zeros(x.shape)
    np.add.at(desired, key, 1.0)
    one = xp.ones(out.shape)
    assert_allclose(pullback(one if out.shape or xp is not np else 1.0)[0], desired)
    written = x.copy()
    written[key] = -1.0
    assert_allclose(ops.at(mine)[k].set(-1.0), written)
    assert_allclose(ops.at(mine)[k].add(1.0), x + desired)


def test_a_traced_array_unpacks_and_iterates_over_its_first_axis():
    def f(x):
        a, b = x
        return ops.sum(a * b) + ops.sum(ops.stack([row * row for row in x]))

    check_grads(f, np.array([[1.0, 2.0], [3.0, 4.0]]))


def test_an_integer_result_of_a_traced_value_is_an_index():
    x = np.array([3.0, 1.0, 2.0])
    assert fdbr.grad(lambda x: x[ops.argmin(x)])(x).tolist() == [0.0, 1.0, 0.0]
    assert fdbr.grad(lambda x: ops.sum(x[x > 1.5]))(x).tolist() == [1.0, 0.0, 1.0]


# --- writing ------------------------------------------------------------------------


@st.composite
def updates(draw: Any) -> Any:
    """A shape, a key and values that broadcast to the elements at the key."""
    shape, key = draw(keyed())
    region = np.shape(np.zeros(shape)[key])
    lengths = tuple(1 if draw(st.booleans()) else n for n in region)
    values = lengths[draw(st.integers(0, len(lengths))) :] if all(region) else lengths
    return shape, key, values if np.broadcast_shapes(values, region) == region else region


@given(updates())
def test_written_elements_are_those_of_copy_and_assign(xp, drawn):
    shape, key, lengths = drawn
    x, values = numbers(shape), -numbers(lengths)
    mine, new, k = xp.asarray(x), xp.asarray(values), on(xp, key)
    assigned, added = x.copy(), x.copy()
    assigned[key] = values
    np.add.at(added, key, values)
    assert_allclose(ops.at(mine)[k].set(new), assigned)
    assert_allclose(ops.at(mine)[k].add(new), added)
    traced, _ = fdbr.vjp(lambda x, v: (x.at[k].set(v), x.at[k].add(v)), mine, new)
    assert_allclose(traced, (assigned, added))
    assert_allclose(mine, x)  # nothing was written to


@given(updates())
def test_the_gradient_of_set_goes_to_the_last_value_written_and_to_what_is_left(xp, drawn):
    shape, key, lengths = drawn
    k = on(xp, key)
    weights = numbers(shape) % 5 - 2
    named = np.asarray(places(shape, key))
    values = np.broadcast_to(np.arange(np.prod(lengths, dtype=int)).reshape(lengths), named.shape)
    last = dict(zip(named.reshape(-1).tolist(), values.reshape(-1).tolist(), strict=True))
    by_x, by_values = weights.reshape(-1).copy(), np.zeros(np.prod(lengths, dtype=int))
    for place, value in last.items():
        by_values[value] += by_x[place]
        by_x[place] = 0.0
    args = xp.asarray(numbers(shape)), xp.asarray(-numbers(lengths))
    _, pullback = fdbr.vjp(lambda x, v: ops.at(x)[k].set(v), *args)
    found = pullback(xp.asarray(weights))
    assert_allclose(found, (by_x.reshape(shape), by_values.reshape(lengths)))


@given(updates())
def test_the_gradient_of_add_is_read_at_the_key(xp, drawn):
    shape, key, lengths = drawn
    k = on(xp, key)
    weights = numbers(shape) % 5 - 2
    read = np.asarray(weights[key])
    extra = read.ndim - len(lengths)
    summed = read.sum(axis=tuple(range(extra)))
    shared = tuple(i for i, n in enumerate(lengths) if n == 1)
    by_values = summed.sum(axis=shared, keepdims=True) if shared else summed
    args = xp.asarray(numbers(shape)), xp.asarray(-numbers(lengths))
    _, pullback = fdbr.vjp(lambda x, v: ops.at(x)[k].add(v), *args)
    assert_allclose(pullback(xp.asarray(weights)), (weights, by_values))


@pytest.mark.slow
@few()
@given(updates())
def test_second_derivatives_of_updates_are_right(drawn):
    shape, key, lengths = drawn
    assume(np.prod(shape, dtype=int) + np.prod(lengths, dtype=int) <= 16)
    x, values = numbers(shape), -numbers(lengths)
    check_grads(lambda x, v: ops.at(x)[key].set(v * x[:1].sum()) ** 2, x, values)
    check_grads(lambda x, v: ops.at(x)[key].add(v) ** 3, x, values)


def test_the_last_of_several_values_for_one_element_counts():
    key = np.array([1, 1, 0, 1])
    f = lambda v: ops.sum(ops.at(np.zeros(3))[key].set(v) * np.array([1.0, 10.0, 100.0]))
    v = np.array([5.0, 6.0, 7.0, 8.0])
    assert ops.at(np.zeros(3))[key].set(v).tolist() == [7.0, 8.0, 0.0]
    assert fdbr.grad(f)(v).tolist() == [0.0, 0.0, 1.0, 10.0]


def test_values_are_written_in_the_dtype_of_the_array():
    x = np.zeros(2, dtype=np.float32)
    out, pullback = fdbr.vjp(lambda v: ops.at(x)[0].set(v), np.float64(1.5))
    assert out.dtype == np.float32
    assert pullback(np.ones(2, dtype=np.float32))[0].dtype == np.float64


def test_lists_of_numbers_and_of_traced_values_are_written(xp):
    x = xp.asarray(np.ones(3))
    assert_allclose(ops.at(x)[1:].set([2.0, 3.0]), np.array([1.0, 2.0, 3.0]))
    out, _ = fdbr.vjp(lambda x: x.at[1:].add([x[0], 2.0]), x)
    assert_allclose(out, np.array([1.0, 2.0, 3.0]))


def test_a_traced_value_is_written_into_a_plain_array():
    assert fdbr.grad(lambda v: ops.sum(ops.at(np.ones(3))[1:].set(v)))(2.0) == 2.0


# --- bad keys -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (3, "out of bounds"),
        ((0, 0, 0), "too many indices"),
        (np.array([0, 5]), "out of bounds"),
        (1.5, "an index must be integer or boolean, not float 1.5"),
        (np.array([0.5]), "an index must be integer or boolean, not float64[1]"),
        ("a", "an index must be integer or boolean"),
        (np.array([True, False]), "the mask bool[2] does not have the shape"),
        (np.array([True, False, False, False]), "the mask bool[4] does not have the shape"),
        ((..., np.array([True, False, True])), "from axis 1 on"),
        ((slice(None), None, [True]), "the mask bool[1]"),
    ],
    ids=str,
)
def test_a_key_that_does_not_fit_is_an_error_that_says_so(key, words):
    x = np.ones((3, 2))
    for use in (lambda x: x[key], lambda x: x.at[key].set(0.0), lambda x: x.at[key].add(0.0)):
        with pytest.raises((IndexError, TypeError)) as caught:
            fdbr.vjp(use, x)
        assert words in str(caught.value)
