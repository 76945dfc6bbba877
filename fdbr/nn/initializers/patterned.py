"""Initial values with a pattern: constants, identities, orthogonal matrices, and sparse ones."""

import math
from typing import Any

import numpy as np

from fdbr import random
from fdbr.core.array_modules import array_module, lock
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import explaining, public
from fdbr.nn.initializers.random import fans, lecun_normal, one_of, positive
from fdbr.ops.dtypes import rounded_like
from fdbr.tree import frozen, static

__all__ = [
    "Constant",
    "DeltaOrthogonal",
    "Dirac",
    "Identity",
    "Orthogonal",
    "Sparse",
    "constant",
    "delta_orthogonal",
    "dirac",
    "eye",
    "generate_array",
    "identity",
    "nan",
    "ones",
    "orthogonal",
    "sparse",
    "zeros",
]


@public("fdbr.nn.initializers")
@frozen
class Orthogonal:
    """Matrices with orthonormal rows or columns, whichever are fewer, times ``gain``.

    ``mode`` says which shapes are allowed; see `orthogonal`.
    """

    gain: float = static()
    mode: str = static(default="auto")

    @explaining("fdbr.nn.initializers")
    def __call__(self, key: Any, shape: Any, dtype: Any = np.float32) -> Any:
        """Return an array of that shape, a matrix of ``shape[0]`` rows, and dtype.

        Raises
        ------
        ValueError
            If the shape has fewer than two axes or is empty.
        """
        fans(shape)
        rows, columns = shape[0], math.prod(shape[1:])
        if (columns > rows and self.mode in ("embedding", "basis")) or (
            columns < rows and self.mode in ("projection", "basis")
        ):
            raise ValueError(
                f"fdbr.nn.initializers.orthogonal: a matrix of {rows} rows and {columns} columns "
                f"is no {self.mode}; give another shape or mode"
            )
        draws = random.normal(key, (max(rows, columns), min(rows, columns)))
        xp = array_module(draws)
        q, r = xp.linalg.qr(draws)
        # The signs make the factorization unique, and so the distribution uniform.
        q = q * xp.where(xp.diagonal(r) < 0, -1.0, 1.0)
        matrix = q if rows >= columns else q.T
        return lock(xp.array(self.gain * matrix.reshape(shape), dtype=dtype, order="C"))


@public("fdbr.nn.initializers")
@frozen
class Constant:
    """One value everywhere."""

    value: float = static()

    @explaining("fdbr.nn.initializers")
    def __call__(self, key: Any, shape: Any, dtype: Any = np.float32) -> Any:
        """Return an array of that shape and dtype; the key is not used and may be `None`."""
        return lock(array_module(key).full(shape, self.value, dtype=dtype))


@public("fdbr.nn.initializers")
@frozen
class Identity:
    """A matrix with ``scale`` on its diagonal and 0 elsewhere, square unless ``wide``."""

    scale: float = static()
    wide: bool = static(default=False)

    @explaining("fdbr.nn.initializers")
    def __call__(self, key: Any, shape: Any, dtype: Any = np.float32) -> Any:
        """Return an array of that shape and dtype; the key is not used and may be `None`."""
        if len(shape) != 2 or (shape[0] != shape[1] and not self.wide):
            name, what = ("eye", "a") if self.wide else ("identity", "a square")
            raise ValueError(
                f"fdbr.nn.initializers.{name}: shape {tuple(shape)} must be that of {what} matrix"
            )
        xp = array_module(key)
        return lock(xp.eye(*shape, dtype=dtype) * xp.asarray(self.scale, dtype=dtype))


@public("fdbr.nn.initializers")
@frozen
class Dirac:
    """Identity convolutions: 1 at the middle of kernels, in ``groups`` groups."""

    groups: int = static(default=1)

    @explaining("fdbr.nn.initializers")
    def __call__(self, key: Any, shape: Any, dtype: Any = np.float32) -> Any:
        """Return an array ``(out, in, *kernel)``; the key is not used and may be `None`."""
        xp = array_module(key)
        out, middle = xp.zeros(shape, dtype=dtype), _middle("dirac", shape)
        if shape[0] % self.groups:
            raise ValueError(
                f"fdbr.nn.initializers.dirac: the first axis of shape {tuple(shape)} must be a "
                f"multiple of groups, {self.groups}"
            )
        size = shape[0] // self.groups
        for group in range(self.groups):
            channels = xp.arange(min(size, shape[1]))
            out[(group * size + channels, channels, *middle)] = 1
        return lock(out)


