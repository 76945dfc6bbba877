"""Every NumPy function that takes traced values, on arrays of every dtype and on empty ones.

What it gives has the dtype, the shape and the elements of what NumPy's own gives.
"""

import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from sharing import shared

import fdbr
from fdbr.core.tracer_methods import ufunc_methods
from fdbr.interop.numpy_ufuncs import ufuncs
from interop.parameters import OWN, TRIED
from interop.test_parameters import FUNCTIONS, REFUSES, Call, base, leaves, name_of

try:
    import ml_dtypes

    ADDED = [np.dtype(ml_dtypes.bfloat16)]
except ImportError:
    ADDED = []
DTYPES = [*map(np.dtype, ["?", "i1", "u1", "i8", "u8", "f2", "f4", "F", "D"]), *ADDED]
FEW = [np.dtype("u1"), np.dtype("f2")]  # with each parameter

DATA = frozenset({"common_type", "einsum_path", "min_scalar_type", "result_type"})
"""They give no arrays, which batches cannot hold."""

OTHERWISE = {
    "argpartition": "what stands on each side of a partition may be in any order",
    "partition": "the same",
    "intersect1d": "it is told that elements are unique, and they are not",
    "unique": "in which order, where none is asked for, NumPy leaves open",
    "unique_values": "the same",
    "eig": "NumPy's is real if all eigenvalues are; here it is what it can be",
    "eigvals": "the same",
    "roots": "the same",
    "logspace": "powers of 10 in 16 bits differ in the last digit of the exponents",
    "poly": "a sum in another order",
}
"""Functions whose results may differ, and why; their errors may not."""

NOT_NUMPYS = {
    *("nan_to_num", "nansum", "nanmean", "nanvar", "nanstd"),  # for which its NaN are numbers
    *("einsum", "linspace", "nanmedian"),  # whose dtype depends on `optimize`, `retstep`, `axis`
}
"""Functions that NumPy has for its own dtypes alone, and gives other things of others."""


def of(value: Any, how: Callable[[Any], Any]) -> Any:
    """An argument with its floating arrays changed."""
    if isinstance(value, list | tuple):
        return type(value)(of(part, how) for part in value)
    return how(value) if isinstance(value, np.ndarray) and value.dtype.kind in "fc" else value


def variants(function: Any) -> Iterator[dict[str, Any]]:
    """The arguments of a function, and with each of its other parameters."""
    needed, own = base(function), OWN.get(function.__name__, {})
    yield needed
    for name, parameter in inspect.signature(function).parameters.items():
        if name in ("like", "out", "order") or (function.__name__, name) in REFUSES:
            continue
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        for value in own.get(name, [] if name in needed else TRIED.get(name, [])):
            if not isinstance(value, type):  # dtypes, of which there is a test
                yield needed | {name: value}


def traced_ways(call: Call) -> Iterator[Callable[[], Any]]:
    """The call on a traced value, in each way that its dtype allows."""
    x = call.x
    if fdbr.pytrees.dtypes.dtype_kind(x.dtype) in "fc":
        yield lambda: fdbr.vjp(lambda x: (call(x), x), x)[0][0]
        yield lambda: fdbr.jvp(lambda x: (call(x), x), (x,), (np.ones_like(x),))[0][0]
    if call.function.__name__ not in DATA:
        yield lambda: fdbr.tree.map(
            lambda leaf: leaf[0] if np.ndim(leaf) else leaf, fdbr.vmap(call)(x[None])
        )


def compare(call: Call, values: bool = True) -> None:
    """That a call has NumPy's result with each way of tracing, where NumPy has one."""
    if call.traced is None:
        arrays = {
            k: v[-1] if isinstance(v, list | tuple) and v else v for k, v in call.arguments.items()
        }
        call.traced = next((k for k, v in arrays.items() if isinstance(v, np.ndarray)), None)
    if call.traced is None:
        return
    try:
        expected = call()
    except Exception:
        return
    rough = 0.1 if call.x.dtype.itemsize < 4 and call.x.dtype.kind not in "biu" else 1e-3
    for way in traced_ways(call):
        try:
            found = leaves(way())
        except Exception as error:
            raise AssertionError(f"{call.arguments}: {error}") from error
        for one, other in zip(found, leaves(expected), strict=True):
            if not isinstance(other, np.ndarray | np.generic) or not values:
                continue
            where = str(call.arguments)
            assert getattr(one, "dtype", np.dtype(type(one))) == other.dtype, where
            assert np.shape(one) == other.shape, where
            if other.dtype.kind not in "OSU":
                wide = complex if other.dtype.kind == "c" else float
                np.testing.assert_allclose(
                    np.asarray(one).astype(wide), other.astype(wide), rough, rough, err_msg=where
                )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", shared(FUNCTIONS), ids=name_of)
def test_results_have_numpys_dtype_whatever_the_operands(function):
    for number, arguments in enumerate(variants(function)):
        for dtype in FEW if number else DTYPES:
            complexes = np.dtype(dtype).kind == "c"
            if (dtype in ADDED and function.__name__ in NOT_NUMPYS) or (
                complexes and ("hist" in function.__name__ or "median" in function.__name__)
            ):
                continue  # it counts, or orders, what has no order

            def cast(x: Any, dtype: Any = dtype, complexes: bool = complexes) -> Any:
                x = x if complexes else x.real
                return (np.nan_to_num(x) if dtype.kind in "biu" else x).astype(dtype)

            given = {k: v if k == "q" else of(v, cast) for k, v in arguments.items()}
            compare(Call(function, given), function.__name__ not in OTHERWISE)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", shared(FUNCTIONS), ids=name_of)
