"""Random numbers from explicit keys.

A key is a read-only ``uint64`` array of shape ``(2,)``.  Every function here is pure: the
same key gives the same draws, always.  For draws that are independent of each other,
`split` a key, or `fold_in` a number; use no key twice.

The words come from NumPy's Philox bit generator (Salmon et al., *Parallel random numbers:
as easy as 1, 2, 3*, SC 2011), the key being Philox's key.  Everything else is a pure
transform of `bits`, so draws of different dtypes under one key agree up to rounding.

>>> import fdbr
>>> key = fdbr.random.key(0)
>>> first, second = fdbr.random.split(key)
>>> bool((fdbr.random.normal(first, (3,)) == fdbr.random.normal(first, (3,))).all())
True
"""

import importlib
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.backend import array_module, lock, to_numpy
from fdbr.core import Tracer, describe, stop_gradient

__all__ = [
    "bernoulli",
    "bits",
    "categorical",
    "cauchy",
    "choice",
    "exponential",
    "fold_in",
    "gumbel",
    "key",
    "laplace",
    "logistic",
    "normal",
    "permutation",
    "randint",
    "split",
    "truncated_normal",
    "uniform",
]

Shape = int | Sequence[int]

# The last word of Philox's counter, one value per use, so that a key's draws, its
# children by `split` and those by `fold_in` have no word in common.
_DRAW, _SPLIT, _FOLD = 0, 1, 2


# --- keys and words -----------------------------------------------------------------


def key(seed: int) -> Any:
    """A key made from a seed.

    Parameters
    ----------
    seed
        An integer from 0 to 2**128 - 1.  Different seeds give independent keys.

    Returns
    -------
    array
        uint64, shape ``(2,)``, read-only.

    Raises
    ------
    TypeError
        If the seed is no integer.
    ValueError
        If it is out of range.

    >>> import fdbr
    >>> fdbr.random.key(7)
    array([7, 0], dtype=uint64)
    """
    try:
        number = operator.index(seed)
    except TypeError:
        raise TypeError(f"fdbr.random.key: seed must be an integer, got {describe(seed)}") from None
    if not 0 <= number < 2**128:
        raise ValueError(f"fdbr.random.key: seed must lie in 0 .. 2**128 - 1, got {number}")
    return lock(np.array([number & (2**64 - 1), number >> 64], dtype=np.uint64))


def split(key: Any, num: int = 2) -> Any:
    """Independent keys made from one.

    Parameters
    ----------
    key
        A key; do not use it for anything else afterwards.
    num
        How many.

    Returns
    -------
    array
        uint64, shape ``(num, 2)``: it unpacks into keys.

    Raises
    ------
    TypeError, ValueError
        If ``key`` is no key, or ``num`` is no positive integer.

    >>> import fdbr
    >>> weight_key, bias_key = fdbr.random.split(fdbr.random.key(0))
    >>> fdbr.random.split(weight_key, 5).shape
    (5, 2)
    """
    _check_key("split", key)
    count = _integer("split", "num", num)
    if count < 1:
        raise ValueError(f"fdbr.random.split: num must be at least 1, got {count}")
    return lock(_words(key, 2 * count, _SPLIT).reshape(count, 2))


def fold_in(key: Any, data: int) -> Any:
    """The key that belongs to a number: the keys of different numbers are independent.

    Use it where keys are counted: one per step, epoch or layer.

    Parameters
    ----------
    key
        A key; it may serve for any number of `fold_in`.
    data
        An integer from 0 to 2**64 - 1.

    Returns
    -------
    array
        uint64, shape ``(2,)``.

    Raises
    ------
    TypeError, ValueError
        If ``key`` is no key, or ``data`` no integer of that range.

    >>> import fdbr
    >>> key = fdbr.random.key(0)
    >>> bool((fdbr.random.fold_in(key, 1) == fdbr.random.fold_in(key, 1)).all())
    True
    """
    _check_key("fold_in", key)
    number = _integer("fold_in", "data", data)
    if not 0 <= number < 2**64:
        raise ValueError(f"fdbr.random.fold_in: data must lie in 0 .. 2**64 - 1, got {number}")
    return lock(_words(key, 2, _FOLD, number).copy())


