"""Cases of sorting, searching, sets, padding, segments, sequences and Fourier transforms."""

from functools import partial
from typing import Any

import hypothesis.strategies as st
import numpy as np

from fdbr import ops
from fdbr.core.primitive import dispatch, registry
from fdbr.ops.devices import device_of
from ops.cases import (
    ANY,
    CASES,
    DISTINCT,
    Function,
    _array,
    array,
    arrays,
    binary,
    case,
    grid,
    integers,
    of_shape,
    shapes,
    unary,
)

_FIRST = len(CASES)

binary("pow", grid(0.25, 3), ANY, np.power)
binary("nextafter", ANY, grid(3, 4), lambda x, y: np.nextafter(x, y))
binary(
    "fmod",
    grid(-2, 2, 1 / 16),
    st.sampled_from((-1.0, -0.5, 0.5, 1.0)),
    np.fmod,
)
unary(
    "ldexp",
    ANY,
    lambda x: np.ldexp(x, -2),
    function=lambda x: dispatch(registry["ldexp"], (x, -2), {}),
)
unary(
    "fraction",
    grid(-2, 2, 1 / 16),
    lambda x: np.modf(x)[0],
    function=lambda x: dispatch(registry["fraction"], (x,), {}),
)
binary(
    "logaddexp2",
    ANY,
    ANY,
    np.logaddexp2,
    function=lambda x, y: dispatch(registry["logaddexp2"], (x, y), {}),
)
unary(
    "to_device",
    ANY,
    lambda x: x,
    function=lambda x: dispatch(
        registry["to_device"], (x,), {"to": device_of(x), "back": device_of(x)}
    ),
)


def distinct(*shape: int) -> Any:
    """An array of numbers that differ by 1/8 at least, so that none passes another."""
    return array(shape, grid(-4, 4), unique=True)


# --- sorting ------------------------------------------------------------------------

for setting, params, reference in (
    ("", {}, np.sort),
    ("first axis", {"axis": 0}, lambda x: np.sort(x, axis=0)),
    ("descending", {"descending": True}, lambda x: np.flip(np.sort(x), -1)),
    ("unstable", {"axis": 0, "stable": False}, lambda x: np.sort(x, axis=0)),
):
    case("sort", DISTINCT, reference, lambda x, p=params: ops.sort(x, **p), setting)
case(
    "top_k",
    st.tuples(distinct(2, 4)),
    lambda x: np.sort(x)[:, :-3:-1],
    lambda x: ops.top_k(x, 2)[0],
)
case(
    "top_k",
    st.tuples(distinct(3, 2)),
    lambda x: np.sort(x, axis=0)[::-1][:1],
    lambda x: ops.top_k(x, 1, axis=0)[0],
    "axis",
)
for setting, shape, params in (
    ("", (5,), {}),
    ("even", (2, 3), {}),
    ("axis", (3, 4), {"axis": 0}),
    ("axes kept", (2, 2, 3), {"axis": (0, -1), "keepdims": True}),
):
    case(
        "median",
        st.tuples(distinct(*shape)),
        lambda x, p=params: np.median(x, **p),
        lambda x, p=params: ops.median(x, **p),
        setting,
    )
_BETWEEN = st.sampled_from((0.1875, 0.3125, 0.4375, 0.8125))  # no sample of five is there
for setting, parts, params in (
    ("", (), {}),
    ("two parts", (2,), {"axis": 0, "keepdims": True}),
    ("lower", (), {"method": "lower"}),
    ("higher", (), {"method": "higher"}),
    ("nearest", (2,), {"method": "nearest"}),
    ("midpoint", (), {"method": "midpoint"}),
):
    case(
        "quantile",
        st.tuples(distinct(5, 1), _array(parts, _BETWEEN)),
        lambda x, q, p=params: np.quantile(x, q, **p),
        lambda x, q, p=params: ops.quantile(x, q, **p),
        setting,
    )

# --- sets ---------------------------------------------------------------------------

for op in ("unique_values", "unique_counts", "unique_inverse", "unique_all"):
    case(
        op,
        st.tuples(array(shapes(0, 2), grid(-4, 4), unique=True)),
        lambda x: np.unique(x),
        lambda x, op=op: getattr(ops, op)(x)[0] if op != "unique_values" else ops.unique_values(x),
    )

# --- padding and repeating ----------------------------------------------------------

