"""A NumPy function of traced values answers as it does of arrays, whatever is in them.

It gives NumPy's value, dtype, shape, type and error, of special values, ties, empty arrays, and
arrays of other shapes than the function was made for.
"""

import inspect
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import ops
from interop.parameters import OWN, TRIED
from interop.test_dtypes_and_empties import DATA, OTHERWISE
from interop.test_parameters import FUNCTIONS, Call, base, name_of

SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, 1.0, 1.0, 2.0, -1.0, 0.5]
SHAPES = [(), (0,), (1,), (3,), (2, 3), (3, 3), (0, 3), (2, 1, 3)]

HANGS = {"lstsq", "pinv", "polyfit", "svd", "svdvals", "cond", "matrix_rank", "norm", "matrix_norm"}
"""LAPACK's singular values of infinities may take for ever."""

OF_LAPACK = {"cholesky", "det", "eigh", "eigvalsh", "inv", "matrix_power", "qr", "slogdet", "solve"}
"""What LAPACK makes of NaN and infinities depends on how matrices lie in memory."""

STEPS = {"average", "cov", "corrcoef", "geomspace", "interp", "logspace", "polydiv", "polyval",
         "trapezoid", "unwrap", "gradient", "histogram2d",
         "histogramdd", "histogram", "histogram_bin_edges", "linspace", "var", "std", "nanvar",
         "nanstd", "roots", "poly", "digitize", "power", "logn", "multi_dot", "fftn",
         "piecewise"}  # fmt: skip
"""Functions of many steps, which fdbr takes in another order: infinities cancel elsewhere."""


UNLIKE = {*OTHERWISE, "linspace", "polyder"}
"""Functions whose errors within NumPy come from what they are made of."""


def special(choose: random.Random, x: Any) -> Any:
    """An array of special values in a shape and a floating dtype."""
    found = [choose.choice(SPECIAL) for _ in range(x.size)]
    return np.array(found, x.real.dtype).reshape(x.shape).astype(x.dtype)


