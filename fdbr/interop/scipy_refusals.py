"""Errors for functions that SciPy computes on NumPy's arrays alone, with what to use instead."""

import sys
import traceback
from typing import Any

from fdbr import ops
from fdbr.core.tracer import Tracer
from fdbr.core.tracer_methods import conversions
from fdbr.errors.checks import describe
from fdbr.errors.hints import advisers

__all__ = ["advise_on_scipy", "explain_scipy"]

_INSTEAD = {
    "linalg": ("ops.linalg", "ops"),
    "fft": ("ops.fft",),
    "signal": ("ops",),
    "special": ("ops.special", "ops"),
    "ndimage": ("ops",),
    "stats": ("ops",),
    "interpolate": ("ops",),
    "spatial": ("ops",),
}
"""Where functions of SciPy's parts are looked for by their names."""

_OTHERWISE = {
    "integrate.trapezoid": "np.trapezoid(y, x)",
    "integrate.cumulative_trapezoid": "ops.cumulative_sum of the trapezoids",
    "integrate.simpson": "np.trapezoid(y, x), or a sum of y with Simpson's weights",
    "integrate.solve_ivp": "fdbr.odeint",
    "integrate.odeint": "fdbr.odeint",
    "interpolate.interp1d": "np.interp",
    "linalg.block_diag": "ops.at(ops.zeros(shape))[rows, columns].set(block)",
    "linalg.toeplitz": "ops.take(ops.concat([ops.flip(r[1:]), c]), i - j + n - 1)",
    "linalg.solve_sylvester": "ops.linalg.solve with ops.linalg.kron",
    "linalg.solve_banded": "ops.linalg.solve",
    "optimize.minimize": "fdbr.minimize",
    "optimize.minimize_scalar": "fdbr.minimize",
    "optimize.find_minimum": "fdbr.minimize",
    "optimize.rosen_der": "fdbr.grad of scipy.optimize.rosen",
    "optimize.rosen_hess_prod": "fdbr.hvp of scipy.optimize.rosen",
    "optimize.rosen_hess": "fdbr.hessian of scipy.optimize.rosen",
    "optimize.fixed_point": "fdbr.fixed_point",
    "differentiate.derivative": "fdbr.jvp or fdbr.grad, which differentiate exactly",
    "differentiate.jacobian": "fdbr.jacfwd or fdbr.jacrev, which differentiate exactly",
    "differentiate.hessian": "fdbr.hessian, which differentiates exactly",
    "signal.lfilter": "fdbr.scan over the samples, or ops.convolve with the impulse response",
    "signal.sosfilt": "fdbr.scan over the samples",
    "signal.filtfilt": "fdbr.scan over the samples and over ops.flip of them",
    "signal.sosfiltfilt": "fdbr.scan over the samples and over ops.flip of them",
    "signal.hilbert": "ops.fft.fft and ops.fft.ifft",
    "signal.envelope": "ops.fft.fft and ops.fft.ifft",
    "signal.detrend": "x - np.polyval(np.polyfit(t, x, 1), t)",
    "signal.medfilt": "np.lib.stride_tricks.sliding_window_view and ops.median",
    "stats.median_abs_deviation": "ops.median",
    "stats.multivariate_normal": "ops.linalg.cholesky and ops.linalg.solve_triangular",
    "stats.Normal": "scipy.stats.norm, which takes traced values",
    "ndimage.shift": "ops.grid_sample, or ops.roll for whole steps",
    "stats.Logistic": "scipy.stats.logistic, which takes traced values",
    "stats.Uniform": "scipy.stats.uniform, which takes traced values",
    "stats.Binomial": "scipy.stats.binom, which takes traced values",
}
_IN_GENERAL = {
    "cluster": "ops.linalg.vector_norm for distances, and ops.argmin",
    "differentiate": "fdbr.jvp, fdbr.jacfwd or fdbr.hessian",
    "fft": "ops.fft.fft, of which cosine and sine transforms are parts",
    "fftpack": "ops.fft",
    "integrate": "fdbr.odeint, np.trapezoid, or a sum of values at the nodes of a quadrature",
    "interpolate": "np.interp, or ops.linalg.solve for the coefficients of a spline",
    "linalg": "ops.linalg",
    "ndimage": "ops.conv for filters, and ops.take for places",
    "optimize": "fdbr.root, fdbr.fixed_point or fdbr.minimize, whose derivatives are implicit",
    "signal": "ops.convolve, ops.conv or fdbr.scan",
    "sparse": "ops.linalg.cg, @, or ops.sparse.sparse_array(S), whose toarray() has a derivative",
    "spatial": "ops.linalg.vector_norm for distances, and ops.matmul for rotations",
    "special": "ops.special",
    "stats": "ops.mean, ops.var and ops.sort for statistics, and ops.special for distributions",
}
_MODE = (
    "some of SciPy's functions work with SCIPY_ARRAY_API=1 in the environment: see docs/scipy.md"
)


