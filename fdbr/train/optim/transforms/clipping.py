"""Gradients that are cut where they are too large."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import ops, tree
from fdbr.core.util.pickling import public_factory
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.dtypes import in_single
from fdbr.train.optim.arithmetic import of_all_parts
from fdbr.train.optim.base import EmptyState, Optimizer
from fdbr.train.optim.leafwise import leafwise
from fdbr.train.optim.numbers import check_positive

__all__ = [
    "adaptive_grad_clip",
    "block_norm",
    "by_global_norm",
    "clip",
    "clip_by_block_norm",
    "clip_by_block_rms",
    "clip_by_global_norm",
    "global_norm",
    "hard_clip",
    "refuse_complex",
]


@public_factory("fdbr.train.optim")
def clip(max_delta: float) -> Optimizer:
    """Bring each element into ``[-max_delta, max_delta]``.

    Parameters
    ----------
    max_delta
        A number ≥ 0.

    Raises
    ------
    ValueError
        If it is negative.
    TypeError
        By ``update``, if a gradient is complex.

    >>> import numpy as np
    >>> from fdbr.train import optim
    >>> optim.clip(1.0).update(np.array([0.5, -3.0]), optim.EmptyState())[0]
    array([ 0.5, -1. ])
    """
    check_positive("clip", or_zero=True, max_delta=max_delta)
    return _between("clip", -max_delta, max_delta)


@public_factory("fdbr.train.optim")
def hard_clip(lower_bound: float, upper_bound: float) -> Optimizer:
    """Bring each element into ``[lower_bound, upper_bound]``: Chainer's ``GradientHardClipping``.

    Parameters
    ----------
    lower_bound, upper_bound
        Numbers, the first at most the second.

    Raises
    ------
    ValueError
        If the first is more than the second.
    TypeError
        By ``update``, if a gradient is complex.

    >>> import numpy as np
    >>> from fdbr.train import optim
    >>> optim.hard_clip(-1.0, 2.0).update(np.array([3.0, -3.0]), optim.EmptyState())[0]
    array([ 2., -1.])
    """
    if not lower_bound <= upper_bound:
        raise ValueError(
            "fdbr.train.optim.hard_clip: lower_bound must be at most upper_bound, got "
            f"{lower_bound} and {upper_bound}"
        )
    return _between("hard_clip", lower_bound, upper_bound)


def _between(name: str, low: Any, high: Any) -> Optimizer:
    def update(g: Any, own: Any, p: Any, t: Any) -> tuple[Any, Any]:
        refuse_complex(name, g)
        return ops.clip(g, low, high), own

    return leafwise(name, update)


def refuse_complex(name: str, g: Any) -> None:
    """Raise if a gradient is complex, for a rule that asks which of two numbers is larger."""
    if ops.isdtype(getattr(g, "dtype", np.dtype(float)), "complex floating"):
        raise TypeError(
            f"fdbr.train.optim.{name}: complex numbers have no order, and there is a gradient "
            f"{describe(g)}; shorten it with optim.clip_by_block_norm, or mask it out with "
            "optim.masked"
        )


@public("fdbr.train.optim")
def global_norm(updates: Any) -> Any:
    """The Euclidean norm of all elements of a tree together.

    Parameters
    ----------
    updates
        A tree of arrays and numbers; `None` is passed by.

    Returns
    -------
    array
        Real, without dimensions; of leaves of 16 bits in float32.

    Raises
    ------
    TypeError
        If a leaf is no array or number.

    >>> from fdbr.train import optim
    >>> float(optim.global_norm({"w": 3.0, "b": 4.0, "steps": None}))
    5.0
    """
    return of_all_parts(tree.norm(tree.map(_widened, updates)))


def _widened(leaf: Any) -> Any:
    return ops.astype(leaf, "float32") if getattr(leaf, "itemsize", 8) <= 2 else leaf


def by_global_norm(
    name: str, rule: Callable[[Any, Any], Any], factor: Callable[[Any], Any] = lambda norm: norm
) -> Optimizer:
    """A transformation by ``rule(g, factor(norm))`` of each leaf and the norm of all."""

    def init(params: Any) -> EmptyState:
        return EmptyState()

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        number = factor(global_norm(grads))
        leaves = leafwise(
            name,
            lambda g, own, p, t: (rule(g, t), own),
            state=EmptyState,
            numbers=lambda t: number,
        )
        return leaves.update(grads, state, params)

    return Optimizer(init, update)


@public_factory("fdbr.train.optim")
def clip_by_global_norm(max_norm: float) -> Optimizer:
    """Shorten the gradients, all together, to a norm (Pascanu et al., ICML 2013).

    Formula, with ``norm`` that of all elements of all leaves: ``update = gradient`` where
    ``norm < max_norm``, else ``gradient / norm * max_norm``.  It is Chainer's
    ``GradientClipping`` and PyTorch's ``clip_grad_norm_``.  A norm too large for its dtype is
    infinite, and updates are zero then.

    Parameters
    ----------
    max_norm
        A number ≥ 0.

    Raises
    ------
    ValueError
        If it is negative.

    >>> from fdbr.train import optim
    >>> optim.clip_by_global_norm(2.5).update({"w": 3.0, "b": 4.0}, optim.EmptyState())[0]
    {'w': 1.5, 'b': 2.0}
    """
    check_positive("clip_by_global_norm", or_zero=True, max_norm=max_norm)
    return by_global_norm("clip_by_global_norm", lambda g, norm: _shortened(g, norm, max_norm))


def _shortened(g: Any, norm: Any, longest: Any) -> Any:
    """An array, times what brings ``norm`` to at most ``longest``; NaN of a norm that is NaN."""
    return g * ops.where(norm < longest, 1.0, longest / ops.where(norm < longest, 1.0, norm))


@public_factory("fdbr.train.optim")
def clip_by_block_norm(max_norm: float) -> Optimizer:
    """Shorten the gradient of each parameter to a norm of its own.

    Formula, with ``norm`` that of one leaf: ``update = gradient`` where ``norm < max_norm``, else
    ``gradient / norm * max_norm``.

    Parameters
    ----------
    max_norm
        A number ≥ 0.

    Raises
    ------
    ValueError
        If it is negative.

    >>> from fdbr.train import optim
    >>> optim.clip_by_block_norm(1.0).update({"w": 3.0, "b": 0.4}, optim.EmptyState())[0]
    {'w': 1.0, 'b': 0.4}
    """
    check_positive("clip_by_block_norm", or_zero=True, max_norm=max_norm)
    return leafwise(
        "clip_by_block_norm",
        lambda g, own, p, t: (_shortened(g, block_norm(g), max_norm), own),
    )


def block_norm(x: Any) -> Any:
    """The Euclidean norm of an array, or of a number."""
    return of_all_parts(ops.linalg.vector_norm(ops.asarray(x)))


@public_factory("fdbr.train.optim")
def clip_by_block_rms(threshold: float) -> Optimizer:
    """Shorten the gradient of each parameter to a root mean square.

    Formula, with ``rms`` that of one leaf: ``update = gradient / max(1, rms / threshold)``.

    Parameters
    ----------
    threshold
        A positive number.

    Raises
    ------
    ValueError
        If it is not.

    >>> import numpy as np
    >>> from fdbr.train import optim
    >>> optim.clip_by_block_rms(1.0).update(np.array([4.0, 4.0]), optim.EmptyState())[0]
    array([1., 1.])
    """
    check_positive("clip_by_block_rms", threshold=threshold)

    def update(g: Any, own: Any, p: Any, t: Any) -> tuple[Any, Any]:
        if not getattr(g, "size", 1):  # no element has no mean
            return g, own
        rms = ops.sqrt(ops.mean(ops.real(g * ops.conj(g))))
        return g / ops.maximum(1.0, rms / threshold), own

    return leafwise("clip_by_block_rms", update)


@public_factory("fdbr.train.optim")
def adaptive_grad_clip(
    clipping: float, eps: float = 1e-3, axis: int | tuple[int, ...] | None = None
) -> Optimizer:
    """Shorten gradients, unit by unit, to a part of the parameters (Brock et al., ICML 2021).

    Formula, with norms along ``axis``: ``update = gradient`` where ``norm(gradient)`` is below
    ``limit = clipping * max(norm(parameter), eps)``, else ``gradient / norm(gradient) * limit``.

    Parameters
    ----------
    clipping
        A positive number.
    eps
        A positive number: parameters that are zero may have gradients of that norm.
    axis
        The axes of a unit.  By default they are all but the first, which is that of outputs in the
        layout of `fdbr.nn` and PyTorch, and the only one of a vector; Optax's default is the one
        for weights whose last axis is that of outputs.

    Raises
    ------
    ValueError
        If a number is not positive.
    TypeError
        By ``update``, if there are no parameters.

    >>> import numpy as np
    >>> from fdbr.train import optim
    >>> params, grads = np.array([[3.0, 4.0], [0.3, 0.4]]), np.array([[3.0, 4.0], [3.0, 4.0]])
    >>> optim.adaptive_grad_clip(1.0).update(grads, optim.EmptyState(), params)[0]
    array([[3. , 4. ],
           [0.3, 0.4]])
    """
    check_positive("adaptive_grad_clip", clipping=clipping, eps=eps)

    def update(g: Any, own: Any, p: Any, t: Any) -> tuple[Any, Any]:
        limit = clipping * ops.maximum(_unit_norms(p, axis), eps)
        return _shortened(g, _unit_norms(g, axis), limit), own

    return leafwise("adaptive_grad_clip", update, needs_params=True)


@in_single
def _unit_norms(x: Any, axis: Any) -> Any:
    """The norms of an array's units, with axes of length 1 in place of theirs."""
    x = ops.asarray(x)
    if axis is None:
        axis = tuple(range(1, x.ndim)) if x.ndim > 1 else tuple(range(x.ndim))
    if axis == ():
        return ops.abs(x)
    return ops.linalg.vector_norm(x, axis=axis, keepdims=True)
