"""Determinants."""

from typing import Any, NamedTuple

from fdbr.ops.declare import aligned, fit, leading, opaque
from fdbr.ops.dtypes import finfo
from fdbr.ops.linalg.lapack import lapack
from fdbr.ops.linalg.matrices import square_matrices
from fdbr.ops.linalg.right_sides import same_leading
from fdbr.ops.linalg.solving import inverse
from fdbr.ops.shape.creation import zeros_like
from fdbr.ops.shape.manipulation import _matrix_transpose, diagonal
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["SlogdetResult", "det", "slogdet"]


class SlogdetResult(NamedTuple):
    """A determinant as its sign and the logarithm of its size."""

    sign: Any
    logabsdet: Any


# --- the determinant and its derivatives --------------------------------------------


def _inner(x: Any, y: Any) -> Any:
    return (x * y).sum(axis=(-2, -1))


def _scaled(factor: Any, x: Any) -> Any:
    return factor[..., None, None] * x


@opaque(
    x=(lambda ct, x: _scaled(ct, _cofactors(x)), lambda t, x: _inner(_cofactors(x), t)),
    batch=aligned,
)
def _det(xp: Any, x: ArrayLike) -> Array:
    return lapack(xp, "det", x, strict=False)


# The second derivative is symmetric in its two directions, so that it is its own transpose.
@opaque(x=(lambda ct, x: _turn(x, ct), lambda t, x: _turn(x, t)), batch=aligned)
def _cofactors(xp: Any, x: ArrayLike) -> Array:
    """The derivative of the determinant: ``det(x) inv(x)^T``, which singular matrices have too."""

    def regular(volume: Any, inverse: Any) -> Any:
        return volume * inverse.swapaxes(-1, -2)

    def singular(x: Any) -> Any:
        sign, u, s, vh = _decomposed(xp, x)
        return sign * ((u * _without_one(xp, s)) @ vh)

    return _by_regularity(xp, regular, singular, x)


# So is the third derivative in any two of its three.
@opaque(
    x=(
        lambda ct, x, t, like: fit(_turn_again(x, t, ct), like),
        lambda e, x, t: _turn_again(x, t, e),
    ),
    t=(lambda ct, x, like: fit(_turn(x, ct), like), lambda e, x: _turn(x, e)),
    batch=leading(2),
)
def _turn(xp: Any, x: ArrayLike, t: ArrayLike) -> Array:
    """The tangent of the cofactors.

    For diagonal matrices it is ``p[i, k] t[k, k]`` summed over ``k`` on the diagonal, and
    ``-p[i, j] t[j, i]`` beside it, where ``p[i, j]`` is the product of all singular values but
    two.
    """

    def regular(volume: Any, inverse: Any, t: Any) -> Any:
        across, turned = inverse.swapaxes(-1, -2), inverse @ t
        along = xp.trace(turned, 0, -2, -1)[..., None, None] * across
        return volume * (along - (turned @ inverse).swapaxes(-1, -2))

    def singular(x: Any, t: Any) -> Any:
        sign, u, s, vh = _decomposed(xp, x)
        pairs = _without_two(xp, s)
        turned = u.swapaxes(-1, -2) @ t @ vh.swapaxes(-1, -2)
        along = pairs @ xp.diagonal(turned, 0, -2, -1)[..., None]
        inner = xp.eye(x.shape[-1], dtype=x.dtype) * along - pairs * turned.swapaxes(-1, -2)
        return sign * (u @ inner @ vh)

    return _by_regularity(xp, regular, singular, *same_leading(xp, "det", x, t))


def _turn_again(x: Any, t: Any, e: Any) -> Any:
    """The derivative of `_turn` along a second tangent: NaN for singular matrices."""
    inverted = inverse(x)
    by_t, by_e = inverted @ t, inverted @ e
    both = by_t @ by_e
    a, b, c = (diagonal(y).sum(axis=-1) for y in (by_t, by_e, both))
    terms = both + by_e @ by_t - _scaled(a, by_e) - _scaled(b, by_t)
    return _scaled(_det(x), _matrix_transpose(_scaled(a * b - c, inverted) + terms @ inverted))


def _by_regularity(xp: Any, regular: Any, singular: Any, *operands: Any) -> Any:
    """``regular(det(x), inv(x), ...)`` where these are precise, and elsewhere ``singular(x, ...)``.

    Inverses are much faster than singular values.  Each matrix goes its own way, and none changes
    the results of others.
    """
    shape = operands[0].shape
    if not operands[0].size:
        return operands[0]
    x, *others = (y.reshape(-1, *shape[-2:]) for y in operands)
    inverse = lapack(xp, "inv", x, strict=False)
    volume = lapack(xp, "det", x, strict=False)
    x = x.astype(inverse.dtype, copy=False)  # LAPACK's, where it has none for that of x
    precise = _is_precise(xp, x, inverse, volume)
    volume = volume[:, None, None]
    if bool(precise.all()):
        return regular(volume, inverse, *others).reshape(shape)
    out = xp.empty_like(x)
    for chosen, function, given in (
        (precise, regular, (volume, inverse, *others)),
        (~precise, singular, (x, *others)),
    ):
        out[chosen] = function(*(y[chosen] for y in given))
    return out.reshape(shape)


