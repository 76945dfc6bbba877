"""Products with logarithms, which are 0 where a factor is 0, and the entropies made of them."""

from typing import Any

from fdbr.ops.declare import elementwise
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.elementwise.exponential import log, log1p
from fdbr.ops.special.library import scipy_special
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["entr", "kl_div", "rel_entr", "xlog1py", "xlogy"]


def _share(x: Any, y: Any) -> Any:
    """``x / y``, and 0 where ``x`` is 0."""
    return x / where((x == 0) & (y == 0), 1, y)


@elementwise(x=lambda y: log(y), y=lambda x, y: _share(x, y), heavy=True)
def xlogy(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    """``x * log(y)``, and 0 where ``x`` is 0, whatever ``y``.

    The derivative by ``x`` is ``log(y)``, that by ``y`` is ``x / y``, and 0 where ``x`` is 0.

    >>> from fdbr import ops
    >>> ops.xlogy(0.0, 0.0)
    0.0
    """
    return scipy_special.on(xp)(xp, "xlogy", x, y)


@elementwise(x=lambda y: log1p(y), y=lambda x, y: _share(x, 1 + y), heavy=True)
def xlog1py(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    """``x * log(1 + y)``, and 0 where ``x`` is 0, whatever ``y``.

    The derivative by ``x`` is ``log(1 + y)``, that by ``y`` is ``x / (1 + y)``, and 0 where
    ``x`` is 0.

    >>> from fdbr import ops
    >>> ops.xlog1py(0.0, -1.0)
    0.0
    """
    return scipy_special.on(xp)(xp, "xlog1py", x, y)


@elementwise(x=lambda x: -log(x) - 1, heavy=True)
def entr(xp: Any, x: ArrayLike) -> Array:
    """The entropy of one probability, ``-x * log(x)``: 0 at 0, and -inf below.

    >>> from fdbr import ops
    >>> ops.entr(1.0) == ops.entr(0.0) == 0
    True
    """
    return scipy_special.on(xp)(xp, "entr", x)


@elementwise(x=lambda x, y: log(x / y) + 1, y=lambda x, y: -_share(x, y))
def rel_entr(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    """The relative entropy ``x * log(x / y)``: 0 where ``x`` is 0, inf outside of its domain.

    >>> from fdbr import ops
    >>> ops.rel_entr(0.5, 0.5)
    0.0
    """
    return scipy_special.on(xp)(xp, "rel_entr", x, y)


@elementwise(x=lambda x, y: log(x / y), y=lambda x, y: 1 - _share(x, y))
def kl_div(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    """A term of the Kullback-Leibler divergence, ``x * log(x / y) - x + y``.

    >>> from fdbr import ops
    >>> ops.kl_div(0.5, 0.5)
    0.0
    """
    return scipy_special.on(xp)(xp, "kl_div", x, y)