for setting, shape, width, params in (
    ("", (2, 2), ((1, 0), (0, 2)), {}),
    ("one width", (3,), 2, {}),
    ("with a number", (1, 2), 1, {"constant_values": 2.0}),
    ("edge", (2, 2), ((1, 2), (0, 1)), {"mode": "edge"}),
    ("reflect", (3, 2), ((1, 2), (0, 1)), {"mode": "reflect"}),
    ("reflect far", (2,), (5, 4), {"mode": "reflect"}),
    ("reflect odd", (3,), (2, 5), {"mode": "reflect", "reflect_type": "odd"}),
    ("reflect one", (1,), 2, {"mode": "reflect"}),
    ("symmetric", (2, 2), (1, 2), {"mode": "symmetric"}),
    ("symmetric far", (2,), (5, 3), {"mode": "symmetric"}),
    ("symmetric odd", (2,), (1, 3), {"mode": "symmetric", "reflect_type": "odd"}),
    ("wrap", (3,), (2, 7), {"mode": "wrap"}),
    ("linear ramp", (2, 2), (2, 1), {"mode": "linear_ramp", "end_values": 1.0}),
    ("mean", (3,), (1, 2), {"mode": "mean", "stat_length": (2, 1)}),
):
    of_shape(
        "pad",
        shape,
        lambda x, w=width, p=params: ops.pad(x, w, **p),
        lambda x, w=width, p=params: np.pad(x, w, **p),
        setting,
    )
for mode in ("maximum", "minimum", "median"):
    case(
        "pad",
        st.tuples(distinct(3, 2)),
        lambda x, mode=mode: np.pad(x, ((1, 0), (0, 1)), mode),
        lambda x, mode=mode: ops.pad(x, ((1, 0), (0, 1)), mode),
        mode,
    )
case(
    "pad",
    arrays(((2,), ANY), ((), ANY), ((), ANY)),
    lambda x, a, b: np.concatenate([[a, a], x, [b]]),
    lambda x, a, b: ops.pad(x, (2, 1), constant_values=(a, b)),
    "by arrays",
)
for op, k in (("tril", 0), ("tril", -1), ("triu", 0), ("triu", 1)):
    of_shape(
        op,
        (2, 2, 3),
        lambda x, op=op, k=k: getattr(ops, op)(x, k=k),
        lambda x, op=op, k=k: getattr(np, op)(x, k),
        f"k={k}",
    )
for setting, shape, axis in (("", (2, 2), None), ("axis", (2, 3), -1), ("0-d", (), None)):
    of_shape(
        "repeat",
        shape,
        lambda x, a=axis: ops.repeat(x, 2, axis=a),
        lambda x, a=axis: np.repeat(x, 2, axis=a),
        setting,
    )
case(
    "repeat",
    st.tuples(_array((3, 2), ANY), integers((3,), 0, 2)),
    lambda x, r: np.repeat(x, r, axis=0),
    lambda x, r: ops.repeat(x, r, axis=0),
    "each",
)
for indexing in ("xy", "ij"):
    case(
        "meshgrid",
        arrays(((2,), ANY), ((3,), ANY), ((), ANY)),
        lambda x, y, z, i=indexing: np.prod(np.meshgrid(x, y, z, indexing=i), axis=0),
        lambda x, y, z, i=indexing: ops.prod(ops.stack(ops.meshgrid(x, y, z, indexing=i)), axis=0),
        indexing,
    )
of_shape("diff", (2, 3), lambda x: ops.diff(x), np.diff)
of_shape("diff", (3, 2), lambda x: ops.diff(x, axis=0, n=2), lambda x: np.diff(x, 2, 0), "twice")
case(
    "diff",
    arrays(((2, 2), ANY), ((2, 1), ANY), ((), ANY)),
    lambda x, a, b: np.diff(x, prepend=a, append=b),
    lambda x, a, b: ops.diff(x, prepend=a, append=b),
    "between",
)

# --- segments -----------------------------------------------------------------------


def _segment_sum(x: Any, ids: Any) -> Any:
    out = np.zeros((3, *x.shape[1:]))
    for row, i in zip(x, ids, strict=True):
        if 0 <= i < 3:
            out[i] += row
    return out


for shape in ((4,), (3, 2)):
    case(
        "segment_sum",
        st.tuples(_array(shape, ANY), integers(shape[:1], -1, 3)),
        _segment_sum,
        lambda x, ids: ops.segment_sum(x, ids, 3),
        f"{len(shape)} dimensions",
    )


def _segment_extremes(x: Any, ids: Any, best: Any, start: float) -> Any:
    out = np.full((3, *x.shape[1:]), start)
    for row, i in zip(x, ids, strict=True):
        if 0 <= i < 3:
            out[i] = best(out[i], row)
    return np.where(np.isinf(out), 0, out)


for name, best, start in (
    ("segment_max", np.maximum, -np.inf),
    ("segment_min", np.minimum, np.inf),
):
    case(
        name,
        st.tuples(
            _array((4, 2), ANY).map(lambda x: x + np.arange(8).reshape(4, 2) / 64),
            integers((4,), -1, 3),
        ),
        lambda x, ids, best=best, start=start: _segment_extremes(x, ids, best, start),
        lambda x, ids, name=name: (lambda y: ops.where(ops.isinf(y), 0, y))(
            getattr(ops, name)(x, ids, 3)
        ),
    )


def _gathered(x: Any, index: Any) -> Any:
    return np.take_along_axis(x[: index.shape[0]], index, 1)


case("gather", st.tuples(_array((3, 2), ANY), integers((2, 3), 0, 1)), _gathered,
     lambda x, i: ops.gather(x, 1, i))  # fmt: skip


