"""`average_gradients`: the transformation that makes of many ranks' gradients one."""

from typing import Any

from fdbr.distributed.arguments import communicator_of, wire_of
from fdbr.distributed.communicator import Communicator
from fdbr.distributed.gradients.averaging import Averaging, averaged
from fdbr.distributed.gradients.background import Background
from fdbr.distributed.gradients.buckets import BUCKET_BYTES, bucket_bytes_of
from fdbr.distributed.gradients.buffering import Average, begun, nothing
from fdbr.errors.public import public
from fdbr.pytrees.structure import flatten, unflatten
from fdbr.train.optim.base import EmptyState, GradientTransformation
from fdbr.train.optim.fitting import check_state
from fdbr.tree import frozen

__all__ = ["DoubleBufferingState", "average_gradients"]

_NAME = "average_gradients"


@public("fdbr.distributed")
@frozen
class DoubleBufferingState:
    """The state of `average_gradients` with double buffering.

    Attributes
    ----------
    average
        The average of the gradients of the last step, which is the next step's update.
    """

    average: Any


@public("fdbr.distributed")
def average_gradients(
    comm: Communicator,
    *,
    bucket_bytes: int = BUCKET_BYTES,
    wire: str | None = None,
    double_buffering: bool = False,
) -> GradientTransformation:
    r"""Make of the gradients of all ranks their average: data parallelism.

    It comes first in a chain. Each rank gives the gradient of the mean loss of its own examples,
    and all get the gradient of the mean loss of all examples:

    .. math:: \bar g = \sum_r w_r\, g_r \Big/ \sum_r w_r

    where :math:`w_r` is the number of examples of rank :math:`r`, which ``update`` is given as
    ``weight``. Without it all ranks count the same. A rank without examples says ``weight=0``, and
    what its gradient is does not matter then, NaN included.

    Where the loss itself has collectives in it (`SyncBatchNorm`), a rank's gradient has parts of
    all ranks' losses, and a weight after the backward pass does not weigh those: weights that
    differ are an error then. `value_and_grad` of this module weighs the losses. Or let the loss of
    each rank be the sum over its examples, times the number of ranks, divided by the number of all
    examples; and leave ``weight`` out.

    Gradients travel in buckets, the last leaves first, and are added in an order that depends on
    nothing but their shapes and the number of ranks: a run has the same bits when it is repeated.

    Parameters
    ----------
    comm
        The ranks. Each calls ``update`` in every step.
    bucket_bytes
        How many bytes travel together.
    wire
        ``"float16"`` or ``"bfloat16"``, to which floating numbers are rounded on their way; sums
        are computed in float32.
    double_buffering
        Whether an update is the average of the gradients of the step before, as with ChainerMN's
        option of that name: it is made while the next step computes. The first update is zero.
        What needs the state as arrays (a snapshot, a jitted step) waits for the average; so jit
        what computes the gradient, and call ``update`` outside. Every rank calls this function
        then, at the same place, because a communicator of its own is made for the background.

    Returns
    -------
    GradientTransformation
        Its ``update(grads, state, params=None, *, weight=None)`` passes leaves by that are `None`.

    Raises
    ------
    MismatchError
        By ``update``, if gradients of ranks differ in structure, shapes or dtypes.
    ValueError
        By ``update``, if the weights of all ranks are 0; if one is negative or not finite; if
        they differ, and the gradients come from losses with collectives in them.

    References
    ----------
    T. Akiba, K. Fukuda, S. Suzuki, "ChainerMN: Scalable Distributed Deep Learning Framework",
    2017.

    >>> import numpy as np
    >>> from fdbr import distributed
    >>> from fdbr.train import optim
    >>> def step(comm):
    ...     optimizer = optim.chain(distributed.average_gradients(comm), optim.sgd(1.0))
    ...     params = np.zeros(2)
    ...     grads, examples = (np.array([3.0, 6.0]), 2) if comm.rank else (np.ones(2), 1)
    ...     updates, _ = optimizer.update(grads, optimizer.init(params), params, weight=examples)
    ...     return updates
    >>> distributed.run_in_threads(step, 2)[0]
    array([-2.33333333, -4.33333333])
    """
    how = Averaging(
        _NAME,
        communicator_of(_NAME, comm),
        bucket_bytes_of(_NAME, bucket_bytes),
        wire_of(_NAME, wire),
    )
    if double_buffering:
        Background.of(comm)
        return GradientTransformation(*_buffered(how))

    def init(params: Any) -> EmptyState:
        return EmptyState()

    def update(
        grads: Any, state: Any, params: Any = None, *, weight: Any = None, **extra: Any
    ) -> tuple[Any, Any]:
        leaves, structure = flatten(grads)
        return unflatten(structure, averaged(how.of(structure), leaves, weight)), state

    return GradientTransformation(init, update)


def _buffered(how: Averaging) -> tuple[Any, Any]:
    """The two functions of a transformation with double buffering."""

    def init(params: Any) -> DoubleBufferingState:
        return DoubleBufferingState(nothing(params))

    def update(
        grads: Any, state: Any, params: Any = None, *, weight: Any = None, **extra: Any
    ) -> tuple[Any, Any]:
        check_state(_NAME, state, DoubleBufferingState)
        average = state.average
        if not isinstance(average, Average):
            raise TypeError(
                f"fdbr.distributed.{_NAME}: the state must be one of init or of update, with an "
                f"average of gradients in it, got {type(average).__name__}"
            )
        new = DoubleBufferingState(begun(how, grads, weight))
        return average.tree, new

    return init, update
