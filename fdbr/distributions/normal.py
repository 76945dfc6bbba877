"""The normal distribution, of numbers and vectors, and that of its exponential."""

import math
from typing import Any, ClassVar

from fdbr import ops, random
from fdbr.distributions.distribution import (
    Distribution,
    broadcast,
    check_vector,
    dtype_of,
    exactly_one,
    inside,
    shape_of,
    stepped,
)
from fdbr.distributions.ranges import check_range, check_shapes
from fdbr.errors.public import public
from fdbr.tree import frozen

__all__ = ["LogNormal", "MultivariateNormal", "Normal"]

_HALF_LOG = 0.5 * math.log(2 * math.pi)


@public("fdbr.distributions")
@frozen
class Normal(Distribution):
    """The normal distribution: the density is ``exp(-z**2 / 2) / (scale * sqrt(2 * pi))``.

    Attributes
    ----------
    loc
        The mean.
    scale
        The standard deviation, positive; ``z = (x - loc) / scale``.

    >>> import fdbr
    >>> from fdbr.distributions import Normal
    >>> round(float(Normal(0.0, 1.0).log_prob(0.0)), 6)
    -0.918939
    >>> float(fdbr.grad(lambda loc: Normal(loc, 2.0).sample(fdbr.random.key(0)))(1.0))
    1.0
    """

    loc: Any = 0.0
    scale: Any = 1.0

    ranges: ClassVar = {"loc": "finite", "scale": "positive and finite"}

    @property
    def mean(self) -> Any:
        return broadcast(self.loc, self)

    @property
    def mode(self) -> Any:
        return self.mean

    @property
    def variance(self) -> Any:
        return broadcast(self.scale**2, self)

    def _log_prob(self, x: Any) -> Any:
        z = (x - self.loc) / self.scale
        return -0.5 * z * z - ops.log(self.scale) - _HALF_LOG

    def _cdf(self, x: Any) -> Any:
        return ops.ndtr((x - self.loc) / self.scale)

    def _log_cdf(self, x: Any) -> Any:
        return ops.log_ndtr((x - self.loc) / self.scale)

    def _survival(self, x: Any) -> Any:
        return ops.ndtr((self.loc - x) / self.scale)

    def _log_survival(self, x: Any) -> Any:
        return ops.log_ndtr((self.loc - x) / self.scale)

    def _icdf(self, q: Any) -> Any:
        return self.loc + self.scale * ops.ndtri(q)

    def entropy(self) -> Any:
        return broadcast(0.5 + _HALF_LOG + ops.log(self.scale), self)

    def _draw(self, key: Any, shape: tuple[int, ...]) -> Any:
        return self.loc + self.scale * random.normal(key, shape, self.dtype)


@public("fdbr.distributions")
@frozen
class LogNormal(Distribution):
    """The distribution of ``exp(z)`` for ``z`` of ``Normal(loc, scale)``.

    Attributes
    ----------
    loc, scale
        Mean and standard deviation of the logarithm.

    >>> from fdbr.distributions import LogNormal
    >>> float(LogNormal(0.0, 1.0).cdf(1.0))
    0.5
    """

    loc: Any = 0.0
    scale: Any = 1.0

    ranges: ClassVar = {"loc": "finite", "scale": "positive and finite"}

    support = "positive"

    @property
    def _log(self) -> Normal:
        return Normal(self.loc, self.scale)

    @property
    def mean(self) -> Any:
        return broadcast(ops.exp(self.loc + self.scale**2 / 2), self)

    @property
    def mode(self) -> Any:
        return broadcast(ops.exp(self.loc - self.scale**2), self)

    @property
    def variance(self) -> Any:
        square = self.scale**2
        return broadcast(ops.expm1(square) * ops.exp(2 * self.loc + square), self)

    def _log_prob(self, x: Any) -> Any:
        return inside(x > 0, x, 1.0, lambda x: self._log.log_prob(ops.log(x)) - ops.log(x))

    def _cdf(self, x: Any) -> Any:
        above = self._log.cdf(ops.log(ops.where(x > 0, x, 1.0)))
        return stepped(x, ops.where(x > 0, above, 0.0))

    def _survival(self, x: Any) -> Any:
        above = self._log.survival(ops.log(ops.where(x > 0, x, 1.0)))
        return stepped(x, ops.where(x > 0, above, 1.0))

    def _log_cdf(self, x: Any) -> Any:
        above = self._log.log_cdf(ops.log(ops.where(x > 0, x, 1.0)))
        return stepped(x, ops.where(x > 0, above, -math.inf))

    def _log_survival(self, x: Any) -> Any:
        above = self._log.log_survival(ops.log(ops.where(x > 0, x, 1.0)))
        return stepped(x, ops.where(x > 0, above, 0.0))

    def _icdf(self, q: Any) -> Any:
        return ops.exp(self._log.icdf(q))

    def entropy(self) -> Any:
        return broadcast(self._log.entropy() + self.loc, self)

    def _draw(self, key: Any, shape: tuple[int, ...]) -> Any:
        return ops.exp(self._log._draw(key, shape))


