"""Functions of plain arrays, such as SciPy's solvers, as primitives."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module, to_numpy
from fdbr.core.primitive import Primitive
from fdbr.core.tracer import Tracer
from fdbr.errors.checks import refusal
from fdbr.ops.declare.batches import spread
from fdbr.ops.declare.rules import Rules

__all__ = ["checked", "on_host", "plain"]


class _Host(Primitive):
    """An operation whose errors are those of the function it calls."""

    __slots__ = ()

    def explain(self, error: Exception, args: Any) -> Exception:
        return error


def _value(xp: Any, *operands: Any, run: Callable[..., Any], outs: Any) -> Any:
    return run(*operands)


def _one_by_one(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    """Run each example alone, so that each takes only the time it needs."""
    found = [
        apply(*[v[i] if own else v for v, own in zip(values, batched, strict=True)], **params)
        for i in range(size)
    ]
    if found:
        return tuple(ops.stack(parts) for parts in zip(*found, strict=True))
    xp = array_module(*values)
    return tuple(xp.zeros((0, *shape), dtype=dtype) for shape, dtype in params["outs"])


_host = _Host("on_host", "constant", _value, Rules(lambda index: None), None, _one_by_one)


def on_host(
    run: Callable[..., tuple[Any, ...]],
    operands: Sequence[Any],
    outs: Sequence[tuple[tuple[int, ...], str]],
) -> tuple[Any, ...]:
    """Return ``run(*operands)`` on plain arrays under any transformation, as a constant.

    ``outs`` are the shapes and dtypes of its results.
    """
    return _host.apply(*operands, run=run, outs=tuple(outs))


def _checked_value(xp: Any, x: Any, *numbers: Any, check: Callable[..., None]) -> Any:
    rows = np.broadcast_arrays(*map(to_numpy, numbers))
    for row in zip(*(numbers.flat for numbers in rows), strict=True):
        check(*row)
    return x


def _checked_batch(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    given = [spread(ops.asarray(v), own, size) for v, own in zip(values, batched, strict=True)]
    return apply(*given, **params)


_checked = _Host(
    "checked", "constant", _checked_value, Rules(lambda index: None), None, _checked_batch
)


def checked(check: Callable[..., None], x: Any, *numbers: Any) -> Any:
    """Return a constant ``x``, once ``check(*numbers)`` has raised no error.

    In a program, the error is raised where it runs; of a batch, for the first such example.
    """
    if any(isinstance(value, Tracer) for value in (x, *numbers)):
        return _checked.apply(x, *numbers, check=check)
    check(*numbers)
    return x


def plain(function: str, value: Any) -> Any:
    """Convert the result of a user's function within `on_host` to a NumPy array."""
    if isinstance(value, Tracer):
        error = TypeError(
            f"fdbr.{function}: the function uses a traced value of {value._trace}, which is not "
            f"among its arguments; pass it as one of the further arguments, fdbr.{function}(f, …, "
            "value)"
        )
        raise refusal(error)
    return to_numpy(value)
