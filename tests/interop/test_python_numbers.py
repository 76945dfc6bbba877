"""Python numbers as arguments of transformed functions behave as Python numbers."""

import cmath
import math
import numbers
import operator
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops

NUMBERS = [3, 0, -2, True, False, 2.5, -1.0, 1.5 + 2j]
OTHERS = [2, 0, -1, False, 1.5, 1j, [0.0, 1.0], (1,), "ab", b"x", bytearray(b"xy"), range(4)]
OTHERS += [None, {1: 2}, {1, 2}, deque([1]), np.float64(2.5), np.int64(3), np.array([1.0, 2.0])]

BINARY = [getattr(operator, name) for name in "add sub mul eq ne lt le gt ge".split()]
BINARY += [getattr(operator, name) for name in "truediv floordiv mod matmul".split()]
BINARY += [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]
BINARY += [divmod, operator.contains]

ONE = {
    "~": operator.invert,
    "~(x > 1)": lambda x: ~(x > 1),
    "where(~(x > 1), 1, 2)": lambda x: np.where(~(x > 1), 1.0, 2.0),
    "-(x > 0)": lambda x: -(x > 0),
    "(x > 1) + (x > 0)": lambda x: (x > 1) + (x > 0),
    "(x > 0) & (x < 3)": lambda x: (x > 0) & (x < 3),
    "(x > 0) ^ 1": lambda x: (x > 0) ^ 1,
    "[0] * (x > 0)": lambda x: [0] * (x > 0),
    "-": operator.neg,
    "+": operator.pos,
    "abs": abs,
    "round": round,
    "round(x, 1)": lambda x: round(x, 1),
    "round(x, -1)": lambda x: round(x, -1),
    "round(x, -2)": lambda x: round(x, -2),
    "round(7 * x, -1)": lambda x: round(7 * x, -1),
    "format": lambda x: format(x, ".2f"),
    "f-string": lambda x: f"{x} {x:>8}",
    "%d": lambda x: f"{'%d'}" % x,
    "%s": lambda x: "%s" % x,  # noqa: UP031
    "dict": lambda x: {3: "a", 2.5: "b"}.get(x, "c"),
    "set": lambda x: x in {3, 2.5},
    "list": lambda x: x in [1, 3, 2.5],
    "min": lambda x: min(x, 2),
    "max": lambda x: max(x, 2, 1),
    "sum": lambda x: sum([x, x, 1]),
    "sorted": lambda x: sorted([3, x, 1]),
    "range": lambda x: list(range(x)),
    "real": lambda x: x.real,
    "imag": lambda x: x.imag,
    "conjugate": lambda x: x.conjugate(),
    "numerator": lambda x: x.numerator,
    "isinstance": lambda x: [
        isinstance(x, kind) for kind in (int, float, bool, numbers.Real, numbers.Integral)
    ],
    "class": lambda x: x.__class__,
    "bit_length": lambda x: x.bit_length(),
    "is_integer": lambda x: x.is_integer(),
    "as_integer_ratio": lambda x: x.as_integer_ratio(),
    "index": lambda x: [1, 2, 3, 4][x],
    "slice": lambda x: "abcdef"[x:] + "abcdef"[:x],
    "array slice": lambda x: np.arange(5)[:x],
    "pow": lambda x: pow(x, 2, 5),
    "or": lambda x: (x and 5, x or 5),
    "enumerate": lambda x: list(enumerate("abc", x)),
    "list.__mul__": lambda x: [1].__mul__(x),
    "x == [...]": lambda x: (x == [0.5, 1.0], x != (1,), [x] == [3]),
    "len([0] * x)": lambda x: len([0] * x),
    "[x] * x": lambda x: [x] * x,
    "stack": lambda x: np.stack([x] * (x + 2)),
    "derived": lambda x: (2 * x + 1) * "ab",
    "hash": hash,
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
    "str": str,
    "repr": repr,
    "hex": hex,
}
ONE |= {f"math.{f.__name__}": f for f in (math.sqrt, math.exp, math.floor, math.ceil, math.trunc)}
ONE |= {f"math.{f.__name__}": f for f in (math.factorial, math.isnan, math.frexp, math.modf)}
ONE |= {f"cmath.{f.__name__}": f for f in (cmath.sqrt, cmath.phase, cmath.polar)}


def outcome(f, *args):
    try:
        return f(*args)
    except Exception as error:
        return error


