"""Fourier transforms, as the Array API's extension ``fft`` has them.

The matrix of the discrete Fourier transform is symmetric, so `fft` is its own transpose under
every normalisation.  Of the transforms between real numbers and halves of spectra one is the
other's transpose, but for the weight of frequencies that stand for two.
"""

from collections.abc import Sequence
from typing import Any, Literal

from fdbr.core.array_modules import array_module
from fdbr.errors.checks import describe, index, integer
from fdbr.errors.names import missing_from
from fdbr.errors.public import public
from fdbr.ops.axes import normalize_axes, normalize_axis
from fdbr.ops.declare import fit, linear, shifted
from fdbr.ops.dtypes import astype, float_dtype
from fdbr.ops.elementwise.complex_parts import conj
from fdbr.ops.frequencies import fftfreq, fftshift, ifftshift, rfftfreq
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.padding import resize
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = [
    "fft",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfftn",
    "rfft",
    "rfftfreq",
    "rfftn",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
globals().update(__getattr__=missing_from(__name__))  # type checkers see no `__getattr__`

Norm = Literal["backward", "ortho", "forward"]
_SWAPPED: dict[str, Norm] = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


# --- the transforms -----------------------------------------------------------------


@linear(
    x=lambda ct, shape, dtype, axes, norm: fit(_fft(ct, axes=axes, norm=norm), (shape, dtype)),
    batch=shifted("axes"),
)
def _fft(xp: Any, x: Any, *, axes: tuple[int, ...], norm: Norm) -> Any:
    return xp.fft.fftn(x, axes=axes, norm=norm)


@linear(
    x=lambda ct, shape, dtype, axes, norm: fit(_ifft(ct, axes=axes, norm=norm), (shape, dtype)),
    batch=shifted("axes"),
)
def _ifft(xp: Any, x: Any, *, axes: tuple[int, ...], norm: Norm) -> Any:
    return xp.fft.ifftn(x, axes=axes, norm=norm)


@linear(
    x=lambda ct, shape, dtype, axis, norm: fit(
        _irfft(
            conj(_weighted(ct, shape[axis], axis, 0.5)),
            n=shape[axis],
            axis=axis,
            norm=_SWAPPED[norm],
        ),
        (shape, dtype),
    ),
    batch=shifted("axis"),
)
def _rfft(xp: Any, x: ArrayLike, *, axis: int, norm: Norm) -> Array:
    return xp.fft.rfft(x, axis=axis, norm=norm)


@linear(
    x=lambda ct, shape, dtype, n, axis, norm: fit(
        _weighted(conj(_rfft(ct, axis=axis, norm=_SWAPPED[norm])), n, axis, 2), (shape, dtype)
    ),
    batch=shifted("axis"),
)
def _irfft(xp: Any, x: ArrayLike, *, n: int, axis: int, norm: Norm) -> Array:
    return xp.fft.irfft(x, n, axis=axis, norm=norm)


def _weighted(half: Any, n: int, axis: int, weight: float) -> Any:
    """Half a spectrum of ``n`` numbers, with a weight on the frequencies that stand for two."""
    weights = array_module(half).full(half.shape[axis], weight, dtype=half.dtype)
    weights[0] = 1
    if n % 2 == 0:
        weights[-1] = 1
    return half * weights.reshape((-1, *(1,) * (half.ndim - axis - 1)))


# --- arguments ----------------------------------------------------------------------


def _checked(x: Any, name: str, norm: Any, real: bool = False) -> Any:
    """An array of floating numbers, or the error for what has no such transform."""
    if norm not in _SWAPPED:
        raise ValueError(f"fdbr.ops.fft.{name}: norm is {norm!r}; it is one of {list(_SWAPPED)}")
    x = asarray(x)
    if real and x.dtype.kind == "c":
        raise TypeError(
            f"fdbr.ops.fft.{name}: x is {describe(x)}; it transforms real numbers, use fft.fft"
        )
    return x if dtype_kind(x.dtype) in "fc" else astype(x, float_dtype(x))


def _sized(x: Any, lengths: Sequence[int], axes: Sequence[int], name: str) -> Any:
    """The array cut off, or filled up with zeros, to some lengths."""
    if any(n < 1 for n in lengths):
        raise ValueError(
            f"fdbr.ops.fft.{name}: x {describe(x)} cannot be transformed along axes {tuple(axes)} "
            f"with lengths {tuple(lengths)}; they must be at least 1"
        )
    shape = list(x.shape)
    for n, axis in zip(lengths, axes, strict=True):
        shape[axis] = n
    return resize(x, shape)


def _along(x: Any, n: int | None, axis: int, name: str) -> tuple[Any, int]:
    """The array with ``n`` elements along an axis, and the axis."""
    axis = normalize_axis(axis, x.ndim, f"fft.{name}")
    if n is None and x.shape[axis]:
        return x, axis
    n = x.shape[axis] if n is None else integer(f"fdbr.ops.fft.{name}", "n", n)
    return _sized(x, (n,), (axis,), name), axis


def _lengths(
    x: Any, s: Sequence[int] | None, axes: Sequence[int] | None, name: str
) -> tuple[list[int], tuple[int, ...]]:
    """The lengths and the axes of a transform along several; -1 stands for the own length."""
    if axes is None:
        axes = range(0 if s is None else x.ndim - len(s), x.ndim)
    places = normalize_axes(tuple(axes), x.ndim, f"fft.{name}")
    if s is not None and len(s) != len(places):
        raise ValueError(f"fdbr.ops.fft.{name}: {len(s)} lengths for {len(places)} axes")
    own = [x.shape[axis] for axis in places]
    if s is None:
        return own, places
    return [o if n == -1 else index(n) for n, o in zip(s, own, strict=True)], places


# --- complex numbers ----------------------------------------------------------------


@public("fdbr.ops.fft")
def fft(x: ArrayLike, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The discrete Fourier transform along an axis.

    ``out[k] = sum(x[j] * exp(-2j * pi * j * k / n))``, divided by ``n`` if ``norm`` is
    ``"forward"``, and by ``sqrt(n)`` if it is ``"ortho"``.  Its transpose is itself.

    Parameters
    ----------
    x
        A real or complex array of one dimension or more.
    n
        The length of the transform: ``x`` is cut off, or filled up with zeros, to it.
    axis
        Along which axis.
    norm
        ``"backward"``, ``"ortho"`` or ``"forward"``.

    Returns
    -------
    array
        A complex array, ``n`` long on the axis.

    Raises
    ------
    ValueError
        If the axis, the length or the norm is none.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.fft.fft(np.array([1.0, 0.0, -1.0, 0.0]))
    array([0.+0.j, 2.+0.j, 0.+0.j, 2.+0.j])
    """
    x, axis = _along(_checked(x, "fft", norm), n, axis, "fft")
    return _fft(x, axes=(axis,), norm=norm)


@public("fdbr.ops.fft")
def ifft(
    x: ArrayLike, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward"
) -> Array:
    """The inverse of `fft`: ``sum(x[k] * exp(2j * pi * j * k / n)) / n``.

    Parameters and errors are those of `fft`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.fft.ifft(np.array([0.0, 2.0, 0.0, 2.0])).real
    array([ 1.,  0., -1.,  0.])
    """
    x, axis = _along(_checked(x, "ifft", norm), n, axis, "ifft")
    return _ifft(x, axes=(axis,), norm=norm)


@public("fdbr.ops.fft")
def fftn(
    x: ArrayLike,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Array:
    """The discrete Fourier transform along several axes: `fft` along one after the other.

    Parameters
    ----------
    x
        A real or complex array.
    s
        The lengths of the transform along the axes; -1 leaves one as it is.
    axes
        Along which axes, each once: by default all, or the last ``len(s)``.
    norm
        ``"backward"``, ``"ortho"`` or ``"forward"``, along each axis.

    Raises
    ------
    ValueError
        If axes, lengths or the norm are none.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.fft.fftn(np.ones((2, 2))).real
    array([[4., 0.],
           [0., 0.]])
    """
    x = _checked(x, "fftn", norm)
    lengths, places = _lengths(x, s, axes, "fftn")
    x = _sized(x, lengths, places, "fftn")
    return _fft(x, axes=places, norm=norm) if places else _as_complex(x)


@public("fdbr.ops.fft")
def ifftn(
    x: ArrayLike,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Array:
    """The inverse of `fftn`, with its parameters and errors.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.fft.ifftn(np.array([[4.0, 0.0], [0.0, 0.0]])).real
    array([[1., 1.],
           [1., 1.]])
    """
    x = _checked(x, "ifftn", norm)
    lengths, places = _lengths(x, s, axes, "ifftn")
    x = _sized(x, lengths, places, "ifftn")
    return _ifft(x, axes=places, norm=norm) if places else _as_complex(x)


def _as_complex(x: Any) -> Any:
    return x if x.dtype.kind == "c" else astype(x, array_module(x).result_type(x.dtype, 1j))


# --- real numbers and half spectra --------------------------------------------------


@public("fdbr.ops.fft")
def rfft(
    x: ArrayLike, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward"
) -> Array:
    """The transform of real numbers: the first half of `fft`, ``n // 2 + 1`` numbers.

    Parameters are those of `fft`.

    Raises
    ------
    TypeError
        If ``x`` is complex.
    ValueError
        If the axis, the length or the norm is none.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.fft.rfft(np.array([1.0, 0.0, -1.0, 0.0]))
    array([0.+0.j, 2.+0.j, 0.+0.j])
    """
    x, axis = _along(_checked(x, "rfft", norm, real=True), n, axis, "rfft")
    return _rfft(x, axis=axis, norm=norm)


@public("fdbr.ops.fft")
def irfft(
    x: ArrayLike, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward"
) -> Array:
    """The inverse of `rfft`: real numbers from half a spectrum.

    The imaginary parts of the first number, and of the last if ``n`` is even, do not count.
    ``n`` is the length of the result, by default ``2 * (m - 1)`` for ``m`` numbers; the other
    parameters and the errors are those of `fft`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.fft.irfft(np.array([0.0, 2.0, 0.0]))
    array([ 1.,  0., -1.,  0.])
    """
    x = _checked(x, "irfft", norm)
    axis = normalize_axis(axis, x.ndim, "fft.irfft")
    return _from_half(x, n, axis, norm, "irfft")


def _from_half(x: Any, n: int | None, axis: int, norm: Norm, name: str) -> Any:
    n = 2 * (x.shape[axis] - 1) if n is None else integer(f"fdbr.ops.fft.{name}", "n", n)
    if n < 1:
        raise ValueError(
            f"fdbr.ops.fft.{name}: the result of x {describe(x)} would be {n} long on axis {axis}; "
            "give n, which must be at least 1"
        )
    return _irfft(_sized(x, (n // 2 + 1,), (axis,), name), n=n, axis=axis, norm=norm)


@public("fdbr.ops.fft")
def rfftn(
    x: ArrayLike,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Array:
    """`rfft` along the last of several axes, then `fft` along the others.

    Parameters are those of `fftn`.

    Raises
    ------
    TypeError
        If ``x`` is complex.
    ValueError
        If axes, lengths or the norm are none, or there is no axis.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.fft.rfftn(np.ones((2, 4))).shape
    (2, 3)
    """
    x = _checked(x, "rfftn", norm, real=True)
    lengths, places = _lengths(x, s, axes, "rfftn")
    _require_axis(places, x, "rfftn")
    out = _rfft(_sized(x, lengths, places, "rfftn"), axis=places[-1], norm=norm)
    return _fft(out, axes=places[:-1], norm=norm) if len(places) > 1 else out


@public("fdbr.ops.fft")
def irfftn(
    x: ArrayLike,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Array:
    """The inverse of `rfftn`: `ifft` along all axes but the last, then `irfft` along that.

    ``s`` are the lengths of the result, of which -1 stands, as in NumPy, for that of ``x``; the
    last is by default ``2 * (m - 1)`` for ``m`` numbers.  The other parameters and the errors are
    those of `fftn`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.fft.irfftn(ops.fft.rfftn(np.ones((2, 4)))).shape
    (2, 4)
    """
    x = _checked(x, "irfftn", norm)
    lengths, places = _lengths(x, s, axes, "irfftn")
    _require_axis(places, x, "irfftn")
    last = None if s is None else lengths[-1]
    x = _sized(x, lengths[:-1], places[:-1], "irfftn")
    if len(places) > 1:
        x = _ifft(x, axes=places[:-1], norm=norm)
    return _from_half(x, last, places[-1], norm, "irfftn")


def _require_axis(places: tuple[int, ...], x: Any, name: str) -> None:
    if not places:
        raise ValueError(f"fdbr.ops.fft.{name}: there is no axis to transform x {describe(x)} by")


@public("fdbr.ops.fft")
def hfft(
    x: ArrayLike, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward"
) -> Array:
    """The transform of numbers with Hermitian symmetry, of which half are given: it is real.

    Parameters are those of `irfft`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.fft.hfft(np.array([1.0, 1.0, 0.0]))
    array([ 3.,  1., -1.,  1.])
    """
    x = conj(_checked(x, "hfft", norm))
    axis = normalize_axis(axis, x.ndim, "fft.hfft")
    return _from_half(x, n, axis, _SWAPPED[norm], "hfft")


@public("fdbr.ops.fft")
def ihfft(
    x: ArrayLike, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward"
) -> Array:
    """The inverse of `hfft`: half the numbers that real ones are the transform of.

    Parameters are those of `rfft`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.fft.ihfft(np.array([3.0, 1.0, -1.0, 1.0])).real
    array([1., 1., 0.])
    """
    x, axis = _along(_checked(x, "ihfft", norm, real=True), n, axis, "ihfft")
    return conj(_rfft(x, axis=axis, norm=_SWAPPED[norm]))
