"""Plain NumPy code on traced values: the same values as on arrays, and right derivatives."""

import operator
from typing import Any

import numpy as np
import pytest

import fdbr
from fdbr.core import tracer_methods
from fdbr.testing import assert_allclose, check_grads
from interop import test_numpy_more, test_numpy_refusals

A = np.array([[0.52, 1.27, 2.08], [0.83, 0.31, 1.64]])
B = np.array([0.5, 2.03, 0.75])
INDEX = np.array([2, 0, 0])

# What is done with a matrix of positive numbers, by the NumPy function that is called.
CALLS: dict[Any, list[Any]] = {
    np.all: [lambda x: np.all(x > 0) * x],
    np.amax: [lambda x: np.amax(x, axis=0)],
    np.amin: [lambda x: np.amin(x, 0)],
    np.any: [lambda x: np.any(x > 1, axis=1) * x[:, 0]],
    np.argmax: [lambda x: x[np.argmax(x[:, 0])], lambda x: x[np.argmax(x, axis=0), [0, 1, 2]]],
    np.argmin: [lambda x: x[np.argmin(x[:, 0])]],
    np.around: [lambda x: np.around(x, 1) * x],
    np.array_split: [
        lambda x: np.array_split(x, 2, axis=1)[0],
        lambda x: np.array_split(x, [1])[1],
    ],
    np.astype: [lambda x: np.astype(x, np.float64)],
    np.atleast_1d: [np.atleast_1d, lambda x: np.atleast_1d(x[0, 0], x)[0]],
    np.atleast_2d: [np.atleast_2d, lambda x: np.atleast_2d(x[0])],
    np.broadcast_arrays: [lambda x: np.multiply(*np.broadcast_arrays(x, B))],
    np.broadcast_to: [lambda x: np.broadcast_to(x, (2, 2, 3))],
    np.clip: [
        lambda x: np.clip(x, 0.6, 1.7),
        lambda x: np.clip(x, min=0.6),
        lambda x: np.clip(x, None, B),
    ],
    np.concatenate: [
        lambda x: np.concatenate([x, A]),
        lambda x: np.concatenate((A, x, x), axis=1),
        lambda x: np.concatenate([x, B[None]], axis=None),
    ],
    np.asarray: [lambda x: np.asarray([x[0], 2 * x[1]], like=x)],
    np.copy: [np.copy],
    np.count_nonzero: [lambda x: np.count_nonzero(x > 1) * x],
    np.cumprod: [np.cumprod, lambda x: np.cumprod(x, axis=0)],
    np.cumsum: [np.cumsum, lambda x: np.cumsum(x, axis=1)],
    np.cumulative_prod: [lambda x: np.cumulative_prod(x, axis=1, include_initial=True)],
    np.cumulative_sum: [lambda x: np.cumulative_sum(x, axis=0)],
    np.diagonal: [np.diagonal, lambda x: np.diagonal(x, 1)],
    np.diff: [np.diff, lambda x: np.diff(x, 1, axis=0), lambda x: np.diff(x, n=2)],
    np.dot: [lambda x: np.dot(x, B), lambda x: np.dot(A.T, x)],
    np.einsum: [
        lambda x: np.einsum("ij,j->i", x, B),
        lambda x: np.einsum("ij,kj", A, x, optimize=True),
    ],
    np.empty_like: [lambda x: np.empty_like(x).size * x],
    np.expand_dims: [lambda x: np.expand_dims(x, (0, 2))],
    np.flip: [np.flip, lambda x: np.flip(x, 1)],
    np.fliplr: [np.fliplr],
    np.flipud: [np.flipud],
    np.full_like: [lambda x: np.full_like(x, 2.0) * x],
    np.hstack: [lambda x: np.hstack([x, A]), lambda x: np.hstack([x[0], B])],
    np.imag: [lambda x: np.imag(x * 1j)],
    np.inner: [lambda x: np.inner(x, B), lambda x: np.inner(A, x)],
    np.iscomplexobj: [lambda x: x * (1 + np.iscomplexobj(x))],
    np.isrealobj: [lambda x: x * (1 + np.isrealobj(x))],
    np.matrix_transpose: [np.matrix_transpose],
    np.max: [np.max, lambda x: np.max(x, axis=1, keepdims=True)],
    np.mean: [np.mean, lambda x: np.mean(x, axis=0), lambda x: np.mean(x, 1, np.float64)],
    np.min: [np.min, lambda x: np.min(x, axis=(0, 1))],
    np.moveaxis: [lambda x: np.moveaxis(x, 0, -1)],
    np.ndim: [lambda x: x * np.ndim(x)],
    np.ones_like: [lambda x: np.ones_like(x) + x],
    np.outer: [lambda x: np.outer(x, B), lambda x: np.outer(B, x)],
    np.permute_dims: [lambda x: np.permute_dims(x, (1, 0))],
    np.prod: [np.prod, lambda x: np.prod(x, axis=0)],
    np.ravel: [np.ravel],
    np.real: [np.real, lambda x: np.real(x * (1 + 1j))],
    np.reshape: [lambda x: np.reshape(x, (3, 2)), lambda x: np.reshape(x, -1)],
    np.result_type: [lambda x: x.astype(np.result_type(x, B))],
    np.roll: [lambda x: np.roll(x, 1), lambda x: np.roll(x, (1, 1), axis=(0, 1))],
    np.round: [lambda x: np.round(x) * x],
    np.shape: [lambda x: x * np.shape(x)[0]],
    np.size: [lambda x: x * np.size(x), lambda x: x * np.size(x, 1)],
    np.split: [lambda x: np.split(x, 3, axis=1)[1], lambda x: np.split(x, [1, 2], axis=1)[2]],
    np.squeeze: [lambda x: np.squeeze(x[None]), lambda x: np.squeeze(x[None], axis=0)],
    np.stack: [lambda x: np.stack([x, A], axis=-1), lambda x: np.stack((B, x[0]))],
    np.std: [np.std, lambda x: np.std(x, axis=1, ddof=1)],
    np.sum: [
        np.sum,
        lambda x: np.sum(x, axis=1, keepdims=True),
        lambda x: np.sum(x, dtype=np.float64),
    ],
    np.swapaxes: [lambda x: np.swapaxes(x, 0, 1)],
    np.take: [lambda x: np.take(x, INDEX), lambda x: np.take(x, INDEX, axis=1)],
    np.take_along_axis: [
        lambda x: np.take_along_axis(x, INDEX[None], axis=1),
        lambda x: np.take_along_axis(x, INDEX, axis=None),
    ],
    np.tensordot: [lambda x: np.tensordot(x, A), lambda x: np.tensordot(A, x, axes=([1], [1]))],
    np.tile: [lambda x: np.tile(x, 2), lambda x: np.tile(x, (2, 1))],
    np.trace: [np.trace, lambda x: np.trace(x, offset=1)],
    np.transpose: [np.transpose, lambda x: np.transpose(x, (1, 0))],
    np.unstack: [lambda x: np.unstack(x)[1], lambda x: np.unstack(x, axis=1)[2]],
    np.var: [np.var, lambda x: np.var(x, axis=0, ddof=1, keepdims=True)],
    np.vdot: [lambda x: np.vdot(x, A)],
    np.vstack: [lambda x: np.vstack([x, B])],
    np.where: [lambda x: np.where(x > 1, x, A), lambda x: np.where(A > 1, 0.0, x)],
    np.zeros_like: [lambda x: np.zeros_like(x) + x],
}

