"""Checks of matrices, and small parts that the functions of linear algebra share."""

from typing import Any

from numpy.linalg import LinAlgError

from fdbr.core.tracer import stop_gradient
from fdbr.errors.checks import describe
from fdbr.ops.declare import aligned, linear
from fdbr.ops.dtypes import finfo
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.elementwise.complex_parts import conj
from fdbr.ops.shape.creation import floating
from fdbr.ops.shape.layout import triangles
from fdbr.ops.shape.manipulation import _matrix_transpose
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = [
    "adjoint",
    "failure",
    "gaps",
    "folded",
    "half_triangle",
    "inverse_or_zero",
    "matrices",
    "mirrored",
    "negligible",
    "sample",
    "square_matrices",
]


def failure(name: str, problem: str) -> LinAlgError:
    """The error of a function of linear algebra; it is a `ValueError` too."""
    return LinAlgError(f"fdbr.ops.linalg.{name}: {problem}")


def matrices(name: str, x: Any, argument: str = "x") -> Any:
    """An argument as floating matrices in the last two axes, or an error."""
    x = floating(x)
    if x.ndim < 2:
        raise failure(
            name,
            f"{argument} must have at least two dimensions, but is {describe(x)}; its last two "
            "axes are a matrix's rows and columns",
        )
    return x


def square_matrices(name: str, x: Any, argument: str = "x") -> Any:
    """An argument as floating square matrices in the last two axes, or an error."""
    x = matrices(name, x, argument)
    if x.shape[-1] != x.shape[-2]:
        raise failure(
            name, f"{argument} must be square, but is {describe(x)}; its last two axes differ"
        )
    return x


def sample(x: Array) -> str:
    """The name in messages of an operand of which a matrix was rejected."""
    return f"{'the matrix' if x.ndim == 2 else 'a matrix in'} {describe(x)}"


# --- parts of matrices --------------------------------------------------------------


def adjoint(x: Any) -> Any:
    """The conjugate transpose."""
    return conj(_matrix_transpose(x))


# A function of Hermitian matrices reads the lower triangle, as LAPACK does, and of the diagonal
# the real part.  So it is one of `mirrored(x)`, and its gradient lies on that triangle.


def mirrored(x: Array) -> Any:
    """The Hermitian matrix of which the lower triangle is that of ``x``."""
    half = half_triangle(x)
    return half + adjoint(half)


def folded(x: Array) -> Any:
    """The transpose of `mirrored`: what falls on the elements that are read."""
    return half_triangle(x + adjoint(x))


@linear(x=lambda ct: half_triangle(ct), batch=aligned)
def half_triangle(xp: Any, x: ArrayLike) -> Array:
    """The lower triangle with its diagonal halved: the part of which ``y + y^H`` is made."""
    out = triangles(xp, x, 0, upper=False)
    places = xp.arange(x.shape[-1])
    out[..., places, places] *= 0.5
    return out


# --- safe division ------------------------------------------------------------------


def negligible(values: Array) -> Any:
    """The bound below which values are rounding: their number times eps of the largest."""
    held = abs(stop_gradient(values))
    count = held.shape[-1]
    return held.max(axis=-1, keepdims=True) * (count * finfo(held.dtype).eps) if count else held


def inverse_or_zero(x: Array, floor: Any) -> Any:
    """``1 / x``, and 0 where ``x`` is not above a floor in size."""
    near = abs(stop_gradient(x)) <= floor
    return where(near, 0, 1 / where(near, 1, x))


def gaps(values: Array) -> Any:
    """``1 / (values[j] - values[i])``, and 0 where they are equal but for rounding."""
    return inverse_or_zero(
        values[..., None, :] - values[..., :, None], negligible(values)[..., None]
    )