def drawn(choose: random.Random, function: Any) -> Call:
    """A call with special values, of parameters that are tried elsewhere one at a time."""
    name = function.__name__
    arguments = base(function)
    own = OWN.get(name, {})
    for parameter in inspect.signature(function).parameters:
        tried = own.get(parameter, TRIED.get(parameter, []))
        if parameter not in arguments and tried and choose.random() < 0.2:
            arguments[parameter] = choose.choice(tried)
    shape = choose.choice(SHAPES) if choose.random() < 0.4 else None

    def changed(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(map(changed, value))
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "fc":
            return value
        value = value if shape is None else np.resize(value, shape)
        return value if name in HANGS | OF_LAPACK else special(choose, value)

    if function is np.histogramdd:  # beside no sample NumPy takes weights of any shape
        arguments.pop("weights", None)
    kept = {"q", "period", "fweights", "aweights"}
    return Call(function, {k: v if k in kept else changed(v) for k, v in arguments.items()})


def answer(f: Callable[[], Any]) -> tuple[Any, Any]:
    try:
        return f(), None
    except Exception as error:
        return None, error


def same(found: Any, wanted: Any, name: str) -> None:
    """That a result is NumPy's."""
    assert type(found) is type(wanted)
    if isinstance(wanted, list | tuple):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            same(one, other, name)
    elif isinstance(wanted, np.ndarray | np.generic) and wanted.dtype.kind in "biufc":
        if name in OTHERWISE:
            return
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        if name in STEPS:
            return
        kind, wide = wanted.dtype.kind, complex if wanted.dtype.kind == "c" else float
        close = {} if kind in "biu" else {"rtol": 1e-5, "atol": 1e-7}
        np.testing.assert_allclose(
            np.asarray(found, wide), np.asarray(wanted, wide), **(close or {"rtol": 0, "atol": 0})
        )
    elif isinstance(wanted, bool | int | str | np.dtype):
        assert found == wanted


ALL = [f for f in FUNCTIONS if f.__name__ not in DATA | {"tensorinv", "tensorsolve"}]


MOST = settings.default.max_examples  # type: ignore[union-attr]
FEW = 6  # for each of 250 functions, but with the profile that hunts


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", ALL, ids=name_of)
@settings(max_examples=MOST if MOST > 40 else FEW)
@given(choose=st.randoms(use_true_random=False))
def test_traced_special_values_give_what_numpy_gives(function, choose):
    name = function.__name__
    call = drawn(choose, function)
    if call.traced is None:
        return
    wanted, refused = answer(call)
    ways = {
        "vjp": lambda: fdbr.vjp(lambda x: call(x), call.x)[0],
        "jvp": lambda: fdbr.jvp(lambda x: call(x), (call.x,), (np.ones_like(call.x),))[0],
        "jit": lambda: fdbr.jit(lambda x: call(x))(call.x),
    }
    for way in ("vjp", choose.choice(["jvp", "jit"])):
        found, error = answer(ways[way])
        if error is not None and "traced value" in str(error):
            return  # what it refuses, it refuses by name
        if refused is None:
            assert error is None, (way, call.arguments, error)
            same(found, wanted, name)
        elif isinstance(refused, TypeError | ValueError | IndexError) and name not in UNLIKE:
            kinds = [TypeError, ValueError, IndexError, np.linalg.LinAlgError]
            assert error is not None, (way, call.arguments, refused)
            for kind in kinds:
                if isinstance(refused, kind):
                    assert isinstance(error, kind), (way, call.arguments, error, refused)


# --- members of the class that were wrong --------------------------------------------

X = np.array([[0.5, 1.0, 1.0], [2.0, -0.0, 0.0]])
NAN = np.array([1.0, np.nan, 2.0, np.nan, 0.0])
FAR = np.array([np.inf, 1.0, -np.inf, 2.0])
TIES = np.array([1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0] * 9)

MEMBERS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "vecdot along a first axis": (lambda x: np.linalg.vecdot(x, X[:, 0], axis=0), X[:, :1]),
    "union of NaN": (lambda x: np.union1d(x, NAN), NAN),
    "difference of NaN": (lambda x: np.setdiff1d(x, NAN[:1]), NAN),
    "exclusive or of NaN": (lambda x: np.setxor1d(x, NAN[::2]), NAN),
    "intersection of NaN": (lambda x: np.intersect1d(x, NAN), NAN),
    "quantile of infinities": (lambda x: np.quantile(x, [0.25, 0.5, 0.8]), FAR),
    "quantiles that are whole": (lambda x: np.quantile(x, [0, 1]), FAR),
    "median of infinities": (np.nanmedian, FAR[:3]),
    "truths that add up": (lambda x: np.array_equal(x, x) + np.array_equal(x, x), X),
    "close truths that add up": (lambda x: np.allclose(x, x) + np.allclose(x, x), X),
    "order of ties": (np.argsort, TIES),
    "partition of ties": (lambda x: np.argpartition(x, 5), TIES),
    "values in a partition": (lambda x: np.partition(x, 1), X[::-1].ravel()),
    "axis of a number": (lambda x: np.cumsum(x, axis=-1), np.array(3.0)),
    "least of a number": (lambda x: np.argmin(x, axis=0), np.array(3.0)),
    "triangle of a row": (np.triu, X[0]),
    "lower triangle of a row": (np.tril, X[0]),
    "where a number is true": (np.argwhere, np.array(3.0)),
    "named tuple of slogdet": (lambda x: np.linalg.slogdet(x), np.eye(2)),
    "named tuple of eigh": (lambda x: np.linalg.eigh(x), np.eye(2)),
    "named tuple of svd": (lambda x: np.linalg.svd(x), np.diag([3.0, 2.0])),
    "named tuple of qr": (lambda x: np.linalg.qr(x), np.diag([3.0, 2.0])),
    "named tuple of unique": (np.unique_all, X),
    "empty mask": (lambda x: x[np.array([], bool)], X),
    "sums of a number": (lambda x: np.add.reduce(x, axis=-1), np.array(2.0)),
    "rounded infinities": (lambda x: np.round(x, 1), np.array([complex(1.26, np.inf)])),
    "truth as an axis": (lambda x: np.flip(x, True), X),
    "shifts": (lambda x: np.roll(x, (1, 2), axis=(0, 0)), X),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MEMBERS)
