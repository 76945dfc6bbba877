"""Initial value problems, and the derivatives of their solutions."""

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import ops, tree
from fdbr.control_flow.scan import scan
from fdbr.core.array_modules import array_module, protect
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.solvers.host import checked, plain
from fdbr.solvers.running import check_captured, choose, compute
from fdbr.solvers.stepping import (
    FAILURES,
    SCIPY,
    Control,
    Interval,
    along,
    dense,
    dormand_prince,
    failure_of,
    first_size,
    scipy_steps,
)
from fdbr.solvers.unknowns import Unknowns, inexact, real_vector
from fdbr.transforms.custom_rules import custom_vjp
from fdbr.transforms.jacobians import jacfwd
from fdbr.transforms.jvp import jvp
from fdbr.transforms.vjp import stop_gradient, vjp
from fdbr.transforms.vmap import vmap

__all__ = ["odeint"]


@public("fdbr")
def odeint(
    func: Callable[..., Any],
    y0: Any,
    t: Any,
    *args: Any,
    rtol: float = 1.4e-8,
    atol: float = 1.4e-8,
    mxstep: float = 10_000,
    hmax: float = np.inf,
    method: str = "dopri5",
    backward: str = "adjoint",
) -> Any:
    """The solution of ``dy/dt = func(y, t, *args)`` from ``y0`` on, at some times.

    It is differentiable in ``y0``, ``t`` and ``args``.

    Parameters
    ----------
    func
        A pure function of the state and the time, in this order, which returns a tree in the form
        of ``y0``.  SciPy's ``solve_ivp`` has the other order: parameters named ``(t, y)`` are an
        error.
    y0
        The state at ``t[0]``: a tree.  Its floating and complex leaves move, the others stay.
    t
        The times, shape ``(n,)``, in order: ascending or descending.  Times may be equal.
    args
        Further arguments, trees.  What the solution is to be differentiated by must be among
        them, unless the run is recorded.
    rtol, atol
        How large the error of a step may be: ``atol + rtol * abs(y)``, on average.
    mxstep
        How many steps there may be from one time to the next.
    hmax
        How long a step may be.
    method
        ``"dopri5"``, the Runge-Kutta method of Dormand and Prince of order 5(4); or one of
        SciPy's: ``"RK23"``, ``"DOP853"``, and for stiff systems ``"Radau"``, ``"BDF"`` and
        ``"LSODA"``, which get exact Jacobians.
    backward
        ``"adjoint"``: the derivative is the solution of another differential equation, backward in
        time (Pontryagin et al., 1962; Chen et al., *Neural ordinary differential equations*,
        2018).  It needs memory for the steps between two times alone, and is as accurate as the
        tolerances say.
        ``"recorded"``: the steps themselves are differentiated.  It is exact, and needs memory
        for each step; under `vmap` examples that differ in their steps run one by one.

    Returns
    -------
    tree
        As ``y0``, with an axis of length ``n`` before the others of each leaf that moves, and the
        dtypes of ``y0``.  The steps are computed in double precision.

    Raises
    ------
    RuntimeError
        If there are too many steps, or they become too small, or NaN appears.
    TypeError, ValueError
        If an argument is no good; the message names it.

    >>> import fdbr, numpy as np
    >>> decay = lambda y, t, rate: -rate * y
    >>> np.round(fdbr.odeint(decay, 1.0, np.array([0.0, 1.0, 2.0]), 0.5), 6)
    array([1.      , 0.606531, 0.367879])
    >>> end = lambda rate: fdbr.odeint(decay, 1.0, np.array([0.0, 1.0]), rate)[-1]
    >>> np.round(fdbr.grad(end)(0.5), 6)
    np.float64(-0.606531)
    """
    _check_order(func)
    control = _control(rtol, atol, mxstep, hmax, method)
    if backward not in ("adjoint", "recorded"):
        raise ValueError(f"fdbr.odeint: backward must be adjoint or recorded, not {backward!r}")
    if backward == "recorded" and method != "dopri5":
        raise ValueError(
            f"fdbr.odeint: the steps of method {method!r} are SciPy's and cannot be recorded; say "
            'backward="adjoint"'
        )
    unknowns = Unknowns("odeint", "y0", y0)
    system = _System(func, unknowns, tree.structure(args), inexact(args), control)
    times = _times(t)
    leaves = tree.leaves(args)
    moved = list(itertools.compress(leaves, system.inside))
    still = [
        *unknowns.others(y0),
        *(leaf for leaf, own in zip(leaves, system.inside, strict=True) if not own),
    ]
    start = protect(real_vector(y0))
    if backward == "recorded":
        rows, code, at = dormand_prince(
            system.bound(moved, still), start, times, control, (moved, still)
        )
        code, at = stop_gradient(code), stop_gradient(at)
        rows = rows + checked(control.check, ops.zeros_like(at), code, at)
    else:
        rows = _solved(system, start, times, moved, still)
    return unknowns.tree(rows, unknowns.others(y0), exact=False)


