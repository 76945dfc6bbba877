"""Reductions along any axes in kernels, with what is made of their results."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops
from fdbr.backends.cpu.tuning import TUNING

LENGTHS = (
    *((8, 8, 9, 9), (64, 130), (33, 130), (3, 5, 17, 33), (2, 3, 5, 8, 33), (1, 33, 130)),
    *((3, 17, 130, 1), (8, 33, 2, 17), (5000, 2), (33, 8, 33), (2, 8, 3, 8, 17)),
)


@st.composite
def reductions(draw):
    """An array of some thousand elements, and some of its axes."""
    shape = tuple(draw(st.permutations(draw(st.sampled_from(LENGTHS)))))
    every = range(len(shape))
    axes = tuple(sorted(draw(st.sets(st.sampled_from(every), min_size=1, max_size=len(shape) - 1))))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    seed = draw(st.integers(0, 99))
    x = np.random.default_rng(seed).normal(1, 2, shape).astype(dtype)
    return x, axes


def both(f, *args):
    """A function's value and pullback, jitted and not, which are to agree to rounding."""
    eager = f(*args)
    jitted = fdbr.jit(f)
    found = jitted(*args)
    for a, b in zip(eager, found, strict=True):
        rtol = 1e-9 if a.dtype == np.float64 else 2e-4
        scale = max(1.0, float(np.abs(a).max(initial=0)))
        np.testing.assert_allclose(b, a, rtol=rtol, atol=rtol * scale)
        assert b.dtype == a.dtype
    return jitted


def with_pullback(f):
    def run(*args):
        out, pull = fdbr.vjp(f, *args)
        return (out, *pull(ops.cos(out)))

    return run


def kernels(jitted):
    return str(jitted.programs()[0]).count("  kernel")


@given(reductions())
def test_standardisation_along_any_axes_is_what_it_is_eagerly(given):
    x, axes = given

    def standardised(x):
        mean = x.mean(axes, keepdims=True)
        variance = ((x - mean) ** 2).mean(axes, keepdims=True)
        return (x - mean) / ops.sqrt(variance + 1e-3)

    both(with_pullback(standardised), x)


@given(reductions())
def test_softmax_along_any_axes_is_what_it_is_eagerly(given):
    x, axes = given

    def normal(x):
        e = ops.exp(x - x.max(axes, keepdims=True))
        return e / e.sum(axes, keepdims=True)

    both(with_pullback(normal), x)


@given(reductions(), st.data())
def test_weights_of_any_shape_that_broadcasts_have_their_gradients(given, data):
    x, axes = given
    shape = tuple(n if data.draw(st.booleans()) else 1 for n in x.shape)
    w = np.random.default_rng(1).normal(1, 1, shape).astype(x.dtype)

    def scaled(x, w):
        y = x / ops.sqrt((x * x).mean(axes, keepdims=True) + 1e-3)
        return y * w + w

    both(with_pullback(scaled), x, w)


@given(reductions())
def test_largest_and_smallest_elements_know_not_a_number(given):
    x, axes = given
    x.flat[3] = np.nan

    def ranges(x):
        low, high = x.min(axes, keepdims=True), x.max(axes, keepdims=True)
        return ((x - low) / (high - low + 1), low * 2, high * 2)

    both(ranges, x)


@given(reductions(), st.data(), st.booleans(), st.booleans())
def test_several_folds_along_different_axes_at_once(given, data, parted, kept):
    x, _ = given
    x.flat[data.draw(st.integers(0, x.size - 1))] = data.draw(st.sampled_from([np.nan, 5.0]))
    w = np.random.default_rng(1).normal(1, 1, x.shape[-1:]).astype(x.dtype)
    some = st.sets(st.sampled_from(range(x.ndim)), min_size=1).map(sorted).map(tuple)
    hows = st.sampled_from(["max", "min", "max", "sum", "mean"])
    folds = data.draw(st.lists(st.tuples(hows, some), min_size=1, max_size=4))

    def folded(x, w):
        y = ops.sin(x) * w + x
        found = [getattr(ops, how)(y, axis=axes) for how, axes in folds]
        return (*([y] if kept else []), *found)

    with pytest.MonkeyPatch.context() as patch:
        if parted:  # between two threads, however little there is to do
            patch.setattr(TUNING, "program_thread", 0)
        both(folded, x, w)


