"""Lists of configurations: all combinations of some values, or values drawn with a key."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fdbr import random
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.train.sweeps.configurations import changed

__all__ = ["choice", "grid", "integers", "log_uniform", "random_search", "uniform"]

Draw = Callable[[Any], Any]
"""A value to draw: a function of a key."""


@public("fdbr.train")
def grid(
    config: Any, axes: Mapping[str, Iterable[Any]] | None = None, /, **more: Iterable[Any]
) -> list[Any]:
    """All combinations of some values of fields of a configuration.

    Parameters
    ----------
    config
        The configuration, which has the other fields.
    axes, more
        For a field its values; ``{"optimizer.rate": [0.1, 0.2]}`` for that of a class within.

    Returns
    -------
    list
        The configurations; the last field changes fastest.

    Raises
    ------
    TypeError, ValueError
        If there is no such field, or values are none.

    >>> from fdbr import train
    >>> train.grid({"width": 1, "rate": 0.1}, width=[10, 20], rate=[0.1, 0.2])[2]
    {'width': 20, 'rate': 0.1}
    """
    values = {}
    for name, axis in {**(axes or {}), **more}.items():
        if isinstance(axis, str) or not isinstance(axis, Iterable):
            raise TypeError(
                f"fdbr.train.grid: the values of {name} must be in a list, not {describe(axis)}"
            )
        values[name] = list(axis)
        if not values[name]:
            raise ValueError(f"fdbr.train.grid: there are no values of {name}")
    made = []
    for chosen in itertools.product(*values.values()):
        one = config
        for name, value in zip(values, chosen, strict=True):
            one = changed("train.grid", one, name, value)
        made.append(one)
    return made


@public("fdbr.train")
def random_search(
    key: Any,
    config: Any,
    count: int,
    axes: Mapping[str, Draw] | None = None,
    /,
    **more: Draw,
) -> list[Any]:
    """Configurations whose fields are drawn independently.

    Parameters
    ----------
    key
        A key of `fdbr.random`: the list is a pure function of it.
    config
        The configuration, which has the other fields.
    count
        How many.
    axes, more
        For a field, or ``{"optimizer.rate": …}`` within a class, what draws its values: `uniform`,
        `log_uniform`, `integers`, `choice`, or any function from a key to a value.

    Raises
    ------
    TypeError, ValueError
        If there is no such field, ``count`` is no positive integer, or what draws is no function.

    >>> import fdbr
    >>> from fdbr import train
    >>> configs = train.random_search(
    ...     fdbr.random.key(0), {"rate": 0.1}, 3, rate=train.sweeps.log_uniform(1e-4, 1e-1)
    ... )
    >>> all(1e-4 <= config["rate"] <= 1e-1 for config in configs)
    True
    """
    draws = {**(axes or {}), **more}
    for name, draw in draws.items():
        if not callable(draw):
            raise TypeError(
                f"fdbr.train.random_search: {name} must be drawn by a function of a key, such as "
                f"train.sweeps.uniform(0, 1), not {describe(draw)}"
            )
    made = []
    for one in random.split(key, integer("fdbr.train.random_search", "count", count, least=1)):
        drawn = config
        for own, (name, draw) in zip(random.split(one, max(len(draws), 1)), draws.items()):  # noqa: B905
            drawn = changed("train.random_search", drawn, name, draw(own))
        made.append(drawn)
    return made


def uniform(low: float, high: float) -> Draw:
    """Numbers in ``[low, high)``, drawn uniformly.

    >>> import fdbr
    >>> 2 <= fdbr.train.sweeps.uniform(2, 3)(fdbr.random.key(0)) < 3
    True
    """
    _check("uniform", low, high)
    return lambda key: low + (high - low) * float(random.uniform(key, (), dtype="float64"))


def log_uniform(low: float, high: float) -> Draw:
    """Positive numbers in ``[low, high)`` whose logarithms are drawn uniformly.

    >>> import fdbr
    >>> 0.1 <= fdbr.train.sweeps.log_uniform(0.1, 10)(fdbr.random.key(0)) < 10
    True
    """
    _check("log_uniform", low, high)
    if low <= 0:
        raise ValueError(f"fdbr.train.sweeps.log_uniform: low must be positive, got {low}")
    exponent = uniform(math.log(low), math.log(high))
    return lambda key: math.exp(exponent(key))


def integers(low: int, high: int) -> Draw:
    """Integers in ``[low, high)``, drawn uniformly.

    >>> import fdbr
    >>> fdbr.train.sweeps.integers(5, 6)(fdbr.random.key(0))
    5
    """
    first = integer("fdbr.train.sweeps.integers", "low", low)
    end = integer("fdbr.train.sweeps.integers", "high", high)
    _check("integers", first, end)
    return lambda key: int(random.randint(key, (), first, end))


def choice(values: Iterable[Any]) -> Draw:
    """One of some values, drawn uniformly.

    >>> import fdbr
    >>> fdbr.train.sweeps.choice(["adam"])(fdbr.random.key(0))
    'adam'
    """
    found = list(values)
    if not found:
        raise ValueError("fdbr.train.sweeps.choice: there are no values")
    number = integers(0, len(found))
    return lambda key: found[number(key)]


def _check(function: str, low: float, high: float) -> None:
    if not low < high:
        raise ValueError(f"fdbr.train.{function}: low must be less than high, got {low} and {high}")
