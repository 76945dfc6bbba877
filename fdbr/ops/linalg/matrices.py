"""Checks of matrices, and helper functions that the functions of linear algebra share."""

from typing import Any

from numpy.linalg import LinAlgError

from fdbr.errors.checks import describe
from fdbr.ops.declare import aligned, linear
from fdbr.ops.elementwise.complex_parts import conj
from fdbr.ops.shape.creation import floating
from fdbr.ops.shape.layout import _triangle
from fdbr.ops.shape.manipulation import _matrix_transpose
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = [
    "adjoint",
    "linalg_error",
    "fold_triangle",
    "half_triangle",
    "matrices",
    "mirror_triangle",
    "sample",
    "square_matrices",
]


def linalg_error(name: str, problem: str) -> LinAlgError:
    """Make the error of a function of linear algebra; it is also a `ValueError`."""
    return LinAlgError(f"fdbr.ops.linalg.{name}: {problem}")


def matrices(name: str, x: Any, argument: str = "x") -> Any:
    """Convert an argument to floating matrices in the last two axes, or raise an error."""
    x = floating(x)
    if x.ndim < 2:
        raise linalg_error(
            name,
            f"{argument} must have at least two dimensions, but is {describe(x)}; its last two "
            "axes are a matrix's rows and columns",
        )
    return x


def square_matrices(name: str, x: Any, argument: str = "x") -> Any:
    """Convert an argument to floating square matrices in the last two axes, or raise an error."""
    x = matrices(name, x, argument)
    if x.shape[-1] != x.shape[-2]:
        raise linalg_error(
            name, f"{argument} must be square, but is {describe(x)}; its last two axes differ"
        )
    return x


def sample(x: Array) -> str:
    """Describe an operand in a message about one of its matrices."""
    return f"{'the matrix' if x.ndim == 2 else 'a matrix in'} {describe(x)}"


# --- parts of matrices --------------------------------------------------------------


def adjoint(x: Any) -> Any:
    """The conjugate transpose."""
    return conj(_matrix_transpose(x))


# A function of Hermitian matrices reads the lower triangle and the real part of the diagonal, as
# LAPACK does.  It is a function of `mirror_triangle(x)`, so its gradient is in that triangle.


def mirror_triangle(x: Array) -> Any:
    """The Hermitian matrix with the lower triangle of ``x``."""
    half = half_triangle(x)
    return half + adjoint(half)


def fold_triangle(x: Array) -> Any:
    """The transpose of `mirror_triangle`, which sums the cotangents of symmetric elements."""
    return half_triangle(x + adjoint(x))


@linear(x=lambda ct: half_triangle(ct), batch=aligned)
def half_triangle(xp: Any, x: ArrayLike) -> Array:
    """The lower triangle with its diagonal halved, so that ``y + y^H`` is the Hermitian matrix."""
    out = _triangle.primitive.on(xp)(xp, x, k=0, upper=False)
    diagonal = xp.arange(x.shape[-1])
    out[..., diagonal, diagonal] *= 0.5
    return out
