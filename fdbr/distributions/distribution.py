"""The base class of probability distributions."""

import math
from typing import Any, ClassVar

import numpy as np

from fdbr import ops, tree
from fdbr.core.array_modules import array_module
from fdbr.core.tracer import Tracer
from fdbr.distributions.ranges import check_range, check_shapes
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.devices import beside
from fdbr.ops.dtypes import is_number
from fdbr.pytrees.dtypes import dtype_kind

__all__ = [
    "Distribution",
    "broadcast",
    "chance",
    "check_vector",
    "dtype_of",
    "exactly_one",
    "inside",
    "near",
    "shape_of",
    "stepped",
    "times",
]


@public("fdbr.distributions")
class Distribution:
    """The base of distributions: frozen classes whose fields are the parameters.

    Parameters are numbers or arrays, which broadcast together to `batch_shape`: there is a
    distribution for each element.  A draw of one of them has `event_shape`.  Parameters that are
    outside their range, not finite, or of shapes that do not broadcast are an error where a
    distribution is made: where they are traced, too, and in a jitted function at each call.
    Trees that are made of a distribution, as gradients are, are not looked at.  Integer arrays
    become floating arrays.

    `sample` takes a key.  Where a distribution's `reparametrized` is true its samples are
    differentiable by the parameters.
    """

    __slots__ = ()

    reparametrized = True
    """Whether samples are differentiable functions of the parameters."""

    support = "real"
    """The values that there are: ``"real"``, ``"positive"``, ``"[0, 1]"``, ``"simplex"`` …."""

    ranges: ClassVar[dict[str, str]] = {}
    """What each parameter must be, by its name: a text of `fdbr.distributions.ranges`."""

    def __attrs_post_init__(self) -> None:
        kind = type(self).__name__
        given = {name: getattr(self, name) for name in self.ranges}
        if len(given) == 2 and "logits" in given:  # the other one of which is not given
            given = {name: value for name, value in given.items() if value is not None}
        for name, value in given.items():
            check_range(kind, name, value, self.ranges[name])
            if (floats := self._floats(value)) is not value:  # integer parameters would wrap
                object.__setattr__(self, name, floats)
        self._check(kind, given)

    def _check(self, kind: str, given: dict[str, Any]) -> None:
        """Refuse parameters that do not fit each other."""
        check_shapes(kind, **given)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape to which the parameters broadcast."""
        return shape_of(*tree.leaves(self))

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape of one draw from one distribution."""
        return ()

    @property
    def dtype(self) -> np.dtype[Any]:
        """The floating dtype of the parameters, and so of what is computed of them."""
        return dtype_of(*tree.leaves(self))

    @property
    def mean(self) -> Any:
        """The expectation, of shape ``batch_shape + event_shape``."""
        raise self._lacks("mean")

    @property
    def variance(self) -> Any:
        """The variance of each element, of shape ``batch_shape + event_shape``."""
        raise self._lacks("variance")

    @property
    def stddev(self) -> Any:
        """The root of the variance."""
        return ops.sqrt(self.variance)

    @property
    def mode(self) -> Any:
        """The value of the largest probability or density."""
        raise self._lacks("mode")

    def log_prob(self, x: Any) -> Any:
        """The logarithm of the probability, or its density, of a value.

        It is -inf outside the support, and NaN of NaN, as everything else is.

        Parameters
        ----------
        x
            Shape ``(..., *event_shape)``; the axes before broadcast with `batch_shape`.  Integers
            are converted to a floating dtype.

        Returns
        -------
        array
            Of the shape to which those axes broadcast.
        """
        return self._log_prob(self._floats(x))

    def prob(self, x: Any) -> Any:
        """The probability of a value, or its density."""
        return ops.exp(self.log_prob(x))

    def cdf(self, x: Any) -> Any:
        """The probability of values up to ``x``."""
        return self._cdf(self._floats(x))

    def log_cdf(self, x: Any) -> Any:
        """The logarithm of `cdf`."""
        return self._log_cdf(self._floats(x))

    def survival(self, x: Any) -> Any:
        """The probability of values above ``x``."""
        return self._survival(self._floats(x))

    def log_survival(self, x: Any) -> Any:
        """The logarithm of `survival`."""
        return self._log_survival(self._floats(x))

    def icdf(self, q: Any) -> Any:
        """The least value whose `cdf` is at least ``q``: the inverse of `cdf`.

        Of what is no probability, not in [0, 1], it is NaN.
        """
        return self._icdf(self._floats(q))

    def entropy(self) -> Any:
        """The expectation of ``-log_prob``, in nats, of shape `batch_shape`."""
        raise self._lacks("entropy")

    def perplexity(self) -> Any:
        """``exp(entropy)``."""
        return ops.exp(self.entropy())

    def sample(self, key: Any, shape: int | tuple[int, ...] = ()) -> Any:
        """Draws, of shape ``shape + batch_shape + event_shape``.

        Parameters
        ----------
        key
            A key; the same key gives the same draws.
        shape
            How many draws of each distribution.
        """
        lead = (shape,) if isinstance(shape, int) else tuple(shape)
        return self._draw(near(key, *tree.leaves(self)), lead + self.batch_shape)

    def _floats(self, x: Any) -> Any:
        """Convert integers and truth values, because differences of theirs wrap."""
        dtype = getattr(x, "dtype", None)
        if dtype is None or dtype.kind not in "biu" or is_number(x):
            return x
        return ops.astype(x, np.result_type(dtype, self.dtype))

    # --- the formulas of a family, of floating numbers

    def _log_prob(self, x: Any) -> Any:
        raise self._lacks("log_prob")

    def _cdf(self, x: Any) -> Any:
        raise self._lacks("cdf")

    def _log_cdf(self, x: Any) -> Any:
        return _log_of(self._cdf(x), self._survival(x))

    def _survival(self, x: Any) -> Any:
        return 1 - self._cdf(x)

    def _log_survival(self, x: Any) -> Any:
        return _log_of(self._survival(x), self._cdf(x))

    def _icdf(self, q: Any) -> Any:
        raise self._lacks("icdf")

    def _draw(self, key: Any, shape: tuple[int, ...]) -> Any:
        """Draws of shape ``shape + event_shape``, where ``shape`` ends in `batch_shape`."""
        raise self._lacks("sample")

    def _lacks(self, what: str) -> NotImplementedError:
        return NotImplementedError(
            f"fdbr.distributions.{type(self).__name__} has no {what} in closed form; estimate it "
            "from sample(key, shape)"
        )