def _scattered(reduce: str | None, include_self: bool) -> Function:
    """By hand, one element after the other."""

    def reference(x: Any, src: Any, index: Any) -> Any:
        out = x.copy()
        for column in range(index.shape[1]):
            for place in range(x.shape[0]):
                here = [src[k, column] for k in range(len(index)) if index[k, column] == place]
                if not here:
                    continue
                every = [x[place, column], *here] if include_self else here
                out[place, column] = (
                    here[-1]
                    if reduce is None
                    else {"sum": np.sum, "mean": np.mean, "amax": np.max, "amin": np.min}[reduce](
                        every
                    )
                )
        return out

    return reference


for reduce, include_self in (
    (None, True),
    *((reduce, own) for reduce in ("sum", "mean", "amax", "amin") for own in (True, False)),
):
    case(
        "scatter",
        distinct(4, 2).flatmap(
            lambda x: st.tuples(
                st.just(x[:2]), st.just(x[:, :1] + np.float64(1 / 16)), integers((3, 1), 0, 1)
            )
        ),
        _scattered(reduce, include_self),
        lambda x, src, i, r=reduce, own=include_self: ops.scatter(
            x, 0, i, src, reduce=r, include_self=own
        ),
        f"{reduce}{'' if include_self else ' of others'}",
    )

# --- sequences ----------------------------------------------------------------------

for op in ("convolve", "correlate"):
    for mode in ("full", "same", "valid"):
        for n, m in ((4, 2), (2, 3), (3, 4), (3, 3)):
            case(
                op,
                arrays(((n,), ANY), ((m,), ANY)),
                lambda x, y, op=op, mode=mode: getattr(np, op)(x, y, mode),
                lambda x, y, op=op, mode=mode: getattr(ops, op)(x, y, mode),
                f"{mode} {n} by {m}",
            )

_PLACES = arrays(((3,), grid(-0.25, 0.25))).map(lambda a: a[0] + np.array([-1.0, 0.0, 1.0]))
for setting, params in (
    ("", {}),
    ("with ends", {"left": -2.0, "right": 3.0}),
    ("periodic", {"period": 4.0}),
):
    case(
        "interp",
        st.tuples(_array((2, 2), grid(-2, 2, 1 / 16)), _PLACES, _array((3,), ANY)),
        lambda x, places, values, p=params: np.interp(x, places, values, **p),
        lambda x, places, values, p=params: ops.interp(x, places, values, **p),
        setting,
    )

# --- Fourier transforms -------------------------------------------------------------

_FOURIER = len(CASES)


def _parts(z: Any) -> Any:
    return ops.concat([ops.real(z), ops.imag(z)])


def _numpy_parts(z: Any) -> Any:
    return np.concatenate([z.real, z.imag])


def transform(name: str, setting: str, shape: Any, params: dict[str, Any]) -> None:
    """A transform of complex numbers, or of real ones, as real and imaginary parts."""
    mine, theirs = getattr(ops.fft, name), getattr(np.fft, name)
    if name in ("rfft", "rfftn", "ihfft"):
        of_shape(
            name,
            shape,
            lambda x: _parts(mine(x, **params)),
            lambda x: _numpy_parts(theirs(x, **params)),
            setting,
        )
        return
    complex_out = name not in ("irfft", "irfftn", "hfft")
    case(
        name,
        arrays((shape, ANY), (shape, ANY)),
        lambda x, y: (_numpy_parts if complex_out else np.asarray)(theirs(x + 1j * y, **params)),
        lambda x, y: (_parts if complex_out else ops.asarray)(mine(x + 1j * y, **params)),
        setting,
    )


for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    for setting, shape, params in (
        ("", (4,), {}),
        ("shortened", (3, 2), {"n": 2, "axis": 0, "norm": "ortho"}),
        ("lengthened", (2, 2), {"n": 5, "norm": "forward"}),
    ):
        transform(name, setting, shape, params)
for name in ("fftn", "ifftn", "rfftn", "irfftn"):
    for setting, shape, params in (
        ("", (2, 3), {}),
        ("two axes", (2, 1, 3), {"axes": (2, 0), "norm": "ortho"}),
        ("lengths", (2, 3), {"s": (3, 2), "axes": (0, 1), "norm": "forward"}),
    ):
        transform(name, setting, shape, params)
of_shape("fft", (4,), lambda x: ops.real(ops.fft.fft(x)), lambda x: np.fft.fft(x).real, "real")
of_shape("irfft", (3,), lambda x: ops.fft.irfft(x), lambda x: np.fft.irfft(x), "of real numbers")
for op, function, reference in (
    ("fftshift", ops.fft.fftshift, np.fft.fftshift),
    ("ifftshift", ops.fft.ifftshift, np.fft.ifftshift),
):
    of_shape(op, (2, 3), function, reference)
    of_shape(op, (2, 3), partial(function, axes=-1), partial(reference, axes=-1), "axis")

FOURIER = CASES[_FOURIER:]
OWN = CASES[_FIRST:_FOURIER]
"""The cases of this file: those of Fourier transforms, and the others."""
