"""One step after the other through a system of differential equations, with the error in check.

Everything is written with operations of `fdbr.ops` on plain or traced vectors, so that the steps
of a run can be recorded and differentiated.  The sizes of the steps are constants.
"""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from fdbr import ops
from fdbr.core import Tracer
from fdbr.libraries import scipy_of
from fdbr.transforms import stop_gradient

__all__ = ["SCIPY", "Control", "dense", "dormand_prince", "scipy_steps"]

Field = Callable[[Any, Any], Any]  # (y, t) -> dy/dt

SCIPY = "RK23", "DOP853", "Radau", "BDF", "LSODA"


@attrs.frozen
class Control:
    """The bounds of the steps: see `odeint`."""

    rtol: float
    atol: float
    mxstep: float
    hmax: float
    method: str

    def failure(self, what: str, t: Any) -> RuntimeError:
        """The error for a run that cannot go on."""
        at = "" if isinstance(t, Tracer) else f" at t = {float(t):.6g}"
        return RuntimeError(
            f"fdbr.odeint: {what}{at}; the solution may grow beyond all bounds there, or the "
            'system may be stiff (say method="Radau"); otherwise raise mxstep, or rtol and atol'
        )


# The coefficients of Dormand & Prince, A family of embedded Runge-Kutta formulae, 1980.
_NODES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
_STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)


def dormand_prince(field: Field, y: Any, times: Any, control: Control) -> list[Any]:
    """The solution at each time, by the method of Dormand and Prince of order 5(4).

    Each time is the end of a step.
    """
    sign = 1.0 if len(times) < 2 or bool(stop_gradient(times[-1] >= times[0])) else -1.0
    slope = field(y, times[0])
    _check_finite(slope, times[0], control)
    size = _first_size(field, y, slope, times[0], sign, control) if len(times) > 1 else None
    found = [y]
    for i in range(1, len(times)):
        y, slope, size = _interval(field, y, slope, times[i - 1], times[i], sign, size, control)
        found.append(y)
    return found


def _interval(
    field: Field,
    y: Any,
    slope: Any,
    start: Any,
    stop: Any,
    sign: float,
    size: Any,
    control: Control,
) -> tuple[Any, Any, Any]:
    """From one time to the next: the solution, its slope, and the size of the next step."""
    whole = stop - start
    length = abs(stop_gradient(whole))
    done: Any = 0.0
    count = 0
    while bool(done < length):
        count += 1
        if count > control.mxstep:
            raise control.failure(f"more than mxstep={control.mxstep} steps", start + sign * done)
        t = start + sign * done
        if not bool(stop_gradient(abs(t)) + size > stop_gradient(abs(t))):
            raise control.failure("the steps became too small", t)
        last = bool(size >= length - done)
        # The last step is what is left, which moves with the times.
        h = whole - sign * done if last else sign * size
        after, next_slope, error = _step(field, y, slope, t, h)
        ratio = _ratio(error, y, after, control)
        if not bool(ratio < np.inf):  # it is infinite or NaN
            size = 0.1 * ops.minimum(size, length - done)
            continue
        factor = ops.clip(0.9 * ops.maximum(ratio, 1e-10) ** -0.2, 0.2, 10.0)
        if bool(ratio <= 1.0):
            y, slope = after, next_slope
            done = length if last else done + size
            # What was cut off at a time says little about how long a step may be.
            grown = ops.minimum(size, length) * factor if last else size * factor
            size = ops.minimum(ops.maximum(grown, size) if last else grown, control.hmax)
        else:
            size = ops.minimum(size, length - done) * ops.minimum(factor, 0.9)
    return y, slope, size


def _step(field: Field, y: Any, slope: Any, t: Any, h: Any) -> tuple[Any, Any, Any]:
    """One step: the solution after it, the slope there, and an estimate of the error."""
    slopes, after = [slope], y
    for node, weights in zip(_NODES, _STAGES, strict=True):
        after = y + h * _combined(slopes, weights)
        slopes.append(field(after, t + node * h))
    return after, slopes[-1], stop_gradient(h * _combined(slopes, _ERROR))