# --- parameters ---------------------------------------------------------------------


def shape_of(*values: Any) -> tuple[int, ...]:
    """The shape to which values broadcast."""
    return np.broadcast_shapes(*(getattr(value, "shape", ()) for value in values))


def dtype_of(*values: Any) -> np.dtype[Any]:
    """The floating dtype of values; float64 of numbers alone."""
    found = [v.dtype for v in values if hasattr(v, "dtype") and dtype_kind(v.dtype) == "f"]
    return np.result_type(*found) if found else np.dtype(np.float64)


def broadcast(value: Any, distribution: Distribution) -> Any:
    """A value for each distribution, in their dtype."""
    shape = distribution.batch_shape
    if not hasattr(value, "dtype"):
        arrays = [leaf for leaf in tree.leaves(distribution) if hasattr(leaf, "dtype")]
        if not arrays:
            return np.asarray(value, distribution.dtype)
        value = array_module(arrays[0]).asarray(value, dtype=distribution.dtype)
    return value if value.shape == shape else ops.broadcast_to(value, shape)


def near(key: Any, *values: Any) -> Any:
    """A key on the device of the parameters."""
    for value in values:
        if hasattr(value, "dtype") and not isinstance(key, Tracer):
            key = beside(key, value)
    return key


def exactly_one(kind: str, **given: Any) -> None:
    """Refuse two parameters that say the same, or none of them."""
    if sum(value is not None for value in given.values()) != 1:
        raise ValueError(f"fdbr.distributions.{kind}: give exactly one of {' and '.join(given)}")


def inside(condition: Any, x: Any, safe: Any, function: Any) -> Any:
    """``function(x)`` where a condition holds, -inf elsewhere; it is given ``safe`` there.

    So derivatives outside are 0, not NaN.  NaN is not outside: nobody knows where it lies.
    """
    condition = condition | ops.isnan(x)
    return ops.where(condition, function(ops.where(condition, x, safe)), -math.inf)


def stepped(x: Any, value: Any) -> Any:
    """A value that a comparison with ``x`` has chosen, or NaN where ``x`` is that."""
    return ops.where(ops.isnan(x), math.nan, value)


def _log_of(part: Any, rest: Any) -> Any:
    """The logarithm of a part of one, by the rest where that has more digits."""
    near = rest < 0.5
    by_rest = ops.log1p(-ops.where(near, rest, 0.0))
    return ops.where(near, by_rest, ops.log(ops.where(near, 1.0, part)))


def chance(q: Any) -> Any:
    """A probability, or NaN where a number is none."""
    return ops.where((q >= 0) & (q <= 1), q, math.nan)


def check_vector(kind: str, name: str, value: Any, axes: int = 1) -> None:
    """Refuse a parameter without axes of its own."""
    if getattr(value, "ndim", 0) < axes:
        raise ValueError(
            f"fdbr.distributions.{kind}: {name} must have {axes} axes or more, got "
            f"{describe(value)}"
        )


def times(weight: Any, log: Any) -> Any:
    """``weight * log``, 0 where the weight is, whatever the logarithm."""
    return ops.where(weight == 0, 0.0, weight * ops.where(weight == 0, 0.0, log))
