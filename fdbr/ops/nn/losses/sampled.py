"""Losses over many classes that compute a few of them for each example."""

from typing import Any

import numpy as np

from fdbr.core.array_modules import where_it_lies
from fdbr.core.tracer import stop_gradient
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.devices import beside
from fdbr.ops.dtypes import in_single
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.elementwise.exponential import exp, log1p
from fdbr.ops.nn.activations.exponentials import logsumexp
from fdbr.ops.nn.activations.nonlinearities import softplus
from fdbr.ops.nn.attention.embedding import embed
from fdbr.ops.nn.losses.checks import check_reduction, counted_mean, in_dtype_of, reduce_losses
from fdbr.ops.nn.losses.labels import check_labels, checked_labels
from fdbr.ops.products import matmul
from fdbr.ops.reductions.reduce import argmax, sum
from fdbr.ops.shape.creation import arrays, asarray
from fdbr.ops.shape.manipulation import concat, expand_dims, matrix_transpose, squeeze
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.typing import Array, ArrayLike, Reduction

__all__ = ["binary_hierarchical_softmax", "black_out", "negative_sampling"]


def _operands(name: str, x: Any, labels: Any, weight: Any) -> tuple[Any, Any, Any]:
    x, weight = arrays(x, weight)
    labels = asarray(labels)
    if dtype_kind(x.dtype) != "f" or dtype_kind(weight.dtype) != "f":
        raise TypeError(
            f"fdbr.ops.{name}: x and weight must be real floating, got {describe(x)} and "
            f"{describe(weight)}"
        )
    if x.ndim != 2 or weight.ndim != 2 or x.shape[1] != weight.shape[1]:
        raise ValueError(
            f"fdbr.ops.{name}: x must have shape (batch, size) and weight (rows, size), got "
            f"{describe(x)} and {describe(weight)}"
        )
    check_labels(name, labels, x, "x")
    return x, labels, weight


def _samples(name: str, samples: Any, x: Any, weight: Any) -> Any:
    samples = asarray(samples)
    if samples.dtype.kind not in "iu":
        raise TypeError(f"fdbr.ops.{name}: samples must be integers, not {describe(samples)}")
    if samples.ndim not in (1, 2) or samples.shape[:-1] not in ((), x.shape[:1]):
        raise ValueError(
            f"fdbr.ops.{name}: samples {describe(samples)} must have shape ({x.shape[0]}, count), "
            "or (count,) for the same ones of all examples"
        )
    return beside(checked_labels(name, samples, weight.shape[0], hint="", what="samples"), x)


def _products(x: Any, weight: Any, rows: Any) -> Any:
    """Multiply each example by rows of the weight, sampled per example or for all."""
    chosen = embed(weight, rows)
    if rows.ndim == 1:
        return matmul(x, matrix_transpose(chosen))
    return squeeze(matmul(chosen, expand_dims(x, axis=2)), axis=2)


@public("fdbr.ops")
@where_it_lies
@in_single
def negative_sampling(
    x: ArrayLike,
    labels: ArrayLike,
    weight: ArrayLike,
    samples: ArrayLike,
    /,
    *,
    ignore_label: int | None = -1,
    reduction: Reduction = "sum",
) -> Array:
    """The negative sampling loss: each example's label against randomly drawn classes.

    ``-log(sigmoid(x · w[label])) - sum(log(sigmoid(-x · w[sample])))``: Mikolov et al.,
    *Distributed representations of words and phrases*, NIPS 2013.

    Parameters
    ----------
    x
        Floating, shape ``(batch, size)``.
    labels
        Integers, shape ``(batch,)``.
    weight
        A row for each class, shape ``(classes, size)``.
    samples
        Drawn classes, integers, shape ``(batch, count)``, or ``(count,)`` for the same classes in
        all examples: see `fdbr.nn.WalkerAlias`.
    ignore_label
        A label whose examples are ignored.
    reduction
        ``"sum"``, as in Chainer; ``"mean"`` over the examples that count; or ``"none"``.

    Raises
    ------
    ValueError
        If the shapes do not fit, or a label or sample is out of range.
    TypeError
        If ``x`` and ``weight`` are not real floating, or the others are not integers.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> weight = np.eye(3)
    >>> loss = ops.negative_sampling(weight[:1], np.array([0]), weight, np.array([[1, 2]]))
    >>> round(loss, 6)
    np.float64(1.699556)
    """
    name = "negative_sampling"
    check_reduction(name, reduction)
    x, labels, weight = _operands(name, x, labels, weight)
    samples = _samples(name, samples, x, weight)
    counted = None if ignore_label is None else labels != ignore_label
    labels = beside(checked_labels(name, labels, weight.shape[0], counted), x)
    true = sum(x * embed(weight, labels), axis=1)
    losses = softplus(-true) + sum(softplus(_products(x, weight, samples)), axis=1)
    if counted is not None:
        counted = beside(counted, x)
        losses = where(counted, losses, 0)
        if reduction == "mean":
            return counted_mean(losses, counted)
    return reduce_losses(losses, reduction)