def _combined(slopes: Sequence[Any], weights: Sequence[float]) -> Any:
    total: Any = 0.0
    for weight, slope in zip(weights, slopes, strict=True):
        if weight:
            total = total + weight * slope
    return total


def _ratio(error: Any, before: Any, after: Any, control: Control) -> Any:
    """The error of a step in units of what is allowed."""
    size = ops.maximum(abs(stop_gradient(before)), abs(stop_gradient(after)))
    return _rms(error / (control.atol + control.rtol * size))


def _rms(x: Any) -> Any:
    return ops.sqrt(ops.sum(x * x) / max(x.size, 1))


def _first_size(field: Field, y: Any, slope: Any, t: Any, sign: float, control: Control) -> Any:
    """The size of the first step (Hairer, Nørsett & Wanner, *Solving ODEs I*, II.4)."""
    y, slope, t = (stop_gradient(value) for value in (y, slope, t))
    scale = control.atol + control.rtol * abs(y)
    d0, d1 = _rms(y / scale), _rms(slope / scale)
    small = (d0 < 1e-5) | (d1 < 1e-5)
    h0 = ops.where(small, 1e-6, 0.01 * d0 / ops.where(small, 1.0, d1))
    bent = stop_gradient(field(y + sign * h0 * slope, t + sign * h0)) - slope
    most = ops.maximum(d1, _rms(bent / scale) / h0)
    h1 = ops.where(
        most <= 1e-15, ops.maximum(1e-6, 1e-3 * h0), (0.01 / ops.maximum(most, 1e-15)) ** 0.2
    )
    guess = ops.minimum(100 * h0, h1)
    return ops.minimum(ops.where(guess > 0, guess, h0), control.hmax)  # NaN is not greater


def _check_finite(slope: Any, t: Any, control: Control) -> None:
    if not bool(ops.all(ops.isfinite(stop_gradient(slope)))):
        raise control.failure("func returns NaN or infinity", t)


def scipy_steps(field: Field, matrix: Field, y: Any, times: Any, control: Control) -> list[Any]:
    """The solution at each time, by a method of SciPy; of plain arrays alone."""
    if times[0] == times[-1]:
        return [y] * len(times)
    solution = dense(field, matrix, y, times, control)
    return [y if t == times[0] else solution(t) for t in times]


def dense(field: Field, matrix: Field, y: Any, times: Any, control: Control) -> Any:
    """The solution as a function of time, from the first of some times to the last."""
    explicit = control.method in ("dopri5", "RK23", "DOP853")
    method = control.method if control.method in SCIPY else "DOP853"
    make = getattr(scipy_of(np, "integrate"), method)
    solver = make(
        lambda t, y: field(y, t),
        float(times[0]),
        y,
        float(times[-1]),
        rtol=max(control.rtol, 2.3e-14),
        atol=control.atol,
        max_step=control.hmax,
        **({} if explicit else {"jac": lambda t, y: matrix(y, t)}),
    )
    _check_finite(field(y, times[0]), times[0], control)
    ends, pieces, count, passed = [solver.t], [], 0, 1
    while solver.status == "running":
        while abs(times[passed] - times[0]) <= abs(solver.t - times[0]):
            passed, count = passed + 1, 0
        count += 1
        if count > control.mxstep:
            raise control.failure(f"more than mxstep={control.mxstep} steps", solver.t)
        said = solver.step()
        if solver.status == "failed" or not np.isfinite(solver.y).all():
            raise control.failure(said or "func returns NaN or infinity", solver.t)
        ends.append(solver.t)
        pieces.append(solver.dense_output())
    return scipy_of(np, "integrate").OdeSolution(ends, pieces)
