"""Every parameter of every ufunc and of its methods, and the methods of arrays.

Each works as in NumPy, or is refused by an error that names the function and the parameter.
"""

from typing import Any

import numpy as np
import pytest

import fdbr
from fdbr.core import tracer_methods
from fdbr.testing import assert_allclose
from interop.parameters import MASK, PLACES, A, B, S, V

PLAIN = [u for u in tracer_methods.ufuncs if u.signature is None and u.__module__ == "numpy"]
BINARY = [u for u in PLAIN if u.nin == 2 and u.nout == 1]
WHOLE = {"gcd", "lcm", "bitwise_count", "invert"} | {
    f"bitwise_{name}" for name in "and or xor".split()
}
SHIFTS = {"left_shift", "right_shift"}


def operands(ufunc: Any) -> list[Any]:
    """Numbers in the domain of a ufunc."""
    name = ufunc.__name__
    if name in WHOLE | SHIFTS:
        return [np.array([[3, 1, 2], [6, 4, 5]]), np.array([[1, 2, 3], [2, 1, 4]])][: ufunc.nin]
    if name == "ldexp":
        return [A, np.array([[1, 2, 3], [2, 1, 4]])]
    x = A + 1 if name == "arccosh" else A / 4 if name.startswith(("arc", "log1p")) else A
    return [x, B][: ufunc.nin]


def same(f: Any, *args: Any, what: Any = "") -> None:
    """That a function gives on traced values what it gives on plain ones, or NumPy refuses it."""
    try:
        with np.errstate(all="ignore"):
            expected = f(*args)
    except Exception:
        return
    if all(arg.dtype.kind in "fc" for arg in args):
        found, _ = fdbr.vjp(lambda *args: (f(*args), args), *args)
        compare(found[0], expected, what=what)
    compare(fdbr.vmap(f)(*(arg[None] for arg in args)), expected, batched=True, what=what)


def compare(found: Any, expected: Any, batched: bool = False, what: Any = "") -> None:
    parts = [expected] if not isinstance(expected, tuple | list) else expected
    found = [found] if not isinstance(found, tuple | list) else found
    for one, wanted in zip(found, parts, strict=True):
        one = one[0] if batched else one
        assert one.dtype == wanted.dtype
        tolerance = {2: 2e-3, 4: 1e-5}.get(wanted.dtype.itemsize, 1e-12)
        assert np.allclose(one, wanted, tolerance, tolerance, equal_nan=True), (what, one, wanted)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ufunc", PLAIN, ids=lambda u: u.__name__)
def test_every_parameter_of_a_ufunc_works_as_in_numpy_or_is_refused_by_name(ufunc):
    args = operands(ufunc)
    for how in (
        {"dtype": np.float32},
        {"dtype": np.float64, "casting": "safe"},
        {"dtype": np.complex128},
        {"casting": "no"},
        {"casting": "unsafe"},
        {"order": "F"},
        {"subok": False},
        {"where": True},
        {"dtype": np.int32, "casting": "unsafe"} if ufunc.__name__ in WHOLE | SHIFTS else {},
        {"signature": "d" * ufunc.nin + "->" + "d" * ufunc.nout},
    ):
        same(lambda *args, how=how: ufunc(*args, **how), *args)
    for parameter, value in (("where", MASK), ("out", (np.zeros_like(A),) * ufunc.nout)):
        with pytest.raises(TypeError, match=rf"np\.{ufunc.__name__}\(…, {parameter}=…\)"):
            fdbr.vmap(lambda *args, n=parameter, v=value: ufunc(*args, **{n: v}))(
                *(arg[None] for arg in args)
            )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ufunc", BINARY, ids=lambda u: u.__name__)
def test_every_method_of_a_ufunc_works_as_in_numpy_with_every_parameter(ufunc):
    x, y = operands(ufunc)
    if (ufunc, "reduce") not in tracer_methods.ufunc_methods or ufunc is np.ldexp:
        return  # comparisons: NumPy reduces truth values by them, and nothing else
    # NumPy's own loops of these two leave elements out along the last axis.
    wrong = ufunc in (np.arctan2, np.power)
    for how in (
        {},
        {"axis": 1},
        {"axis": -1, "keepdims": True},
        {"axis": None},
        {"axis": (0, 1)},
        {"dtype": np.float64},
        {"initial": 2},
        {"initial": 2, "where": MASK, "axis": 1},
    ):
        if "where" in how and ufunc.identity is None and ufunc.__name__ not in IDEMPOTENT:
            continue
        if not (wrong and how.get("axis", 0) != 0):
            same(lambda x, how=how: ufunc.reduce(x, **how), x, what=how)
    for how in ({}, {"axis": 0 if wrong else 1}, {"dtype": np.float64}):
        same(lambda x, how=how: ufunc.accumulate(x, **how), x)
        same(lambda x, how=how: ufunc.reduceat(x, [0, 1, 0], **how), x)
    same(lambda x, y: ufunc.outer(x, y), x, y)
    if x.dtype.kind == "f":
        same(lambda x, y: ufunc.outer(x, y, dtype=np.float64), x, y)