@public("fdbr.ops")
@where_it_lies
@in_single
def black_out(
    x: ArrayLike,
    labels: ArrayLike,
    weight: ArrayLike,
    samples: ArrayLike,
    /,
    *,
    reduction: Reduction = "mean",
) -> Array:
    """The BlackOut loss: the label against randomly drawn classes, in one softmax.

    ``-log(p[label]) - sum(log(1 - p[sample]))``, where ``p`` is the softmax of ``x · w`` over the
    label and the samples: Ji et al., *BlackOut: speeding up recurrent neural network language
    models with very large vocabularies*, ICLR 2016.

    Parameters
    ----------
    x
        Floating, shape ``(batch, size)``.
    labels
        Integers, shape ``(batch,)``.
    weight
        A row for each class, shape ``(classes, size)``.
    samples
        Drawn classes, integers, shape ``(batch, count)``, or ``(count,)`` for the same classes in
        all examples: see `fdbr.nn.WalkerAlias`.
    reduction
        ``"mean"``, ``"sum"`` or ``"none"``.

    Raises
    ------
    ValueError
        If the shapes do not fit, or a label or sample is out of range.
    TypeError
        If ``x`` and ``weight`` are not real floating, or the others are not integers.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.black_out(np.zeros((1, 2)), np.array([0]), np.zeros((3, 2)), np.array([[1]]))
    np.float64(1.3862943611198906)
    """
    name = "black_out"
    check_reduction(name, reduction)
    x, labels, weight = _operands(name, x, labels, weight)
    samples = _samples(name, samples, x, weight)
    labels = beside(checked_labels(name, labels, weight.shape[0], hint=""), x)
    true = sum(x * embed(weight, labels), axis=1, keepdims=True)
    scores = concat([true, _products(x, weight, samples)], axis=1)
    whole = logsumexp(scores, axis=1, keepdims=True)
    # 1 - p cancels where p is near 1, which only the largest can be.
    top = argmax(stop_gradient(scores), axis=1, keepdims=True)
    is_top = beside(np.arange(scores.shape[1]), x) == top
    others = logsumexp(where(is_top, -np.inf, scores), axis=1, keepdims=True)
    small = log1p(-exp(where(is_top, -np.inf, scores - whole)))
    rest = where(is_top, others - whole, small)
    losses = whole[:, 0] - true[:, 0] - sum(rest[:, 1:], axis=1)
    return reduce_losses(losses, reduction)


# --- trees --------------------------------------------------------------------------


@public("fdbr.ops")
@where_it_lies
@in_single
def binary_hierarchical_softmax(
    x: ArrayLike,
    labels: ArrayLike,
    weight: ArrayLike,
    paths: ArrayLike,
    signs: ArrayLike,
    /,
    *,
    reduction: Reduction = "sum",
) -> Array:
    """The negative log likelihood of leaves of a binary tree of decisions.

    At each node on the path to a label, the decision has the probability ``sigmoid(sign * x ·
    w[node])``: Morin & Bengio, *Hierarchical probabilistic neural network language model*, AISTATS
    2005.

    Parameters
    ----------
    x
        Floating, shape ``(batch, size)``.
    labels
        Integers, shape ``(batch,)``.
    weight
        A row for each inner node, shape ``(nodes, size)``.
    paths
        The nodes on the path to each leaf, integers, shape ``(leaves, depth)``; rows are padded
        with any node.
    signs
        1 for left and -1 for right at these nodes, and 0 after the end, in the same shape.
        `fdbr.nn.tree_paths` makes both from a tree.
    reduction
        ``"sum"``, as in Chainer, ``"mean"`` or ``"none"``.

    Raises
    ------
    ValueError
        If the shapes do not fit, or a label or node is out of range.
    TypeError
        If ``x`` and ``weight`` are not real floating, or labels or nodes are not integers.

    >>> import numpy as np
    >>> from fdbr import nn, ops
    >>> paths, signs = nn.tree_paths(((0, 1), 2))
    >>> x, weight = np.zeros((1, 4)), np.zeros((2, 4))
    >>> ops.binary_hierarchical_softmax(x, np.array([1]), weight, paths, signs)  # log(4)
    np.float64(1.3862943611198906)
    """
    name = "binary_hierarchical_softmax"
    check_reduction(name, reduction)
    x, labels, weight = _operands(name, x, labels, weight)
    paths, signs = asarray(paths), asarray(signs)
    if paths.dtype.kind not in "iu":
        raise TypeError(f"fdbr.ops.{name}: paths must be integers, not {describe(paths)}")
    if paths.ndim != 2 or paths.shape != signs.shape:
        raise ValueError(
            f"fdbr.ops.{name}: paths {describe(paths)} and signs {describe(signs)} must have one "
            "shape (leaves, depth)"
        )
    labels = beside(checked_labels(name, labels, paths.shape[0], hint=""), x)
    nodes = embed(beside(paths, x), labels)
    iterations = in_dtype_of(x, embed(beside(signs, x), labels))
    nodes = checked_labels(name, nodes, weight.shape[0], hint="", what="nodes")
    along = softplus(-iterations * _products(x, weight, nodes))
    losses = sum(where(iterations != 0, along, 0), axis=1)
    return reduce_losses(losses, reduction)