@public("fdbr.nn.initializers")
@frozen
class DeltaOrthogonal:
    """Convolutions with an orthogonal matrix at the middle of their kernels, and 0 elsewhere."""

    gain: float = static()

    @explaining("fdbr.nn.initializers")
    def __call__(self, key: Any, shape: Any, dtype: Any = np.float32) -> Any:
        """Return an array of that shape, ``(out, in, *kernel)``, and dtype."""
        middle = _middle("delta_orthogonal", shape)
        if shape[0] < shape[1]:
            raise ValueError(
                f"fdbr.nn.initializers.delta_orthogonal: of shape {tuple(shape)}, (out, in, "
                "*kernel), there must be as many outputs as inputs, or more"
            )
        matrix = Orthogonal(self.gain)(key, shape[:2], dtype)
        out = array_module(matrix).zeros(shape, dtype=dtype)
        out[(..., *middle)] = matrix
        return lock(out)


@public("fdbr.nn.initializers")
@frozen
class Sparse:
    """Normal matrices in which a share of each column is 0."""

    sparsity: float = static()
    stddev: float = static()

    @explaining("fdbr.nn.initializers")
    def __call__(self, key: Any, shape: Any, dtype: Any = np.float32) -> Any:
        """Return a matrix of that shape and dtype."""
        if len(shape) != 2:
            raise ValueError(
                f"fdbr.nn.initializers.sparse: shape {tuple(shape)} must be that of a matrix"
            )
        value_key, rank_key = random.split(key)
        draws = random.normal(value_key, shape, dtype)
        draws = rounded_like(draws * self.stddev, draws)
        xp = array_module(draws)
        zeros = math.ceil(self.sparsity * shape[0])
        ranks = xp.argsort(xp.argsort(random.uniform(rank_key, shape), axis=0), axis=0)
        return lock(xp.where(ranks < zeros, xp.zeros((), dtype=dtype), draws))