@given(reductions())
def test_truth_values_are_kept_from_stage_to_stage(given):
    x, axes = given

    def thinned(x):
        large = ops.exp(ops.sin(x)) > 1
        share = ops.where(large, x, 0).mean(axes, keepdims=True)
        return (ops.where(large, x - share, share * x), large)

    both(thinned, x)


@given(reductions())
def test_results_without_the_axes_are_given_out_beside_the_others(given):
    x, axes = given

    def moments(x):
        mean = x.mean(axes)
        full = ops.reshape(mean, tuple(1 if i in axes else n for i, n in enumerate(x.shape)))
        variance = ((x - full) ** 2).sum(axes)
        return (mean, variance, ops.sqrt(variance + 1), x - full)

    both(moments, x)


MAPS = np.random.default_rng(0).normal(2, 3, (6, 8, 9, 9)).astype(np.float32)


@pytest.mark.parametrize("axes", [(0, 2, 3), (2, 3), (1,), (0,), (0, 1), (1, 2, 3)])
def test_a_standardisation_with_its_pullback_is_one_kernel(axes):
    def standardised(x):
        mean = x.mean(axes, keepdims=True)
        variance = ((x - mean) ** 2).mean(axes, keepdims=True)
        return (x - mean) / ops.sqrt(variance + 1e-3)

    assert kernels(both(with_pullback(standardised), MAPS)) == 1


def test_arrays_that_have_any_strides_are_read_in_their_order():
    def standardised(x):
        away = x - x.mean((0, 2, 3), keepdims=True)
        return (away / ops.sqrt((away * away).mean((0, 2, 3), keepdims=True)),)

    both(standardised, MAPS.transpose(0, 1, 3, 2))
    both(standardised, MAPS[:, :, ::2])


def test_batch_norm_in_training_is_one_kernel_with_its_pullback():
    weight, bias = np.linspace(1, 2, 8, dtype=np.float32), np.ones(8, np.float32)

    def normal(x, weight, bias):
        return ops.batch_norm(x, weight, bias)[0]

    assert kernels(both(with_pullback(normal), MAPS, weight, bias)) == 1


def test_group_norm_is_one_kernel_with_its_pullback():
    weight, bias = np.linspace(1, 2, 8, dtype=np.float32), np.ones(8, np.float32)

    def normal(x, weight, bias, ct):
        out, pull = fdbr.vjp(lambda *xs: ops.group_norm(xs[0], 4, *xs[1:]), x, weight, bias)
        return (out, *pull(ct))

    assert kernels(both(normal, MAPS, weight, bias, np.cos(MAPS))) == 1


def test_what_does_not_go_on_with_its_sums_is_a_plain_kernel():
    def moments(x, share):
        squares = x * x + 1
        column = share * squares.mean(0)
        return (column, squares.mean(1), (x / ops.sqrt(column / column.mean())).mean())

    program = str(both(moments, normal_of(200, 64), np.float64(0.5)).programs()[0])
    assert "kernel over (200, 64) by 1" in program
    assert "by (1,)" not in program


def test_norms_are_of_the_kernel_that_makes_what_they_are_of():
    def lengths(x):
        y = ops.tanh(x) * 2
        return (ops.linalg.vector_norm(y), ops.linalg.vector_norm(y, axis=1), ops.linalg.norm(y))

    jitted = both(lengths, normal_of(200, 64))
    assert "euclidean" not in str(jitted.programs()[0])


def normal_of(*shape):
    return np.random.default_rng(0).normal(size=shape)


def test_sums_of_many_elements_lose_no_digits():
    x = np.random.default_rng(0).uniform(0, 1, (1 << 15, 16)).astype(np.float32)
    found = fdbr.jit(lambda x: x / x.mean(0, keepdims=True))(x)
    exact = x / x.astype(np.float64).mean(0, keepdims=True)
    np.testing.assert_allclose(found, exact, rtol=5e-7)