def bits(key: Any, shape: Shape = ()) -> Any:
    """Uniformly distributed 64-bit words, from which all other draws are made.

    Parameters
    ----------
    key
        A key.
    shape
        The shape of the result.

    Returns
    -------
    array
        uint64, of that shape, in the memory where the key lies.

    Raises
    ------
    TypeError, ValueError
        If ``key`` is no key, or ``shape`` no shape.

    >>> import fdbr
    >>> fdbr.random.bits(fdbr.random.key(0), (2, 3)).dtype
    dtype('uint64')
    """
    _check_key("bits", key)
    shape = _shape("bits", shape)
    return lock(_words(key, math.prod(shape), _DRAW).reshape(shape))


def _words(key: Any, count: int, use: int, block: int = 0) -> Any:
    """The ``count`` words of Philox under a key, for a use, from a block on."""
    generator = np.random.Philox(key=to_numpy(key), counter=(block, 0, 0, use))
    return array_module(key).asarray(generator.random_raw(count))


# --- floating distributions ---------------------------------------------------------


def uniform(
    key: Any, shape: Shape = (), dtype: Any = np.float64, minval: Any = 0.0, maxval: Any = 1.0
) -> Any:
    """Uniform on [minval, maxval).

    The draws are differentiable with respect to the bounds.

    Parameters
    ----------
    key
        A key.
    shape
        The shape of the result.
    dtype
        A floating dtype: float64 has 53 random bits, float32 24.
    minval, maxval
        Numbers, or arrays that broadcast to ``shape``.

    Returns
    -------
    array
        ``minval + u * (maxval - minval)``, never rounded up to ``maxval``.

    Raises
    ------
    TypeError, ValueError
        If a bound does not broadcast, is not below the other, or lies too far from it.

    >>> import fdbr
    >>> fdbr.random.uniform(fdbr.random.key(0), (2,), "float32").dtype
    dtype('float32')
    """
    _check_key("uniform", key)
    shape, dtype = _shape("uniform", shape), _floating("uniform", dtype)
    words = bits(key, shape)
    xp = array_module(words)
    low = _parameter("uniform", "minval", minval, shape, dtype)
    high = _parameter("uniform", "maxval", maxval, shape, dtype)
    plain_low, plain_high = stop_gradient(low), stop_gradient(high)
    _check_order("uniform", "minval", plain_low, "maxval", plain_high)
    digits = np.finfo(dtype).nmant + 1
    unit = (words >> (64 - digits)).astype(dtype) * 2.0**-digits
    value = low + unit * (high - low)
    last = xp.nextafter(xp.asarray(plain_high, dtype), xp.asarray(plain_low, dtype))
    return _give(ops.where(value < high, value, last), dtype)


