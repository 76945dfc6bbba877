"""NumPy's polynomials on traced values: arrays of coefficients, that of the highest power first.

Every entry takes NumPy's arguments; see `fdbr.interop.signatures`.
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module
from fdbr.core.tracer_methods import functions
from fdbr.errors.checks import describe
from fdbr.interop.signatures import implements
from fdbr.ops import linalg
from fdbr.ops.shape.creation import arrays


@implements("polyval")
def _polyval(p: Any, x: Any) -> Any:
    p, x = arrays(p, x)
    out: Any = ops.zeros_like(x)
    for coefficient in p:
        out = out * x + coefficient
    return out


def _as_long(op: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def combined(a1: Any, a2: Any) -> Any:
        a, b = (p if p.ndim else ops.reshape(p, -1) for p in arrays(a1, a2))
        m, n = a.shape[0], b.shape[0]
        if m == n:  # NumPy adds what has other dimensions as arrays
            return op(a, b)
        if a.ndim > 1 or b.ndim > 1:
            raise ValueError(f"np.polyadd: coefficients {describe(a)} and {describe(b)} must have "
                             "one dimension")  # fmt: skip
        return op(ops.pad(a, (max(n - m, 0), 0)), ops.pad(b, (max(m - n, 0), 0)))

    return combined


implements("polyadd")(_as_long(operator.add))
implements("polysub")(_as_long(operator.sub))


@implements("polymul")
def _polymul(a1: Any, a2: Any) -> Any:
    a, b = (_trimmed(_row(p, "polymul")) for p in arrays(a1, a2))
    return functions[np.convolve](a, b)


def _row(p: Any, name: str) -> Any:
    """Coefficients as a row."""
    if p.ndim > 1:
        raise ValueError(f"np.{name}: coefficients {describe(p)} must have one dimension")
    return ops.reshape(p, -1)


def _trimmed(p: Any) -> Any:
    """Coefficients without the leading ones that are 0, but for the last one."""
    p = functions[np.trim_zeros](p, "f")
    return p if p.size else ops.zeros(1, dtype=p.dtype)


@implements("polyfit")
def _polyfit(
    x: Any,
    y: Any,
    deg: int,
    rcond: Any = None,
    full: bool = False,
    w: Any = None,
    cov: bool | str = False,
) -> Any:
    x, y, *weights = arrays(x, y, *([] if w is None else [w]))
    x, y = x + 0.0, y + 0.0
    if x.dtype.char == "e" or y.dtype.char == "e":
        raise TypeError("np.polyfit: it takes no float16; convert it to float32")
    if deg < 0:
        raise ValueError(f"np.polyfit: deg is {deg}; it must not be negative")
    if x.ndim != 1 or not x.size:
        raise TypeError(f"np.polyfit: x must be a row with elements, but is {describe(x)}")
    n, order = x.shape[0], int(deg) + 1
    rcond = n * np.finfo(x.dtype).eps if rcond is None else rcond
    matrix = functions[np.vander](x, order)
    if weights:
        matrix = matrix * weights[0][:, None]
        y = y * (weights[0][:, None] if y.ndim == 2 else weights[0])
    widths = ops.sqrt(ops.sum(matrix * matrix, axis=0))
    matrix = matrix / widths
    found, residuals, rank, values = functions[np.linalg.lstsq](matrix, y, rcond)
    found = (found.T / widths).T
    if full:
        return found, residuals, rank, values, rcond
    if not cov:
        return found
    spread = linalg.inv(matrix.T @ matrix) / ops.outer(widths, widths)
    if cov != "unscaled":
        if n <= order:
            raise ValueError(
                f"np.polyfit: {n} points are too few to scale the covariance of {order} "
                "coefficients; give cov='unscaled' or more points"
            )
        share = residuals / (n - order)
        spread = spread * share if y.ndim == 1 else spread[:, :, None] * share
    elif y.ndim == 2:
        spread = spread[:, :, None]
    return found, spread


@implements("polyder")
def _polyder(p: Any, m: int = 1) -> Any:
    if m < 0:
        raise ValueError(f"np.polyder: m is {m}; it must not be negative (see np.polyint)")
    for _ in range(m):
        p = p[:-1] * array_module(p).arange(len(p) - 1, 0, -1)
    return p


@implements("polyint")
def _polyint(p: Any, m: int = 1, k: Any = 0) -> Any:
    p, constants = arrays(p, k)
    if m < 0:
        raise ValueError(f"np.polyint: m is {m}; it must not be negative (see np.polyder)")
    if constants.ndim == 1 and constants.shape[0] > 1:
        if constants.shape[0] < m:
            raise ValueError(f"np.polyint: {constants.shape[0]} constants k for m={m}")
        constants = constants[:m]
    constants = ops.broadcast_to(constants, (m,))
    for i in range(m):
        p = ops.concat([p / array_module(p).arange(len(p), 0, -1), constants[i : i + 1]])
    return p


@implements("polydiv")
def _polydiv(u: Any, v: Any) -> Any:
    rest, v = arrays(u, v)
    for p in (rest, v):
        if p.ndim > 1 or not p.size:
            raise (ValueError if p.ndim > 1 else IndexError)(
                f"np.polydiv: coefficients {describe(p)} must be a row with elements"
            )
    rest, v = ops.reshape(rest + 0.0, -1), ops.reshape(v + 0.0, -1)
    rest = ops.astype(rest, ops.result_type(rest, v), copy=False)
    m, n = rest.shape[0], v.shape[0]
    quotient = []
    for k in range(m - n + 1):
        quotient.append(rest[k] * (1 / v[0]))
        rest = rest - ops.pad(quotient[-1] * v, (k, m - n - k))
    while rest.shape[0] > 1 and bool(ops.abs(rest[0]) <= 1e-8):
        rest = rest[1:]
    return (ops.stack(quotient) if quotient else 0 * (rest[:1] + v[:1])), rest


# --- roots --------------------------------------------------------------------------


@implements("poly")
def _poly(seq_of_zeros: Any) -> Any:
    zeros = ops.reshape(seq_of_zeros, -1) if not seq_of_zeros.ndim else seq_of_zeros
    if zeros.ndim > 2 or (zeros.ndim == 2 and (zeros.shape[0] != zeros.shape[1] or not zeros.size)):
        raise ValueError(
            f"np.poly: a sequence of roots or a square matrix is needed, not shape {zeros.shape}"
        )
    real = zeros.ndim == 2 and zeros.dtype.kind != "c"  # a matrix whose eigenvalues come in pairs
    zeros = linalg.eigvals(zeros) if zeros.ndim == 2 else zeros
    if zeros.dtype.char not in "fdFD":
        zeros = ops.astype(zeros, float)
    if not zeros.size:
        return 1.0
    if zeros.dtype.kind == "c" and not real:
        real = bool(ops.all(ops.sort(zeros) == ops.sort(ops.conj(zeros))))
    out = ops.ones_like(zeros[:1])
    for i in range(zeros.shape[0]):
        out = ops.pad(out, (0, 1)) - zeros[i] * ops.pad(out, (1, 0))
    return ops.real(out) if real else out


@implements("roots")
def _roots(p: Any) -> Any:
    """The eigenvalues of the companion matrix: complex, as they can be in general."""
    p = _row(p, "roots") + 0.0
    trim = functions[np.trim_zeros]
    p = trim(p, "f")
    inner = trim(p, "b")
    n = inner.shape[0] - 1
    at_zero = ops.zeros_like(p[max(n, 0) + 1 :], dtype=ops.result_type(p, np.complex64))
    if n < 1:
        return at_zero
    row = -inner[1:] / inner[0]
    shift = array_module(p).eye(n, dtype=p.dtype)[:-1]
    return ops.concat([linalg.eigvals(ops.concat([row[None], shift])), at_zero])
