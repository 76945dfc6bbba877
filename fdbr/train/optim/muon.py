"""Muon."""

import math
from typing import Any

from fdbr import ops, tree
from fdbr.core.util.pickling import public_factory
from fdbr.errors.public import public
from fdbr.train.optim.adam import adamw
from fdbr.train.optim.arithmetic import averaged, square
from fdbr.train.optim.base import EmptyState, Optimizer, chain
from fdbr.train.optim.leafwise import leafwise, zeros
from fdbr.train.optim.numbers import LearningRate, check_decays, check_positive
from fdbr.train.optim.scale import scale_by_learning_rate
from fdbr.train.optim.transforms.adding import add_decayed_weights
from fdbr.train.optim.wrappers.partitioning import partition
from fdbr.tree import frozen

__all__ = ["MuonState", "muon", "orthogonalize_via_newton_schulz", "scale_by_muon"]

_COEFFICIENTS = (3.4445, -4.775, 2.0315)


@public("fdbr.train.optim")
@frozen
class MuonState:
    """The state of `scale_by_muon`: the number of updates, and the running mean of gradients."""

    count: int
    mu: Any


@public("fdbr.train.optim")
def orthogonalize_via_newton_schulz(
    x: Any, ns_coeffs: Any = _COEFFICIENTS, ns_steps: int = 5, eps: float = 1e-8
) -> Any:
    """A matrix with the singular vectors of another, and singular values near 1.

    Formula, from ``x / (norm(x) + eps)``, ``ns_steps`` times: ``a * x + (b * s + c * s @ s) @ x``
    with ``s = x @ x.T`` (Björck & Bowie 1971, with Jordan's coefficients).

    Parameters
    ----------
    x
        A matrix, or a stack of them.
    ns_coeffs
        The three coefficients ``a``, ``b``, ``c``, or such a triple for each of the last steps.
    ns_steps
        The number of steps.
    eps
        A number ≥ 0.

    Returns
    -------
    array
        Of the shape and dtype of ``x``.

    Raises
    ------
    ValueError
        If ``x`` has fewer than two axes, or there are not three coefficients for each step.

    >>> import numpy as np
    >>> x = orthogonalize_via_newton_schulz(np.diag([3.0, 0.5]))
    >>> bool((abs(np.linalg.svd(x)[1] - 1) < 0.4).all())
    True
    """
    function = "fdbr.train.optim.orthogonalize_via_newton_schulz"
    if getattr(x, "ndim", 0) < 2:
        raise ValueError(f"{function}: x must be a matrix, got {getattr(x, 'ndim', 0)} axes")
    turned = x.shape[-2] > x.shape[-1]
    if turned:
        x = ops.matrix_transpose(x)
    size = ops.sqrt(ops.sum(square(x), axis=(-2, -1), keepdims=True))
    x = x / (size + eps)
    for a, b, c in _coefficients(function, ns_coeffs, ns_steps):
        gram = x @ ops.matrix_transpose(ops.conj(x))
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return ops.matrix_transpose(x) if turned else x


def _coefficients(function: str, given: Any, steps: int) -> list[Any]:
    triples = [given] * steps if isinstance(given[0], int | float) else list(given)[-steps:]
    if len(triples) < steps or any(len(triple) != 3 for triple in triples):
        raise ValueError(
            f"{function}: ns_coeffs must be three numbers, or three for each of {steps} steps, "
            f"got {given!r}"
        )
    return triples


@public_factory("fdbr.train.optim")
def scale_by_muon(
    ns_coeffs: Any = _COEFFICIENTS,
    ns_steps: int = 5,
    beta: float = 0.95,
    eps: float = 1e-8,
    mu_dtype: Any = None,
    *,
    nesterov: bool = True,
    adaptive: bool = False,
) -> Optimizer:
    """Orthogonalized momentum, of matrices (Jordan et al. 2024).

    Formula: ``mu = beta * mu + (1 - beta) * gradient``, and the update is that of
    `orthogonalize_via_newton_schulz` of the mean without its bias, looked ahead as in `nadam`.

    Parameters
    ----------
    ns_coeffs, ns_steps, eps
        As those of `orthogonalize_via_newton_schulz`.
    beta
        The decay of the mean, in [0, 1).
    mu_dtype
        The dtype of ``mu``; by default that of the parameter.
    nesterov
        Whether to look one step ahead.
    adaptive
        Whether to multiply by the dual norm of the mean, as steepest descent has it.

    Raises
    ------
    ValueError
        If an argument is out of range; by ``init``, if a parameter is no matrix.

    >>> import numpy as np
    >>> transformation = scale_by_muon()
    >>> state = transformation.init(np.zeros((2, 3)))
    >>> transformation.update(np.ones((2, 3)), state)[0].shape
    (2, 3)
    """
    check_decays("scale_by_muon", beta=beta)
    check_positive("scale_by_muon", or_zero=True, eps=eps)
    _coefficients("fdbr.train.optim.scale_by_muon", ns_coeffs, ns_steps)

    def init(p: Any) -> Any:
        if getattr(p, "ndim", 0) < 2:
            raise ValueError(
                "fdbr.train.optim.scale_by_muon: it is for matrices, and a parameter has "
                f"{getattr(p, 'ndim', 0)} axes; optim.muon gives the others to Adam"
            )
        return (zeros(p, mu_dtype),)

    def update(g: Any, own: Any, p: Any, t: Any) -> Any:
        mu = averaged(own[0], g, beta)
        first = beta / t[1] * mu + (1 - beta) / t[0] * g if nesterov else mu / t[0]
        change = orthogonalize_via_newton_schulz(first, ns_coeffs, ns_steps, eps)
        if adaptive:
            change = ops.real(ops.sum(ops.conj(first) * change)) * change
        return change, (mu,)

    return leafwise(
        "scale_by_muon",
        update,
        init,
        state=MuonState,
        numbers=lambda t: (1 - beta**t, 1 - beta ** (t + 1)),
        fits="dtype" if mu_dtype is None else "shape",
    )


