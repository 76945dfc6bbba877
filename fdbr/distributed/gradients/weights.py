"""Shares of different size: what part of all examples a rank has."""

import math
import numbers
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.backend import array_module, on_device, several, to_numpy
from fdbr.core import Primitive, Tracer, dispatch
from fdbr.distributed.calls import Call
from fdbr.distributed.communicator import Communicator
from fdbr.distributed.lines import caller
from fdbr.distributed.primitives import communicate
from fdbr.effects import effects_are_had
from fdbr.messages import describe
from fdbr.ops.kinds.rules import stated_rule

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


def factor_of(name: str, weight: Any, comm: Communicator) -> Any:
    """The number by which this rank's gradient is scaled, so that the mean is that of examples.

    It is 1 where all ranks have equally many.
    """
    weight = weight_of(name, weight)
    call = Call("all_reduce", "sum", where=caller())
    (total,) = communicate(call, comm, [weight])  # type: ignore[misc]
    return weight * comm.size / _some(total)


def factor_out_of(weight: Any, total: Any, size: int) -> Any:
    """The same, of numbers."""
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


def _nonzero(xp: Any, total: Any) -> Any:
    """The total, which is not 0; in a rehearsal, where ranks do not meet, it says nothing."""
    return _checked(total) if effects_are_had() else total + (total == 0)


def _batch(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    return apply(*values)


_PRIMITIVE = Primitive(
    "nonzero",
    "linear",
    _nonzero,
    [stated_rule(lambda ct: ct, ("total",), 0)],
    lambda values, tangents, out, params: tangents[0],
    _batch,
    registered=False,
)


def _some(total: Any) -> Any:
    """The total, unless it is 0: that is an error."""
    return dispatch(_PRIMITIVE, (total,), {})
