"""Elements left out by chance, with an explicit key."""

import math
from typing import Any

import numpy as np

from fdbr.backend import Array
from fdbr.core import Tracer
from fdbr.messages import describe
from fdbr.ops.creation import floating, zeros_like
from fdbr.ops.devices import beside
from fdbr.ops.kinds import constant, leading
from fdbr.ops.philox import random_words

__all__ = ["dropout"]


@constant(batch=leading(1), total=True)
def _kept(xp: Any, key: Any, *, shape: tuple[int, ...], share: float) -> Array:
    """Which elements stay: those whose 32 random bits, half a word, are below their share."""
    count = math.prod(shape)
    words = random_words.primitive.value(xp, key, 0, shape=(-(-count // 2),), use=0)
    halves = xp.ascontiguousarray(words).view(xp.uint32)[..., :count]
    limit = xp.asarray(min(round(share * 2**32), 2**32 - 1), dtype=xp.uint32)
    return (halves < limit).reshape((*key.shape[:-1], *shape))


def dropout(x: Array, rate: float, *, key: Any) -> Any:
    """Each element is 0 with probability ``rate``, and divided by ``1 - rate`` otherwise.

    So its expectation stays: Srivastava et al., *Dropout: a simple way to prevent neural
    networks from overfitting*, JMLR 2014.

    Parameters
    ----------
    x
        An array.
    rate
        A number in [0, 1].
    key
        A key of `fdbr.random`; the same key leaves out the same elements.

    Raises
    ------
    ValueError
        If ``rate`` is not in [0, 1].
    TypeError
        If ``key`` is no key.

    >>> import fdbr, numpy as np
    >>> from fdbr import ops
    >>> out = ops.dropout(np.ones(1000), 0.5, key=fdbr.random.key(0))
    >>> set(out.tolist()) == {0.0, 2.0}
    True
    """
    if isinstance(rate, Tracer):
        rate = float(rate)  # a decision where that may be one, or an error that says why not
    if not isinstance(rate, int | float) or not 0 <= rate <= 1:
        raise ValueError(f"fdbr.ops.dropout: rate must be a number in [0, 1], not {rate!r}")
    if getattr(key, "shape", None) != (2,) or key.dtype != np.uint64:
        raise TypeError(
            f"fdbr.ops.dropout: key must be one key, uint64[2], got {describe(key)}; make one with "
            "fdbr.random.key(seed)"
        )
    x, key = floating(x), beside(key, x)
    if rate == 0:
        return x
    if rate == 1:
        return x * zeros_like(x)
    return x * _kept(key, shape=x.shape, share=1.0 - rate) * (1 / (1 - rate))
