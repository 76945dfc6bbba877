"""Linear-chain conditional random fields: the likelihood, and the most probable labels."""

from typing import Any

import numpy as np

from fdbr.core.array_modules import Array, where_it_lies
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.devices import beside
from fdbr.ops.dtypes import astype, in_single
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.indexing.reading import along_axis
from fdbr.ops.nn.activations.exponentials import logsumexp
from fdbr.ops.nn.attention.embedding import embed
from fdbr.ops.nn.losses.checks import any_known, check_reduction, extremes, reduce_losses
from fdbr.ops.nn.losses.labels import checked_labels, select_labels
from fdbr.ops.reductions.reduce import argmax
from fdbr.ops.reductions.reduce import max as largest
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import concat, expand_dims, reshape, squeeze, stack
from fdbr.pytrees.dtypes import dtype_kind

__all__ = ["argmax_crf1d", "crf1d"]


@public("fdbr.ops")
@where_it_lies
@in_single
def crf1d(
    transitions: Array,
    scores: Any,
    labels: Any,
    /,
    lengths: Any = None,
    *,
    reduction: str = "mean",
) -> Any:
    """The negative log likelihood of labels in a linear-chain conditional random field.

    A sequence of labels ``y`` has the score ``sum(scores[t, y[t]]) + sum(transitions[y[t],
    y[t+1]])``; its probability is the exponential of the score divided by the sum over all
    sequences: Lafferty, McCallum & Pereira, *Conditional random fields*, ICML 2001.

    Parameters
    ----------
    transitions
        The scores of a label (row) followed by another (column), floating, shape ``(K, K)``.
    scores
        The scores of labels at each position: shape ``(length, batch, K)``, or ``(length, K)`` for
        one sequence; or, as in Chainer, a list over positions of arrays ``(B, K)`` of the sequences
        that are long enough, the longest first.
    labels
        Integers: shape ``(length, batch)`` or ``(length,)``; or a list of arrays ``(B,)``.
    lengths
        The lengths of sequences in an array, integers, shape ``(batch,)``; by default the length of
        the array.
    reduction
        ``"mean"`` over sequences, ``"sum"``, or ``"none"`` for one loss for each sequence.

    Raises
    ------
    ValueError
        If the shapes do not fit, a label is out of range, or a sequence is empty.
    TypeError
        If ``transitions`` is not real floating, or the labels are not integers.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.crf1d(np.zeros((2, 2)), np.zeros((3, 1, 2)), np.zeros((3, 1), int))  # log(8)
    np.float64(2.0794415416798357)
    """
    check_reduction("crf1d", reduction)
    transitions, steps, single = _positions("crf1d", transitions, scores)
    lengths = _lengths("crf1d", lengths, scores, steps)
    named = _labels(labels, steps, transitions.shape[0], single)
    pairs = reshape(transitions, -1)
    total, score = steps[0], select_labels(steps[0], named[0])
    done: list[tuple[Any, Any]] = []
    for t in range(1, len(steps)):
        x, label, before = steps[t], named[t], named[t - 1]
        left = x.shape[0]
        if left < total.shape[0]:
            done.append((total[left:], score[left:]))
            total, score, before = total[:left], score[:left], before[:left]
        joined = logsumexp(expand_dims(total, axis=2) + transitions, axis=1) + x
        longer = (
            score + select_labels(x, label) + embed(pairs, before * transitions.shape[0] + label)
        )
        if lengths is not None:
            inside = t < lengths
            joined = where(expand_dims(inside, axis=1), joined, total)
            longer = where(inside, longer, score)
        total, score = joined, longer
    done.append((total, score))
    total = concat([part for part, _ in reversed(done)], axis=0) if len(done) > 1 else total
    score = concat([part for _, part in reversed(done)], axis=0) if len(done) > 1 else score
    losses = logsumexp(total, axis=1) - score
    return losses[0] if single and reduction == "none" else reduce_losses(losses, reduction)


@public("fdbr.ops")
@where_it_lies
@in_single
def argmax_crf1d(transitions: Array, scores: Any, /, lengths: Any = None) -> tuple[Any, Any]:
    """The most probable labels in a linear-chain conditional random field, and their scores.

    Viterbi, *Error bounds for convolutional codes*, 1967.

    Parameters
    ----------
    transitions
        The scores of a label (row) followed by another (column), floating, shape ``(K, K)``.
    scores
        The scores of labels at each position: shape ``(length, batch, K)``, or ``(length, K)`` for
        one sequence; or a list over positions of arrays ``(B, K)``, as for `crf1d`.
    lengths
        The lengths of sequences in an array, integers, shape ``(batch,)``.

    Returns
    -------
    tuple
        The scores, shape ``(batch,)``, which are differentiable; and the labels, int64, in the
        form of ``scores`` without the last axis, -1 after a sequence's end.

    Raises
    ------
    ValueError
        If the shapes do not fit, or a sequence is empty.
    TypeError
        If ``transitions`` is not real floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.argmax_crf1d(np.array([[0.0, 3.0], [0.0, 0.0]]), np.array([[2.0, 0.0], [2.0, 0.0]]))
    (np.float64(5.0), array([0, 1]))
    """
    transitions, steps, single = _positions("argmax_crf1d", transitions, scores)
    lengths = _lengths("argmax_crf1d", lengths, scores, steps)
    itself = beside(np.arange(transitions.shape[0]), transitions)
    best, done, before = steps[0], [], []
    for t in range(1, len(steps)):
        left = steps[t].shape[0]
        done.append(best[left:] if left < best.shape[0] else None)
        best = best[:left]
        pairs = expand_dims(best, axis=2) + transitions
        places, further = argmax(pairs, axis=1), largest(pairs, axis=1) + steps[t]
        if lengths is not None:
            inside = expand_dims(t < lengths, axis=1)
            places, further = where(inside, places, itself), where(inside, further, best)
        before.append(places)
        best = further
    label = argmax(best, axis=1)
    score, path = [largest(best, axis=1)], [label]
    for places, rest in zip(reversed(before), reversed(done), strict=True):
        label = squeeze(along_axis(places, expand_dims(label, axis=1), 1), axis=1)
        if rest is not None:
            label = concat([label, argmax(rest, axis=1)], axis=0)
            score.append(largest(rest, axis=1))
        path.append(label)
    path.reverse()
    value = concat(score, axis=0) if len(score) > 1 else score[0]
    if isinstance(scores, list | tuple):
        return value, path
    labels = stack(path, axis=0)
    if lengths is not None:
        inside = expand_dims(beside(np.arange(len(steps)), transitions), axis=1) < lengths
        labels = where(inside, labels, -1)
    return (value[0], labels[:, 0]) if single else (value, labels)