def _middle(function: str, shape: Any) -> tuple[int, ...]:
    """Return the index of the middle of a kernel."""
    if len(shape) < 3 or not math.prod(shape):
        raise ValueError(
            f"fdbr.nn.initializers.{function}: shape {tuple(shape)} is that of no convolution, "
            "(out, in, *kernel)"
        )
    return tuple(n // 2 for n in shape[2:])


@public("fdbr.nn.initializers")
def orthogonal(gain: float = 1.0, *, mode: str = "auto") -> Orthogonal:
    """Return an initializer of orthogonal matrices.

    Saxe et al., *Exact solutions …*, ICLR 2014.

    A weight with a kernel is a matrix of ``shape[0]`` rows.  By ``mode`` it has any shape
    (``"auto"``), is square (``"basis"``), or has at least as many columns (``"projection"``) or
    rows (``"embedding"``) as the other.  Chainer's default gain is 1.1.

    >>> import fdbr
    >>> import numpy as np
    >>> weight = orthogonal()(fdbr.random.key(0), (2, 5))
    >>> bool(np.allclose(weight @ weight.T, np.eye(2), atol=1e-6))
    True
    """
    modes = ("auto", "projection", "embedding", "basis")
    return Orthogonal(
        positive("orthogonal", "gain", gain), one_of("orthogonal", "mode", mode, modes)
    )


@public("fdbr.nn.initializers")
def constant(value: float) -> Constant:
    """Return an initializer of one value.

    >>> constant(0.5)(None, (2,))
    array([0.5, 0.5], dtype=float32)
    """
    return Constant(value)


@public("fdbr.nn.initializers")
def zeros() -> Constant:
    """Return an initializer of zeros.

    >>> zeros()(None, (2,))
    array([0., 0.], dtype=float32)
    """
    return Constant(0.0)


@public("fdbr.nn.initializers")
def ones() -> Constant:
    """Return an initializer of ones.

    >>> ones()(None, (2,))
    array([1., 1.], dtype=float32)
    """
    return Constant(1.0)


@public("fdbr.nn.initializers")
def nan() -> Constant:
    """Return an initializer of NaN, for values that must be replaced before they are used.

    >>> nan()(None, (2,))
    array([nan, nan], dtype=float32)
    """
    return Constant(math.nan)


@public("fdbr.nn.initializers")
def identity(scale: float = 1.0) -> Identity:
    """Return a square matrix of ``scale`` on its diagonal, and 0 elsewhere.

    >>> identity(2.0)(None, (2, 2))
    array([[2., 0.],
           [0., 2.]], dtype=float32)
    """
    return Identity(_number("identity", "scale", scale))


@public("fdbr.nn.initializers")
def eye(gain: float = 1.0) -> Identity:
    """Return a matrix, square or not, of ``gain`` on its diagonal, and 0 elsewhere.

    >>> eye()(None, (2, 3))
    array([[1., 0., 0.],
           [0., 1., 0.]], dtype=float32)
    """
    return Identity(_number("eye", "gain", gain), True)


@public("fdbr.nn.initializers")
def dirac(groups: int = 1) -> Dirac:
    """Return an initializer of identity convolutions, 1 at the kernel's middle, as in PyTorch.

    >>> dirac()(None, (2, 2, 3))
    array([[[0., 1., 0.],
            [0., 0., 0.]],
           [[0., 0., 0.],
            [0., 1., 0.]]], dtype=float32)
    """
    return Dirac(integer("fdbr.nn.initializers.dirac", "groups", groups, least=1))


@public("fdbr.nn.initializers")
def delta_orthogonal(gain: float = 1.0) -> DeltaOrthogonal:
    """Return an initializer of convolutions with an orthogonal matrix at the kernel's middle.

    There are at least as many outputs as inputs: Xiao et al., *Dynamical isometry …*, ICML 2018.

    >>> import fdbr
    >>> weight = delta_orthogonal()(fdbr.random.key(0), (4, 2, 3))
    >>> weight[..., 0].any(), (weight[..., 1].T @ weight[..., 1]).round(3)
    (np.False_, array([[1., 0.],
           [0., 1.]], dtype=float32))
    """
    return DeltaOrthogonal(positive("delta_orthogonal", "gain", gain))


@public("fdbr.nn.initializers")
def sparse(sparsity: float, stddev: float = 0.01) -> Sparse:
    """Return an initializer of normal matrices in which a share of each column is 0.

    Martens, *Deep learning via Hessian-free optimization*, ICML 2010.  The share is rounded up.

    >>> import fdbr
    >>> int((sparse(0.25)(fdbr.random.key(0), (8, 5)) == 0).sum())
    10
    """
    share = _number("sparse", "sparsity", sparsity)
    if not 0 <= share <= 1:
        raise ValueError(
            f"fdbr.nn.initializers.sparse: sparsity must be from 0 to 1, got {sparsity}"
        )
    return Sparse(share, positive("sparse", "stddev", stddev))


@public("fdbr.nn.initializers")
def generate_array(initializer: Any, key: Any, shape: Any, dtype: Any = np.float32) -> Any:
    """Return an array made by an initializer, which may also be a number or an array.

    Parameters
    ----------
    initializer
        A function ``init(key, shape, dtype)``; or a number or array, which is broadcast; or `None`
        for `lecun_normal`.
    key
        A random key; it may be `None` if no random numbers are drawn.
    shape, dtype
        The shape and dtype of the array.

    Raises
    ------
    TypeError
        If the initializer is something else.

    >>> generate_array(0.5, None, (2,))
    array([0.5, 0.5], dtype=float32)
    """
    if initializer is None:
        initializer = lecun_normal()
    if callable(initializer):
        return initializer(key, shape, dtype)
    if not hasattr(initializer, "dtype") and not isinstance(initializer, int | float | complex):
        raise TypeError(
            "fdbr.nn.initializers.generate_array: initializer must be a function (key, shape, "
            f"dtype), a number or an array, not {describe(initializer)}"
        )
    xp = array_module(initializer, key)
    value = xp.asarray(initializer, dtype=dtype)
    return lock(xp.array(xp.broadcast_to(value, shape)))


def _number(function: str, name: str, value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"fdbr.nn.initializers.{function}: {name} must be finite, got {value}")
    return number