METHODS = [
    lambda x: x.T,
    lambda x: x.mT,
    lambda x: x.real + x.imag,
    lambda x: x.sum() + x.sum(axis=0) + x.sum(1, keepdims=True),
    lambda x: x.mean(axis=1),
    lambda x: x.prod(axis=0),
    lambda x: x.max(axis=0) - x.min(axis=0),
    lambda x: x.var(axis=0) + x.std(1, ddof=1, keepdims=True),
    lambda x: x.cumsum() * x.cumprod(),
    lambda x: x.cumsum(axis=0) * x.cumprod(1),
    lambda x: x.reshape(3, 2) + x.reshape((3, 2)) + x.reshape(-1, 2),
    lambda x: x.transpose() + x.transpose(1, 0) + x.transpose((1, 0)) + x.transpose(None),
    lambda x: x.swapaxes(0, 1),
    lambda x: x[None].squeeze() + x[None].squeeze(axis=0),
    lambda x: x.ravel() + x.flatten(),
    lambda x: x.astype(np.float64) + x.astype("f8", copy=False),
    lambda x: x.copy() + x.conj() + x.conjugate(),
    lambda x: x.dot(B),
    lambda x: x.round() * x + x.round(1),
    lambda x: x.take(INDEX) + x.take(INDEX, axis=1),
    lambda x: x.diagonal() + x.diagonal(offset=1),
    lambda x: x.trace() + x.trace(offset=-1) + x[None].trace(0, axis1=1, axis2=2),
    lambda x: x[:, None].trace(offset=1, axis1=-1, axis2=0) + x.trace(dtype=np.float64),
    lambda x: x.clip(0.6, 1.7) + x.clip(min=0.6) + x.clip(max=1.7),
    lambda x: x[x.argmax(axis=0), [0, 1, 2]] + x[x.argmin(axis=0), [0, 1, 2]],
    lambda x: x * x.all() + x * x.any(axis=0) + (x > 1).sum() * x,
    lambda x: sum(x.flat),
    lambda x: x * len(x) * x.ndim * x.size * x.shape[1] * x.itemsize * x.nbytes,
    lambda x: sum(row for row in x),
]