# --- arguments ----------------------------------------------------------------------


def _positions(name: str, transitions: Any, scores: Any) -> tuple[Any, list[Any], bool]:
    """Check arguments; return transitions, scores at each position, and if it is one sequence."""
    transitions = asarray(transitions)
    if dtype_kind(transitions.dtype) != "f":
        raise TypeError(
            f"fdbr.ops.{name}: transitions must be real floating, not {describe(transitions)}"
        )
    if transitions.ndim != 2 or transitions.shape[0] != transitions.shape[1]:
        raise ValueError(
            f"fdbr.ops.{name}: transitions must have shape (K, K), got {describe(transitions)}"
        )
    ragged = isinstance(scores, list | tuple)
    steps: Any = [asarray(part) for part in scores] if ragged else asarray(scores)
    single = not ragged and steps.ndim == 2
    if not ragged and steps.ndim in (2, 3):
        steps = [steps[t : t + 1] if single else steps[t] for t in range(steps.shape[0])]
    elif not ragged:
        raise ValueError(
            f"fdbr.ops.{name}: scores must have shape (length, batch, K) or (length, K), or be a "
            f"list of arrays (B, K), got {describe(steps)}"
        )
    if not steps or not steps[0].size:
        raise ValueError(f"fdbr.ops.{name}: the sequences are empty; leave them out")
    for before, part in zip([steps[0], *steps], steps, strict=False):
        if part.ndim != 2 or part.shape[1] != transitions.shape[0] or not part.shape[0]:
            raise ValueError(
                f"fdbr.ops.{name}: scores at each position must have shape (B, "
                f"{transitions.shape[0]}) with a column for each label, got {describe(part)}"
            )
        if dtype_kind(part.dtype) != "f":
            raise TypeError(f"fdbr.ops.{name}: scores must be real floating, not {describe(part)}")
        if part.shape[0] > before.shape[0]:
            raise ValueError(
                f"fdbr.ops.{name}: {part.shape[0]} sequences at a position after one of "
                f"{before.shape[0]}; the longest sequences come first"
            )
    return transitions, steps, single


def _lengths(name: str, lengths: Any, scores: Any, steps: list[Any]) -> Any:
    """Check the lengths of sequences in an array; return `None` if none are given."""
    if lengths is None:
        return None
    if isinstance(scores, list | tuple):
        raise ValueError(f"fdbr.ops.{name}: a list of scores determines the lengths; omit them")
    lengths, batch = asarray(lengths), steps[0].shape[0]
    if lengths.dtype.kind not in "iu":
        raise TypeError(f"fdbr.ops.{name}: lengths must be integers, not {describe(lengths)}")
    if lengths.shape != (batch,) and not (batch == 1 and not lengths.ndim):
        raise ValueError(
            f"fdbr.ops.{name}: lengths {describe(lengths)} must be one for each of the {batch} "
            "sequences"
        )
    if any_known((lengths < 1) | (lengths > len(steps))):
        raise ValueError(
            f"fdbr.ops.{name}: lengths must lie in 1 … {len(steps)}, got values{extremes(lengths)}"
        )
    if isinstance(lengths, np.ndarray) and (lengths == len(steps)).all():
        return None
    return beside(reshape(lengths, (batch,)), steps[0])


def _labels(labels: Any, steps: list[Any], count: int, single: bool) -> list[Any]:
    """Check the labels and return those at each position."""
    ragged = isinstance(labels, list | tuple)
    named: Any = [asarray(part) for part in labels] if ragged else asarray(labels)
    if not ragged and single and named.ndim == 1:
        named = expand_dims(named, axis=1)
    shapes = [part.shape for part in named] if ragged or named.ndim else [None]
    if shapes != [part.shape[:1] for part in steps]:
        given = ", ".join(map(describe, named)) if ragged else describe(named)
        raise ValueError(
            f"fdbr.ops.crf1d: labels must be one for each sequence at each of {len(steps)} "
            f"positions, got {given}"
        )
    found = []
    for t, part in enumerate(steps):
        if named[t].dtype.kind not in "iu":
            raise TypeError(f"fdbr.ops.crf1d: labels must be integers, not {describe(named[t])}")
        found.append(beside(checked_labels("crf1d", named[t], count, hint=""), part))
    return [astype(each, np.int64) for each in found]