def explain_scipy(value: Any) -> None:
    """The error that names the function of SciPy which asked for a number or wrote to an array.

    None is raised if it was no function of SciPy.
    """
    found = _scipy_caller(sys._getframe(1))
    if found is None:
        return
    raise TypeError(_refusal(*found, value))


def advise_on_scipy(error: Exception) -> str | None:
    """The advice for an error that traced values raised inside a function of SciPy."""
    if str(error).startswith("fdbr."):
        return None  # which says what is wrong
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    roots = [str(frame.f_globals.get("__name__")).partition(".")[0] for frame in frames]
    if roots[-1:] == ["fdbr"] and not isinstance(error, AttributeError):
        return None
    while roots and roots[-1] in ("fdbr", "numpy"):
        frames.pop(), roots.pop()
    if roots[-1:] != ["scipy"]:
        return None
    traced = next((t for t in map(_traced, frames[-1].f_locals.values()) if t is not None), None)
    found = _scipy_caller(frames[-1])
    return None if found is None or traced is None else _refusal(*found, traced)


def _traced(value: Any) -> Any:
    """A traced value, itself or in a dictionary."""
    values = value.values() if isinstance(value, dict) else [value]
    return next((value for value in values if isinstance(value, Tracer)), None)


def _refusal(module: str, function: str, value: Any) -> str:
    return (
        f"scipy.{module}.{function} of a traced {describe(value)}: SciPy computes it on NumPy "
        f"arrays, which have no derivative. {_instead(module, function)}"
    )


def _instead(module: str, function: str) -> str:
    function = function.partition(".")[0]
    better = _OTHERWISE.get(f"{module}.{function}")
    if better is not None:
        return f"Use {better}."
    for room in _INSTEAD.get(module, ()):
        _, _, part = room.partition(".")
        if function in dir(getattr(ops, part) if part else ops):
            return f"Use {room}.{function}."
    general = _IN_GENERAL.get(module, "the functions of fdbr.ops")
    if module == "sparse":
        return f"Use {general}."
    return f"Use {general}; or state its derivative with fdbr.custom_vjp; {_MODE}."


def _scipy_caller(frame: Any) -> tuple[str, str] | None:
    """The outermost of SciPy's functions that run at present, up to one of somebody else's.

    It is looked for when an error is raised, never before.
    """
    found = None
    while frame is not None:
        root, _, rest = str(frame.f_globals.get("__name__")).partition(".")
        if root == "scipy":
            part, function = _named(frame, rest.partition(".")[0])
            if part[:1] not in ("", "_") and (found is None or _is_public(part, function)):
                found = part, function.strip("_<>")
        elif found is not None or root not in ("fdbr", "numpy"):
            break
        frame = frame.f_back
    return found


def _named(frame: Any, part: str) -> tuple[str, str]:
    """The part of SciPy, and how the function of a frame is called."""
    names, function = frame.f_locals, frame.f_code.co_name
    if function == "wrapper":  # of the function that is meant
        inner = names.get("f") or names.get("fun")
        part = str(getattr(inner, "__module__", part)).partition("scipy.")[2].partition(".")[0]
        return part, getattr(inner, "__name__", function)
    if "self" not in names or (part == "sparse" and not function.startswith("__")):
        return part, function
    owner = getattr(names["self"], "name", None)  # of a distribution
    owner = owner if isinstance(owner, str) else type(names["self"]).__name__
    return part, owner if function.startswith("__") else f"{owner}.{function}"


def _is_public(part: str, function: str) -> bool:
    """Whether a part of SciPy, or a part of that, has a function of this name."""
    room = f"scipy.{part}"
    return part == "sparse" or any(
        function.partition(".")[0] in vars(module)  # `hasattr` of a deprecated one warns
        for name, module in list(sys.modules.items())
        if (name == room or name.startswith(f"{room}.")) and "._" not in name
    )


conversions.append(explain_scipy)
advisers.append(advise_on_scipy)