def test_what_was_wrong_is_numpys_under_each_transformation(name):
    f, x = MEMBERS[name]
    jitted = fdbr.jit(lambda x: f(x))
    for found in (
        fdbr.vjp(lambda x: f(x), x)[0],
        fdbr.jvp(lambda x: f(x), (x,), (np.ones_like(x),))[0],
        *(jitted(x) for _ in range(3)),
        jitted.compile(x)(x),
    ):
        same(found, f(x), "")
    found = fdbr.tree.leaves(fdbr.vmap(lambda x: f(x))(np.stack([x, x])))
    for one, other in zip(found, fdbr.tree.leaves(f(x)), strict=True):
        np.testing.assert_array_equal(one[1], other)


@pytest.mark.parametrize(
    ("f", "x", "error"),
    [
        (np.diag, np.ones((2, 2, 2)), ValueError),
        (lambda x: np.compress([[True]], x), X, ValueError),
        (lambda x: np.lexsort((x, X[0, :2])), X[0], ValueError),
        (lambda x: np.polyadd(x, X[0]), np.ones((2, 2)), ValueError),
        (lambda x: np.tensordot(x, X, ([0], [0], [0])), X, ValueError),
        (lambda x: np.histogram(x, 0), X, ValueError),
        (lambda x: np.interp(x, [0.0, 1.0], [1.0, 2.0]), np.array([1j]), TypeError),
        (lambda x: np.sum(x, axis=5), X, np.exceptions.AxisError),
        (lambda x: np.sum(x, axis=True), X, TypeError),
        (lambda x: np.bitwise_and.reduce(x), X, TypeError),
        (lambda x: x[np.array([True, False, True])], X, IndexError),
    ],
)
def test_what_numpy_refuses_is_refused_under_each_transformation(f, x, error):
    for call in (
        lambda: f(x),
        lambda: fdbr.vjp(f, x),
        lambda: fdbr.vmap(f)(x[None]),
        lambda: fdbr.jit(f)(x),
    ):
        with pytest.raises(error):
            call()


@pytest.mark.parametrize("truth", [True, False])
def test_a_truth_value_is_no_axis_size_count_or_argument_number(truth):
    x, key = np.ones((2, 3)), fdbr.random.key(0)
    for call in (
        lambda: fdbr.vmap(np.sum, in_axes=truth)(x),
        lambda: fdbr.vmap(np.sum, in_axes=(truth,))(x),
        lambda: fdbr.vmap(np.sin, out_axes=truth)(x),
        lambda: fdbr.vmap(lambda: 1.0, axis_size=truth)(),
        lambda: fdbr.grad(lambda x, y: x * y, argnums=truth)(1.0, 2.0),
        lambda: fdbr.jacrev(lambda x, y: x * y, argnums=(truth,))(1.0, 2.0),
        lambda: ops.sum(x, axis=truth),
        lambda: ops.softmax(x, dim=truth),
        lambda: ops.zeros(truth),
        lambda: ops.reshape(x[:1, :1], truth),
        lambda: ops.top_k(x, truth),
        lambda: ops.diff(x, n=truth),
        lambda: ops.repeat(x, truth),
        lambda: ops.pad(x, truth),
        lambda: ops.linspace(0.0, 1.0, truth),
        lambda: ops.fft.fft(x, n=truth),
        lambda: fdbr.random.normal(key, truth),
        lambda: fdbr.random.split(key, truth),
    ):
        with pytest.raises(TypeError):
            call()