def normal(key: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Standard normal, by inversion of the distribution function.

    Parameters
    ----------
    key, shape, dtype
        As for `uniform`.

    Returns
    -------
    array
        Of that shape and dtype; no draw is infinite.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it should be.

    >>> import fdbr
    >>> fdbr.random.normal(fdbr.random.key(0), (2, 3)).shape
    (2, 3)
    """
    u, dtype = _open_unit("normal", key, shape, dtype)
    return _give(_special(u).ndtri(u), dtype)


def truncated_normal(
    key: Any, lower: Any, upper: Any, shape: Shape | None = None, dtype: Any = np.float64
) -> Any:
    """Standard normal, given that it lies in [lower, upper].

    Parameters
    ----------
    key, dtype
        As for `uniform`.
    lower, upper
        Numbers, or arrays that broadcast to ``shape``; they may be infinite.
    shape
        The shape of the result; by default that to which the bounds broadcast.

    Returns
    -------
    array
        Of that shape and dtype.

    Raises
    ------
    TypeError, ValueError
        If a bound does not broadcast, or is not below the other.

    >>> import fdbr
    >>> draws = fdbr.random.truncated_normal(fdbr.random.key(0), -2, 2, (100,))
    >>> bool((abs(draws) <= 2).all())
    True
    """
    _check_key("truncated_normal", key)
    if shape is None:
        shape = np.broadcast_shapes(np.shape(lower), np.shape(upper))
    shape = _shape("truncated_normal", shape)
    u, dtype = _open_unit("truncated_normal", key, shape, dtype)
    xp, special = array_module(u), _special(u)
    low = xp.asarray(_parameter("truncated_normal", "lower", lower, shape, u.dtype))
    high = xp.asarray(_parameter("truncated_normal", "upper", upper, shape, u.dtype))
    if not bool((low < high).all()):
        raise ValueError(
            "fdbr.random.truncated_normal: lower must lie below upper everywhere, got "
            f"{lower!r} and {upper!r}"
        )
    # Above zero the distribution function has no digits left to tell tails apart: mirror.
    sign = xp.where(low > 0, -1.0, 1.0)
    bottom = special.ndtr(xp.minimum(sign * low, sign * high))
    top = special.ndtr(xp.maximum(sign * low, sign * high))
    draws = sign * special.ndtri(bottom + u * (top - bottom))
    return _give(xp.clip(draws, low, high), dtype)


def exponential(key: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Exponential of rate one: ``-log(u)``.  Arguments and errors as for `normal`.

    >>> import fdbr
    >>> bool((fdbr.random.exponential(fdbr.random.key(0), (9,)) > 0).all())
    True
    """
    u, dtype = _open_unit("exponential", key, shape, dtype)
    return _give(-array_module(u).log(u), dtype)


def gumbel(key: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Standard Gumbel: ``-log(-log(u))``.  Arguments and errors as for `normal`.

    >>> import fdbr
    >>> fdbr.random.gumbel(fdbr.random.key(0), (3,)).shape
    (3,)
    """
    u, dtype = _open_unit("gumbel", key, shape, dtype)
    xp = array_module(u)
    return _give(-xp.log(-xp.log(u)), dtype)


def laplace(key: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Standard Laplace, density ``exp(-|x|) / 2``.  Arguments and errors as for `normal`.

    >>> import fdbr
    >>> fdbr.random.laplace(fdbr.random.key(0), (3,)).shape
    (3,)
    """
    u, dtype = _open_unit("laplace", key, shape, dtype)
    xp = array_module(u)
    centred = u - 0.5
    return _give(-xp.sign(centred) * xp.log1p(-2 * xp.abs(centred)), dtype)


def logistic(key: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Standard logistic: ``log(u / (1 - u))``.  Arguments and errors as for `normal`.

    >>> import fdbr
    >>> fdbr.random.logistic(fdbr.random.key(0), (3,)).shape
    (3,)
    """
    u, dtype = _open_unit("logistic", key, shape, dtype)
    xp = array_module(u)
    return _give(xp.log(u) - xp.log1p(-u), dtype)


def cauchy(key: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Standard Cauchy: ``tan(pi * (u - 1/2))``.  Arguments and errors as for `normal`.

    >>> import fdbr
    >>> fdbr.random.cauchy(fdbr.random.key(0), (3,)).shape
    (3,)
    """
    u, dtype = _open_unit("cauchy", key, shape, dtype)
    return _give(array_module(u).tan(math.pi * (u - 0.5)), dtype)


# --- discrete distributions ---------------------------------------------------------


def bernoulli(key: Any, p: Any = 0.5, shape: Shape | None = None) -> Any:
    """True with probability ``p``.

    Parameters
    ----------
    key
        A key.
    p
        A number in [0, 1], or an array of them that broadcasts to ``shape``.
    shape
        The shape of the result; by default that of ``p``.

    Returns
    -------
    array
        bool.

    Raises
    ------
    TypeError, ValueError
        If ``p`` does not broadcast, or is no probability.

    >>> import fdbr
    >>> fdbr.random.bernoulli(fdbr.random.key(0), 1.0, (3,))
    array([ True,  True,  True])
    """
    _check_key("bernoulli", key)
    p = stop_gradient(p)
    shape = _shape("bernoulli", np.shape(p) if shape is None else shape)
    p = _parameter("bernoulli", "p", p, shape, np.dtype(np.float64))
    if not bool(((p >= 0) & (p <= 1)).all() if hasattr(p, "shape") else 0 <= p <= 1):
        raise ValueError(f"fdbr.random.bernoulli: p must lie in [0, 1], got {p!r}")
    return _give(uniform(key, shape) < p, np.dtype(bool))


def categorical(key: Any, logits: Any, axis: int = -1, shape: Shape | None = None) -> Any:
    """Indices drawn with probabilities ``softmax(logits, axis)``.

    The index of the largest of ``logits + gumbel`` is so distributed (Gumbel 1954; Maddison,
    Tarlow & Minka, NeurIPS 2014).

    Parameters
    ----------
    key
        A key.
    logits
        Unnormalised log probabilities; ``-inf`` is never drawn.
    axis
        The axis of ``logits`` over which the indices run.
    shape
        The shape of the result; it must end in that of ``logits`` without ``axis``, which
        is the default.

    Returns
    -------
    array
        int64.

    Raises
    ------
    TypeError, ValueError
        If ``logits`` has no such axis, or ``shape`` does not end as it must.

    >>> import fdbr
    >>> import numpy as np
    >>> fdbr.random.categorical(fdbr.random.key(0), np.array([-np.inf, 0.0]), shape=(3,))
    array([1, 1, 1])
    """
    _check_key("categorical", key)
    logits = stop_gradient(logits)
    xp = array_module(logits)
    logits = xp.asarray(logits)
    if not -logits.ndim <= axis < logits.ndim or not logits.shape[axis]:
        raise ValueError(
            f"fdbr.random.categorical: logits {describe(logits)} have no categories on axis {axis}"
        )
    logits = xp.moveaxis(logits, axis, -1)
    batch = logits.shape[:-1]
    shape = batch if shape is None else _shape("categorical", shape)
    if shape[len(shape) - len(batch) :] != batch:
        raise ValueError(
            f"fdbr.random.categorical: shape {shape} does not end in {batch}, the shape of the "
            "logits without the axis of categories; put the further draws in front"
        )
    noise = gumbel(key, (*shape, logits.shape[-1]))
    return _give(xp.argmax(logits + noise, axis=-1), np.dtype(np.int64))


def randint(key: Any, shape: Shape, minval: Any, maxval: Any, dtype: Any = np.int64) -> Any:
    """Integers drawn uniformly from [minval, maxval).

    They are 64-bit words modulo ``maxval - minval``; no integer's probability is off by more
    than 2**-64.

    Parameters
    ----------
    key
        A key.
    shape
        The shape of the result.
    minval, maxval
        Integers, or arrays of integers that broadcast to ``shape``.
    dtype
        An integer dtype that holds ``minval`` and ``maxval - 1``.

    Returns
    -------
    array
        Of that shape and dtype.

    Raises
    ------
    TypeError, ValueError
        If a bound is no integer, does not broadcast or fit the dtype, or if the range is empty.

    >>> import fdbr
    >>> bool((fdbr.random.randint(fdbr.random.key(0), (9,), 3, 6) < 6).all())
    True
    """
    _check_key("randint", key)
    shape, dtype = _shape("randint", shape), np.dtype(dtype)
    if dtype.kind not in "iu":
        raise TypeError(f"fdbr.random.randint: dtype must be an integer dtype, got {dtype}")
    words = bits(key, shape)
    xp = array_module(words)
    low = _integers("randint", "minval", minval, shape, xp)
    high = _integers("randint", "maxval", maxval, shape, xp)
    _check_integer_range(low, high, np.iinfo(dtype))
    # Differences wrap around in unsigned arithmetic to what they should be.
    with np.errstate(over="ignore"):
        start = low.astype(xp.uint64)
        return _give(start + words % (high.astype(xp.uint64) - start), dtype)


def permutation(key: Any, x: Any, axis: int = 0) -> Any:
    """A random permutation.

    Parameters
    ----------
    key
        A key.
    x
        An integer ``n`` for a permutation of ``0 .. n - 1``, or an array to permute.
    axis
        The axis of the array along which its parts change places.

    Returns
    -------
    array
        int64 of shape ``(n,)``, or an array of ``x``'s shape and dtype.

    Raises
    ------
    TypeError, ValueError
        If ``x`` is no array and no integer ≥ 0, or has no such axis.

    >>> import fdbr
    >>> sorted(fdbr.random.permutation(fdbr.random.key(0), 4).tolist())
    [0, 1, 2, 3]
    """
    _check_key("permutation", key)
    if getattr(x, "shape", ()) == ():
        count = _integer("permutation", "x", x)
        if count < 0:
            raise ValueError(f"fdbr.random.permutation: x must be at least 0, got {count}")
        return _order(key, count)
    if not -len(x.shape) <= axis < len(x.shape):
        raise ValueError(f"fdbr.random.permutation: x {describe(x)} has no axis {axis}")
    return lock(ops.take(x, _order(key, x.shape[axis]), axis=axis))


def choice(
    key: Any, a: Any, shape: Shape = (), replace: bool = True, p: Any = None, axis: int = 0
) -> Any:
    """Elements drawn from an array.

    Parameters
    ----------
    key
        A key.
    a
        An array, or an integer ``n`` for the elements ``0 .. n - 1``.
    shape
        The shape of the draws.
    replace
        Whether one element may be drawn several times.
    p
        The probability of each element, shape ``(n,)``; uniform by default.
    axis
        The axis of ``a`` on which the elements lie.

    Returns
    -------
    array
        Shape ``shape + a.shape`` without ``axis``, the draws in front.

    Raises
    ------
    TypeError, ValueError
        If there are too few elements, or ``p`` is no distribution over them.

    >>> import fdbr
    >>> sorted(fdbr.random.choice(fdbr.random.key(0), 3, (3,), replace=False).tolist())
    [0, 1, 2]
    """
    _check_key("choice", key)
    shape = _shape("choice", shape)
    whole = getattr(a, "shape", ()) == ()
    if not whole and not -len(a.shape) <= axis < len(a.shape):
        raise ValueError(f"fdbr.random.choice: a {describe(a)} has no axis {axis}")
    count = _integer("choice", "a", a) if whole else a.shape[axis]
    draws = math.prod(shape)
    if count < 1 or (not replace and draws > count):
        raise ValueError(
            f"fdbr.random.choice: cannot draw {draws} of {count} elements"
            + ("" if replace else " without replacement")
        )
    if p is None:
        where = randint(key, shape, 0, count) if replace else _order(key, count)[:draws]
    else:
        where = _weighted(key, shape, replace, _distribution(p, count))
    if whole:
        return lock(where.reshape(shape))
    first = ops.moveaxis(a, axis, 0)
    chosen = ops.take(first, where.reshape(-1), axis=0)
    return lock(ops.reshape(chosen, (*shape, *first.shape[1:])))


def _order(key: Any, count: int) -> Any:
    words = bits(key, (count,))
    return lock(array_module(words).argsort(words))


def _weighted(key: Any, shape: tuple[int, ...], replace: bool, p: Any) -> Any:
    xp = array_module(p)
    if replace:
        steps = xp.cumsum(p)
        return xp.searchsorted(steps, uniform(key, shape) * steps[-1], side="right")
    with np.errstate(divide="ignore"):
        scores = xp.log(p) + gumbel(key, p.shape)
    draws = math.prod(shape)
    if draws > int((p > 0).sum()):
        raise ValueError(
            f"fdbr.random.choice: cannot draw {draws} elements without replacement, only "
            f"{int((p > 0).sum())} have a probability above 0"
        )
    return xp.argsort(-scores)[:draws]


def _distribution(p: Any, count: int) -> Any:
    p = array_module(p).asarray(stop_gradient(p), dtype=np.float64)
    if p.shape != (count,) or not bool((p >= 0).all()) or abs(float(p.sum()) - 1) > 1e-4:
        raise ValueError(
            f"fdbr.random.choice: p must hold {count} probabilities that sum to 1, got "
            f"{describe(p)} with sum {float(p.sum())}"
        )
    return p


# --- arguments ----------------------------------------------------------------------


def _check_key(function: str, key: Any) -> None:
    shape, dtype = getattr(key, "shape", None), getattr(key, "dtype", None)
    if shape == (2,) and dtype == np.uint64:
        return
    hint = "make one with fdbr.random.key(seed)"
    if dtype == np.uint64 and shape is not None and shape[-1:] == (2,):
        hint = "these are several keys: unpack or index them"
    raise TypeError(
        f"fdbr.random.{function}: key must be one key, uint64[2], got {describe(key)}; {hint}"
    )


def _integer(function: str, name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(
            f"fdbr.random.{function}: {name} must be an integer, got {describe(value)}"
        ) from None


def _shape(function: str, shape: Shape) -> tuple[int, ...]:
    try:
        sizes = tuple(shape) if isinstance(shape, Sequence) else (operator.index(shape),)
        sizes = tuple(operator.index(size) for size in sizes)
    except TypeError:
        raise TypeError(
            f"fdbr.random.{function}: shape must be a tuple of integers, got {shape!r}"
        ) from None
    if any(size < 0 for size in sizes):
        raise ValueError(f"fdbr.random.{function}: shape {sizes} has a negative size")
    return sizes


def _floating(function: str, dtype: Any) -> np.dtype[Any]:
    known = np.dtype(dtype)
    if known.kind != "f":
        raise TypeError(
            f"fdbr.random.{function}: dtype must be a floating dtype, got {known}; draw integers "
            "with fdbr.random.randint"
        )
    return known


def _parameter(
    function: str, name: str, value: Any, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Any:
    """A parameter of a distribution: a number as it is, an array in the dtype of the draws."""
    if isinstance(value, bool | int | float):
        return float(value)
    if not isinstance(value, Tracer):
        value = array_module(value).asarray(value)
    sizes = tuple(value.shape)
    fits = len(sizes) <= len(shape) and all(
        size in (1, wanted) for size, wanted in zip(sizes[::-1], shape[::-1], strict=False)
    )
    if not fits or value.dtype.kind not in "biuf":
        raise ValueError(
            f"fdbr.random.{function}: {name} must be real and broadcast to shape {shape}, got "
            f"{describe(value)}"
        )
    return value if value.dtype == dtype else ops.astype(value, dtype)


def _check_order(function: str, low_name: str, low: Any, high_name: str, high: Any) -> None:
    inside = low < high
    finite = abs(high - low) < math.inf
    if bool(inside.all() if hasattr(inside, "all") else inside) and bool(
        finite.all() if hasattr(finite, "all") else finite
    ):
        return
    raise ValueError(
        f"fdbr.random.{function}: {low_name} must lie below {high_name} everywhere, at a finite "
        f"distance, got {low!r} and {high!r}"
    )


def _integers(function: str, name: str, value: Any, shape: tuple[int, ...], xp: Any) -> Any:
    try:
        array = xp.asarray(value)
    except OverflowError:
        array = xp.asarray(0.0)
    if array.dtype.kind not in "iu":
        raise TypeError(
            f"fdbr.random.{function}: {name} must be integers of at most 64 bits, got "
            f"{describe(value)}"
        )
    if np.broadcast_shapes(array.shape, shape) != shape:
        raise ValueError(
            f"fdbr.random.{function}: {name} {describe(array)} does not broadcast to shape {shape}"
        )
    return array


def _check_integer_range(low: Any, high: Any, limits: Any) -> None:
    # As Python's integers, because int64 and uint64 have no common integer dtype.
    if not bool((low < high).all()):
        raise ValueError(
            f"fdbr.random.randint: minval must lie below maxval everywhere, got {low} and {high}"
        )
    if not low.size or not high.size:
        return
    lowest, highest = int(low.min()), int(high.max())
    if lowest < limits.min or highest - 1 > limits.max:
        raise ValueError(
            f"fdbr.random.randint: {limits.dtype} holds {limits.min} .. {limits.max}, not "
            f"{lowest} .. {highest - 1}; choose another dtype"
        )


# --- results ------------------------------------------------------------------------


def _open_unit(function: str, key: Any, shape: Shape, dtype: Any) -> tuple[Any, np.dtype[Any]]:
    """Draws from the open interval (0, 1), symmetric about 1/2, always in float64."""
    _check_key(function, key)
    dtype = _floating(function, dtype)
    words = bits(key, _shape(function, shape))
    return ((words >> 12).astype(np.float64) + 0.5) * 2.0**-52, dtype


def _special(array: Any) -> Any:
    """SciPy's special functions, for the module of an array."""
    name = array_module(array).__name__
    return importlib.import_module("cupyx.scipy.special" if name == "cupy" else "scipy.special")


def _give(values: Any, dtype: np.dtype[Any]) -> Any:
    """What a distribution returns: of its dtype, read-only, an array even where 0-d."""
    if isinstance(values, Tracer):
        return ops.astype(values, dtype)
    with np.errstate(over="ignore"):  # a draw beyond a small dtype's range is infinite in it
        return lock(array_module(values).asarray(values).astype(dtype, copy=False))