@public("fdbr.distributions")
@frozen
class MultivariateNormal(Distribution):
    """Normal vectors: ``loc + scale_tril @ z`` with ``z`` of independent standard normal numbers.

    Parameters
    ----------
    loc
        The mean, shape ``(..., n)``.
    scale_tril
        The Cholesky factor of the covariance, lower triangular with a positive diagonal, shape
        ``(..., n, n)``.
    covariance_matrix
        The covariance itself, in its place; by name, for it is the second in PyTorch and the
        factor in Chainer.

    Raises
    ------
    ValueError
        If not exactly one of the last two is given, or a shape does not fit.

    >>> import numpy as np
    >>> from fdbr.distributions import MultivariateNormal
    >>> d = MultivariateNormal(np.zeros(2), covariance_matrix=np.diag([4.0, 1.0]))
    >>> d.scale_tril.tolist()
    [[2.0, 0.0], [0.0, 1.0]]
    """

    loc: Any
    scale_tril: Any

    def __init__(self, loc: Any, *, scale_tril: Any = None, covariance_matrix: Any = None) -> None:
        kind = "MultivariateNormal"
        exactly_one(kind, scale_tril=scale_tril, covariance_matrix=covariance_matrix)
        name = "scale_tril" if covariance_matrix is None else "covariance_matrix"
        matrix = scale_tril if covariance_matrix is None else covariance_matrix
        check_vector(kind, "loc", loc)
        check_vector(kind, name, matrix, 2)
        if matrix.shape[-2:] != (loc.shape[-1],) * 2:
            raise ValueError(
                f"fdbr.distributions.{kind}: {name} must have shape (..., n, n) for loc of "
                f"shape (..., n), got {matrix.shape} and {loc.shape}"
            )
        check_shapes(kind, **{"loc": loc[..., 0], name: matrix[..., 0, 0]})
        if scale_tril is None:
            check_range(kind, name, matrix, "a symmetric matrix of finite numbers")
            scale_tril = ops.linalg.cholesky(matrix)
        self.__attrs_init__(loc, scale_tril)  # type: ignore[attr-defined]

    support = "real vectors"
    ranges: ClassVar = {
        "loc": "finite",
        "scale_tril": "lower triangular with a positive diagonal",
    }

    def _check(self, kind: str, given: dict[str, Any]) -> None:
        pass  # the shapes have been looked at

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return shape_of(self.loc[..., 0], self.scale_tril[..., 0, 0])

    @property
    def event_shape(self) -> tuple[int, ...]:
        return tuple(self.loc.shape[-1:])

    @property
    def mean(self) -> Any:
        return ops.broadcast_to(self.loc, self.batch_shape + self.event_shape)

    @property
    def mode(self) -> Any:
        return self.mean

    @property
    def covariance(self) -> Any:
        """The covariance matrix, shape ``batch_shape + (n, n)``."""
        square = self.scale_tril @ ops.matrix_transpose(self.scale_tril)
        return ops.broadcast_to(square, self.batch_shape + self.event_shape * 2)

    @property
    def variance(self) -> Any:
        squares = ops.sum(self.scale_tril**2, axis=-1)
        return ops.broadcast_to(squares, self.batch_shape + self.event_shape)

    @property
    def log_det(self) -> Any:
        """Half the logarithm of the covariance's determinant, shape ``(...)``."""
        return ops.sum(ops.log(ops.linalg.diagonal(self.scale_tril)), axis=-1)

    def whitened(self, x: Any) -> Any:
        """``z`` for a value ``x = loc + scale_tril @ z``."""
        away = ops.expand_dims(x - self.loc, axis=-1)
        lead = shape_of(away[..., 0, 0], self.scale_tril[..., 0, 0])
        n = self.event_shape[0]
        factor = ops.broadcast_to(self.scale_tril, (*lead, n, n))
        away = ops.broadcast_to(away, (*lead, n, 1))
        return ops.squeeze(ops.linalg.solve_triangular(factor, away, lower=True), axis=-1)

    def _log_prob(self, x: Any) -> Any:
        z = self.whitened(x)
        return -0.5 * ops.sum(z * z, axis=-1) - self.log_det - self.event_shape[0] * _HALF_LOG

    def entropy(self) -> Any:
        n = self.event_shape[0]
        return ops.broadcast_to(n * (0.5 + _HALF_LOG) + self.log_det, self.batch_shape)

    def _draw(self, key: Any, shape: tuple[int, ...]) -> Any:
        dtype = dtype_of(self.loc, self.scale_tril)
        z = random.normal(key, shape + self.event_shape, dtype)
        moved = ops.matmul(self.scale_tril, ops.expand_dims(z, axis=-1))
        return self.loc + ops.squeeze(moved, axis=-1)