def is_same(a, b):
    """Whether two outcomes have the same value and type; errors are the same if both raise."""
    if isinstance(a, Exception) or isinstance(b, Exception):
        return isinstance(a, Exception) and isinstance(b, Exception)
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and is_same(a.tolist(), b.tolist())
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(is_same, a, b))
    return repr(a) == repr(b) or (isinstance(a, float | complex) and cmath.isclose(a, b))


def check(f, *args):
    expected = outcome(f, *args)
    # docs/jit.md: numbers follow NumPy's rules where Python divides by zero
    if isinstance(expected, ZeroDivisionError):
        return
    jitted = fdbr.jit(f)
    for call in ("first", "second"):
        found = outcome(jitted, *args)
        assert is_same(found, expected), (call, args, expected, found)


@pytest.mark.unchecked
@pytest.mark.parametrize("name", ONE)
def test_a_jitted_function_of_a_python_number_gives_what_the_function_gives(name):
    for x in NUMBERS:
        check(ONE[name], x)


@pytest.mark.unchecked
@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.__name__)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_operators_of_python_numbers_give_what_python_gives(op):
    # "ab" % x asks whether x is a mapping, which a traced value looks like
    for x in NUMBERS:
        for y in OTHERS:
            if isinstance(x, complex) and isinstance(y, np.generic):
                continue  # Python reads NumPy's scalars as its own there, and they become NumPy's
            check(lambda x, y=y: op(x, y), x)
            if not (op is operator.mod and isinstance(y, str | bytes | bytearray)):
                check(lambda x, y=y: op(y, x), x)


@pytest.mark.unchecked
@given(st.integers(-(10**20), 10**20), st.integers(-21, 2))
def test_integers_are_rounded_exactly(n, digits):
    check(lambda n: round(n, digits), n)


TRANSFORMED = {
    "grad": lambda f: lambda x, n: fdbr.value_and_grad(f, has_aux=True)(x, n)[0][1],
    "grad of both": lambda f: lambda x, n: fdbr.vjp(f, x, n, has_aux=True)[2],
    "jvp": lambda f: lambda x, n: fdbr.jvp(f, (x, n), (1.0, None), has_aux=True)[2],
    "jit": lambda f: lambda x, n: fdbr.jit(f)(x, n)[1],
    "jit of grad": lambda f: (
        lambda x, n: fdbr.jit(fdbr.value_and_grad(f, has_aux=True))(x, n)[0][1]
    ),
    "checkpoint": lambda f: lambda x, n: fdbr.checkpoint(f)(x, n)[1],
}


@pytest.mark.parametrize("transform", TRANSFORMED)
@pytest.mark.parametrize("n", [2, np.int64(2), True, 0])
def test_a_sequence_is_repeated_under_every_transformation(transform, n):
    def f(x, n):
        lists = [x] * n, n * (x,), len([0] * n), len((1,) * (n + 1)), len("ab" * n), len(n * b"x")
        return x * 2.0, (len(lists[0]), len(lists[1]), *lists[2:])

    assert TRANSFORMED[transform](f)(3.0, n) == f(3.0, n)[1]


def test_a_repeated_list_of_a_traced_number_has_its_derivative():
    f = fdbr.jit(fdbr.grad(lambda x, n: ops.sum(ops.stack([x] * n) ** 2)))
    assert [f(3.0, n) for n in (1, 2, 4, 2)] == [6.0, 12.0, 24.0, 12.0]


def test_examples_of_a_batch_repeat_a_list_as_their_integers_say():
    f = fdbr.vmap(lambda n, x: ops.sum(ops.stack([x] * n)))
    np.testing.assert_array_equal(f(np.array([1, 3, 1]), np.array([1.0, 2.0, 5.0])), [1, 6, 5])


def test_the_product_of_a_floating_number_and_a_list_is_an_error_as_in_python():
    for transform in (fdbr.grad, fdbr.jit, lambda f: fdbr.jit(f)):
        with pytest.raises(TypeError, match=r"index|non-int"):
            transform(lambda x: ops.sum(ops.asarray(x * [1.0, 2.0])))(2.0)


def test_parts_of_a_complex_number_have_derivatives():
    def f(z):
        return 3 * z.real + 2 * z.imag + abs(z) + abs(z.conjugate())

    expected = 3 - 2j + 2 * (3 - 4j) / 5
    for transformed in (fdbr.grad(f), fdbr.jit(fdbr.grad(f))):
        np.testing.assert_allclose(transformed(3 + 4j), expected)
