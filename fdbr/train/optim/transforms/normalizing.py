"""Gradients in the measure of norms: their own, or those of the parameters."""

from typing import Any

from fdbr import ops
from fdbr.core.util.pickling import public_factory
from fdbr.train.optim.base import Optimizer
from fdbr.train.optim.leafwise import leafwise
from fdbr.train.optim.numbers import check_positive
from fdbr.train.optim.transforms.clipping import block_norm, by_global_norm

__all__ = [
    "centralize",
    "gradient_lars",
    "normalize_by_update_norm",
    "scale_by_param_block_norm",
    "scale_by_param_block_rms",
    "scale_by_trust_ratio",
]


@public_factory("fdbr.train.optim")
def centralize() -> Optimizer:
    """Take the mean from the gradient of each output (Yong et al., ECCV 2020).

    Formula, for gradients of two axes or more: ``update = gradient - mean(gradient)``, with the
    mean along all axes but the first.

    >>> import numpy as np
    >>> from fdbr.train import optim
    >>> optim.centralize().update(np.array([[1.0, 3.0], [4.0, 8.0]]), optim.EmptyState())[0]
    array([[-1.,  1.],
           [-2.,  2.]])
    """

    def update(g: Any, own: Any, p: Any, t: Any) -> tuple[Any, Any]:
        if getattr(g, "ndim", 0) < 2 or not g.size:
            return g, own
        return g - ops.mean(g, axis=tuple(range(1, g.ndim)), keepdims=True), own

    return leafwise("centralize", update)


@public_factory("fdbr.train.optim")
def normalize_by_update_norm(scale_factor: float = 1.0, eps: float = 1e-6) -> Optimizer:
    """Divide the gradients by the norm of all of them together.

    Formula: ``update = gradient * scale_factor / (norm + eps)``.

    Parameters
    ----------
    scale_factor
        A number.
    eps
        A number ≥ 0, for gradients that are zero.

    Raises
    ------
    ValueError
        If ``eps`` is negative.

    >>> from fdbr.train import optim
    >>> optim.normalize_by_update_norm(2.5, eps=0.0).update([3.0, 4.0], optim.EmptyState())[0]
    [1.5, 2.0]
    """
    check_positive("normalize_by_update_norm", or_zero=True, eps=eps)
    return by_global_norm(
        "normalize_by_update_norm",
        lambda g, factor: g * factor,
        lambda norm: scale_factor / (norm + eps),
    )


@public_factory("fdbr.train.optim")
def scale_by_trust_ratio(
    min_norm: float = 0.0, trust_coefficient: float = 1.0, eps: float = 0.0
) -> Optimizer:
    """Give each update the length of its parameter: the layers' rates of LARS and LAMB.

    Formula (You et al. 2017, 2020), with norms of at least ``min_norm``::

        update = gradient * trust_coefficient * norm(parameter) / (norm(gradient) + eps)

    Where one of the norms is zero the gradient stays as it is.

    Parameters
    ----------
    min_norm
        A number ≥ 0.
    trust_coefficient
        A number.
    eps
        A number ≥ 0.

    Raises
    ------
    ValueError
        If a number is negative.
    TypeError
        By ``update``, if there are no parameters.

    >>> from fdbr.train import optim
    >>> optim.scale_by_trust_ratio().update([4.0, 5.0], optim.EmptyState(), [2.0, 0.0])[0]
    [2.0, 5.0]
    """
    check_positive("scale_by_trust_ratio", or_zero=True, min_norm=min_norm, eps=eps)

    def update(g: Any, own: Any, p: Any, t: Any) -> tuple[Any, Any]:
        length = ops.maximum(block_norm(p), min_norm)
        own_length = ops.maximum(block_norm(g), min_norm)
        nothing = ops.logical_or(length == 0, own_length == 0)
        ratio = trust_coefficient * length / (ops.where(nothing, 1.0, own_length) + eps)
        return g * ops.where(nothing, 1.0, ratio), own

    return leafwise("scale_by_trust_ratio", update, needs_params=True)


@public_factory("fdbr.train.optim")
def gradient_lars(
    threshold: float = 1e-2, weight_decay: float = 0.0, eps: float = 1e-9
) -> Optimizer:
    """The layers' rates of LARS (You et al. 2017), as Chainer's ``GradientLARS`` has them.

    Formula::

        ratio = norm(parameter) / (norm(gradient) + weight_decay * norm(parameter) + eps)
        update = (gradient + weight_decay * parameter) * ratio

    with a ratio of 1 where ``norm(parameter)`` is at most ``threshold``.

    Parameters
    ----------
    threshold, weight_decay, eps
        Numbers ≥ 0.

    Raises
    ------
    ValueError
        If one is negative.
    TypeError
        By ``update``, if there are no parameters.

    >>> from fdbr.train import optim
    >>> optim.gradient_lars(eps=0.0).update([4.0, 5.0], optim.EmptyState(), [2.0, 0.001])[0]
    [2.0, 5.0]
    """
    numbers = {"threshold": threshold, "weight_decay": weight_decay, "eps": eps}
    check_positive("gradient_lars", or_zero=True, **numbers)

    def update(g: Any, own: Any, p: Any, t: Any) -> tuple[Any, Any]:
        length = block_norm(p)
        below = block_norm(g) + weight_decay * length + eps
        small = length <= threshold
        ratio = length / ops.where(small, 1.0, below)
        return (g + weight_decay * p) * ops.where(small, 1.0, ratio), own

    return leafwise("gradient_lars", update, needs_params=True)


@public_factory("fdbr.train.optim")
def scale_by_param_block_norm(min_scale: float = 1e-3) -> Optimizer:
    """Multiply the gradient of each parameter by the parameter's norm.

    Formula: ``update = gradient * max(norm(parameter), min_scale)``.

    Parameters
    ----------
    min_scale
        A number ≥ 0.

    Raises
    ------
    ValueError
        If it is negative.
    TypeError
        By ``update``, if there are no parameters.

    >>> from fdbr.train import optim
    >>> optim.scale_by_param_block_norm().update([4.0, 5.0], optim.EmptyState(), [2.0, 0.0])[0]
    [8.0, 0.005]
    """
    check_positive("scale_by_param_block_norm", or_zero=True, min_scale=min_scale)

    def update(g: Any, own: Any, p: Any, t: Any) -> tuple[Any, Any]:
        return g * ops.maximum(block_norm(p), min_scale), own

    return leafwise("scale_by_param_block_norm", update, needs_params=True)


@public_factory("fdbr.train.optim")
def scale_by_param_block_rms(min_scale: float = 1e-3) -> Optimizer:
    """Multiply the gradient of each parameter by the parameter's root mean square.

    Formula: ``update = gradient * max(rms(parameter), min_scale)``.

    Parameters
    ----------
    min_scale
        A number ≥ 0.

    Raises
    ------
    ValueError
        If it is negative.
    TypeError
        By ``update``, if there are no parameters.

    >>> import numpy as np
    >>> from fdbr.train import optim
    >>> params, grads = np.array([2.0, 2.0]), np.array([1.0, 3.0])
    >>> optim.scale_by_param_block_rms().update(grads, optim.EmptyState(), params)[0]
    array([2., 6.])
    """
    check_positive("scale_by_param_block_rms", or_zero=True, min_scale=min_scale)

    def update(g: Any, own: Any, p: Any, t: Any) -> tuple[Any, Any]:
        rms = block_norm(p) / max(getattr(p, "size", 1), 1) ** 0.5
        return g * ops.maximum(rms, min_scale), own

    return leafwise("scale_by_param_block_rms", update, needs_params=True)
