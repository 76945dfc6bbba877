"""What NumPy's functions cannot do with traced values."""

from typing import Any

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.core import tracer_methods
from interop.test_numpy_more import CALLS, A

REFUSED: dict[str, dict[Any, Any]] = {
    "are no numbers, and no transformation reaches them": {
        np.busday_count: lambda x: np.busday_count(x, x),
        np.busday_offset: lambda x: np.busday_offset("2024-01-01", x),
        np.datetime_as_string: np.datetime_as_string,
        np.is_busday: np.is_busday,
    },
    "writing to a file is an effect, no function of the value": {
        np.save: lambda x: np.save("x", x),
        np.savetxt: lambda x: np.savetxt("x", x),
        np.savez: lambda x: np.savez("x", x=x),
        np.savez_compressed: lambda x: np.savez_compressed("x", x=x),
    },
    "where elements lie is no function of them": {
        np.may_share_memory: lambda x: np.may_share_memory(x, A),
        np.shares_memory: lambda x: np.shares_memory(A, x),
    },
    "arrays are never written to here": {
        np.copyto: lambda x: np.copyto(A.copy(), x),
        np.fill_diagonal: lambda x: np.fill_diagonal(x, 0.0),
        np.place: lambda x: np.place(A.copy(), A > 1, x),
        np.put: lambda x: np.put(x, 0, 1.0),
        np.put_along_axis: lambda x: np.put_along_axis(x, A > 9, 0.0, 1),
        np.putmask: lambda x: np.putmask(x, A > 1, 0.0),
    },
}
"""The functions that NumPy hands over and fdbr refuses, by the reason that it gives."""


def test_every_function_of_numpy_is_known():
    handed_over = {f for f in vars(np).values() if hasattr(f, "_implementation")}
    assert handed_over <= set(tracer_methods.functions)
    assert {f for f in vars(np.fft).values() if hasattr(f, "_implementation")} <= set(CALLS)


def test_every_function_of_numpy_that_is_refused_has_a_reason():
    refused = {f for f, entry in tracer_methods.functions.items() if entry.__name__ == "refuse"}
    assert refused == {f for calls in REFUSED.values() for f in calls}


@pytest.mark.parametrize("transform", [fdbr.grad, fdbr.vmap, lambda f: lambda x: fdbr.vjp(f, x)])
@pytest.mark.parametrize(
    ("reason", "function"), [(reason, f) for reason, calls in REFUSED.items() for f in calls]
)
def test_what_is_refused_says_its_name_the_reason_and_what_to_do(reason, function, transform):
    with pytest.raises(TypeError) as caught:
        transform(REFUSED[reason][function])(A)
    words = str(caught.value)
    assert f"np.{function.__name__} " in words
    assert reason in words
    assert any(advice in words for advice in ("Write ", "return the value (", "before the transf"))


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda x: np.put(x, 0, 1.0), ["np.put", "ops.at("]),
        (lambda x: np.copyto(A.copy(), x), ["np.copyto", "ops.where("]),
        (lambda x: np.place(A.copy(), A > 1, x), ["np.place", "ops.at(arr)[mask].set"]),
        (lambda x: np.putmask(x, A > 1, 0.0), ["np.putmask", "ops.where("]),
        (lambda x: np.fill_diagonal(x, 0.0), ["np.fill_diagonal", "ops.at("]),
        (lambda x: np.put_along_axis(x, A > 9, 0.0, 1), ["np.put_along_axis", "ops.scatter("]),
        (lambda x: x.sort(), ["sort()", "x = ops.sort(x)"]),
        (lambda x: x.fill(0.0), ["fill()", "ops.full_like"]),
        (lambda x: np.choose([[0], [1]], [x, x], mode="up"), ["np.choose", "mode is 'up'"]),
        (lambda x: np.nan_to_num(x, copy=False), ["np.nan_to_num(…, copy=…)", "never written"]),
        (lambda x: np.histogram(x, "auto"), ["np.histogram", "bins='auto'"]),
        (lambda x: np.histogram2d(x[0], A[0, :2]), ["np.histogram2d: 3 x and 2 y"]),
        (lambda x: np.histogramdd(x, [2, 2]), ["np.histogramdd: 2 bins and 3 ranges", "of 3 dim"]),
        (lambda x: np.poly(x), ["np.poly", "a square matrix", "shape (2, 3)"]),
        (lambda x: fdbr.vmap(np.packbits)(x), ["np.packbits: integers", "np.packbits(x > 0)"]),
        (
            lambda x: fdbr.vmap(lambda x: np.packbits(x > 1, bitorder="middle"))(A),
            ["np.packbits: bitorder is 'middle'"],
        ),
        (lambda x: fdbr.vmap(np.unpackbits)(x), ["np.unpackbits: bytes", "float64[3]"]),
        (lambda x: np.gradient(x, edge_order=3), ["np.gradient", "edge_order=3"]),
        (lambda x: np.gradient(x, 1.0, 2.0, 3.0), ["np.gradient", "3 spacings for 2 axes"]),
        (lambda x: np.fft.rfft(x + 1j), ["fft.rfft", "complex128[2,3]", "fft.fft"]),
        (lambda x: np.fft.fft(x, norm="none"), ["fft.fft", "norm is 'none'"]),
    ],
)
def test_what_cannot_be_says_its_name_and_what_to_do(f, words):
    with pytest.raises((TypeError, ValueError)) as caught:
        fdbr.vjp(f, A)
    for word in words:
        assert word in str(caught.value)