def _is_precise(xp: Any, x: Any, inverse: Any, volume: Any) -> Any:
    """Whether products with the inverse are, and the determinant is no denormal number."""
    sizes = [xp.einsum("ijk,ijk->i", y, y.conj()).real for y in (x, inverse)]
    limits = finfo(x.dtype)
    return (sizes[0] * sizes[1] < limits.eps**-0.8) & (abs(volume) > limits.tiny)


def _decomposed(xp: Any, x: Any) -> tuple[Any, Any, Any, Any]:
    """``sign``, ``u``, ``s``, ``vh`` of which the cofactors of each order are made.

    Those of a product are the product of those of its factors; of a unitary matrix they are
    its conjugate times its determinant, which is ``sign`` for both.
    """
    u, s, vh = lapack(xp, "svd", x, strict=False)
    sign = lapack(xp, "det", u, strict=False) * lapack(xp, "det", vh, strict=False)
    return sign[..., None, None], u.conj(), s[..., None, :], vh.conj()


def _without_one(xp: Any, s: Any) -> Any:
    """The products of all elements of a row but one, without division."""
    one = xp.ones_like(s[..., :1])
    before = xp.cumprod(xp.concatenate([one, s[..., :-1]], axis=-1), axis=-1)
    after = xp.cumprod(xp.concatenate([one, s[..., :0:-1]], axis=-1), axis=-1)[..., ::-1]
    return before * after


def _without_two(xp: Any, s: Any) -> Any:
    """The products of all elements of a descending row but two; 0 where the two are one."""
    one = _without_one(xp, s)
    column = s.swapaxes(-1, -2)
    rest = s[..., :-2].prod(axis=-1, keepdims=True)  # without the two last, where both are 0
    by_row = one / xp.where(column != 0, column, 1)
    by_column = one.swapaxes(-1, -2) / xp.where(s != 0, s, 1)
    out = xp.where(s != 0, by_column, xp.where(column != 0, by_row, rest))
    return out * (1 - xp.eye(s.shape[-1], dtype=s.dtype))


def det(x: ArrayLike, /) -> Array:
    """The determinants of matrices.

    The derivative is ``sum(C * t)`` for the matrix ``C`` of cofactors.  It is right for singular
    matrices too, and so is the second derivative: there both are made of singular values rather
    than of the inverse.  Third derivatives are NaN there.

    Parameters
    ----------
    x
        Shape ``(..., n, n)``.

    Returns
    -------
    array
        Shape ``(...)``.

    Raises
    ------
    numpy.linalg.LinAlgError
        If a matrix is not square.

    >>> import fdbr, numpy as np
    >>> from fdbr import ops
    >>> fdbr.grad(ops.linalg.det)(np.array([[1.0, 2.0], [2.0, 4.0]])).round(12)
    array([[ 4., -2.],
           [-2.,  1.]])
    """
    return _det(square_matrices("det", x))


# --- its logarithm ------------------------------------------------------------------


def _slogdet_pull(ct: Any, x: Any, out: Any) -> Any:
    of_sign, of_log = ct
    total = zeros_like(out[1]) if of_log is None else of_log
    if of_sign is not None and of_sign.dtype.kind == "c":
        total = total + 1j * (of_sign * out[0]).imag
    return _scaled(total, _matrix_transpose(inverse(x)))


def _slogdet_push(t: Any, x: Any, out: Any) -> Any:
    change = _inner(_matrix_transpose(inverse(x)), t)
    if x.dtype.kind != "c":
        return None, change  # the sign does not change
    return 1j * change.imag * out[0], change.real


@opaque(x=(_slogdet_pull, _slogdet_push), batch=aligned)
def _slogdet(xp: Any, x: ArrayLike) -> Array:
    return lapack(xp, "slogdet", x, strict=False)


def slogdet(x: ArrayLike, /) -> SlogdetResult:
    """Determinants as their sign and the logarithm of their size, without overflow.

    The derivative of the logarithm is ``tr(x^-1 t)`` (Giles, 2008), its real part for complex
    matrices; the sign of a complex determinant turns by the imaginary part.  A singular matrix
    has sign 0 and logarithm -inf, and the derivative NaN.

    Parameters
    ----------
    x
        Shape ``(..., n, n)``.

    Returns
    -------
    sign
        Shape ``(...)``: 1, -1 or 0, or a complex number of size 1.
    logabsdet
        Shape ``(...)``, real.

    Raises
    ------
    numpy.linalg.LinAlgError
        If a matrix is not square.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.slogdet(np.array([[0.0, 1.0], [1.0, 0.0]]))
    SlogdetResult(sign=np.float64(-1.0), logabsdet=np.float64(0.0))
    """
    return SlogdetResult(*_slogdet(square_matrices("slogdet", x)))
