"""Initial value problems, and the derivatives of their solutions."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import ops, tree
from fdbr.backend import array_module
from fdbr.batching import vmap
from fdbr.custom import custom_vjp
from fdbr.floats import dtype_kind
from fdbr.jacobians import jacfwd
from fdbr.messages import describe, integer
from fdbr.solvers.host import on_host, plain
from fdbr.solvers.stepping import SCIPY, Control, dense, dormand_prince, scipy_steps
from fdbr.solvers.unknowns import Unknowns, real_vector
from fdbr.transforms import stop_gradient, vjp

__all__ = ["odeint"]


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
        A pure function, which returns a tree in the form of ``y0``.
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
        2018).  It needs no memory for the steps, and is as accurate as the tolerances have it.
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
    if not callable(func):
        raise TypeError(f"fdbr.odeint: func must be a function, not {describe(func)}")
    control = _control(rtol, atol, mxstep, hmax, method)
    if backward not in ("adjoint", "recorded"):
        raise ValueError(f"fdbr.odeint: backward must be adjoint or recorded, not {backward!r}")
    if backward == "recorded" and method != "dopri5":
        raise ValueError(
            f"fdbr.odeint: the steps of method {method!r} are SciPy's and cannot be recorded; say "
            'backward="adjoint"'
        )
    unknowns = Unknowns("odeint", "y0", y0)
    times = _times(t)

    def field(y: Any, t: Any, args: Any) -> Any:
        slope = real_vector(func(unknowns.tree(y, y0), t, *args))
        if slope.shape[0] != unknowns.size:
            raise ValueError(
                f"fdbr.odeint: func must return as many floating numbers as move in y0, "
                f"{unknowns.size}, and it returns {slope.shape[0]}"
            )
        return slope

    start = real_vector(y0)
    if backward == "recorded":
        _check_order(times)
        times = [times[i] for i in range(times.shape[0])]
        rows = ops.stack(dormand_prince(lambda y, t: field(y, t, args), start, times, control))
    else:
        rows = _solved(field, start, times, args, control)
    moving = vmap(lambda y: tree.trainable(unknowns.tree(y, y0, exact=False)))(rows)
    return tree.map(lambda leaf, found: leaf if found is None else found, y0, moving)


def _solved(
    field: Any, y0: Any, times: Any, args: Any, control: Control, back: Any = None, end: Any = None
) -> Any:
    """The solution at each time, shape ``(n, size)``, with its derivative by the adjoint.

    Of an adjoint, ``back`` is the field of what it is adjoint to, whose end is known.
    """

    @custom_vjp
    def odeint(y0: Any, times: Any, args: Any, end: Any) -> Any:
        return _found(field, y0, times, args, control, back, end)

    def forward(y0: Any, times: Any, args: Any, end: Any) -> Any:
        # Not by the function above, which refers to this one and would not be freed at once.
        rows = _solved(field, y0, times, args, control, back, end)
        return rows, (rows, times, args)

    def backward(kept: Any, ct: Any) -> Any:
        rows, times, args = kept
        return *_pulled(field, rows, times, args, ct, control), None

    odeint.defvjp(forward, backward)
    return odeint(y0, times, args, end)


def _found(
    field: Any, y0: Any, times: Any, args: Any, control: Control, back: Any, end: Any
) -> Any:
    """The solution, computed on plain arrays."""
    operands, shape = tree.flatten((y0, times, args, end))
    operands = [stop_gradient(leaf) for leaf in operands]
    arrays = [i for i, leaf in enumerate(operands) if hasattr(leaf, "dtype")]

    def run(*given: Any) -> tuple[Any]:
        leaves = list(operands)
        for i, leaf in zip(arrays, given, strict=True):
            leaves[i] = leaf
        y, times, args, end = tree.unflatten(shape, leaves)
        xp = array_module(*given)
        times, y = plain("odeint", times), plain("odeint", y)
        _check_order(times)
        plainly = _Plain(field, args, xp)
        if end is None:
            rows = _rows(plainly, y, times, control)
        else:
            rows = _adjoint_rows(plainly, _Plain(back, args, xp), y, times, control, end)
        return (xp.asarray(np.stack(rows)),)

    outs = [((times.shape[0], y0.shape[0]), "float64")]
    return on_host(run, [operands[i] for i in arrays], outs)[0]


class _Plain:
    """A field on plain arrays, and its matrix."""

    def __init__(self, field: Any, args: Any, xp: Any) -> None:
        self.field, self.args, self.xp = field, args, xp

    def __call__(self, y: Any, t: Any) -> Any:
        xp = self.xp
        return plain("odeint", self.field(xp.asarray(y), xp.asarray(t)[()], self.args))

    def matrix(self, y: Any, t: Any) -> Any:
        """The derivative by ``y``."""
        xp = self.xp
        found = jacfwd(lambda y: self.field(y, xp.asarray(t)[()], self.args))(xp.asarray(y))
        return plain("odeint", found)


def _rows(field: _Plain, y: Any, times: Any, control: Control) -> list[Any]:
    if control.method == "dopri5":
        return dormand_prince(field, y, times, control)
    return scipy_steps(field, field.matrix, y, times, control)


def _adjoint_rows(
    field: _Plain, back: _Plain, state: Any, times: Any, control: Control, end: Any
) -> list[Any]:
    """The adjoint along the solution itself, which is computed again in its own direction.

    Backward in time what dies out would grow, with its errors.
    """
    end = plain("odeint", end)
    size = len(end)
    if times[0] == times[1]:
        return [state, state]
    along = dense(back, back.matrix, end, times[::-1], control)
    gap = np.abs(along(times[0]) - state[:size])
    if not (gap <= 1e4 * (control.atol + control.rtol * np.abs(state[:size]))).all():
        raise control.failure(
            f"the solution is not found again for its derivative (it is off by {gap.max():.2g}); "
            'say backward="recorded"',
            times[0],
        )

    class Along(_Plain):
        """The adjoint alone."""

        def __call__(self, w: Any, t: Any) -> Any:
            return field(np.concatenate([along(t), w]), t)[size:]

        def matrix(self, w: Any, t: Any) -> Any:
            return field.matrix(np.concatenate([along(t), w]), t)[size:, size:]

    rest = _rows(Along(None, None, None), state[size:], times, control)[1]
    return [state, np.concatenate([end, rest])]


def _pulled(field: Any, rows: Any, times: Any, args: Any, ct: Any, control: Control) -> Any:
    """The cotangents of start, times and arguments: the adjoint equations, backward in time."""
    size, count = rows.shape[1], times.shape[0]
    some = bool(tree.leaves(tree.trainable(args)))
    form = Unknowns("odeint", "args", args) if some else None

    def adjoint(state: Any, t: Any, args: Any) -> Any:
        y, a = state[:size], state[size : 2 * size]
        if not some:
            slope, pull = vjp(lambda y: field(y, t, args), y)
            return ops.concat([slope, -pull(a)[0]])
        slope, pull = vjp(lambda y, args: field(y, t, args), y, args)
        of_y, of_args = pull(a)
        return ops.concat([slope, -of_y, -real_vector(of_args)])

    a = ct[count - 1]
    total = a[:0] if form is None else 0.0 * form.vector(args)
    of_times = [ops.sum(ct[i] * field(rows[i], times[i], args)) for i in range(1, count)]
    for i in range(count - 1, 0, -1):
        state = ops.concat([rows[i], a, total])
        ends = ops.stack([times[i], times[i - 1]])
        end = _solved(adjoint, state, ends, args, control, field, rows[i - 1])[1]
        a, total = end[size : 2 * size], end[2 * size :]
        if i > 1:
            a = a + ct[i - 1]
    if count > 1:
        of_times.insert(0, -ops.sum(a * field(rows[0], times[0], args)))
        a = a + ct[0]
    else:
        of_times = [0.0 * times[0]]
    of_args = None if form is None else tree.trainable(form.tree(total, args, exact=False))
    return a, ops.stack(of_times), of_args


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


def _check_order(times: Any) -> None:
    values = stop_gradient(times)
    steps = values[1:] - values[:-1]
    if not bool(ops.all(steps >= 0)) and not bool(ops.all(steps <= 0)):
        raise ValueError(
            "fdbr.odeint: t must ascend or descend, without NaN; sort it, and take the results in "
            "the order that is wanted"
        )
    if not bool(ops.all(ops.isfinite(values))):
        raise ValueError("fdbr.odeint: t must be finite")
