"""Arrays beside traced values: whichever stands on the left, the operation is fdbr's."""

import enum
import operator

import numpy as np
import pytest

import fdbr
from fdbr.core import tracer_methods
from fdbr.core.array_modules import is_array
from fdbr.testing import assert_allclose

OPERATORS = {
    name: getattr(operator, name)
    for name in """add sub mul truediv pow matmul mod floordiv lt le gt ge eq ne and_ or_ xor
    lshift rshift""".split()
} | {"divmod": divmod}
UFUNCS = {f"np.{ufunc.__name__}": ufunc for ufunc in tracer_methods.ufuncs if ufunc.nin == 2}
FUNCTIONS = {
    "np.where": lambda a, b: np.where(a, a, b),
    "np.concatenate": lambda a, b: np.concatenate([a, b]),
    "np.dot": np.dot,
    "np.einsum": lambda a, b: np.einsum("ij,jk->ik", a, b),
    "np.clip": lambda a, b: np.clip(a, 0, b),
    "np.stack": lambda a, b: np.stack([a, b]),
}


def operands(function):
    """Two matrices of a dtype that the function takes."""
    for dtype in ("float64", "int64", "bool"):
        a = np.array([[3, 1, 2], [1, 2, 5], [2, 1, 1]]).astype(dtype)
        b = np.array([[1, 1, 2], [3, 1, 2], [1, 2, 2]]).astype(dtype)
        try:
            function(a, b)
        except TypeError:
            continue
        return a, b
    raise AssertionError("no dtype fits")


@pytest.mark.parametrize("name", [*OPERATORS, *UFUNCS, *FUNCTIONS])
def test_an_array_may_stand_on_either_side_of_a_traced_value(xp, name):
    function = (OPERATORS | UFUNCS | FUNCTIONS)[name]
    a, b = operands(function)
    plain = function(a, b)
    x, y = xp.asarray(a), xp.asarray(b)
    seen = []

    def note(out):
        seen.append(fdbr.tree.map(fdbr.stop_gradient, out))
        return w * 1.0

    w = xp.asarray(np.ones(2))
    differentiable = a.dtype.kind == "f"
    if differentiable:
        fdbr.vjp(lambda y: note(function(x, y)), y)
        fdbr.vjp(lambda x: note(function(x, y)), x)
        fdbr.jvp(lambda y: note(function(x, y)), (y,), (y,))
        fdbr.vjp(lambda x: fdbr.vjp(lambda y: note(function(x, y)), y)[0] * x[0, 0], x)
    rows = [
        fdbr.vmap(lambda y: function(x, y))(y[None]),
        fdbr.vmap(lambda x: function(x, y))(x[None]),
    ]
    seen += [fdbr.tree.map(lambda part: part[0], row) for row in rows]
    for found in seen:
        assert_allclose(
            list(found) if isinstance(plain, tuple) else found,
            list(plain) if isinstance(plain, tuple) else plain,
        )
        assert all(is_array(part) for part in fdbr.tree.leaves(found))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "pow"])
def test_derivatives_of_every_order_where_the_array_is_on_the_left(xp, to_numpy, name):
    function = OPERATORS[name]
    a, b = np.array([1.5, 2.0]), np.array([0.5, 3.0])

    def third(a, b):
        f = lambda y: function(a, y).sum()
        return fdbr.grad(lambda y: fdbr.grad(lambda y: fdbr.grad(f)(y).sum())(y).sum())(b)

    assert_allclose(to_numpy(third(xp.asarray(a), xp.asarray(b))), third(a, b))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "pow", "lt", "eq", "mod"])
def test_a_traced_number_may_stand_on_either_side_of_an_array(xp, to_numpy, name):
    function = OPERATORS[name]
    a = np.array([1.5, 2.0])
    for ordered in (function, lambda x, n: function(n, x)):

        def f(n, x, ordered=ordered):
            return (ordered(x, n) * 1.0).sum()

        assert_allclose(to_numpy(fdbr.grad(f)(2.5, xp.asarray(a))), fdbr.grad(f)(2.5, a))


@pytest.mark.parametrize("name", ["iadd", "isub", "imul", "itruediv"])
def test_an_array_is_never_written_to_by_a_traced_value(xp, to_numpy, name):
    x = xp.asarray(np.ones(2))
    with pytest.raises(TypeError):
        fdbr.grad(lambda w: getattr(operator, name)(x, w).sum())(xp.asarray(np.full(2, 3.0)))
    assert to_numpy(x).tolist() == [1.0, 1.0]


class Level(enum.IntEnum):
    LOW = 3


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
def test_members_of_enumerations_count_as_they_do_for_numpy(dtype):
    x = np.ones(4, dtype)
    for f in (lambda x: x * Level.LOW, lambda x: Level.LOW + x, lambda x: np.add(x, Level.LOW)):
        expected = f(x)
        for found in (fdbr.jit(f)(x), fdbr.vmap(f)(x)):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
