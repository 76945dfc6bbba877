"""What Python and NumPy ask of one traced number, in shapes, indices and conversions."""

import math

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.testing import assert_allclose, check_grads

NUMBERS = np.array([2, 1, 0, 2])
X = np.arange(1.0, 49.0).reshape(4, 3, 4)

# Each takes one example, and an integer.
WITH_INTEGERS = {
    "np.arange": lambda x, n: np.sum(np.arange(n)) + 0 * n,
    "np.arange from": lambda x, n: np.sum(np.arange(-1, n, 1)),
    "ops.arange": lambda x, n: ops.sum(ops.arange(n + 1)),
    "np.linspace": lambda x, n: np.sum(np.linspace(0.0, 1.0, n + 2)),
    "np.roll": np.roll,
    "np.roll of axes": lambda x, n: np.roll(x, (n, 1), axis=(0, 1)),
    "np.tril": np.tril,
    "ops.triu": lambda x, n: ops.triu(x, k=n),
    "np.eye": lambda x, n: np.eye(3, k=n),
    "np.diagonal": lambda x, n: np.sum(np.diagonal(x, n)),
    "np.trace": np.trace,
    "np.rot90": lambda x, n: np.sum(np.rot90(x, n)[0]),
    "np.zeros": lambda x, n: np.sum(np.zeros((n, 2)) + 1),
    "np.ones": lambda x, n: np.sum(np.ones(n)),
    "np.full": lambda x, n: np.sum(np.full(n, 2.0)),
    "reshape": lambda x, n: np.sum(x.reshape(6, n - n + 2), axis=0),
    "np.tile": lambda x, n: np.sum(np.tile(x, n)),
    "np.repeat": lambda x, n: np.sum(np.repeat(x, n)),
    "np.sum over": lambda x, n: np.sum(np.sum(x, axis=n % 2)),
    "np.cumsum over": lambda x, n: np.sum(np.cumsum(x, axis=n % 2)[-1]),
    "np.diff": lambda x, n: np.sum(np.diff(x, n)),
    "np.expand_dims": lambda x, n: np.sum(np.expand_dims(x, n), axis=0).sum(),
    "np.moveaxis": lambda x, n: np.moveaxis(x, 0, n % 2).sum(),
    "an index": lambda x, n: x[n],
    "an index of a constant": lambda x, n: np.arange(3.0)[n],
    "a slice": lambda x, n: np.sum(x[:n]),
    "a slice of a constant": lambda x, n: np.sum(np.arange(3.0)[n:]),
    "an index of a list": lambda x, n: [x, 2 * x, 3 * x][n],
    "range": lambda x, n: sum((x for _ in range(n)), 0 * x),
    "np.int64": lambda x, n: np.int64(n) * x,
    "np.int8": lambda x, n: np.int8(n) * x,
    "np.float32": lambda x, n: np.float32(n) * x,
    "float": lambda x, n: float(n) * x,
    "complex": lambda x, n: complex(n).real * x,
    "math.factorial": lambda x, n: math.factorial(n) * x,
    "math.sqrt": lambda x, n: math.sqrt(n) * x,
    "round": lambda x, n: round(n / 2) * x,
    "bin": lambda x, n: bin(n).count("1") * x,
}


@pytest.mark.parametrize("f", WITH_INTEGERS.values(), ids=WITH_INTEGERS)
def test_an_integer_of_a_batch_may_stand_where_one_integer_stands(f):
    assert_allclose(
        fdbr.vmap(f)(X, NUMBERS), np.stack([f(x, n) for x, n in zip(X, NUMBERS, strict=True)])
    )
    jitted = fdbr.jit(f)
    for x, n in zip(X[:2], NUMBERS[:2].tolist(), strict=True):
        assert_allclose(jitted(x, n), f(x, n))
    whole = fdbr.grad(lambda x: ops.sum(fdbr.vmap(f)(x, NUMBERS)) + ops.sum(x))(X)
    each = [
        fdbr.grad(lambda x, n=n: ops.sum(f(x, n)) + ops.sum(x))(x)
        for x, n in zip(X, NUMBERS, strict=True)
    ]
    assert_allclose(whole, np.stack(each))


@pytest.mark.parametrize("convert", [float, complex, math.sqrt, np.float64, lambda x: x.item()])
def test_a_floating_number_is_a_decision_where_no_derivative_is_lost(convert):
    batch = np.array([4.0, 1.0, 4.0, np.inf, -0.0, 0.0])
    found = fdbr.vmap(lambda x: ops.abs(convert(x).real * (x + 1.0)))(batch)
    assert_allclose(found, np.abs([convert(x).real * (x + 1.0) for x in batch]))
    for transform in (fdbr.grad, lambda f: lambda x: fdbr.jvp(f, (x,), (x,))):
        with pytest.raises(TypeError, match=r"fdbr\.stop_gradient"):
            transform(lambda x: x * convert(x).real)(2.0)
    with pytest.raises(TypeError, match=r"fdbr\.stop_gradient"):
        fdbr.grad(lambda b: ops.sum(fdbr.vmap(lambda x: x * convert(x).real)(b)))(batch)


