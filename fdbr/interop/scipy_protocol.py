"""SciPy's special functions on traced values: which op each of them is.

Those of them that are ufuncs come in by NumPy's protocol.  `scipy.special` is not imported for
that: the table is made when the first of its ufuncs meets a traced value.
"""

import sys
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.array import conversions, ufunc_sources
from fdbr.core import describe
from fdbr.ops import special

_BELOW = {"_lambertw": special.lambertw, "_zeta": special.zeta, "_riemann_zeta": special.zeta}
"""Ufuncs that functions of SciPy call without converting what they are given."""


def _special_ufuncs() -> dict[Any, Any]:
    module = sys.modules.get("scipy.special")
    if module is None:
        return {}
    below = vars(sys.modules["scipy.special._ufuncs"])
    found = {getattr(module, name, None): getattr(special, name) for name in special.__all__}
    found |= {below.get(name): op for name, op in _BELOW.items()}
    return {ufunc: op for ufunc, op in found.items() if isinstance(ufunc, np.ufunc)}


ufunc_sources.append(_special_ufuncs)


# --- what SciPy makes NumPy arrays of -----------------------------------------------

_INSTEAD = {
    "linalg": ops.linalg,
    "fft": ops.fft,
    "signal": ops,
    "special": special,
    "ndimage": ops,
    "stats": ops,
    "interpolate": ops,
}
_OTHERWISE = {
    "sparse.multiply": "ops.sparse.sparse_array(S).toarray() * x",
    "integrate.trapezoid": "np.trapezoid(y, x)",
    "integrate.solve_ivp": "fdbr.odeint",
    "integrate.odeint": "fdbr.odeint",
    "optimize.minimize": "fdbr.minimize",
    "optimize.root": "fdbr.root",
    "optimize.fixed_point": "fdbr.fixed_point",
    "interpolate.interp1d": "np.interp",
    "linalg.solve_triangular": "ops.linalg.solve_triangular",
}


def explain_scipy(value: Any) -> None:
    """The error that names the function of SciPy which asked for a NumPy array, if one did."""
    found = _scipy_caller()
    if found is None:
        return
    module, function = found
    why = "SciPy computes it on NumPy arrays, which have no derivative"
    raise TypeError(
        f"scipy.{module}.{function} of a traced {describe(value)}: {why}. "
        f"{_instead(module, function)}"
    )


def _instead(module: str, function: str) -> str:
    better = _OTHERWISE.get(f"{module}.{function}")
    room = _INSTEAD.get(module)
    if better is None and room is not None and function in getattr(room, "__all__", dir(room)):
        name = "ops" if room is ops else f"ops.{room.__name__.rpartition('.')[2]}"
        better = f"{name}.{function}"
    if better is not None:
        return f"Use {better}."
    if module == "sparse":
        return "Use @, or ops.sparse.sparse_array(S), whose toarray() has a derivative."
    return (
        "Write it with fdbr.ops, state its derivative with fdbr.custom_vjp, or give "
        "fdbr.stop_gradient(x) where a constant is meant; some of SciPy's functions work with "
        "SCIPY_ARRAY_API=1 in the environment: see docs/scipy.md."
    )


def _scipy_caller() -> tuple[str, str] | None:
    """The outermost of SciPy's functions that run at present, up to one of somebody else's.

    It is looked for when an error is raised, never before.
    """
    frame = sys._getframe(1)
    found = None
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        function = frame.f_code.co_name
        if name.startswith("scipy.") and function == "wrapper":  # of the function that is meant
            inner = frame.f_locals.get("f") or frame.f_locals.get("fun")
            name, function = getattr(inner, "__module__", name), getattr(inner, "__name__", "")
        root, _, rest = name.partition(".")
        if root == "scipy":
            part = rest.partition(".")[0]
            method = part == "sparse" and function[0] != "_" and "self" in frame.f_locals
            public = method or hasattr(sys.modules.get(f"scipy.{part}"), function)
            if part and part[0] != "_" and (public or found is None):
                found = part, function.strip("_<>")
        elif found is not None or root not in ("fdbr", "numpy"):
            break
        frame = frame.f_back  # type: ignore[assignment]
    return found


conversions.append(explain_scipy)