_ORDER = "it is called as func(y, t, *args), with the state before the time"
_TIMES = frozenset({"t", "time", "ts", "times", "tau"})


def _check_order(func: Any) -> None:
    """Raise a TypeError for a function of time and state, as SciPy's `solve_ivp` takes it.

    With a state of one number, its result would be wrong without an error.
    """
    try:
        parameters = inspect.signature(func).parameters.values()
    except (TypeError, ValueError):  # some builtin functions have none
        return
    positional = [
        p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    names = positional[:2]
    if len(names) == 2 and names[0] in _TIMES and names[1] not in _TIMES:
        raise TypeError(
            f"fdbr.odeint: func takes ({names[0]}, {names[1]}, …), but {_ORDER}: give "
            f"lambda {names[1]}, {names[0]}: …"
        )


def _note_order(error: BaseException) -> None:
    note = f"fdbr.odeint: in func; {_ORDER}"
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


class _System:
    """A system of differential equations, as a function of vectors.

    Attributes
    ----------
    control
        The bounds of the steps.
    inside
        Which leaves of the further arguments are differentiated.
    """

    def __init__(
        self, func: Any, unknowns: Any, structure: Any, inside: list[bool], control: Control
    ) -> None:
        self.func, self.unknowns, self.structure = func, unknowns, structure
        self.inside, self.control = inside, control

    def field(self, y: Any, t: Any, moved: Any, still: Any) -> Any:
        """The derivative by time, from the leaves of arguments that are differentiated or not."""
        return self.bound(moved, still)(y, t)

    def bound(self, moved: Any, still: Any) -> Any:
        """The derivative by time as a function of state and time."""
        mine, rest = iter(moved), iter(still)
        count = len(still) - (len(self.inside) - len(moved))
        others = [next(rest) for _ in range(count)]
        leaves = [next(mine) if own else next(rest) for own in self.inside]
        args = tree.unflatten(self.structure, leaves)

        def field(y: Any, t: Any) -> Any:
            try:
                found = real_vector(self.func(self.unknowns.tree(y, others), t, *args))
            except (TypeError, ValueError, IndexError, AttributeError) as error:
                _note_order(error)
                raise
            return found if found.shape[0] == self.unknowns.size else self._refused(found)

        return field

    def _refused(self, found: Any) -> Any:
        raise ValueError(
            f"fdbr.odeint: func must return as many floating numbers as move in y0, "
            f"{self.unknowns.size}, and it returns {found.shape[0]}; {_ORDER}"
        )

    @property
    def tangent(self) -> "_System":
        """The system of a state and its tangent, with the tangents of the arguments."""
        return _Tangent(self)


class _Tangent(_System):
    """The equations of variation beside those of which they are the derivative."""

    def __init__(self, base: _System) -> None:
        self.base, self.control = base, base.control

    def bound(self, moved: Any, still: Any) -> Any:
        """The derivative by time as a function of state with tangent, and time."""
        count = len(moved) // 2

        def field(y: Any, t: Any) -> Any:
            size = y.shape[0] // 2
            point, along = (y[:size], moved[:count]), (y[size:], moved[count:])
            both = jvp(lambda x: self.base.field(x[0], t, x[1], still), (point,), (along,))
            return ops.concat(both)

        return field


# --- the solution, and its derivatives -----------------------------------------------
#
# The vjp rule of a solution solves the adjoint equation; the vjp rule of that is the solution of
# the equations of variation (the solution is linear in cotangents), and the adjoint of those.  So
# there are derivatives of every order, and each is one more differential equation, which runs in
# the direction of its own time with its error in check.


def _solved(system: _System, y0: Any, times: Any, moved: Any, still: Any) -> Any:
    """The solution at each time, shape ``(n, size)``, with its derivative by the adjoint."""

    @custom_vjp
    def odeint(y0: Any, times: Any, moved: Any, still: Any) -> Any:
        return _found(system, y0, times, moved, still)

    def forward(y0: Any, times: Any, moved: Any, still: Any) -> Any:
        # Not by the function above, which refers to this one and would not be freed at once.
        rows = _solved(system, y0, times, moved, still)
        return rows, (y0, times, moved, still, rows)

    def backward(kept: Any, ct: Any, *, wanted: Any) -> Any:
        chosen = bool(wanted[1]), any(wanted[2])
        found = _vjp(system, kept, ct, chosen)
        return *found, None

    odeint.defvjp(forward, backward)
    return odeint(y0, times, moved, still)


def _vjp(system: _System, point: Any, ct: Any, chosen: tuple[bool, bool]) -> Any:
    """The cotangents of start, times and arguments; zeros where they are not ``chosen``.

    The point ends with the solution, which is a function of the others, and nothing to
    differentiate by itself.
    """

    @custom_vjp
    def odeint_vjp(point: Any, ct: Any) -> Any:
        _, times, moved, still, rows = point
        return _adjoint(system, times, moved, still, rows, ct, chosen)

    def forward(point: Any, ct: Any) -> Any:
        return _vjp(system, point, ct, chosen), (point, ct)

    def backward(kept: Any, given: Any, *, wanted: Any) -> Any:
        (y0, times, moved, still, _), ct = kept

        def push(point: Any) -> Any:
            y0, times, moved = point
            return _jvp(system, y0, times, moved, still, given)

        if not any(tree.leaves(wanted[0])):
            return None, push((y0, times, moved))
        tangent_out, pull = vjp(push, (y0, times, moved))
        return (*pull(ct)[0], tree.map(lambda leaf: None, still), None), tangent_out

    odeint_vjp.defvjp(forward, backward)
    return odeint_vjp(point, ct)


def _jvp(system: _System, y0: Any, times: Any, moved: Any, still: Any, tangents: Any) -> Any:
    """The tangent of the solution."""
    of_y, of_times, of_moved = tangents
    size, field = y0.shape[0], system.bound(moved, still)
    start = ops.concat([y0, of_y - of_times[0] * field(y0, times[0])])
    both = _solved(system.tangent, start, times, [*moved, *of_moved], still)
    rates = vmap(field)(both[:, :size], times)
    return both[:, size:] + rates * ops.reshape(of_times, (-1, 1))


def _found(system: _System, y0: Any, times: Any, moved: Any, still: Any) -> Any:
    """The solution, computed on arrays that are not differentiated."""
    control = system.control
    count = len(moved)

    def run(y0: Any, times: Any, *leaves: Any) -> tuple[Any]:
        moved, still = leaves[:count], leaves[count:]
        field = system.bound(moved, still)
        check_captured("odeint", field(y0, times[0]), (y0, times, leaves))
        if control.method != "dopri5":
            return (_by_scipy(field, control, y0, times),)
        rows, code, at = dormand_prince(field, y0, times, control, leaves)
        return (checked(control.check, rows, code, at),)

    outs = [((times.shape[0], y0.shape[0]), "float64")]
    return compute(run, [y0, times, *moved, *still], outs, control.method == "dopri5")[0]


def _adjoint(
    system: _System, times: Any, moved: Any, still: Any, rows: Any, ct: Any, wanted: Any
) -> Any:
    """The cotangents of start, times and arguments, on arrays that are not differentiated.

    The adjoint equation is solved backward in time along the solution, which is computed again
    from each time to the next, as polynomials.  Backward in time what dies out would grow, with
    its errors.
    """
    control, size = system.control, rows.shape[1]
    some, count = wanted[1] and bool(moved), len(moved)
    form = Unknowns("odeint", "args", moved) if some else None

    def adjoint(y: Any, t: Any, state: Any, moved: Any, still: Any) -> Any:
        """The derivative by time of the adjoint, and of the integral for the arguments."""
        a = state[:size]
        if not some:
            _, pull = vjp(lambda y: system.field(y, t, moved, still), y)
            return -pull(a)[0]
        _, pull = vjp(lambda x: system.field(x[0], t, x[1], still), (y, list(moved)))
        of_y, of_args = pull(a)[0]
        return ops.concat([-of_y, -real_vector(of_args)])

    @custom_vjp
    def attach(y: Any, total: Any, failed: Any, new: Any, *known: Any) -> Any:
        return new

    def forward(y: Any, total: Any, failed: Any, new: Any, *known: Any) -> Any:
        return new, (total, *known)

    def backward(kept: Any, a: Any) -> Any:
        total, pieces, sign, moved, still = kept
        path = along(pieces, sign)

        def field(state: Any, t: Any) -> Any:
            return adjoint(path(t), t, state, moved, still)

        starts, lengths, _ = pieces
        state, stop = ops.concat([a, ops.zeros_like(total)]), starts[-1] + lengths[-1]
        rate = field(state, stop)
        fine = ops.all(ops.isfinite(rate))
        interval = Interval(field, stop, starts[0], -sign, control, (kept, a), fine)
        # What the adjoint allows is seldom more than half of what the solution does.
        guess = 0.5 * ops.max(abs(lengths))
        state, _, _, code, _ = interval.solved(state, rate, guess)
        code = choose(fine, code, FAILURES[0])
        codes = ops.stack([ops.astype(code == one, float) for one in FAILURES])
        return state[:size], state[size:], codes, *(None for _ in kept)

    attach.defvjp(forward, backward)

    def run(rows: Any, times: Any, ct: Any, *leaves: Any) -> tuple[Any, ...]:
        moved, still = leaves[:count], leaves[count:]
        field = system.bound(moved, still)
        check_captured("odeint", field(rows[0], times[0]), (rows, times, ct, leaves))
        total = ops.zeros_like(real_vector(moved) if some else times[:0])
        failed = ops.zeros_like(ops.broadcast_to(times[:1], (len(FAILURES),)))
        sign = choose(times[-1] >= times[0], 1.0, -1.0)

        def back(carry: Any, interval: Any) -> Any:
            y, start, stop, ct = interval
            slope = field(y, start)
            first = first_size(field, y, slope, start, sign, control)

            def solve(y: Any, total: Any, failed: Any) -> Any:
                def attached(y: Any, new: Any, pieces: Any) -> Any:
                    return attach(y, total, failed, new, pieces, sign, moved, still)

                interval = Interval(field, start, stop, sign, control, leaves)
                return interval.attached(y, slope, first, attached)[0]

            _, pull = vjp(solve, y, total, failed)
            of_y, more, codes = pull(carry[0])
            return (of_y + ct, carry[1] + more, carry[2] + codes), None

        if control.method == "dopri5":
            rest = rows[:-1], times[:-1], times[1:], ct[:-1]
            of_y = ct[-1]
            if times.shape[0] > 1:
                carry = of_y, total, failed
                (of_y, total, failed), _ = scan(back, carry, rest, reverse=True)
            code = choose(ops.any(failed > 0), FAILURES[0] + ops.argmax(failed > 0), 0.0)
            of_y = checked(control.check, of_y, code)
        else:

            def back_by(y: Any, t: Any, state: Any) -> Any:
                return adjoint(y, t, state, moved, still)

            of_y, total = _back_by_scipy(field, back_by, control, rows[0], times, ct, total)
        if not wanted[0]:
            return of_y, ops.zeros_like(times), total
        rates = vmap(field)(rows, times)
        at_start: Any = -ops.sum((of_y - ct[0]) * rates[0])
        later = ops.sum(ct[1:] * rates[1:], axis=1)
        return of_y, ops.concat([ops.reshape(at_start, (1,)), later]), total

    extra = form.size if form else 0
    outs = [((size,), "float64"), (times.shape, "float64"), ((extra,), "float64")]
    operands = [rows, times, ct, *moved, *still]
    of_y, of_times, total = compute(run, operands, outs, control.method == "dopri5")
    if form is None:
        return of_y, of_times, [ops.zeros_like(leaf) for leaf in moved]
    return of_y, of_times, form.tree(total, exact=False)


# --- methods of SciPy ---------------------------------------------------------------


class _Plain:
    """A field on arrays of NumPy, for SciPy, and its matrix."""

    def __init__(self, field: Any, xp: Any) -> None:
        self.field, self.xp = field, xp

    def __call__(self, y: Any, t: Any) -> Any:
        return plain("odeint", self.field(self.xp.asarray(y.copy()), self.xp.asarray(t)[()]))

    def matrix(self, y: Any, t: Any) -> Any:
        """The derivative by ``y``."""
        found = jacfwd(lambda y: self.field(y, self.xp.asarray(t)[()]))(self.xp.asarray(y.copy()))
        return plain("odeint", found)


def _by_scipy(field: Any, control: Control, y0: Any, times: Any) -> Any:
    xp = array_module(y0)
    plainly = _Plain(field, xp)
    y0, times = plain("odeint", y0), plain("odeint", times)
    control.check(failure_of(times))
    return xp.asarray(np.stack(scipy_steps(plainly, plainly.matrix, y0, times, control)))


def _back_by_scipy(
    field: Any, adjoint: Any, control: Control, y0: Any, times: Any, ct: Any, total: Any
) -> tuple[Any, Any]:
    """The cotangents of the start and of the arguments."""
    xp, size = array_module(y0), y0.shape[0]
    plainly = _Plain(field, xp)
    y0, times, ct = plain("odeint", y0), plain("odeint", times), plain("odeint", ct)
    control.check(failure_of(times))
    moves = times[0] != times[-1]
    path = dense(plainly, plainly.matrix, y0, times, control) if moves else lambda t: y0
    back = _Plain(lambda state, t: adjoint(xp.asarray(path(t)), t, state), xp)
    rest = plain("odeint", total)
    state = np.concatenate([ct[-1], rest])
    for i in range(len(times) - 1, 0, -1):
        ends = times[i : i - 2 : -1] if i > 1 else times[1::-1]
        state = scipy_steps(back, back.matrix, state, ends, control)[1]
        state = state + np.concatenate([ct[i - 1], rest])
    return xp.asarray(state[:size]), xp.asarray(state[size:])


# --- arguments ----------------------------------------------------------------------


def _control(rtol: Any, atol: Any, mxstep: Any, hmax: Any, method: Any) -> Control:
    for name, value in (("rtol", rtol), ("atol", atol), ("hmax", hmax)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ValueError(f"fdbr.odeint: {name} must be a positive number, not {value!r}")
    if mxstep != np.inf:
        mxstep = integer("fdbr.odeint", "mxstep", mxstep, least=1)
    if not isinstance(method, str) or method not in ("dopri5", *SCIPY):
        raise ValueError(
            f"fdbr.odeint: method must be one of dopri5, {', '.join(SCIPY)}, not {method!r}"
        )
    return Control(float(rtol), float(atol), mxstep, float(hmax), method)


def _times(t: Any) -> Any:
    times = ops.asarray(t)
    if times.ndim != 1 or times.shape[0] < 1 or dtype_kind(times.dtype) not in "iuf":
        raise ValueError(
            f"fdbr.odeint: t must be a vector of at least one real time, not {describe(times)}"
        )
    return ops.astype(times, "float64")
