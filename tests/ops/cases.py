"""Every operation at work: one `Case` for each way of using it that has mathematics of its own.

The tests of values, gradients and array modules all run over `CASES`.  Elements lie on coarse
grids of binary fractions: float32 holds them exactly, failures are easy to read, and a grid can
keep its distance from where an operation is not smooth.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import scipy.special
from hypothesis import settings

import fdbr
from fdbr import ops
from fdbr.interop.numpy_basics import of_parts
from ops.declared import log_sum, product, variance

Function = Callable[..., Any]
Strategy = st.SearchStrategy[Any]


@dataclass(frozen=True)
class Case:
    """One operation, at one setting of its parameters, on generated arguments.

    Attributes
    ----------
    op
        The public name that it covers, as in `fdbr.ops`.
    name
        Its name in test reports: the op and the setting.
    function
        The operation, on the arrays that the strategy draws.
    arguments
        A strategy of tuples of arrays: float64 ones, which are differentiated, and integer or
        boolean ones, which are not.
    reference
        The same value by NumPy and SciPy alone.
    """

    op: str
    name: str
    function: Function
    arguments: Strategy
    reference: Function

    def __repr__(self) -> str:
        return self.name


# --- elements -----------------------------------------------------------------------


def grid(low: float, high: float, offset: float = 0.0) -> Strategy:
    """Multiples of 1/8 between two bounds, moved by an offset."""
    return st.integers(round(low * 8), round(high * 8)).map(lambda k: k / 8 + offset)


ANY = grid(-2, 2)
NONZERO = st.one_of(grid(0.25, 2), grid(-2, -0.25))
POSITIVE = grid(0.25, 3)
INSIDE = grid(-0.75, 0.75)  # of the unit interval
OFF_GRID = grid(-2, 2, 1 / 16)  # between the elements of ANY
OFF_INTEGERS = st.builds(
    lambda n, f: n + f, st.integers(-2, 2), st.sampled_from((0.25, 0.375, 0.75))
)
BOOLEANS = st.booleans()


# --- shapes -------------------------------------------------------------------------

_FEW = 12  # elements at the most: each is moved eight times


def small(shape: tuple[int, ...]) -> bool:
    return math.prod(shape) <= _FEW


def shapes(least: int = 0, most: int = 3, side: int = 0) -> Strategy:
    """Shapes of a number of dimensions, and lengths from ``side`` to 3."""
    return hnp.array_shapes(min_dims=least, max_dims=most, min_side=side, max_side=3).filter(small)


def array(shape: Any, elements: Strategy = ANY, unique: bool = False) -> Strategy:
    shape = shape if isinstance(shape, st.SearchStrategy) else st.just(shape)
    return shape.flatmap(lambda s: _array(s, elements, unique))


def _array(shape: tuple[int, ...], elements: Strategy, unique: bool = False) -> Strategy:
    kind = bool if elements is BOOLEANS else float
    return hnp.arrays(kind, shape, elements=elements, unique=unique, fill=st.nothing())


def integers(shape: tuple[int, ...], low: int, high: int) -> Strategy:
    return hnp.arrays(np.int64, shape, elements=st.integers(low, high), fill=st.nothing())


def arrays(*pairs: tuple[Any, Strategy]) -> Strategy:
    """A tuple of arrays of given shapes."""
    return st.tuples(*(_array(shape, elements) for shape, elements in pairs))


def broadcasting(*elements: Strategy) -> Strategy:
    """A tuple of arrays whose shapes broadcast, some of them 0-d or empty."""
    return (
        hnp.mutually_broadcastable_shapes(
            num_shapes=len(elements), min_side=0, max_side=3, max_dims=3
        )
        .filter(lambda found: small(found.result_shape))
        .flatmap(lambda found: arrays(*zip(found.input_shapes, elements, strict=True)))
    )


DISTINCT = array(shapes(1, 3, 1), grid(-4, 4), unique=True).map(lambda x: (x,))


def few(share: int = 2) -> settings:
    """Settings for a property that is checked for every case: a share of the usual examples.

    Two at least, as the first is the simplest there is.
    """
    return settings(max_examples=max(2, settings.default.max_examples // share))


def bent(out: Any) -> Any:
    """A curved function of an output, so that linear operations have second derivatives too."""
    return out + 0.5 * out * out


def jitted_if_asked(function: Function) -> Function:
    """A function that is to be tested: as it is, or jitted if pytest was told ``--jit``."""
    return fdbr.jit(function) if os.environ.get("FDBR_TEST_JIT") else function


# --- the collection -----------------------------------------------------------------

CASES: list[Case] = []


def case(
    op: str,
    arguments: Strategy,
    reference: Function,
    function: Function | None = None,
    setting: str = "",
) -> None:
    """Enter a case; the function is the op itself if none is given."""
    name = f"{op}-{setting}" if setting else op
    assert name not in {c.name for c in CASES}, name
    CASES.append(
        Case(op, name, jitted_if_asked(function or getattr(ops, op)), arguments, reference)
    )


def unary(op: str, elements: Strategy, reference: Function, **more: Any) -> None:
    case(op, array(shapes(), elements).map(lambda x: (x,)), reference, **more)


def binary(op: str, x: Strategy, y: Strategy, reference: Function, **more: Any) -> None:
    case(op, broadcasting(x, y), reference, **more)


# --- element by element -------------------------------------------------------------

unary("abs", NONZERO, np.abs)
unary("sign", NONZERO, np.sign)
unary("acos", INSIDE, np.arccos)
unary("acosh", grid(1.25, 3), np.arccosh)
unary("asin", INSIDE, np.arcsin)
unary("asinh", ANY, np.arcsinh)
unary("atan", ANY, np.arctan)
unary("atanh", INSIDE, np.arctanh)
unary("cos", ANY, np.cos)
unary("cosh", ANY, np.cosh)
unary("exp", ANY, np.exp)
unary("exp2", ANY, np.exp2)
unary("expm1", ANY, np.expm1)
unary("log", POSITIVE, np.log)
unary("log10", POSITIVE, np.log10)
unary("log1p", grid(-0.5, 3), np.log1p)
unary("log2", POSITIVE, np.log2)
unary("negative", ANY, np.negative)
unary("positive", ANY, np.positive)
unary("reciprocal", NONZERO, np.reciprocal)
unary("relu", NONZERO, lambda x: np.where(x > 0, x, 0.0))
unary("sigmoid", ANY, scipy.special.expit)
unary("sin", ANY, np.sin)
unary("sinh", ANY, np.sinh)
unary("sqrt", POSITIVE, np.sqrt)
unary("square", ANY, np.square)
unary("tan", grid(-1, 1), np.tan)
unary("tanh", ANY, np.tanh)

binary("add", ANY, ANY, np.add)
binary("atan2", NONZERO, NONZERO, np.arctan2)
binary("copysign", NONZERO, NONZERO, np.copysign)
binary("divide", ANY, NONZERO, np.divide)
binary("hypot", NONZERO, NONZERO, np.hypot)
binary("logaddexp", ANY, ANY, np.logaddexp)
binary("maximum", ANY, OFF_GRID, np.maximum)
binary("minimum", ANY, OFF_GRID, np.minimum)
binary("multiply", ANY, ANY, np.multiply)
binary("power", POSITIVE, ANY, np.power)
binary("subtract", ANY, ANY, np.subtract)
binary(
    "remainder",
    grid(-2, 2, 1 / 16),
    st.sampled_from((-2.0, -1.0, -0.5, 0.5, 1.0, 2.0)),
    np.remainder,
)

# One operand a Python number, on either side.
for op, x, y in (
    ("add", ANY, 0.5),
    ("subtract", ANY, 0.5),
    ("multiply", ANY, 1.5),
    ("divide", NONZERO, 1.5),
    ("power", POSITIVE, 1.5),
    ("maximum", OFF_GRID, 0.5),
    ("minimum", OFF_GRID, 0.5),
    ("hypot", NONZERO, 1.5),
    ("atan2", NONZERO, 1.5),
    ("logaddexp", ANY, 0.5),
    ("remainder", OFF_GRID, 0.5),
):
    f, g = getattr(ops, op), {"power": np.power, "atan2": np.arctan2}.get(op) or getattr(np, op)
    unary(
        op,
        x,
        lambda x, g=g, y=y: g(x, y),
        function=lambda x, f=f, y=y: f(x, y),
        setting="number on the right",
    )
    x = grid(0.5, 2, 1 / 16) if op == "remainder" else x
    if op != "remainder":
        unary(
            op,
            x,
            lambda x, g=g, y=y: g(y, x),
            function=lambda x, f=f, y=y: f(y, x),
            setting="number on the left",
        )

for exponent in (-2, -1, 0, 1, 2, 3, 4):
    unary(
        "power",
        ANY if exponent >= 0 else NONZERO,
        lambda x, n=exponent: np.power(x, float(n)),
        function=lambda x, n=exponent: ops.power(x, n),
        setting=f"integer {exponent}",
    )
case(
    "power",
    st.tuples(_array((4,), NONZERO), integers((4,), -2, 3)),
    lambda x, n: x ** n.astype(float),
    lambda x, n: ops.power(x, n.astype(np.int8)),  # which float32 does not widen for
    "integer array",
)

case(
    "where",
    broadcasting(BOOLEANS, ANY, ANY),
    np.where,
    lambda condition, x, y: ops.where(condition, x, y),
)
case(
    "where",
    broadcasting(BOOLEANS, ANY),
    lambda condition, x: np.where(condition, x, 2.0),
    lambda condition, x: ops.where(condition, x, 2.0),
    "number",
)
unary("clip", OFF_GRID, lambda x: np.clip(x, -1, 1), function=lambda x: ops.clip(x, -1.0, 1.0))
unary(
    "clip",
    OFF_GRID,
    lambda x: np.maximum(x, -1),
    function=lambda x: ops.clip(x, -1.0),
    setting="below",
)
unary(
    "clip",
    OFF_GRID,
    lambda x: np.minimum(x, 1),
    function=lambda x: ops.clip(x, max=1.0),
    setting="above",
)
case(
    "clip",
    arrays(((2, 3), OFF_GRID), ((3,), grid(-2, 0)), ((2, 1), grid(0.125, 2))),
    np.clip,
    ops.clip,
    "array bounds",
)

# --- complex numbers between real ones ----------------------------------------------

for op, f, g in (
    ("real", lambda z: ops.real(z * z), lambda z: (z * z).real),
    ("imag", lambda z: ops.imag(z * z * z), lambda z: (z * z * z).imag),
    ("conj", lambda z: ops.real(ops.conj(z) * z * z), lambda z: (z.conj() * z * z).real),
    ("abs", lambda z: ops.abs(z), np.abs),
    ("sign", lambda z: ops.real(ops.sign(z)), lambda z: (z / np.abs(z)).real),
):
    binary(
        op,
        NONZERO,
        NONZERO,
        lambda x, y, g=g: np.asarray(g(x + 1j * y)),
        function=lambda x, y, f=f: f(x + 1j * y),
        setting="complex",
    )
binary(
    "real",
    ANY,
    ANY,
    lambda x, y: x + 2 * y,
    function=lambda x, y: ops.real(of_parts(x, y) * (1 - 2j)),
    setting="of a number made of its parts",
)
for op in ("real", "conj"):
    unary(op, ANY, lambda x: x, setting="of real numbers")

# --- dtypes and new arrays ----------------------------------------------------------

unary("astype", ANY, lambda x: x, function=lambda x: ops.astype(x, np.float64))
unary(
    "astype",
    ANY,
    lambda x: x.astype(complex).real,
    function=lambda x: ops.real(ops.astype(x, np.complex128) * 1),
    setting="complex",
)
unary(
    "astype",
    ANY,
    lambda x: x,
    function=lambda x: ops.real(ops.astype(ops.astype(x, np.complex128), np.float64)),
    setting="and back",
)
unary("asarray", ANY, lambda x: x, function=lambda x: ops.asarray(x))
case(
    "asarray",
    arrays(((), ANY), ((), ANY)),
    lambda x, y: np.array([[x, 1.0], [y, x]]),
    lambda x, y: ops.asarray([[x, 1.0], [y, x]]),
    "nested lists",
)
case("full", arrays(((), ANY)), lambda x: np.full((2, 3), x), lambda x: ops.full((2, 3), x))
case(
    "full_like",
    arrays(((2, 3), ANY), ((), ANY)),
    lambda x, value: np.full_like(x, value),
    lambda x, value: ops.full_like(x, value),
)
case(
    "linspace",
    arrays(((), ANY), ((), ANY)),
    lambda x, y: np.linspace(x, y, 4),
    lambda x, y: ops.linspace(x, y, 4),
)
case(
    "linspace",
    arrays(((), ANY)),
    lambda x: np.linspace(1.0, x, 3, endpoint=False),
    lambda x: ops.linspace(1.0, x, 3, endpoint=False),
    "without the end",
)

# --- reductions ---------------------------------------------------------------------

_ONE = array(shapes(2, 3, 1)).map(lambda x: (x,))
_ANY_SHAPE = array(shapes()).map(lambda x: (x,))


def _logsumexp(x: Any, **params: Any) -> Any:
    return np.log(np.sum(np.exp(x), **params))


_SETTINGS: dict[str, dict[str, Any]] = {
    "": {},
    "axis 0": {"axis": 0},
    "last axis kept": {"axis": -1, "keepdims": True},
    "two axes": {"axis": (0, -1)},
    "no axes": {"axis": ()},
    "kept": {"keepdims": True},
}
for op, arguments, reference in (
    ("sum", _ANY_SHAPE, np.sum),
    ("prod", _ANY_SHAPE, np.prod),
    ("mean", array(shapes(0, 3, 1)).map(lambda x: (x,)), np.mean),
    ("max", array(shapes(0, 3, 1), grid(-4, 4), unique=True).map(lambda x: (x,)), np.max),
    ("min", array(shapes(0, 3, 1), grid(-4, 4), unique=True).map(lambda x: (x,)), np.min),
    ("logsumexp", array(shapes(0, 3, 1)).map(lambda x: (x,)), _logsumexp),
):
    for setting, params in _SETTINGS.items():
        least = 2 if "axes" in setting else 1 if "axis" in setting else 0
        case(
            op,
            arguments.filter(lambda args, least=least: args[0].ndim >= least),
            partial(reference, **params),
            partial(getattr(ops, op), **params),
            setting,
        )
for op, function, reference in (
    ("prod", product, np.prod),
    ("logsumexp", log_sum, _logsumexp),
    ("var", variance, np.var),
):
    for setting in ("", "last axis kept", "two axes"):
        least, params = (2 if "axes" in setting else 1), _SETTINGS[setting]
        case(
            op,
            array(shapes(least, 3, 1)).map(lambda x: (x,)),
            partial(reference, **params),
            partial(function, **params),
            f"as declared by users, {setting or 'all axes'}",
        )
for op, arguments, reference in (
    ("var", _ONE, np.var),
    ("std", array(shapes(2, 3, 2), grid(-4, 4), unique=True).map(lambda x: (x,)), np.std),
):
    for setting, params in (
        ("", {}),
        ("last axis kept", {"axis": -1, "keepdims": True}),
        ("corrected", {"axis": 0, "correction": 0.5}),
    ):
        case(
            op,
            arguments,
            lambda x, g=reference, p=params: g(
                x, **{"ddof" if k == "correction" else k: v for k, v in p.items()}
            ),
            partial(getattr(ops, op), **params),
            setting,
        )
for op, reference in (
    ("cumulative_sum", np.cumulative_sum),
    ("cumulative_prod", np.cumulative_prod),
):
    for setting, params, least in (
        ("", {}, 1),
        ("axis 0", {"axis": 0}, 1),
        ("last axis", {"axis": -1}, 1),
        ("with initial", {"axis": 1, "include_initial": True}, 2),
    ):
        case(
            op,
            array(shapes(least, 3 if params else 1)).map(lambda x: (x,)),
            partial(reference, **params),
            partial(getattr(ops, op), **params),
            setting,
        )
for setting, params in (("", {}), ("axis 0", {"axis": 0}), ("two axes", {"axis": (0, -1)})):
    for op, reference in (
        ("softmax", scipy.special.softmax),
        ("log_softmax", scipy.special.log_softmax),
    ):
        case(
            op,
            _ONE,
            partial(reference, **{"axis": -1} | params),
            partial(getattr(ops, op), **params),
            setting,
        )

# --- shapes -------------------------------------------------------------------------


def permuted(
    op: str, function: Function, reference: Function, setting: str = "", least: int = 2
) -> None:
    case(op, array(shapes(least, 3)).map(lambda x: (x,)), reference, function, setting)


def of_shape(
    op: str, shape: Any, function: Function, reference: Function, setting: str = ""
) -> None:
    case(op, arrays((shape, ANY)), reference, function, setting)


permuted("reshape", lambda x: ops.reshape(x, x.size), lambda x: np.reshape(x, x.size), least=0)
permuted(
    "reshape",
    lambda x: ops.reshape(x, (1, *x.shape[::-1])),
    lambda x: np.reshape(x, (1, *x.shape[::-1])),
    "reversed lengths",
)
of_shape(
    "reshape",
    (2, 3),
    lambda x: ops.reshape(x, (-1, 2)),
    lambda x: np.reshape(x, (-1, 2)),
    "open length",
)
permuted("permute_dims", lambda x: ops.permute_dims(x, range(x.ndim)[::-1]), np.transpose)
of_shape(
    "permute_dims",
    (2, 1, 3),
    lambda x: ops.permute_dims(x, (1, -1, 0)),
    lambda x: np.transpose(x, (1, 2, 0)),
    "cycle",
)
permuted("matrix_transpose", ops.matrix_transpose, np.matrix_transpose)
permuted("swapaxes", lambda x: ops.swapaxes(x, 0, -1), lambda x: np.swapaxes(x, 0, -1))
permuted("moveaxis", lambda x: ops.moveaxis(x, 0, -1), lambda x: np.moveaxis(x, 0, -1))
of_shape(
    "moveaxis",
    (1, 2, 3),
    lambda x: ops.moveaxis(x, (0, 1), (-1, 0)),
    lambda x: np.moveaxis(x, (0, 1), (-1, 0)),
    "two",
)
permuted("expand_dims", lambda x: ops.expand_dims(x), lambda x: np.expand_dims(x, 0), least=0)
permuted(
    "expand_dims",
    lambda x: ops.expand_dims(x, axis=(0, -1)),
    lambda x: np.expand_dims(x, (0, -1)),
    "two",
    least=0,
)
of_shape("squeeze", (1, 3, 1), lambda x: ops.squeeze(x), np.squeeze)
of_shape(
    "squeeze", (1, 3, 1), lambda x: ops.squeeze(x, axis=-1), lambda x: np.squeeze(x, -1), "axis"
)
permuted("flip", lambda x: ops.flip(x), np.flip, least=0)
permuted("flip", lambda x: ops.flip(x, axis=-1), lambda x: np.flip(x, -1), "axis")
permuted("roll", lambda x: ops.roll(x, 2), lambda x: np.roll(x, 2), least=1)
permuted(
    "roll",
    lambda x: ops.roll(x, (1, -2), axis=(0, 1)),
    lambda x: np.roll(x, (1, -2), (0, 1)),
    "axes",
)
of_shape("tile", (2, 1), lambda x: ops.tile(x, (3, 1, 2)), lambda x: np.tile(x, (3, 1, 2)))
of_shape(
    "tile", (2, 2), lambda x: ops.tile(x, (2,)), lambda x: np.tile(x, (2,)), "fewer repetitions"
)
of_shape("tile", (2, 2), lambda x: ops.tile(x, 3), lambda x: np.tile(x, 3), "a number")
of_shape(
    "broadcast_to",
    (2, 1),
    lambda x: ops.broadcast_to(x, (3, 2, 2)),
    lambda x: np.broadcast_to(x, (3, 2, 2)),
)
of_shape(
    "broadcast_to",
    (),
    lambda x: ops.broadcast_to(x, (2, 0, 3)),
    lambda x: np.broadcast_to(x, (2, 0, 3)),
    "to nothing",
)
of_shape(
    "broadcast_to",
    (),
    lambda x: ops.broadcast_to(x, (100, 100)).sum(),
    lambda x: x * 10_000,
    "to many",
)
binary(
    "broadcast_arrays",
    ANY,
    ANY,
    lambda x, y: np.multiply(*np.broadcast_arrays(x, y)),
    function=lambda x, y: ops.multiply(*ops.broadcast_arrays(x, y)),
)
for setting, shape, offset in (
    ("", (3, 3), 0),
    ("above", (2, 3), 1),
    ("below", (2, 3, 2), -1),
    ("outside", (2, 2), 2),
):
    of_shape(
        "diagonal",
        shape,
        lambda x, k=offset: ops.diagonal(x, offset=k),
        lambda x, k=offset: np.diagonal(x, k, -2, -1),
        setting,
    )
of_shape("unstack", (2, 3), lambda x: ops.multiply(*ops.unstack(x)), lambda x: x[0] * x[1])
of_shape("unstack", (2, 3), lambda x: ops.unstack(x, axis=-1)[2], lambda x: x[:, 2], "axis")
for setting, shape_x, shape_y, axis in (
    ("", (2, 2), (1, 2), 0),
    ("last axis", (2, 1), (2, 2), -1),
    ("empty part", (0, 2), (2, 2), 0),
    ("flattened", (2, 2), (3,), None),
):
    case(
        "concat",
        arrays((shape_x, ANY), (shape_y, ANY)),
        lambda x, y, axis=axis: np.concatenate([x, y, x], axis=axis),
        lambda x, y, axis=axis: ops.concat([x, y, x], axis=axis),
        setting,
    )
for setting, shape, axis in (("", (2, 2), 0), ("last axis", (2, 2), -1), ("of numbers", (), 0)):
    case(
        "stack",
        arrays((shape, ANY), (shape, ANY)),
        lambda x, y, axis=axis: np.stack([x, y, x], axis=axis),
        lambda x, y, axis=axis: ops.stack([x, y, x], axis=axis),
        setting,
    )

# --- products -----------------------------------------------------------------------


def product(op: str, setting: str, x: Any, y: Any, function: Function, reference: Function) -> None:
    case(op, arrays((x, ANY), (y, ANY)), reference, function, setting)


case(
    "matmul",
    hnp.mutually_broadcastable_shapes(
        signature=np.matmul.signature, min_side=0, max_side=3, max_dims=1
    )
    .filter(lambda found: all(map(small, (*found.input_shapes, found.result_shape))))
    .flatmap(lambda found: arrays(*((shape, ANY) for shape in found.input_shapes))),
    np.matmul,
)
for setting, x, y in (
    ("two stacks", (2, 1, 2, 2), (3, 2, 1)),
    ("stack by matrix", (2, 2, 3), (3, 2)),
    ("matrix by stack", (2, 3), (2, 3, 1)),
    ("stack by vector", (2, 2, 3), (3,)),
    ("vector by stack", (3,), (2, 3, 2)),
    ("vector by matrix", (3,), (3, 2)),
    ("vectors", (3,), (3,)),
    ("no inner element", (2, 0), (0, 3)),
):
    product("matmul", setting, x, y, ops.matmul, np.matmul)
for setting, x, y in (
    ("", (2, 3), (2, 3)),
    ("vector", (3,), (2, 3)),
    ("stack", (2, 2, 3), (2, 3)),
    ("nothing", (0, 3), (2, 3)),
):
    product("linear", setting, x, y, ops.linear, lambda x, w: x @ w.T)
for setting, x in (
    ("and bias", (2, 3)),
    ("of a vector and bias", (3,)),
    ("of a stack and bias", (2, 2, 3)),
):
    case(
        "linear",
        arrays((x, ANY), ((2, 3), ANY), ((2,), ANY)),
        lambda x, w, b: x @ w.T + b,
        setting=setting,
    )


def bias_gradient(x: Any, bias: Any) -> Any:
    out, pullback = fdbr.vjp(lambda bias: ops.sin(x + bias), bias)
    return pullback(ops.ones_like(out))[0]


case(
    "linear",
    arrays(((3, 2), ANY), ((2,), ANY)),
    lambda x, b: np.cos(x + b).sum(axis=0),
    bias_gradient,
    "the gradient of its bias",
)
for setting, x, y, axes in (
    ("", (2, 3), (2, 3), 2),
    ("one axis", (2, 3), (3, 2), 1),
    ("no axis", (2, 1), (3,), 0),
    ("chosen axes", (2, 3, 1), (3, 2, 2), ((0, 1), (-1, 0))),
    ("single axes", (2, 3), (3, 1), (-1, 0)),
):
    product(
        "tensordot",
        setting,
        x,
        y,
        lambda x, y, axes=axes: ops.tensordot(x, y, axes=axes),
        lambda x, y, axes=axes: np.tensordot(x, y, axes=axes),
    )
for setting, x, y in (
    ("vectors", (3,), (3,)),
    ("matrices", (2, 3), (3, 2)),
    ("stacks", (2, 1, 3), (2, 3, 1)),
    ("number", (), (2, 3)),
):
    product("dot", setting, x, y, ops.dot, np.dot)
for setting, x, y in (
    ("vectors", (3,), (3,)),
    ("stacks", (2, 3), (2, 2, 3)),
    ("number", (2, 3), ()),
):
    product("inner", setting, x, y, ops.inner, np.inner)
product("outer", "", (3,), (2,), ops.outer, np.outer)
product("outer", "of matrices", (2, 2), (1, 3), ops.outer, np.outer)
product("vecdot", "", (2, 3), (2, 3), ops.vecdot, np.vecdot)
product("vecdot", "broadcast", (2, 1, 3), (2, 3), ops.vecdot, np.vecdot)
product(
    "vecdot",
    "axis",
    (3, 2),
    (3, 2),
    lambda x, y: ops.vecdot(x, y, axis=-2),
    lambda x, y: np.vecdot(x, y, axis=-2),
)

for subscripts, *operand_shapes in (
    ("ij,jk->ik", (2, 3), (3, 2)),
    ("ij,jk", (2, 3), (3, 2)),
    ("ij,ij->", (2, 3), (2, 3)),
    ("bij,bjk->bik", (2, 2, 3), (2, 3, 1)),
    ("bij,jk->bik", (2, 2, 3), (3, 1)),
    ("...ij,...jk->...ik", (2, 1, 2), (3, 1, 2, 2)),
    ("...i,i->...", (2, 3), (3,)),
    ("i...,i...->...", (2, 3), (2, 1)),
    ("ii", (3, 3)),
    ("ii->i", (3, 3)),
    ("iij->j", (2, 2, 3)),
    ("iii->i", (2, 2, 2)),
    ("ij->ji", (2, 3)),
    ("ij->", (2, 3)),
    ("ij->j", (2, 3)),
    ("i,j->ij", (2,), (3,)),
    ("i,i->i", (3,), (1,)),
    ("ij,j->i", (2, 1), (3,)),
    ("i,j->i", (2,), (3,)),
    ("ij,jk,kl->il", (2, 3), (3, 1), (1, 2)),
    ("i,i,i->", (3,), (3,), (3,)),
    ("ij,k->k", (2, 2), (3,)),
    (",i->i", (), (3,)),
    ("ii,ij->j", (2, 2), (2, 3)),
    ("ij,jk->ik", (2, 0), (0, 3)),
    ("ba,ca->bc", (2, 3), (2, 3)),
):
    case(
        "einsum",
        arrays(*((shape, ANY) for shape in operand_shapes)),
        lambda *xs, s=subscripts: np.einsum(s, *xs),
        lambda *xs, s=subscripts: ops.einsum(s, *xs),
        subscripts + (" empty" if (2, 0) in operand_shapes else ""),
    )

# --- places -------------------------------------------------------------------------

for setting, shape, key in (
    ("int", (3, 2), -1),
    ("slice", (3, 2), slice(None, None, -2)),
    ("empty slice", (3,), slice(2, 2)),
    ("ints and slices", (3, 2, 2), (slice(1, None), 0, slice(None, None, 2))),
    ("ellipsis and new axis", (2, 1, 2), (..., None, 1)),
    ("nothing", (2,), ()),
    ("list", (3, 2), [2, 0, 2]),
    ("boolean list", (3, 2), [True, False, True]),
):
    of_shape(
        "getitem", shape, lambda x, key=key: ops.getitem(x, key), lambda x, key=key: x[key], setting
    )
for setting, shape, index, key in (
    ("index array", (3, 2), integers((2, 2), -3, 2), lambda i: i),
    ("second axis", (2, 3), integers((4,), -3, 2), lambda i: (slice(None), i)),
    ("two arrays", (3, 3), integers((2, 2), -3, 2), lambda i: (i[0], i[1])),
    ("separated arrays", (3, 2, 3), integers((2, 2), -3, 2), lambda i: (i[0], slice(None), i[1])),
    ("array and int", (3, 2, 2), integers((2,), -3, 2), lambda i: (i, slice(None), 1)),
    ("0-d array", (3, 2), integers((), -3, 2), lambda i: i),
    ("mask", (2, 3), hnp.arrays(bool, (2, 3)), lambda i: i),
    ("mask of an axis", (3, 2), hnp.arrays(bool, (3,)), lambda i: (i, None, slice(1))),
    ("empty array", (3, 2), integers((0,), 0, 1), lambda i: i),
):
    case(
        "getitem",
        st.tuples(_array(shape, ANY), index),
        lambda x, i, key=key: x[key(i)],
        lambda x, i, key=key: ops.getitem(x, key(i)),
        setting,
    )
for setting, shape, axis in (("", (3,), 0), ("axis", (2, 3), -1), ("flattened", (1, 3), None)):
    case(
        "take",
        st.tuples(_array(shape, ANY), integers((2, 2), -3, 2)),
        lambda x, i, axis=axis: np.take(x, i, axis=axis),
        lambda x, i, axis=axis: ops.take(x, i, axis=axis),
        setting,
    )
for setting, shape, index_shape, axis in (
    ("", (2, 3), (2, 2), -1),
    ("broadcast", (3, 2), (2, 1), 0),
):
    case(
        "take_along_axis",
        st.tuples(_array(shape, ANY), integers(index_shape, -3, 2)),
        lambda x, i, axis=axis: np.take_along_axis(x, i, axis=axis),
        lambda x, i, axis=axis: ops.take_along_axis(x, i, axis=axis),
        setting,
    )


def assigned(x: Any, key: Any, values: Any) -> Any:
    out = x.copy()
    out[key] = values
    return out


def increased(x: Any, key: Any, values: Any) -> Any:
    out = x.copy()
    np.add.at(out, key, values)
    return out


for setting, shape, values, index, key in (
    ("slice", (3, 2), (2,), integers((), 0, 0), lambda i: slice(1, None)),
    ("int", (3, 2), (), integers((), 0, 0), lambda i: 1),
    ("index array", (3, 2), (4, 2), integers((4,), -3, 2), lambda i: i),
    ("broadcast values", (3, 2), (1, 2), integers((4,), -3, 2), lambda i: i),
    ("arrays", (2, 3), (3,), integers((2, 3), -2, 1), lambda i: (i[0], i[1])),
    ("mask", (2, 3), (), hnp.arrays(bool, (2, 3)), lambda i: i),
    ("everything", (2, 2), (2,), integers((), 0, 0), lambda i: ...),
):
    for verb, reference in (("set", assigned), ("add", increased)):
        case(
            "at",
            st.tuples(_array(shape, ANY), _array(values, ANY), index),
            lambda x, y, i, key=key, g=reference: g(x, key(i), y),
            lambda x, y, i, key=key, verb=verb: getattr(ops.at(x)[key(i)], verb)(y),
            f"{verb} {setting}",
        )
case(
    "at",
    st.tuples(_array((3, 2), ANY), integers((2,), -3, 2)),
    lambda x, i: x[i],
    lambda x, i: ops.at(x)[i].get(),
    "get",
)

# --- losses -------------------------------------------------------------------------


def cross_entropy(x: Any, labels: Any, weights: Any, reduction: str) -> Any:
    """By the textbook: logits with the classes last, and weights 0 or 1."""
    logs = scipy.special.log_softmax(x, axis=-1)
    losses = (
        -np.take_along_axis(logs, np.where(weights, labels, 0)[..., None], -1)[..., 0] * weights
    )
    if reduction == "none":
        return losses
    return losses.sum() / (1 if reduction == "sum" else max(weights.sum(), 1))


for setting, shape, params in (
    ("", (3, 3), {}),
    ("sum", (2, 3), {"reduction": "sum"}),
    ("each", (2, 2, 3), {"reduction": "none"}),
    ("one example", (3,), {}),
    ("classes first", (3, 2), {"axis": 0}),
    ("ignoring", (3, 3), {"ignore_label": 1}),
    ("ignoring, each", (3, 3), {"ignore_label": 1, "reduction": "none"}),
):

    def _by_hand(x: Any, labels: Any, p: dict[str, Any] = params) -> Any:
        weights = labels != p.get("ignore_label", -1)
        return cross_entropy(
            np.moveaxis(x, p.get("axis", -1), -1), labels, weights, p.get("reduction", "mean")
        )

    rest = shape[1:] if "axis" in params else shape[:-1]
    case(
        "softmax_cross_entropy",
        st.tuples(_array(shape, ANY), integers(rest, 0, 2)),
        _by_hand,
        lambda x, labels, p=params: ops.softmax_cross_entropy(x, labels, **p),
        setting,
    )
case(
    "softmax_cross_entropy",
    arrays(((2, 3), ANY), ((2, 3), POSITIVE)),
    lambda x, t: -(t * scipy.special.log_softmax(x, axis=-1)).sum(-1).mean(),
    ops.softmax_cross_entropy,
    "probabilities",
)
case(
    "mean_squared_error",
    array(shapes(1, 2, 1)).flatmap(lambda x: st.tuples(st.just(x), _array(x.shape, ANY))),
    lambda x, y: ((x - y) ** 2).mean(),
)

# --- families with a file of their own ----------------------------------------------

from ops import (  # noqa: E402
    cases_activations,  # noqa: F401
    cases_arrays,  # noqa: F401
    cases_attention,  # noqa: F401
    cases_convolution,  # noqa: F401
    cases_linalg,  # noqa: F401
    cases_losses,  # noqa: F401
    cases_margins,  # noqa: F401
    cases_networks,  # noqa: F401
    cases_normalization,  # noqa: F401
    cases_pieces,  # noqa: F401
    cases_pooling,  # noqa: F401
    cases_recurrent,  # noqa: F401
    cases_sequences,  # noqa: F401
    cases_special,  # noqa: F401
)
