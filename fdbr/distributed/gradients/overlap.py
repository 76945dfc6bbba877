"""Gradients that are averaged over the ranks while backward still runs."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from fdbr import ops
from fdbr.compiler.capture.tracers import CaptureTrace
from fdbr.core.collective_log import collective_count
from fdbr.core.lazy_cotangents import settled
from fdbr.core.tracer import Tracer
from fdbr.distributed.arguments import communicator_of, wire_of
from fdbr.distributed.communicator import Communicator
from fdbr.distributed.gradients.averaging import Averaging, averaged
from fdbr.distributed.gradients.background import Background
from fdbr.distributed.gradients.buckets import EARLY_BYTES, bucket_bytes_of, buckets_of
from fdbr.distributed.gradients.early import complete
from fdbr.distributed.gradients.steps import begin_bucket, begin_round, programs_around, wait_for
from fdbr.distributed.gradients.weights import factor_of, weight_of
from fdbr.errors.public import public
from fdbr.pytrees.structure import flatten, is_inexact, structure, unflatten
from fdbr.transforms import vjp
from fdbr.transforms.argnums import Inputs
from fdbr.transforms.cotangent_avals import CotangentAval
from fdbr.transforms.vjp import value_and_grad as value_and_own_grad
from fdbr.transforms.vjp import with_gradient

__all__ = ["value_and_grad"]

_NAME = "value_and_grad"


@public("fdbr.distributed")
def value_and_grad(
    f: Callable[..., Any],
    comm: Communicator,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    weight: Any = None,
    wire: str | None = None,
    bucket_bytes: int = EARLY_BYTES,
) -> Callable[..., tuple[Any, Any]]:
    """A function that gives the value of ``f``, and its gradient averaged over the ranks.

    The gradient is that of `fdbr.value_and_grad`, followed by `average_gradients`; but what
    backward has finished is sent while it continues with the rest: a bucket of leaves as soon as
    backward has visited the operation that used them first. The order of buckets, and of each
    summation, depends on nothing but the shapes of the leaves, so a run has the same bits when it
    is repeated. A jitted step that calls this function does the same. The same averages are made
    when backward has ended within another transformation, and where processes of a machine are as
    many as its cores, which leaves none for the thread that reduces.

    Parameters
    ----------
    f
        As in `fdbr.value_and_grad`; the value and further results are this rank's own.
    comm
        The ranks. Each calls this function, at the same place: the first time a communicator of
        its own is made for what continues in the background.
    argnums, has_aux
        As there.
    weight
        How many examples this rank has, or a function of the arguments that gives it, by which
        the average becomes that of all examples; `None` for equal shares. The loss is scaled
        before it is differentiated, so ``f`` may have collectives in it (`SyncBatchNorm`).
    wire, bucket_bytes
        As in `average_gradients`.

    Returns
    -------
    function
        ``(value, gradient)``, or ``((value, aux), gradient)``. On all ranks the gradient is the
        same; leaves that a rank does not use count as zeros there.

    Raises
    ------
    TypeError
        As `fdbr.value_and_grad` does.
    MismatchError
        If gradients of ranks differ in structure, shapes or dtypes.
    ValueError
        If the weights of all ranks are 0; if one is negative or not finite.

    >>> import numpy as np
    >>> from fdbr import distributed, ops
    >>> def loss(w, x):
    ...     return ops.mean(w * x)
    >>> def step(comm):
    ...     examples = np.array([4.0, 5.0]) if comm.rank else np.array([9.0])
    ...     gradient_of = distributed.value_and_grad(loss, comm, weight=lambda w, x: len(x))
    ...     return gradient_of(1.0, examples)
    >>> distributed.run_in_threads(step, 2)
    [(np.float64(9.0), np.float64(6.0)), (np.float64(4.5), np.float64(6.0))]
    """
    how = Averaging(
        _NAME,
        communicator_of(_NAME, comm),
        bucket_bytes_of(_NAME, bucket_bytes),
        wire_of(_NAME, wire),
    )
    if weight is not None and not callable(weight):
        weight_of(_NAME, weight)
    overlaps = Background.of(comm).has_core

    def averaged_gradient(*args: Any, **kwargs: Any) -> Any:
        loss: Any = f
        if weight is not None:
            mine = weight(*args, **kwargs) if callable(weight) else weight
            loss = _Scaled(f, has_aux, factor_of(_NAME, mine, comm, scales_loss=True))
        aux = has_aux or weight is not None
        around = programs_around() if overlaps else None
        here = how.of(structure(_chosen(args, argnums)))
        if around is None:
            out, grads = value_and_own_grad(loss, argnums, aux)(*args, **kwargs)
            leaves, form = flatten(grads)
            if weight is not None:
                leaves = loss.counted(leaves)
            grads = unflatten(form, averaged(here, leaves, None))
        else:
            begun = _Begun(here, loss, around)
            sending = with_gradient(loss, argnums, aux, "zeros", _NAME, _sent_by(begun))
            out, grads = sending(*args, **kwargs)
        return (out if weight is None else out[1]), grads

    averaged_gradient.__wrapped__ = f  # type: ignore[attr-defined]
    return averaged_gradient


class _Scaled:
    """A loss times a factor, with what the loss itself returned beside it.

    The factor makes of the mean of all ranks' losses that of all examples.  It scales the loss, not
    the gradient: where the loss has collectives in it, each rank's gradient has parts of all
    ranks' losses, which have factors of their own.
    """

    def __init__(self, f: Callable[..., Any], has_aux: bool, factor: Any) -> None:
        functools.update_wrapper(self, f, updated=())
        self._f, self._has_aux, self._factor = f, has_aux, factor
        self._communicates = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        before = collective_count()
        out = self._f(*args, **kwargs)
        self._communicates = collective_count() != before
        value = out[0] if self._has_aux and isinstance(out, tuple) and len(out) == 2 else out
        if not is_inexact(value) or (self._has_aux and value is out):
            return out  # which is an error, and says so
        factor = self._factor
        if not isinstance(factor, Tracer):
            factor = float(factor)  # which goes with any dtype and any device
        elif hasattr(value, "dtype"):
            factor = ops.astype(factor, value.dtype)
        return ops.multiply(value, factor), out

    def counted(self, leaves: Sequence[Any]) -> list[Any]:
        """The gradient; zeros of a rank without examples, whose loss may be NaN.

        Where losses have collectives in them, its gradient has parts of other ranks' losses.
        """
        factor = self._factor
        if self._communicates or not (isinstance(factor, Tracer) or factor == 0):
            return list(leaves)
        empty = ops.equal(factor, 0)
        return [ops.where(empty, ops.zeros_like(leaf), leaf) for leaf in leaves]


def _chosen(args: Sequence[Any], argnums: Any) -> tuple[Any, ...]:
    """The arguments that are differentiated by, as far as they are there."""
    places = argnums if isinstance(argnums, Sequence) else (argnums,)
    return tuple([args[i] for i in places if -len(args) <= i < len(args)])


class _Begun:
    """The averages of one step, which continues."""

    def __init__(self, how: Averaging, loss: Any, around: Sequence[CaptureTrace]) -> None:
        self.bytes = how.bytes
        self._around = around
        self._loss = loss
        self._number = begin_round(around, how, None)

    def begin(self, leaves: Sequence[Any]) -> Any:
        if isinstance(self._loss, _Scaled):
            leaves = self._loss.counted(leaves)
        return begin_bucket(self._around, self._number, leaves)

    def end(self, number: Any, leaves: Sequence[Any]) -> Sequence[Any]:
        return wait_for(self._around, number, leaves)


def _bytes(kind: CotangentAval) -> int:
    return math.prod(kind.shape) * int(kind.dtype.itemsize)


def _sent_by(begun: _Begun) -> Any:
    """A backward pass that begins with buckets as they get ready: see `with_gradient`."""

    def derivatives(roots: list[Any], inputs: list[Inputs]) -> list[Any]:
        places = [
            (which, i, *one)
            for which, argument in enumerate(inputs)
            for i, one in enumerate(argument.inputs)
            if one is not None
        ]
        groups = buckets_of([_bytes(kind) for *_, kind in places], begun.bytes)
        cotangents: dict[int, Any] = {}
        found: list[Any] = []

        def ready(n: int) -> None:
            leaves = []
            for place in groups[n]:
                _, _, number, kind = places[place]
                leaves.append(kind.finish(settled(cotangents.pop(number, None)), frozenset()))
            found.append((leaves, begun.begin(leaves)))

        numbers = [[places[place][2] for place in group] for group in groups]
        roots += complete(roots, numbers, ready)
        vjp.backward(roots, cotangents=cotangents)  # which may be observed
        leaves = [[None] * len(argument.inputs) for argument in inputs]
        for group, (own, pending) in zip(groups, found, strict=True):
            for place, mean in zip(group, begun.end(pending, own), strict=True):
                which, i, *_ = places[place]
                leaves[which][i] = mean
        return [one.gradient_of(row) for one, row in zip(inputs, leaves, strict=True)]

    return derivatives
