"""Runge-Kutta steps through a system of differential equations, with the error in check.

Everything is written with operations of `fdbr.ops`, so that the steps run on plain arrays, become
a loop in a program, and can be recorded and differentiated.  The sizes of steps are constants.
"""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from fdbr import ops
from fdbr.control_flow.scan import scan
from fdbr.core.devices import scipy_of
from fdbr.core.tracer import Tracer, stop_gradient
from fdbr.solvers.running import choose, is_captured, loop

__all__ = [
    "FAILURES",
    "SCIPY",
    "Control",
    "Interval",
    "along",
    "dense",
    "dormand_prince",
    "failure_of",
    "first_size",
    "scipy_steps",
]

Field = Callable[[Any, Any], Any]  # (y, t) -> dy/dt

# How many steps of a loop in a program have their derivative together: the adjoint equation ends a
# step at the beginning of each such block.  A program has each of them by itself, so they are few.
_BLOCK = 4

SCIPY = "RK23", "DOP853", "Radau", "BDF", "LSODA"

# What may go wrong: the codes of failures.
FINE, NOT_ORDERED, NOT_FINITE, *FAILURES = map(float, range(6))
NAN, MANY, SMALL = FAILURES


@attrs.frozen
class Control:
    """The bounds of the steps: see `odeint`."""

    rtol: float
    atol: float
    mxstep: float
    hmax: float
    method: str

    def failure(self, what: str, t: Any = None) -> RuntimeError:
        """The error for a run that cannot continue."""
        at = "" if t is None or isinstance(t, Tracer) else f" at t = {float(t):.6g}"
        return RuntimeError(
            f"fdbr.odeint: {what}{at}; the solution may grow beyond all bounds there, or the "
            'system may be stiff (say method="Radau"); otherwise raise mxstep, or rtol and atol'
        )

    def check(self, code: Any, t: Any = None) -> None:
        """Raise the error of a code, if it is that of a failure."""
        if code == NOT_ORDERED:
            raise ValueError(
                "fdbr.odeint: t must ascend or descend, without NaN; sort it, and take the "
                "results in the order that is wanted"
            )
        if code == NOT_FINITE:
            raise ValueError("fdbr.odeint: t must be finite")
        if code == NAN:
            raise self.failure("func returns NaN or infinity", t)
        if code == MANY:
            raise self.failure(f"more than mxstep={self.mxstep} steps", t)
        if code == SMALL:
            raise self.failure("the steps became too small", t)


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
# Those of the polynomial of order 4 within a step: Shampine, Some practical Runge-Kutta formulas,
# 1986.  Row ``i`` has the factors of the powers ``i + 1`` of the part of the step.
_WITHIN = (
    (1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    (
        *(-8048581381 / 2820520608, 0.0, 131558114200 / 32700410799, -1754552775 / 470086768),
        *(127303824393 / 49829197408, -282668133 / 205662961, 40617522 / 29380423),
    ),
    (
        *(8663915743 / 2820520608, 0.0, -68118460800 / 10900136933, 14199869525 / 1410260304),
        *(-318862633887 / 49829197408, 2019193451 / 616988883, -110615467 / 29380423),
    ),
    (
        *(-12715105075 / 11282082432, 0.0, 87487479700 / 32700410799, -10690763975 / 1880347072),
        *(701980252875 / 199316789632, -1453857185 / 822651844, 69997945 / 29380423),
    ),
)


def failure_of(times: Any) -> Any:
    """The code of what is wrong with times."""
    steps = times[1:] - times[:-1]
    ordered = ops.all(steps >= 0) | ops.all(steps <= 0)
    code = choose(ops.all(ops.isfinite(times)), FINE, NOT_FINITE)
    return choose(ordered, code, NOT_ORDERED)


def dormand_prince(
    field: Field, y: Any, times: Any, control: Control, captured: Any
) -> tuple[Any, Any, Any]:
    """Compute the solution at each time by the method of Dormand and Prince of order 5(4).

    Each time is the end of a step.  ``captured`` holds the values that ``field`` uses.  The results
    are the solution, shape ``(n, size)``, the code of a failure, and its time.
    """
    known = stop_gradient(times)
    slope = field(y, times[0])
    code = failure_of(known)
    nan = ops.logical_not(ops.all(ops.isfinite(stop_gradient(slope))))
    code = choose((code == FINE) & nan, NAN, code)
    if times.shape[0] == 1:
        return ops.reshape(y, (1, -1)), code, known[0]
    sign = choose(known[-1] >= known[0], 1.0, -1.0)
    size = first_size(field, y, slope, known[0], sign, control)

    def one(carry: Any, ends: Any) -> Any:
        y, slope, size, code, at = carry
        start, stop = ends
        interval = Interval(field, start, stop, sign, control, captured, code == FINE)
        y, slope, size, failed, t = interval.solved(y, slope, size)
        at = choose(code == FINE, t, at)
        return (y, slope, size, choose(code == FINE, failed, code), at), y

    (*_, code, at), rows = scan(one, (y, slope, size, code, known[0]), (times[:-1], times[1:]))
    return ops.concat([ops.reshape(y, (1, -1)), rows]), code, at


class Interval:
    """The steps from one time to another; there are none unless it is ``taken``."""

    def __init__(
        self,
        field: Field,
        start: Any,
        stop: Any,
        sign: Any,
        control: Control,
        captured: Any,
        taken: Any = True,
    ) -> None:
        self.field, self.start, self.stop, self.sign = field, start, stop, sign
        self.control, self.captured = control, (captured, start, stop)
        self.length = choose(taken, abs(stop_gradient(stop - start)), 0.0)
        self.most = float(control.mxstep)

    def solved(self, y: Any, slope: Any, size: Any) -> tuple[Any, ...]:
        """The solution at the end, from the state, its derivative and the size of the first step.

        The results are that, its derivative, the size of the next step, the code of a failure,
        and its time.
        """
        carry = y, slope, size, 0.0, 0.0
        carry = loop(self._unfinished, lambda carry: self._step(carry)[0], carry, self.captured)
        return *carry[:3], *self._outcome(carry)

    def attached(self, y: Any, slope: Any, size: Any, attach: Any) -> tuple[Any, Any, Any]:
        """The solution at the end with a derivative of its own, and the outcome as in `solved`.

        ``attach(y, new, pieces)`` is the state ``new`` after some steps from ``y`` on, with its
        derivative; the pieces are what `along` takes.
        """
        captured = is_captured((y, self.captured))

        def steps(carry: Any) -> Any:
            y = carry[0]
            carry = (stop_gradient(y), *carry[1:])
            pieces = []
            for _ in range(_BLOCK):
                active = self._unfinished(carry)
                if not captured and not active:
                    break
                new, piece = self._step(carry, active)
                pieces.append(piece)
                carry = tuple(choose(active, a, b) for a, b in zip(new, carry, strict=True))
            stacked = tuple(map(ops.stack, zip(*pieces, strict=True)))
            return attach(y, carry[0], stacked), *carry[1:]

        carry = loop(self._unfinished, steps, (y, slope, size, 0.0, 0.0), self.captured)
        return carry[0], *self._outcome(carry)

    def _unfinished(self, carry: Any) -> Any:
        _, _, size, done, count = carry
        t = abs(stop_gradient(self.start) + self.sign * done)
        return (done < self.length) & (count < self.most) & (t + size > t)

    def _outcome(self, carry: Any) -> tuple[Any, Any]:
        *_, done, count = carry
        code = choose(done < self.length, choose(count >= self.most, MANY, SMALL), FINE)
        return code, stop_gradient(self.start) + self.sign * done

    def _step(self, carry: Any, active: Any = None) -> Any:
        """The state after a step, or with a smaller step; and what `along` takes of it."""
        y, slope, size, done, count = carry
        control, sign = self.control, self.sign
        t = self.start + sign * done
        last = size >= self.length - done
        # The last step is the rest of the interval, which moves with the times.
        h = choose(last, self.stop - self.start - sign * done, sign * size)
        after, derivatives, error = _step(self.field, y, slope, t, h)
        ratio = _ratio(error, y, after, control)
        # NaN and infinity shorten the step as much as is allowed.
        ratio = choose(ratio < np.inf, ratio, np.inf)
        factor = ops.minimum(ops.maximum(0.9 * ops.maximum(ratio, 1e-10) ** -0.2, 0.2), 10.0)
        made = ratio <= 1.0
        reach = abs(stop_gradient(h))
        grown = ops.minimum(reach * factor, control.hmax)
        # A step that was cut off at a time says little about how long a step may be.
        size = choose(made & last, ops.maximum(grown, size), grown)
        new = choose(made, after, y), choose(made, derivatives[-1], slope)
        piece = None
        if active is not None:
            known = made & active
            within = ops.stack([y, *(h * _combined(derivatives, weights) for weights in _WITHIN)])
            # A step that was not made is none of the solution: it may be NaN.
            piece = t, choose(known, h, 0.0), choose(known, within, ops.stack([y] + [0 * y] * 4))
        done = choose(made, choose(last, self.length, done + reach), done)
        return (*new, size, done, count + 1.0), piece


def along(pieces: Any, sign: Any) -> Callable[[Any], Any]:
    """The solution as a function of time, from the pieces of its steps."""
    starts, lengths, factors = pieces

    def at(t: Any) -> Any:
        index = ops.maximum(ops.sum(sign * (t - starts) >= 0) - 1, 0)
        y, *powers = factors[index]
        length = lengths[index]
        part = (t - starts[index]) / choose(length == 0, 1.0, length)
        total = powers[-1]
        for power in powers[-2::-1]:
            total = power + part * total
        return y + part * total

    return at


def _step(field: Field, y: Any, slope: Any, t: Any, h: Any) -> tuple[Any, Any, Any]:
    """Make one step: the solution after it, its derivatives, and an estimate of the error."""
    derivatives, after = [slope], y
    for node, weights in zip(_NODES, _STAGES, strict=True):
        after = y + h * _combined(derivatives, weights)
        derivatives.append(field(after, t + node * h))
    return after, derivatives, stop_gradient(h * _combined(derivatives, _ERROR))


def _combined(derivatives: Sequence[Any], weights: Sequence[float]) -> Any:
    total: Any = None
    for weight, slope in zip(weights, derivatives, strict=True):
        if weight:
            part = slope if weight == 1.0 else weight * slope
            total = part if total is None else total + part
    return total


def _ratio(error: Any, before: Any, after: Any, control: Control) -> Any:
    """The error of a step in units of the tolerance."""
    size = ops.maximum(abs(stop_gradient(before)), abs(stop_gradient(after)))
    return _rms(error / (control.atol + control.rtol * size))


def _rms(x: Any) -> Any:
    return ops.sqrt(ops.sum(x * x) / max(x.size, 1))


def first_size(field: Field, y: Any, slope: Any, t: Any, sign: Any, control: Control) -> Any:
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


def scipy_steps(field: Field, matrix: Field, y: Any, times: Any, control: Control) -> list[Any]:
    """The solution at each time, by a method of SciPy; of plain arrays alone."""
    if times[0] == times[-1]:
        return [y] * len(times)
    solution = dense(field, matrix, y, times, control)
    return [y if t == times[0] else solution(t) for t in times]


def dense(field: Field, matrix: Field, y: Any, times: Any, control: Control) -> Any:
    """The solution as a function of time, from the first of some times to the last."""
    explicit = control.method in ("RK23", "DOP853")
    make = getattr(scipy_of(np, "integrate"), control.method)
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
    if not np.isfinite(field(y, times[0])).all():
        raise control.failure("func returns NaN or infinity", times[0])
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