OPERATORS = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.pow,
    operator.mod,
    lambda x, y: divmod(x, y)[1],
    lambda x, y: x // y * y,
    lambda x, y: (x < y) * x + (x <= y) * y + (x > y) * x + (x >= y) + (x == y) + (x != y),
]
UFUNCS = [
    *(np.add, np.subtract, np.multiply, np.divide, np.power, np.maximum, np.minimum, np.hypot),
    *(np.arctan2, np.logaddexp, np.copysign, np.remainder),
]


def every_call() -> list[Any]:
    return [
        pytest.param(f, id=f"{function.__name__}-{i}")
        for function, calls in CALLS.items()
        for i, f in enumerate(calls)
    ]


def check(f: Any, *args: Any) -> None:
    """That a function of plain NumPy has the same value on traced arrays, and right derivatives."""
    traced, _ = fdbr.vjp(f, *args)
    assert_allclose(traced, f(*args), rtol=1e-14, atol=1e-14)
    check_grads(lambda *args: f(*args) ** 2, *args)


@pytest.mark.parametrize("f", every_call())
def test_functions_of_numpy_differentiate(f):
    check(f, A)


def test_every_function_that_numpy_hands_over_is_tried():
    handed_over = {f for f in vars(np).values() if hasattr(f, "_implementation")}
    refused = {f for calls in test_numpy_refusals.REFUSED.values() for f in calls}
    assert (
        handed_over
        <= set(CALLS) | set(test_numpy_more.CALLS) | refused
        <= set(tracer_methods.functions)
    )


@pytest.mark.parametrize("number", range(len(METHODS)))
def test_methods_and_attributes_are_those_of_arrays(number):
    check(METHODS[number], A)


@pytest.mark.slow
@pytest.mark.parametrize("f", [*OPERATORS, *UFUNCS], ids=lambda f: getattr(f, "__name__", "lambda"))
def test_binary_operations_mix_traced_and_plain_operands_on_both_sides(f):
    x, y = A, B + 0.1
    check(f, x, y)
    for plain in (y, 1.3, np.float64(1.3), np.array(1.3), y.astype(np.float32)):
        check(lambda x, plain=plain: f(x, plain), x)
        check(lambda x, plain=plain: f(plain, x), x)


@pytest.mark.parametrize(
    "ufunc",
    [u for u in tracer_methods.ufuncs if (u.nin, u.nout) == (1, 1)],
    ids=lambda u: u.__name__,
)
def test_unary_ufuncs_are_the_operations_of_their_names(ufunc):
    name = ufunc.__name__
    x = A + 1 if name == "arccosh" else A / 4
    if name in ("invert", "bitwise_not", "bitwise_count"):
        traced, _ = fdbr.vjp(lambda x: (ufunc(x.astype(int)), x), x)
        np.testing.assert_array_equal(traced[0], ufunc(x.astype(int)))
    elif name in ("isfinite", "isinf", "isnan", "signbit", "logical_not"):
        traced, _ = fdbr.vjp(lambda x: (ufunc(x), x), x)
        np.testing.assert_array_equal(traced[0], ufunc(x))
    else:
        check(lambda x: ufunc(x) * x, x)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.add.reduce(x),
        lambda x: np.add.reduce(x, axis=1, keepdims=True),
        lambda x: np.add.reduce(x, axis=None, dtype=np.float64),
        lambda x: np.multiply.reduce(x, axis=1),
        lambda x: np.maximum.reduce(x),
        lambda x: np.minimum.reduce(x, axis=1),
        lambda x: np.logical_and.reduce(x > 0) * x,
        lambda x: np.logical_or.reduce(x > 1, axis=None) * x,
        lambda x: np.add.accumulate(x),
        lambda x: np.multiply.accumulate(x, axis=1),
        lambda x: np.multiply.outer(x, B),
        lambda x: np.add.outer(B, x),
        lambda x: np.subtract.outer(x[0], x),
    ],
)
def test_methods_of_ufuncs_differentiate(f):
    check(f, A)


@pytest.mark.parametrize("f", [np.matmul, operator.matmul])
def test_matrix_products_mix_traced_and_plain_operands(f):
    check(f, A, A.T)
    check(lambda x: f(x, B), A)
    check(lambda x: f(B, x), A.T)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: divmod(x, 0.3)[0] * x,
        lambda x: np.divmod(x, 0.3)[1],
        lambda x: divmod(2.7, x)[1],
        lambda x: -x + +x * abs(-x),
        lambda x: (~(x > 1)) * x + ((x > 1) & (x > 0)) * x + ((x > 1) | (x < 0)) * x,
        lambda x: ((x > 1) ^ (x > 0)) * x,
        lambda x: np.add(x, 1, dtype=np.float64),
        lambda x: x * np.float32(2),
        lambda x: [1.0, 2.0, 3.0] * x,
        lambda x: operator.add(x, [1.0, 2.0, 3.0]),
    ],
)
def test_expressions_differentiate(f):
    check(f, A)