def test_empty_arrays_are_to_it_what_they_are_to_numpy(function):
    for arguments in variants(function):
        for cut in (lambda x: x[:0] if x.ndim else x, lambda x: x[..., :0] if x.ndim else x):
            compare(Call(function, {k: of(v, cut) for k, v in arguments.items()}))
            call = Call(function, arguments)
            if call.traced and not (function is np.histogramdd and "weights" in arguments):
                old = arguments[call.traced]
                alone = (
                    type(old)([*old[:-1], cut(old[-1])])
                    if isinstance(old, list | tuple)
                    else (cut(old))
                )
                compare(Call(function, arguments | {call.traced: alone}))


# --- ufuncs, and their methods ------------------------------------------------------

OPERANDS = np.array([0.0, 1.0, 2.0, 3.0]), np.array([1.0, 2.0, 1.0, 3.0])
KINDS = ["?", "i1", "u8", "f2", "f4", "D"]


def alike(call: Callable[..., Any], *operands: Any) -> None:
    """That a call on a batch of one has NumPy's dtype, shape and elements, where it has any."""
    try:
        expected = call(*operands)
    except Exception:
        return
    batch = [x[None] if isinstance(x, np.ndarray) else x for x in operands]
    axes = tuple(0 if isinstance(x, np.ndarray) else None for x in operands)
    found = fdbr.vmap(call, in_axes=axes)(*batch)
    for one, other in zip(leaves(found), leaves(expected), strict=True):
        assert one.dtype == other.dtype, operands
        np.testing.assert_allclose(one[0], other, 1e-2, 1e-2, err_msg=str(operands))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ufunc", [f for f in ufuncs if not f.signature], ids=name_of)
def test_ufuncs_have_numpys_dtype_for_every_pair_of_operands(ufunc):
    for kinds in itertools.product(KINDS, repeat=ufunc.nin):
        alike(ufunc, *(x.astype(kind) for x, kind in zip(OPERANDS, kinds, strict=False)))
    for kind, number in itertools.product(KINDS, [True, 2, 0.5, 1j] if ufunc.nin == 2 else []):
        alike(lambda x, number=number: ufunc(x, number), OPERANDS[0].astype(kind))
        alike(lambda x, number=number: ufunc(number, x), OPERANDS[0].astype(kind))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("ufunc", "method"),
    [k for k in ufunc_methods if k[1] in ("reduce", "accumulate", "outer")],
    ids=str,
)
def test_methods_of_ufuncs_on_empty_arrays_are_numpys(ufunc, method):
    call = getattr(ufunc, method)
    for kind, shape in itertools.product(KINDS, [(0,), (2, 0), (0, 2)]):
        x = np.zeros(shape, kind)
        if method == "outer":
            alike(call, x, x)
        else:
            alike(call, x)
            alike(lambda x: call(x, axis=-1), x)


FORMS: dict[str, Callable[..., Any]] = {
    "einsum of one": lambda x: np.einsum("i...->...", x),
    "einsum of one, kept": lambda x: np.einsum("ij->ji", x),
    "einsum of two": lambda x: np.einsum("ij,ij->i", x, x),
    "einsum of lists": lambda x: np.einsum(x, [0, 1], [1]),
    "quantiles": lambda x: np.quantile(x, [0.1, 0.5]),
    "percentiles": lambda x: np.percentile(x, [10, 50]),
    "a percentile": lambda x: np.percentile(x, 10),
    "integer percentiles": lambda x: np.percentile(x, np.array([10, 50]), method="lower"),
    "percentiles but NaN": lambda x: np.nanpercentile(x, (10.0, 50.0), axis=1),
    "a power": lambda x: np.power(x, 2),
    "an operator": lambda x: x**2,
    "a running sum": lambda x: np.cumsum(x, dtype=float),
    "a product": lambda x: np.prod(x, axis=0, dtype="f4"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FORMS)
def test_other_forms_of_calls_have_numpys_dtype(name):
    for kind in KINDS:
        alike(FORMS[name], OPERANDS[0].reshape(2, 2).astype(kind))


@pytest.mark.parametrize("kind", ["float32", "float64", "int64"])
@pytest.mark.parametrize("weights", ["bool", "int64", "float32", "float64"])
def test_the_weight_of_an_average_has_its_dtype(kind, weights):
    if kind == "int64":
        f = lambda x: np.average(x.astype(int), 0, np.arange(4).astype(weights), returned=True)
        x = np.ones((4, 2))
    else:
        f = lambda x: np.average(x, 0, np.arange(4).astype(weights), returned=True)
        x = np.ones((4, 2), kind)
    found, desired = fdbr.vjp(f, x)[0], f(x)
    assert [out.dtype for out in found] == [out.dtype for out in desired]
    np.testing.assert_allclose(found, desired)


@pytest.mark.parametrize("dtype", [">f4", "<f4", ">f8", "<f8", ">c16", "<c16"])
def test_numbers_of_the_other_byte_order_take_their_own_gradients_as_tangents(dtype):
    x = np.arange(1.0, 4.0).astype(dtype)
    f = lambda x: np.sum(np.abs(np.sin(x) * x[::-1]))
    gradient = fdbr.grad(f)(x)
    native = fdbr.grad(f)(x.astype(x.dtype.newbyteorder("=")))
    np.testing.assert_allclose(gradient, native)
    for tangent in (gradient, gradient.astype(dtype)):
        assert np.isclose(fdbr.jvp(f, (x,), (tangent,))[1], np.sum(np.abs(native) ** 2))
    assert np.array_equal(fdbr.vjp(lambda x: 2 * x, x)[1](native)[0], 2 * native)