def test_examples_that_are_no_numbers_and_zeros_of_either_sign_are_told_apart():
    batch = np.array([np.nan, -0.0, 0.0, np.nan, 1.0])
    found = fdbr.vmap(lambda x: math.copysign(1.0, float(x)) + 0 * x)(batch)
    assert np.array_equal(found, np.copysign(1.0, batch) + 0 * batch, equal_nan=True)


KEYS = {
    "flag": lambda t, f: t,
    "flag, 0": lambda t, f: (t, 0),
    "0, flag": lambda t, f: (0, t),
    "flag, places": lambda t, f: (t, np.array([0, 1, 1])),
    ":, flag, places": lambda t, f: (slice(None), t, np.array([0, 1, 1])),
    "places, :, flag": lambda t, f: (np.array([0, 1, 1]), slice(None), t),
    "..., flag": lambda t, f: (..., t),
    "flag, ..., 0": lambda t, f: (t, ..., 0),
    "other, :1, flag": lambda t, f: (f, slice(1), t),
    "None, flag, :1": lambda t, f: (None, t, slice(1)),
    "mask, flag": lambda t, f: (np.array([True, False]), t),
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("flag", [True, False])
def test_a_truth_value_is_an_index_as_in_numpy(key, flag, xp):
    x = np.arange(24.0).reshape(2, 3, 4)
    flags = np.array([flag, flag]), np.array([not flag, not flag])
    try:
        expected = x[key(np.bool_(flag), np.bool_(not flag))]
    except IndexError:
        with pytest.raises(IndexError):
            fdbr.vjp(lambda x: x[key(flag, not flag)], x)
        return
    use = lambda x, t, f: x[key(t, f)]
    here = xp.asarray(x)
    for found in (
        fdbr.vjp(lambda x: use(x, flag, not flag), here)[0],
        fdbr.jit(use)(here, flag, not flag),
    ):
        assert_allclose(found, xp.asarray(expected))
    batched = fdbr.vmap(use)(np.stack([x, x]), *flags)
    assert np.array_equal(batched, np.stack([expected, expected]))
    constant = fdbr.vmap(lambda t, f: ops.getitem(x, key(t, f)))(*flags)
    assert np.array_equal(constant, np.stack([expected, expected]))
    changed = x.copy()
    changed[key(flag, not flag)] = -1.0
    assert np.array_equal(ops.at(x)[key(flag, not flag)].set(-1.0), changed)
    if expected.size:
        check_grads(lambda x: use(x, flag, not flag) ** 2, x, modes=("vjp", "jvp"), order=1)


def test_a_traced_truth_value_is_no_integer_unless_it_is_pythons():
    with pytest.raises(TypeError, match="is no index"):
        fdbr.vmap(lambda x: [1.0, 2.0][x > 0])(np.ones(2))
    assert fdbr.jit(lambda x: [1.0, 2.0][x > 0])(1.5) == 2.0


@pytest.mark.parametrize("transform", [lambda f: f, fdbr.vmap, fdbr.jit, fdbr.jacrev])
def test_new_arrays_are_made_on_the_device_of_a_traced_value(transform, xp):
    def f(x):
        device = x.device if hasattr(x, "device") else "cpu"
        out = ops.zeros_like(x, device=device) + ops.full_like(x, x[0], device=device)
        return out + ops.asarray(x, device=device) + ops.astype(x, x.dtype, device=device)

    x = xp.asarray(np.arange(1.0, 5.0).reshape(2, 2))
    expected = fdbr.vmap(lambda x: x[0] + 2 * x)(x) if transform is fdbr.vmap else x[0] + 2 * x
    found = transform(f)(x)
    if transform is fdbr.jacrev:
        found = transform(f)(x).sum(axis=(2, 3))
        expected = xp.asarray(np.full((2, 2), 3.0))
    assert_allclose(found, expected)


@pytest.mark.parametrize("make", [np.int64, np.bool_, lambda x: np.asarray(x, dtype=np.int8)])
def test_integers_made_of_a_traced_array_are_those_of_the_plain_one(make):
    def f(x):
        chosen = make(x[:, 1])
        assert type(chosen) is np.ndarray
        return np.sum(x[:, 0] * chosen)

    x = np.array([[1.0, 0.0], [2.0, 2.0], [3.0, 1.0]])
    expected = np.stack([make(x[:, 1]), np.zeros(3)], axis=1)
    for slope in (fdbr.grad(f)(x), fdbr.jit(fdbr.grad(f))(x), fdbr.grad(fdbr.jit(f))(x)):
        assert slope.tolist() == expected.tolist()
    rows = np.stack([x, x[::-1]])
    assert fdbr.vmap(fdbr.grad(f))(rows).tolist() == [expected.tolist(), expected[::-1].tolist()]
    with pytest.raises(TypeError, match=r"x\.astype"):
        fdbr.grad(lambda x: np.sum(np.float32(x)))(x)


def test_many_integers_under_vmap_are_no_decisions():
    with pytest.raises(TypeError, match="conversion of"):
        fdbr.vmap(lambda x: np.int64(x))(np.ones((2, 1000)))
