"""Decorrelated batch normalization."""

from typing import Any

from fdbr.core.array_modules import Array
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.ops.declare import fit, leading, opaque
from fdbr.ops.dtypes import in_single
from fdbr.ops.linalg.lapack import lapack
from fdbr.ops.products import matmul
from fdbr.ops.reductions.reduce import mean as mean_of
from fdbr.ops.shape.creation import asarray, floating
from fdbr.ops.shape.manipulation import expand_dims, moveaxis, reshape

__all__ = ["decorrelated_batch_norm"]


# --- the inverse square root of symmetric matrices ----------------------------------


def _root_rule(ct: Any, out: Any, root: Any) -> Any:
    solved = _lyapunov(root, ct)
    return -(out.mT @ solved + solved @ out.mT)


@opaque(
    root=(
        lambda ct, root, out, like: fit(_root_rule(ct, out, root), like),
        lambda t, root, out: -_lyapunov(root, out @ t + t @ out),
    ),
    right=(
        lambda ct, root, like: fit(_lyapunov(root, ct), like),
        lambda t, root: _lyapunov(root, t),
    ),
    batch=leading(2),
)
def _lyapunov(xp: Any, root: Array, right: Array) -> Array:
    """Solve ``X root + root X = right`` for positive definite roots."""
    values, vectors = lapack(xp, "eigh", root, strict=False)
    sums = values[..., :, None] + values[..., None, :]
    return vectors @ ((vectors.mT @ right @ vectors) / sums) @ vectors.mT


@opaque(
    x=(
        lambda ct, x, out, eps: -(out @ _lyapunov(x @ out + eps * out, ct) @ out),
        lambda t, x, out, eps: -_lyapunov(x @ out + eps * out, out @ t @ out),
    ),
    batch=leading(2),
)
def _inverse_root(xp: Any, x: Array, *, eps: float) -> Array:
    """``(x + eps * I) ** (-1/2)`` of symmetric matrices, differentiable at equal eigenvalues."""
    values, vectors = lapack(xp, "eigh", x, strict=False)
    return (vectors / xp.sqrt(values + eps)[..., None, :]) @ vectors.mT


# --- public functions -----------------------------------------------------------------


@public("fdbr.ops")
@in_single
def decorrelated_batch_norm(
    x: Array,
    groups: int = 16,
    *,
    mean: Array = None,
    projection: Array = None,
    eps: float = 2e-5,
) -> tuple[Any, Any, Any]:
    """Normalize channels to mean 0 and, within each group, to covariance identity.

    ``(covariance + eps * I) ** (-1/2) @ (x - mean)``, which is ZCA whitening: Huang, Yang, Lang &
    Deng, *Decorrelated batch normalization*, CVPR 2018.

    Parameters
    ----------
    x
        Real floating, shape ``(N, C, *spatial)``.
    groups
        The number of groups of channels.
    mean, projection
        Known statistics, of shapes ``(groups, C / groups)`` and ``(groups, C / groups, C /
        groups)``, as in inference; by default those of ``x``.
    eps
        A number added to the variances.

    Returns
    -------
    out
        The normalized array.
    mean, projection
        The statistics used.

    Raises
    ------
    TypeError
        If ``x`` is complex.
    ValueError
        If the groups do not divide the channels, statistics do not fit, or one only is given.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> x = np.array([[1.0, 1.0], [2.0, 3.0], [4.0, 2.0]])
    >>> y, mean, projection = ops.decorrelated_batch_norm(x, 1, eps=0.0)
    >>> bool(np.allclose(y.T @ y / 3, np.eye(2)))
    True
    """
    name = "fdbr.ops.decorrelated_batch_norm"
    x = floating(x)
    if x.dtype.kind == "c":
        raise TypeError(f"{name}: x must be real, not {describe(x)}")
    groups = integer(name, "groups", groups, least=1)
    if x.ndim < 2 or x.shape[1] % groups:
        raise ValueError(
            f"{name}: x {describe(x)} must have shape (N, C, …), with the {groups} groups dividing "
            "the channels C"
        )
    if (mean is None) != (projection is None):
        raise ValueError(f"{name}: give both mean and projection, or neither")
    size = x.shape[1] // groups
    channels = moveaxis(x, 1, 0)
    parts = reshape(channels, (groups, size, -1 if x.size else 0))
    if mean is None:
        if not parts.shape[-1]:
            raise ValueError(f"{name}: x {describe(x)} has no elements to take statistics of")
        mean = mean_of(parts, axis=-1)
        away = parts - expand_dims(mean, axis=-1)
        covariance = matmul(away, away.mT) * (1 / parts.shape[-1])
        projection = _inverse_root(covariance, eps=float(eps))
    else:
        mean = _checked_shape(name, "mean", mean, (groups, size))
        projection = _checked_shape(name, "projection", projection, (groups, size, size))
        away = parts - expand_dims(mean, axis=-1)
    out = reshape(matmul(projection, away), channels.shape)
    return moveaxis(out, 0, 1), mean, projection


def _checked_shape(function: str, name: str, value: Any, shape: tuple[int, ...]) -> Any:
    value = asarray(value)
    if value.shape != shape:
        raise ValueError(f"{function}: {name} must have shape {shape}, got {describe(value)}")
    return value