def _by_shape(consistent_rms: float | None) -> Optimizer:
    """Updates of matrices by their shapes, so that one learning rate serves all widths."""

    def update(g: Any, own: Any, p: Any, t: Any) -> Any:
        rows, columns = g.shape[-2:]
        if consistent_rms is not None:
            return math.sqrt(max(rows, columns)) * consistent_rms * g, own
        return math.sqrt(max(1.0, rows / max(1, columns))) * g, own

    return leafwise("muon", update, state=EmptyState)


@public_factory("fdbr.train.optim")
def muon(
    learning_rate: LearningRate,
    ns_coeffs: Any = _COEFFICIENTS,
    ns_steps: int = 5,
    beta: float = 0.95,
    eps: float = 1e-8,
    weight_decay: Any = 0.0,
    weight_decay_mask: Any = None,
    mu_dtype: Any = None,
    *,
    nesterov: bool = True,
    adaptive: bool = False,
    adam_b1: float = 0.9,
    adam_b2: float = 0.999,
    adam_eps_root: float = 0.0,
    adam_weight_decay: Any = 0.0,
    adam_learning_rate: LearningRate | None = None,
    muon_mask: Any = None,
    consistent_rms: float | None = None,
) -> Optimizer:
    """Muon for matrices, Adam for the rest (Jordan et al. 2024; Liu et al. 2025).

    Formula, of a matrix: ``params - learning_rate * (sqrt(max(1, rows / columns)) * update +
    weight_decay * params)``, with the update of `scale_by_muon`.  Rows are outputs and columns
    inputs, the layout of `fdbr.nn` and PyTorch; Optax, whose weights are transposed, has
    ``columns / rows``.  What has not two axes goes by `adamw`.

    Parameters
    ----------
    learning_rate
        A number ≥ 0, or a schedule.
    ns_coeffs, ns_steps, beta, eps, mu_dtype, nesterov, adaptive
        As those of `scale_by_muon`.
    weight_decay, weight_decay_mask
        As those of `add_decayed_weights`, for matrices.
    adam_b1, adam_b2, adam_eps_root, adam_weight_decay, adam_learning_rate
        Those of `adamw`, for what is no matrix; the learning rate is the same by default.
    muon_mask
        The parameters that go by Muon: a tree of truth values of their structure, or a function
        from them to one.  By default all with two axes; embeddings and the last layer are often
        left out.
    consistent_rms
        If given, ``sqrt(max(rows, columns)) * consistent_rms`` is the factor; 0.2 suits the
        learning rates of Adam.

    >>> import numpy as np
    >>> optimizer = muon(0.1)
    >>> params = {"w": np.ones((2, 3)), "b": np.ones(3)}
    >>> updates, state = optimizer.update(params, optimizer.init(params), params)
    >>> updates["b"]
    array([-0.14736842, -0.14736842, -0.14736842])
    """
    matrices = chain(
        scale_by_muon(
            ns_coeffs, ns_steps, beta, eps, mu_dtype, nesterov=nesterov, adaptive=adaptive
        ),
        _by_shape(consistent_rms),
        add_decayed_weights(weight_decay, weight_decay_mask),
        scale_by_learning_rate(learning_rate),
    )
    others = adamw(
        learning_rate if adam_learning_rate is None else adam_learning_rate,
        adam_b1,
        adam_b2,
        eps,
        adam_eps_root,
        mu_dtype,
        adam_weight_decay,
        nesterov=nesterov,
    )

    def labels(params: Any) -> Any:
        if muon_mask is None:
            return tree.map(lambda p: "muon" if getattr(p, "ndim", 0) == 2 else "adam", params)
        mask = muon_mask(params) if callable(muon_mask) else muon_mask
        return tree.map(lambda one: "muon" if one else "adam", mask)

    return partition({"muon": matrices, "adam": others}, labels)
