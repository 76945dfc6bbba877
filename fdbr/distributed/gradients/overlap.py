"""Gradients that are averaged over the ranks while backward still runs."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from fdbr import transforms
from fdbr.arguments import Inputs
from fdbr.compiler.capture.tracers import CaptureTrace
from fdbr.cotangents import Kind
from fdbr.deferred import settled
from fdbr.distributed.arguments import communicator_of, wire_of
from fdbr.distributed.communicator import Communicator
from fdbr.distributed.gradients.averaging import Averaging, averaged
from fdbr.distributed.gradients.background import Background
from fdbr.distributed.gradients.buckets import EARLY_BYTES, bucket_bytes_of, buckets_of
from fdbr.distributed.gradients.early import complete
from fdbr.distributed.gradients.steps import begin_bucket, begin_round, programs_around, wait_for
from fdbr.distributed.gradients.weights import weight_of
from fdbr.pytrees import flatten, structure, unflatten
from fdbr.transforms import value_and_grad as value_and_own_grad
from fdbr.transforms import with_gradient

__all__ = ["value_and_grad"]

_NAME = "value_and_grad"


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
    backward has finished is sent while it goes on with the rest: a bucket of leaves as soon as
    backward has visited the operation that used them first. The order of buckets, and of each
    summation, depends on nothing but the shapes of the leaves, so a run has the same bits when it
    is repeated. A jitted step that calls this function does the same; within another transformation
    the averages are made when backward has ended.

    Parameters
    ----------
    f
        As in `fdbr.value_and_grad`; the value and further results are this rank's own.
    comm
        The ranks. Each calls this function, at the same place: the first time a communicator of
        its own is made for what goes on in the background.
    argnums, has_aux
        As there.
    weight
        How many examples this rank has, or a function of the arguments that gives it, by which
        the average becomes that of all examples; `None` for equal shares. `average_gradients` says
        what to do instead where ``f`` itself has collectives in it.
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
    own = value_and_own_grad(f, argnums, has_aux)
    Background.of(comm)

    def averaged_gradient(*args: Any, **kwargs: Any) -> Any:
        mine = weight(*args, **kwargs) if callable(weight) else weight
        around, here = programs_around(), how.of(structure(_chosen(args, argnums)))
        if around is None:
            out, grads = own(*args, **kwargs)
            leaves, form = flatten(grads)
            return out, unflatten(form, averaged(here, leaves, mine))
        if mine is not None:
            mine = weight_of(_NAME, mine)
        begun = _Begun(here, mine, around)
        sending = with_gradient(f, argnums, has_aux, "zeros", _NAME, _sent_by(begun))
        return sending(*args, **kwargs)

    averaged_gradient.__wrapped__ = f  # type: ignore[attr-defined]
    return averaged_gradient


def _chosen(args: Sequence[Any], argnums: Any) -> tuple[Any, ...]:
    """The arguments that are differentiated by, as far as they are there."""
    places = argnums if isinstance(argnums, Sequence) else (argnums,)
    return tuple([args[i] for i in places if -len(args) <= i < len(args)])


class _Begun:
    """The averages of one step, which goes on."""

    def __init__(self, how: Averaging, weight: Any, around: Sequence[CaptureTrace]) -> None:
        self.bytes = how.bytes
        self._around = around
        self._number = begin_round(around, how, weight)

    def begin(self, leaves: Sequence[Any]) -> Any:
        return begin_bucket(self._around, self._number, leaves)

    def end(self, number: Any, leaves: Sequence[Any]) -> Sequence[Any]:
        return wait_for(self._around, number, leaves)


def _bytes(kind: Kind) -> int:
    return math.prod(kind.shape) * int(kind.dtype.itemsize)


def _sent_by(begun: _Begun) -> Any:
    """A backward pass that begins with buckets as they get ready: see `with_gradient`."""

    def slopes(roots: list[Any], inputs: list[Inputs]) -> list[Any]:
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
        transforms.backward(roots, cotangents=cotangents)  # which may be observed
        leaves = [[None] * len(argument.inputs) for argument in inputs]
        for group, (own, pending) in zip(groups, found, strict=True):
            for place, mean in zip(group, begun.end(pending, own), strict=True):
                which, i, *_ = places[place]
                leaves[which][i] = mean
        return [one.gradient_of(row) for one, row in zip(inputs, leaves, strict=True)]

    return slopes
