"""Connectionist temporal classification: the loss of label sequences with unknown alignment."""

from typing import Any

import numpy as np

from fdbr.core.array_modules import Array, array_module, where_it_lies
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.ops.devices import beside
from fdbr.ops.dtypes import astype, in_single, is_short
from fdbr.ops.elementwise.arithmetic import clip, maximum
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.elementwise.logistic import logaddexp
from fdbr.ops.indexing.reading import along_axis, take
from fdbr.ops.nn.losses.alignments import LOG_ZERO, log_probabilities_of_states
from fdbr.ops.nn.losses.checks import any_known, check_reduction, extremes, reduce_losses, values_of
from fdbr.ops.nn.losses.labels import checked_labels
from fdbr.ops.reductions.reduce import argmax, sum
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import concat, expand_dims, moveaxis, reshape, stack
from fdbr.pytrees.dtypes import dtype_kind

__all__ = ["ctc_loss"]


@public("fdbr.ops")
@where_it_lies
@in_single
def ctc_loss(
    log_probs: Array,
    targets: Array,
    /,
    input_lengths: Any = None,
    target_lengths: Any = None,
    *,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:
    """The loss of connectionist temporal classification.

    It is the negative logarithm of the probability that the symbols of the frames, after merging
    repetitions and removing blanks, are the target: Graves, Fernández, Gomez & Schmidhuber,
    *Connectionist temporal classification*, ICML 2006.

    Parameters
    ----------
    log_probs
        Log probabilities, as `log_softmax` returns: floating, shape
        ``(frames, batch, symbols)``, or ``(frames, symbols)`` for one sequence; or a list of
        arrays ``(frames, symbols)`` of sequences of different lengths.
    targets
        Integers: ``(batch, labels)``, where those after an example's length are ignored; or the
        labels of all examples concatenated, ``(sum(target_lengths),)``; or a list of
        one-dimensional arrays.
    input_lengths, target_lengths
        Integers, shape ``(batch,)``: the numbers of frames and labels of each example; by default
        all of them.
    blank
        The index of the blank symbol, which means no label.
    reduction
        ``"mean"`` of the losses divided by the lengths of their targets (at least 1), as in
        PyTorch; ``"sum"``; or ``"none"``, whose mean is Chainer's loss.
    zero_infinity
        Whether examples whose target does not fit into their frames have loss 0 and derivative 0.
        Otherwise they raise an error if the lengths show it, and have an infinite loss if
        probabilities are 0.

    Returns
    -------
    array
        A scalar, or one loss for each example, in the dtype of ``log_probs``.

    Raises
    ------
    ValueError
        If the shapes do not fit, a label is the blank or out of range, a sequence is empty, a
        length too large, or a target longer than its frames allow.
    TypeError
        If ``log_probs`` is not real floating, or the others are not integers.

    Notes
    -----
    The derivative is that of this function.  PyTorch's derivative in ``log_probs`` is larger by
    ``exp(log_probs)``, which has no effect after `log_softmax`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> log_probs = ops.log_softmax(np.zeros((3, 1, 2)))
    >>> ops.ctc_loss(log_probs, np.array([[1]]))  # 6 of 8 alignments
    np.float64(0.2876820724517809)
    """
    check_reduction("ctc_loss", reduction)
    if _is_ragged(log_probs, 2) and is_short(log_probs[0]):  # 16 bits are too few for sums
        dtype, log_probs = log_probs[0].dtype, [astype(part, np.float32) for part in log_probs]
        settings = {"blank": blank, "reduction": reduction, "zero_infinity": zero_infinity}
        return astype(
            ctc_loss(log_probs, targets, input_lengths, target_lengths, **settings), dtype
        )
    log_probs, input_lengths, single = _frames(log_probs, input_lengths)
    frames, batch, symbols = log_probs.shape
    blank = integer("fdbr.ops.ctc_loss", "blank", blank, least=0)
    if blank >= symbols:
        raise ValueError(f"fdbr.ops.ctc_loss: blank {blank} is not one of the {symbols} symbols")
    input_lengths = _lengths("input_lengths", input_lengths, batch, 1, frames)
    targets, target_lengths = _labels(targets, target_lengths, batch, single)
    _refuse_misfits(targets, target_lengths, input_lengths, blank, zero_infinity)
    targets, target_lengths, input_lengths = (
        beside(x, log_probs) for x in (targets, target_lengths, input_lengths)
    )
    inside = beside(np.arange(targets.shape[1]), log_probs) < expand_dims(target_lengths, axis=1)
    targets = checked_labels("ctc_loss", targets, symbols, inside, what="targets")
    targets = where(inside, targets, blank)
    found = _log_likelihood(log_probs, targets, target_lengths, input_lengths, blank)
    losses = where(found < LOG_ZERO / 10, 0.0 if zero_infinity else np.inf, -found)
    if reduction == "mean":
        losses = losses / astype(maximum(target_lengths, 1), losses.dtype)
    return losses[0] if single and reduction == "none" else reduce_losses(losses, reduction)


def _log_likelihood(
    log_probs: Any, targets: Any, target_lengths: Any, input_lengths: Any, blank: int
) -> Any:
    """Compute the log probability of each target by the forward recurrence over frames."""
    frames, batch, _ = log_probs.shape
    states = 2 * targets.shape[1] + 1
    between = stack([targets, 0 * targets + blank], axis=2)
    first = expand_dims(0 * target_lengths + blank, axis=1)
    path = concat([first, reshape(between, (batch, states - 1))], axis=1)
    log_probs = moveaxis(clip(log_probs, LOG_ZERO, None), 1, 0)
    emitted = along_axis(log_probs, expand_dims(path, axis=1), 2)

    fresh = (path[:, 2:] != blank) & (path[:, 2:] != path[:, :-2])
    skips = concat([path[:, :2] != path[:, :2], fresh], axis=1)
    penalty = expand_dims(astype(where(skips, 0.0, LOG_ZERO), log_probs.dtype), axis=1)
    numbers = beside(np.arange(max(frames, states)), log_probs)
    begins = (expand_dims(numbers[:frames], axis=1) > 0) | (numbers[:states] < 2)
    inside = expand_dims(numbers[:frames] < expand_dims(input_lengths, axis=1), axis=2)
    found = log_probabilities_of_states(where(begins, emitted, LOG_ZERO), penalty, inside)[:, -1]
    no_states = beside(np.full((batch, 2), LOG_ZERO, log_probs.dtype), log_probs)
    found = concat([no_states, found], axis=1)  # with two more states in front
    last = expand_dims(2 * target_lengths + 2, axis=1)
    ends = along_axis(found, concat([last, last - 1], axis=1), 1)
    return logaddexp(ends[:, 0], ends[:, 1])


# --- arguments ----------------------------------------------------------------------


def _is_ragged(x: Any, ndim: int) -> bool:
    """Whether a value is a list with an array of ``ndim`` axes for each example."""
    if not isinstance(x, list | tuple):
        return False
    return len(x) > 0 and all(getattr(part, "ndim", None) == ndim for part in x)


def _frames(log_probs: Any, lengths: Any) -> tuple[Any, Any, bool]:
    """Return an array (frames, batch, symbols), lengths, and whether there is one example."""
    if _is_ragged(log_probs, 2):
        if lengths is not None:
            raise ValueError(
                "fdbr.ops.ctc_loss: input_lengths of a list are those of its arrays; leave them out"
            )
        parts = [asarray(part) for part in log_probs]
        if len({part.shape[1] for part in parts}) > 1:
            raise ValueError(
                "fdbr.ops.ctc_loss: log_probs must have as many symbols in each sequence, got "
                + ", ".join(map(describe, parts))
            )
        lengths = np.array([part.shape[0] for part in parts])
        log_probs = stack([_pad_frames(part, max(lengths)) for part in parts], axis=1)
    log_probs = asarray(log_probs)
    if dtype_kind(log_probs.dtype) != "f":
        raise TypeError(
            f"fdbr.ops.ctc_loss: log_probs must be real floating, not {describe(log_probs)}"
        )
    if log_probs.ndim not in (2, 3) or not log_probs.shape[0] or not log_probs.shape[-1]:
        raise ValueError(
            "fdbr.ops.ctc_loss: log_probs must have shape (frames, batch, symbols) or (frames, "
            f"symbols) with at least one frame, got {describe(log_probs)}"
        )
    single = log_probs.ndim == 2
    return expand_dims(log_probs, axis=1) if single else log_probs, lengths, single


def _pad_frames(x: Any, length: int) -> Any:
    """Pad a sequence with zeros at the end."""
    missing = int(length) - x.shape[0]
    if not missing:
        return x
    return concat([x, array_module(x).zeros((missing, *x.shape[1:]), dtype=x.dtype)], axis=0)


def _lengths(name: str, lengths: Any, batch: int, least: int, most: int) -> Any:
    """Check lengths and return them as an array of integers."""
    if lengths is None:
        return np.full(batch, most)
    lengths = asarray(lengths)
    if lengths.dtype.kind not in "iu" or lengths.shape not in (
        (batch,),
        () if batch == 1 else (batch,),
    ):
        kind = ValueError if lengths.dtype.kind in "iu" else TypeError
        raise kind(
            f"fdbr.ops.ctc_loss: {name} must be integers of shape ({batch},), got "
            f"{describe(lengths)}"
        )
    if any_known((lengths < least) | (lengths > most)):
        raise ValueError(
            f"fdbr.ops.ctc_loss: {name} must lie in {least} … {most}, got values{extremes(lengths)}"
        )
    return reshape(astype(lengths, np.int64), (batch,))


def _labels(targets: Any, lengths: Any, batch: int, single: bool) -> tuple[Any, Any]:
    """Return a matrix of labels with a row for each example, and their lengths."""
    if _is_ragged(targets, 1):
        if lengths is not None:
            raise ValueError(
                "fdbr.ops.ctc_loss: target_lengths of a list are those of its arrays; leave them "
                "out"
            )
        parts = [asarray(part) for part in targets]
        lengths = np.array([part.shape[0] for part in parts])
        targets = stack([_pad_frames(part, max(lengths)) for part in parts], axis=0)
    targets = asarray(targets)
    if targets.dtype.kind not in "iu":
        raise TypeError(f"fdbr.ops.ctc_loss: targets must be integers, not {describe(targets)}")
    if single and targets.ndim == 1:
        targets = expand_dims(targets, axis=0)
    targets = astype(targets, np.int64)
    if targets.ndim == 1 and lengths is not None:
        lengths = _lengths("target_lengths", lengths, batch, 0, targets.shape[0])
        return _rows(targets, [int(lengths[i]) for i in range(batch)]), lengths
    if targets.ndim != 2 or targets.shape[0] != batch:
        raise ValueError(
            f"fdbr.ops.ctc_loss: targets {describe(targets)} must have a row of labels for each of "
            f"the {batch} examples; all labels in one row need target_lengths"
        )
    return targets, _lengths("target_lengths", lengths, batch, 0, targets.shape[1])


def _rows(targets: Any, lengths: list[int]) -> Any:
    """Convert concatenated labels to a matrix with a row for each example."""
    ends = np.cumsum(lengths)
    if ends[-1] != targets.shape[0]:
        raise ValueError(
            f"fdbr.ops.ctc_loss: target_lengths add up to {ends[-1]}, and there are "
            f"{targets.shape[0]} targets"
        )
    places = (ends - lengths)[:, None] + np.arange(max(lengths))
    return take(targets, beside(np.minimum(places, max(ends[-1] - 1, 0)), targets))


def _refuse_misfits(
    targets: Any, target_lengths: Any, input_lengths: Any, blank: int, zero_infinity: bool
) -> None:
    """Raise for blanks among labels, and for targets with too few frames."""
    if any(values_of(x) is None for x in (targets, target_lengths, input_lengths)):
        return  # values on a GPU are not checked, as the host would wait
    inside = np.arange(targets.shape[-1]) < expand_dims(target_lengths, axis=-1)
    if any_known(inside & (targets == blank)):
        raise ValueError(
            f"fdbr.ops.ctc_loss: targets name {blank}, which is the blank; labels are the others"
        )
    if zero_infinity:
        return
    twice = inside[:, 1:] & (targets[:, 1:] == targets[:, :-1])
    missing = target_lengths + sum(twice, axis=-1) - input_lengths
    if any_known(missing > 0):
        example = int(argmax(missing))
        given = int(input_lengths[example])
        needed = int(missing[example]) + given
        raise ValueError(
            f"fdbr.ops.ctc_loss: example {example} has {given} frames for a target that needs "
            f"{needed}: one for each label, and one more between equal ones; "
            "zero_infinity=True leaves such examples out"
        )