def test_augmented_assignment_makes_a_new_value():
    def f(x):
        y = x + 0.0
        y += 1.0
        y *= x
        y **= 2
        return np.sum(y)

    def g(x):
        return np.sum(((x + 1.0) * x) ** 2)

    assert_allclose(fdbr.grad(f)(A), fdbr.grad(g)(A))


def test_any_library_may_ask_for_the_array_namespace():
    def normalise(x):
        xp = x.__array_namespace__()
        return x / xp.sum(x, axis=-1, keepdims=True)

    check_grads(normalise, A)


def test_number_protocols_of_python_take_part():
    assert fdbr.grad(lambda x: round(x, 1) + x)(1.23) == 1.0
    assert fdbr.grad(lambda x: x if x > 1 else -x)(0.5) == -1.0
    x = np.array([2.0, 1.0])
    assert fdbr.grad(lambda x: sum(x[i] for i in range(int(x[0]))))(x).tolist() == [1.0, 1.0]
    assert fdbr.grad(lambda x: x if x else 3.0)(2.0) == 1.0


# --- what is rejected ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda x: np.add(x, 1, out=np.zeros_like(A)), ["np.add(…, out=…)", "Take the result"]),
        (lambda x: np.sum(x, out=np.zeros(())), ["np.sum(…, out=…)", "Take the result"]),
        (lambda x: np.add.reduce(x, out=np.zeros(3)), ["np.add.reduce(…, out=…)"]),
        (lambda x: operator.iadd(A.copy(), x), ["np.add(…, out=…)", "write x = x + y"]),
        (lambda x: np.exp(x, where=A > 1), ["np.exp(…, where=…)", "ops.where(condition"]),
        (lambda x: np.sum(x, where=A), ["np.sum: where must hold truth values", "float64[2,3]"]),
        (lambda x: np.max(x, where=A > 1), ["np.max", "where", "initial"]),
        (lambda x: np.subtract.reduce(x, where=A > 1), ["np.subtract.reduce(…, where=…)"]),
        (lambda x: np.strings.upper(x), ["strings.upper of a traced value is not known"]),
        (lambda x: np.isnat(x), ["np.isnat", "no derivative rule"]),
        (lambda x: np.add.at(A.copy(), 0, x), ["np.add.at", "ops.at"]),
        (lambda x: np.add.reduceat(x, [0, 5]), ["np.add.reduceat", "index 5"]),
        (lambda x: np.exp(x, dtype="f4", casting="safe"), ["np.exp", "casting rule 'safe'"]),
        (lambda x: np.reshape(x, (3, 2), order="A"), ["np.reshape(…, order=…)", "'A'", "'F'"]),
        (lambda x: np.ravel(x, "K"), ["np.ravel(…, order=…)", "'K'"]),
        (lambda x: np.sort(x, order="a"), ["np.sort(…, order=…)", "fields"]),
        (lambda x: np.split(x, 2, axis=1), ["np.split", "does not divide"]),
        (lambda x: np.asarray(x), ["NumPy array", "ops.stack", "stop_gradient"]),
        (lambda x: np.array([x[0, 0], 1.0]), ["NumPy array"]),
        (lambda x: float(x[0, 0]), ["float()", "stop_gradient"]),
        (lambda x: x.item(), ["item()"]),
        (lambda x: operator.setitem(x, 0, 1.0), ["x.at[key].set(value)"]),
        (lambda x: operator.setitem(A.copy(), 0, x[0]), ["ops.at(B)[key].set(x)"]),
        (lambda x: bool(x), ["truth value", "ops.any"]),
        (lambda x: [0, 1, 2][x[0, 0]], ["int()"]),
        (lambda x: x + "a", ["unsupported operand"]),
        (lambda x: hash(x), ["unhashable"]),
    ],
)
def test_what_cannot_be_says_its_name_and_what_to_do(f, words):
    with pytest.raises((TypeError, ValueError, IndexError)) as caught:
        fdbr.vjp(f, A)
    for word in words:
        assert word in str(caught.value)


def test_a_class_with_operators_of_its_own_is_asked_first():
    class Unit:
        __array_ufunc__ = None

        def __radd__(self, other):
            return "mine"

    out, _ = fdbr.vjp(lambda x: (x * 2, [x + Unit()] == ["mine"]), A)
    assert out[1]
