"""The exponential and integer powers of matrices."""

import functools
from typing import Any

from fdbr.core.array_modules import Array, array_module
from fdbr.core.tracer import stop_gradient
from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.ops.declare import aligned, opaque
from fdbr.ops.elementwise.arithmetic import abs
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.linalg.matrices import square_matrices
from fdbr.ops.linalg.solving import inv
from fdbr.ops.reductions.reduce import max, sum
from fdbr.ops.shape.creation import asarray, zeros_like
from fdbr.ops.shape.manipulation import _matrix_transpose, broadcast_to, concat

__all__ = ["expm", "matrix_power"]

# Higham, "The scaling and squaring method for the matrix exponential revisited", 2005: the 1-norms
# up to which the Padé approximant of each degree is exact to float64.
_DEGREES = {3: 1.495585217958292e-2, 5: 2.539398330063230e-1, 7: 9.504178996162932e-1}
_DEGREES |= {9: 2.097847961257068e0, 13: 5.371920351148152e0}


@functools.cache
def _coefficients(degree: int) -> tuple[float, ...]:
    """Compute the coefficients of the numerator, from the constant up; the highest is 1."""
    out = [1]
    for j in range(degree, 0, -1):
        out.append(out[-1] * j * (2 * degree + 1 - j) // (degree + 1 - j))
    return tuple(map(float, reversed(out)))


def _pade(xp: Any, x: Any, degree: int) -> Any:
    """Compute the diagonal Padé approximant of the exponential."""
    b = _coefficients(degree)
    unit = xp.eye(x.shape[-1], dtype=x.dtype)
    square = x @ x
    powers = [unit, square]
    while len(powers) <= (degree // 2 if degree < 13 else 3):
        powers.append(powers[-1] @ square)
    count = len(powers)
    odd = _polynomial(powers, b[1 : 2 * count : 2])
    even = _polynomial(powers, b[0 : 2 * count : 2])
    if degree == 13:  # the higher half, as a multiple of the sixth power
        odd = odd + powers[3] @ _polynomial(powers[1:], b[9::2])
        even = even + powers[3] @ _polynomial(powers[1:], b[8::2])
    odd = x @ odd
    return xp.linalg.solve(even - odd, even + odd)


def _polynomial(powers: Any, coefficients: Any) -> Any:
    total = 0
    for power, coefficient in zip(powers, coefficients, strict=True):
        total = total + coefficient * power
    return total


def _frechet(x: Any, t: Any) -> Any:
    """Compute the derivative of the exponential along ``t``.

    It is a block of the exponential of a matrix twice as large (Mathias, 1996; Higham, "Functions
    of Matrices", 2008, equation 3.16).  It is linear in ``t``, which is scaled to norm 1 first, so
    that ``t`` does not determine the number of squarings.
    """
    n = x.shape[-1]
    if not n:
        return t
    scale = _size(t)
    upper, lower = concat([x, t / scale], axis=-1), concat([zeros_like(x), x], axis=-1)
    return _expm(concat([upper, lower], axis=-2))[..., :n, n:] * scale


def _size(x: Any) -> Any:
    """The 1-norm of matrices as a constant of shape ``(..., 1, 1)``; 1 where it is 0."""
    norm = max(sum(abs(stop_gradient(x)), axis=-2), axis=-1)[..., None, None]
    return where(norm == 0, 1, norm)


@opaque(
    x=(
        lambda ct, x: _frechet(_matrix_transpose(x), ct),
        lambda t, x: _frechet(x, t),
    ),
    batch=aligned,
)
def _expm(xp: Any, x: Array) -> Array:
    if not x.size:
        return x.copy()
    norms = xp.abs(x).sum(axis=-2).max(axis=-1)[..., None, None]
    largest = float(norms.max())
    for degree, bound in _DEGREES.items():
        if largest <= bound:
            return _pade(xp, x, degree)
    ratios = xp.where(xp.isfinite(norms), norms, 0) / _DEGREES[13]
    squarings = xp.ceil(xp.log2(xp.maximum(ratios, 1)))
    out = _pade(xp, x * 2**-squarings, 13)
    for done in range(int(squarings.max())):
        out = xp.where(done < squarings, out @ out, out)
    return out


@public("fdbr.ops.linalg")
def expm(x: Array, /) -> Any:
    """The exponential of matrices, ``1 + x + x @ x / 2 + …``.

    It is computed by scaling, a Padé approximant and squaring (Higham, 2005), for all matrices
    of a stack at once.  The derivative along ``t`` is the upper right block of the exponential
    of ``[[x, t], [0, x]]`` (Mathias, "A chain rule for matrix functions and applications",
    1996; Al-Mohy and Higham, "Computing the Fréchet derivative of the matrix exponential",
    2009).

    Parameters
    ----------
    x
        Shape ``(..., n, n)``.

    Raises
    ------
    numpy.linalg.LinAlgError
        If a matrix is not square.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.expm(np.array([[0.0, 1.0], [0.0, 0.0]]))
    array([[1., 1.],
           [0., 1.]])
    """
    return _expm(square_matrices("expm", x))


@public("fdbr.ops.linalg")
def matrix_power(x: Array, n: int, /) -> Any:
    """The ``n``-th power of matrices, by repeated squaring; negative powers use the inverses.

    Parameters
    ----------
    x
        Shape ``(..., m, m)``.  Integer matrices stay integers if ``n >= 0``.
    n
        A Python integer.

    Raises
    ------
    numpy.linalg.LinAlgError
        If a matrix is not square, or, for negative powers, singular.
    TypeError
        If the exponent is not an integer.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.matrix_power(np.array([[1.0, 1.0], [0.0, 1.0]]), 5)
    array([[1., 5.],
           [0., 1.]])
    """
    n = integer("fdbr.ops.linalg.matrix_power", "n", n)
    floats = square_matrices("matrix_power", x)
    x = floats if n < 0 else asarray(x)
    if n == 0:
        return broadcast_to(array_module(x).eye(x.shape[-1], dtype=x.dtype), x.shape)
    base, n = (inv(x), -n) if n < 0 else (x, n)
    out = None
    while n:
        n, bit = divmod(n, 2)
        if bit:
            out = base if out is None else out @ base
        base = base @ base if n else base
    return out
