"""Shares of different size: what part of all examples a rank has."""

import math
import numbers
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module, on_device, several, to_numpy
from fdbr.core.collective_log import cotangents_were_exchanged
from fdbr.core.effects import effects_are_had
from fdbr.core.primitive import Primitive, dispatch
from fdbr.core.tracer import Tracer
from fdbr.distributed.calls import Call
from fdbr.distributed.communicator import Communicator
from fdbr.distributed.primitives import communicate
from fdbr.errors.checks import describe
from fdbr.errors.lines import caller
from fdbr.ops.declare.rules import stated_rule

__all__ = ["factor_of", "factor_out_of", "weight_of", "weighted", "weighted_there"]


def weight_of(name: str, weight: Any) -> Any:
    """The weight as a number of float64, if it is one that is not negative, or a traced value."""
    shape = getattr(weight, "shape", ())
    kind = getattr(getattr(weight, "dtype", None), "kind", "f")
    fits = isinstance(weight, numbers.Real | Tracer) or hasattr(weight, "dtype")
    if not fits or isinstance(weight, bool | np.bool_) or shape != () or kind not in "fiu":
        raise TypeError(
            f"fdbr.distributed.{name}: weight must be a number, how many examples this rank has, "
            f"not {describe(weight)}"
        )
    if isinstance(weight, Tracer):
        return ops.astype(weight, np.float64)
    value = np.float64(to_numpy(weight) if hasattr(weight, "dtype") else weight)
    if not (value >= 0 and math.isfinite(value)):
        raise ValueError(
            f"fdbr.distributed.{name}: weight must be a finite number and not negative: it says "
            f"how many examples this rank has; got {describe(weight)}"
        )
    return value


def factor_of(name: str, weight: Any, comm: Communicator, scales_loss: bool = False) -> Any:
    """The number by which this rank's gradient is scaled, so that the mean is that of examples.

    It is 1 where all ranks have equally many.  With ``scales_loss`` the loss is scaled by it,
    before it is differentiated.
    """
    weight = weight_of(name, weight)
    call = Call("all_reduce", "sum", where=caller())
    (total,) = communicate(call, comm, [weight])  # type: ignore[misc]
    total = dispatch(_PRIMITIVE, (total, weight), {"size": 0 if scales_loss else comm.size})
    return weight * comm.size / total


def factor_out_of(weight: Any, total: Any, size: int, mixed: bool) -> Any:
    """The same, of numbers; ``mixed`` says that the gradients have parts of other ranks' losses."""
    if mixed:
        _check_equal(total, weight, size)
    return weight * size / _checked(total)


def weighted_there(gradient: Any, factor: Any) -> Any:
    """The same, on the device where it lies."""
    if not several or array_module(gradient) not in several:
        return weighted(gradient, factor)
    with on_device(gradient):
        return weighted(gradient, factor)


def weighted(gradient: Any, factor: Any) -> Any:
    """A gradient times the factor; zeros for a rank without examples, whose mean is NaN."""
    dtype = getattr(gradient, "dtype", np.dtype(np.float64))
    real = np.finfo(dtype).dtype if dtype.kind == "c" else dtype
    if not isinstance(factor, Tracer) and not isinstance(gradient, Tracer):
        return _weighted_array(gradient, real, factor)
    scaled = ops.multiply(gradient, ops.astype(factor, real))
    return ops.where(ops.equal(factor, 0), ops.zeros_like(gradient), scaled)


def _weighted_array(gradient: Any, real: Any, factor: Any) -> Any:
    if factor == 1:
        return gradient
    if factor == 0:
        return array_module(gradient).zeros(gradient.shape, gradient.dtype)
    return gradient * real.type(factor)


def _checked(total: Any) -> Any:
    if np.any(np.asarray(to_numpy(total)) == 0):
        raise ValueError(
            "fdbr.distributed: the weights of all ranks are 0: no rank has an example, so there is "
            "no average of gradients"
        )
    return total


def _check_equal(total: Any, weight: Any, size: int) -> None:
    if np.any(np.asarray(to_numpy(weight)) * size != np.asarray(to_numpy(total))):
        raise ValueError(
            "fdbr.distributed.average_gradients: the weights of the ranks differ, and the losses "
            "have collectives in them (SyncBatchNorm, all_reduce ...): each rank's gradient has "
            "parts of all ranks' losses, and a weight after the backward pass does not weigh "
            "those. Use fdbr.distributed.value_and_grad(loss, comm, weight=...), which scales each "
            "loss before it is differentiated; or multiply the loss by comm.size * weight / total, "
            "total being the weights of all ranks, and leave weight out here"
        )


def _total(xp: Any, total: Any, weight: Any, *, size: int) -> Any:
    """The total, if gradients can be weighed by it; in a rehearsal it is not that of all ranks."""
    if not effects_are_had():
        return total + (total == 0)
    if size and cotangents_were_exchanged():
        _check_equal(total, weight, size)
    return _checked(total)


def _batch(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    return apply(*values, **params)


_PRIMITIVE = Primitive(
    "total_weight",
    "linear",
    _total,
    [stated_rule(lambda ct: ct, ("total",), 0), None],
    lambda values, tangents, out, params: tangents[0],
    _batch,
    registered=False,
)