_ARRAYS = {
    "np.array": (lambda x: np.array([x[0], x[1]]), lambda x: ops.asarray([x[0], x[1]])),
    "nested": (lambda x: np.array([[x[0], 1.0], [x[1], 2.0]]), None),
    "np.asarray": (lambda x: np.asarray([x[0], x[1]]), lambda x: ops.asarray([x[0], x[1]])),
    "np.full": (lambda x: np.full(3, x[0]), lambda x: ops.full(3, x[0])),
    "np.full of a dtype": (lambda x: np.full(3, x[0], float), lambda x: ops.full(3, x[0])),
    "np.full_like": (
        lambda x: np.full_like(np.ones(3), x[0]),
        lambda x: ops.full_like(np.ones(3), x[0]),
    ),
    "np.vectorize": (
        lambda x: np.vectorize(lambda v: v * v)(x),
        lambda x: fdbr.vmap(lambda v: v * v)(x),
    ),
}
_TRANSFORMED = {
    "grad": lambda f: lambda x: fdbr.grad(lambda x: ops.sum(f(x)))(x),
    "jvp": lambda f: lambda x: fdbr.jvp(f, (x,), (x,)),
    "vmap": lambda f: lambda x: fdbr.vmap(f)(np.stack([x, x])),
    "jit": lambda f: fdbr.jit(f),
}


@pytest.mark.parametrize("transform", _TRANSFORMED)
@pytest.mark.parametrize("name", _ARRAYS)
def test_functions_that_make_arrays_name_what_to_write_for_traced_values(name, transform):
    theirs, ours = _ARRAYS[name]
    x = np.array([1.0, 2.0])
    writes = name in ("np.full of a dtype", "np.full_like")
    if writes and transform == "jit":  # it runs untraced
        np.testing.assert_array_equal(_TRANSFORMED[transform](theirs)(x), theirs(x))
    else:
        named = ["ops.full_like"] if writes else ["ops.asarray", "ops.full", "fdbr.vmap"]
        with pytest.raises(TypeError) as raised:
            _TRANSFORMED[transform](theirs)(x)
        assert all(word in str(raised.value)[:330] for word in named)
    if ours is not None and transform == "jit":
        np.testing.assert_array_equal(_TRANSFORMED[transform](ours)(x), theirs(x))
    elif ours is not None:
        _TRANSFORMED[transform](ours)(x)


def test_an_array_like_a_traced_value_has_its_derivative():
    f = fdbr.grad(lambda x: ops.sum(np.array([x[0], x[1] ** 2], like=x)))
    np.testing.assert_array_equal(f(np.array([1.0, 2.0])), [1, 4])