IDEMPOTENT = {"maximum", "minimum", "fmax", "fmin"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", ["reduce", "accumulate", "reduceat"])
@pytest.mark.parametrize("ufunc", BINARY, ids=lambda u: u.__name__)
def test_methods_of_ufuncs_have_the_derivative_of_numpys_function(ufunc, method):
    if (ufunc, method) not in tracer_methods.ufunc_methods or ufunc.__name__ in {
        *WHOLE,
        *SHIFTS,
        "ldexp",
    }:
        return
    extra = ([0, 1, 0],) if method == "reduceat" else ()

    def f(x):
        out = getattr(ufunc, method)(x, *extra)
        return np.sum(out * 1.0 * out)

    x, step = operands(ufunc)[0], np.random.default_rng(0).normal(size=A.shape)
    slope = np.sum(fdbr.grad(lambda x: f(x) + 0 * np.sum(x))(x) * step)
    with np.errstate(all="ignore"):
        difference = (f(x + 1e-6 * step) - f(x - 1e-6 * step)) / 2e-6
    assert_allclose(slope, difference, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("f", "args"),
    [
        (lambda x, y: np.matmul(x, y, axes=[(0, 1), (1, 0), (0, 1)]), (A, B)),
        (lambda x, y: np.matmul(x, y, axes=[(0, 1), (1, 0), (1, 0)]), (A, B)),
        (lambda x, y: np.matmul(x, y, dtype=np.complex128), (A, B.T.copy())),
        (lambda x, y: np.vecdot(x, y, axis=0), (A, B)),
        (lambda x, y: np.vecdot(x, y, keepdims=True), (A, B)),
        (lambda x, y: np.vecdot(x, y, axis=0, keepdims=True), (A, B)),
        (lambda x, y: np.linalg.vecdot(x, y, axis=0), (A, B)),
    ],
)
def test_the_axes_of_matrices_and_vectors_may_be_chosen(f, args):
    same(f, *args)


METHODS = {
    "all": [{"axis": 0, "keepdims": True}, {"where": MASK}],
    "any": [{"axis": 1}, {"where": MASK}],
    "argmax": [{"axis": 1, "keepdims": True}],
    "argmin": [{"axis": 0}],
    "argsort": [{"axis": 0}, {"kind": "stable"}, {"axis": None}, {"stable": True}],
    "astype": [{"dtype": np.float32}, {"dtype": np.float32, "casting": "same_kind", "copy": False}],
    "clip": [{"min": 0.5}, {"max": 1.0}, {"min": np.nan}, {"min": None, "max": 1.5}],
    "compress": [{"condition": [True, False, True], "axis": 1}, {"condition": [False, True]}],
    "copy": [{"order": "F"}],
    "cumprod": [{"axis": 0}, {"dtype": np.float32}],
    "cumsum": [{"axis": 1}, {"dtype": np.float32}],
    "diagonal": [{"offset": 1}, {"axis1": 1, "axis2": 0}],
    "dot": [{"()": (B.T.copy(),)}],
    "flatten": [{"order": "F"}, {}],
    "max": [{"initial": 1.0}, {"initial": 0.0, "where": MASK, "axis": 0}, {"keepdims": True}],
    "mean": [{"where": MASK, "axis": 1}, {"dtype": np.float32}],
    "min": [{"initial": 1.0}, {"initial": 9.0, "where": MASK}],
    "prod": [{"initial": 2.0}, {"where": MASK, "axis": 0}, {"dtype": np.float32}],
    "ravel": [{"order": "F"}],
    "repeat": [{"repeats": [1, 2], "axis": 0}],
    "reshape": [{"()": (3, 2), "order": "F"}, {"()": ((3, 2),)}, {"()": (-1,), "order": "F"}],
    "round": [{"decimals": 1}],
    "squeeze": [{}],
    "std": [{"ddof": 1}, {"where": MASK, "axis": 0}, {"axis": 1, "keepdims": True}],
    "sum": [{"initial": 2.0}, {"where": MASK, "axis": 0}, {"dtype": np.float32}],
    "swapaxes": [{"()": (0, 1)}],
    "take": [{"indices": PLACES + 5, "mode": "wrap"}, {"indices": [9, -9], "mode": "clip"}],
    "trace": [{"offset": 1}, {"dtype": np.float32}],
    "transpose": [{}],
    "var": [{"ddof": 1}, {"where": MASK}, {"dtype": np.float32}],
}
"""For each method of arrays, the arguments that are tried; under "()" those by position."""


@pytest.mark.parametrize(("name", "how"), [(n, how) for n in METHODS for how in METHODS[n]])
def test_methods_of_arrays_take_the_parameters_of_numpys(name, how):
    first = how.get("()", ())
    named = {key: value for key, value in how.items() if key != "()"}
    same(lambda x: getattr(x, name)(*first, **named), A)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "take", "cumsum", "argsort", "clip"])
