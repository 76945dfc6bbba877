"""A schedule that goes up and down along lines."""

from typing import Any

from fdbr import ops
from fdbr.core.util.pickling import public_factory
from fdbr.train.optim.schedules.base import Schedule, number, positive, steps

__all__ = ["cyclic_schedule"]


@public_factory("fdbr.train.optim")
def cyclic_schedule(
    init_value: float,
    peak_value: float,
    steps_up: int,
    steps_down: int | None = None,
    mode: str = "triangular",
    gamma: float = 1.0,
) -> Schedule:
    """Up and down, again and again (Smith, *Cyclical learning rates*, WACV 2017).

    PyTorch's ``CyclicLR``.  The height of a triangle is ``peak_value - init_value``, times a factor
    that the mode tells.

    Parameters
    ----------
    init_value, peak_value
        The values at the feet and the top of the first triangle.
    steps_up, steps_down
        The steps of its sides, at least 1; by default they are alike.
    mode
        ``"triangular"``: all are as high.  ``"triangular2"``: each is half as high as the one
        before.  ``"exp_range"``: the height is times ``gamma**count``.
    gamma
        A positive number.

    Returns
    -------
    Schedule

    Raises
    ------
    TypeError, ValueError
        If an argument is no finite number, or out of range, or the mode is another.

    >>> from fdbr.train import optim
    >>> rate = optim.cyclic_schedule(0.0, 1.0, 2, mode="triangular2")
    >>> [rate(count) for count in range(9)]
    [0.0, 0.5, 1.0, 0.5, 0.0, 0.25, 0.5, 0.25, 0.0]
    """
    name = "cyclic_schedule"
    init_value = number(name, "init_value", init_value)
    peak_value = number(name, "peak_value", peak_value)
    up = steps(name, "steps_up", steps_up)
    down = up if steps_down is None else steps(name, "steps_down", steps_down)
    gamma = positive(name, "gamma", gamma)
    factors: dict[str, Any] = {
        "triangular": lambda count, cycle: 1.0,
        "triangular2": lambda count, cycle: 0.5**cycle,
        "exp_range": lambda count, cycle: gamma**count,
    }
    if mode not in factors:
        raise ValueError(
            f"fdbr.train.optim.{name}: mode must be one of {list(factors)}, got {mode!r}"
        )

    def cyclic(count: Any) -> Any:
        count = ops.maximum(count, 0)
        cycle = ops.floor(count / (up + down))
        place = count - cycle * (up + down)
        height = ops.minimum(place / up, (up + down - place) / down)
        return init_value + (peak_value - init_value) * height * factors[mode](count, cycle)

    return Schedule(cyclic)