def test_methods_and_functions_are_the_same(name):
    assert (
        getattr(fdbr.core.tracer.Tracer, name) is tracer_methods.functions[getattr(np, name)]
        or name == "clip"
    )


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda x: x.sum(out=np.zeros(())), r"np\.sum\(…, out=…\)"),
        (lambda x: x.argsort(order="a"), r"np\.argsort\(…, order=…\)"),
        (lambda x: x.reshape(6, order="A"), r"np\.reshape\(…, order=…\)"),
        (lambda x: x.clip(0, 1, out=np.zeros(3)), r"np\.clip\(…, out=…\)"),
        (lambda x: x.sum(colour=1), r"np\.sum: .*colour"),
    ],
)
def test_what_a_method_does_not_take_is_refused_by_name(f, words):
    with pytest.raises(TypeError, match=words):
        fdbr.vjp(f, A)


def test_arguments_have_numpys_names():
    for f, args in (
        (lambda x, y: np.linalg.solve(a=x, b=y), (S, V[:3])),
        (lambda x, y: np.dot(a=x, b=y), (A, B.T.copy())),
        (lambda x, y: np.tensordot(a=x, b=y, axes=2), (A, B)),
        (lambda x, y: np.einsum(x, [0, 1], y, [2, 1], [0, 2], optimize=True), (A, B)),
        (lambda x, y: np.einsum(x, [0, 1], y, [2, 1]), (A, B)),
        (lambda x, y: np.einsum(x, [Ellipsis, 1], y, [Ellipsis, 1], [1, Ellipsis]), (A, B)),
        (lambda x, y: np.sum(a=x * y, axis=0), (A, B)),
        (lambda x, y: np.cross(a=x, b=y), (A, B)),
    ):
        same(f, *args)


def test_linspace_and_its_kin_take_traced_ends():
    for f in (
        lambda x: np.linspace(x[0], x[1], 5, dtype=np.float32),
        lambda x: np.linspace(x, x + 1, 4, axis=-1),
        lambda x: np.linspace(start=x, stop=2.0, num=3, endpoint=False, retstep=True),
        lambda x: np.linspace(0, 10 * x[0], 4, dtype=int) * x[1],
        lambda x: np.logspace(x, x + 1, 4, base=2.0, axis=1),
        lambda x: np.logspace(0, 1, 4, base=x),
        lambda x: np.geomspace(x, x + 2, 4, axis=1),
        lambda x: np.geomspace(-x, -3.0, 4, endpoint=False),
    ):
        same(f, V)


@pytest.mark.parametrize("first", "? b B i l e f d F D".split())
def test_ends_of_a_linspace_keep_their_digits_and_their_imaginary_parts(first):
    a = np.array([1, 0, 100]).astype(first)
    for second in "? b B i l e f d F D".split():
        b = np.array([0, 1.3 - 0.4j * (second in "FD"), -100 if second != "B" else 200])
        b = (b if second in "FD" else b.real).astype(second)
        wanted = np.linspace(a, b, 4, retstep=True)
        found = fdbr.vmap(lambda a, b: np.linspace(a, b, 4, retstep=True), out_axes=(1, 0))(a, b)
        fine = max(np.finfo(wanted[0].dtype).eps, 1e-3 * (wanted[0].dtype == np.float16))
        for one, other in zip(found, wanted, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=8 * fine, atol=100 * fine)
        if second in "FD":
            last = fdbr.grad(lambda b: np.sum(np.imag(np.linspace(a, b, 4)[-1])))(b)
            assert np.array_equal(last, np.full(3, -1j))
            assert last.dtype == b.dtype


def test_arrays_like_a_traced_one_are_made_of_traced_values():
    def f(x):
        y = np.array([x[0], 2.0, x[1]], like=x)
        z = np.full(2, x[0], like=x) + np.zeros(2, like=x) + np.arange(2, like=x)
        return np.sum(y**2) + np.sum(z * np.eye(2, like=x)[0])

    assert fdbr.grad(f)(V).tolist() == [2 * V[0] + 1, 2 * V[1], 0.0, 0.0]
