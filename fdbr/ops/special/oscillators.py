"""Solutions of differential equations of second order: parabolic cylinders, Mathieu, spheroids.

Each function gives a value and its derivative by the argument; the derivative of the latter is
what the equation says (https://dlmf.nist.gov/12.2, 28.2, 28.20, 30.2).

>>> import fdbr
>>> from fdbr.ops import special
>>> value, slope = special.pbdv(1.0, 0.5)
>>> bool(fdbr.grad(lambda x: special.pbdv(1.0, x)[0])(0.5) == slope)
True
"""

import math
from typing import Any

from fdbr.ops.elementwise.trigonometric import cos, cosh
from fdbr.ops.special.library import scipy_function, scipy_functions

__all__ = [
    "mathieu_a",
    "mathieu_b",
    "mathieu_cem",
    "mathieu_modcem1",
    "mathieu_modcem2",
    "mathieu_modsem1",
    "mathieu_modsem2",
    "mathieu_sem",
    "obl_ang1",
    "obl_ang1_cv",
    "obl_cv",
    "obl_rad1",
    "obl_rad1_cv",
    "obl_rad2",
    "obl_rad2_cv",
    "pbdv",
    "pbvv",
    "pbwa",
    "pro_ang1",
    "pro_ang1_cv",
    "pro_cv",
    "pro_rad1",
    "pro_rad1_cv",
    "pro_rad2",
    "pro_rad2_cv",
]

# --- parabolic cylinders ------------------------------------------------------------

pbdv = scipy_functions(
    *("pbdv", "v x", "The parabolic cylinder function D and its derivative."),
    x=lambda v, x, out: (out[1], (0.25 * x * x - v - 0.5) * out[0]),
)
pbvv = scipy_functions(
    *("pbvv", "v x", "The parabolic cylinder function V and its derivative."),
    x=lambda v, x, out: (out[1], (0.25 * x * x - v - 0.5) * out[0]),
)
pbwa = scipy_functions(
    *("pbwa", "a x", "The parabolic cylinder function W and its derivative."),
    x=lambda a, x, out: (out[1], (a - 0.25 * x * x) * out[0]),
)

# --- Mathieu's ----------------------------------------------------------------------

mathieu_a = scipy_function("mathieu_a", "m q", "The characteristic value of `mathieu_cem`.")
mathieu_b = scipy_function("mathieu_b", "m q", "The characteristic value of `mathieu_sem`.")

_DEGREE = math.pi / 180  # the angles are in degrees, and the derivatives by radians


def _mathieu(name: str, of: Any, doc: str) -> Any:
    def derivatives(m: Any, q: Any, x: Any, out: Any) -> Any:
        bend = 2 * q * cos(2 * _DEGREE * x) - of(m, q)
        return _DEGREE * out[1], _DEGREE * bend * out[0]

    return scipy_functions(name, "m q x", doc, x=derivatives)


def _modified(name: str, of: Any, doc: str) -> Any:
    def derivatives(m: Any, q: Any, x: Any, out: Any) -> Any:
        return out[1], (of(m, q) - 2 * q * cosh(2 * x)) * out[0]

    return scipy_functions(name, "m q x", doc, x=derivatives)


_MODIFIED = "The {} modified Mathieu function of the {} kind and its derivative."

mathieu_cem = _mathieu(
    *("mathieu_cem", mathieu_a, "The even Mathieu function of degrees, its derivative by radians.")
)
mathieu_sem = _mathieu(
    *("mathieu_sem", mathieu_b, "The odd Mathieu function of degrees, its derivative by radians.")
)
mathieu_modcem1 = _modified("mathieu_modcem1", mathieu_a, _MODIFIED.format("even", "first"))
mathieu_modcem2 = _modified("mathieu_modcem2", mathieu_a, _MODIFIED.format("even", "second"))
mathieu_modsem1 = _modified("mathieu_modsem1", mathieu_b, _MODIFIED.format("odd", "first"))
mathieu_modsem2 = _modified("mathieu_modsem2", mathieu_b, _MODIFIED.format("odd", "second"))

# --- spheroids ----------------------------------------------------------------------

pro_cv = scipy_function("pro_cv", "m n c", "The characteristic value of prolate functions.")
obl_cv = scipy_function("obl_cv", "m n c", "The characteristic value of oblate functions.")


def _bend(m: Any, c: Any, cv: Any, x: Any, out: Any, square: int, sign: int) -> Any:
    """The second derivative of ``w``, by the equation of its kind.

    It is ``(b * w')' + (cv - square * (c * x)**2 - m**2 / b) * w = 0`` with ``b = 1 - x**2``,
    or where ``sign`` is -1 ``(b * w')' = (cv - (c * x)**2 - m**2 / b) * w`` with
    ``b = 1 + x**2``.
    """
    b = 1 - sign * x * x
    level = cv - square * (c * x) ** 2 - m * m / b
    return sign * (2 * x * out[1] - level * out[0]) / b


def _spheroidal(name: str, cv_of: Any, doc: str, square: int, sign: int) -> tuple[Any, Any]:
    """A function, and that which is given its characteristic value."""

    def derivatives(m: Any, n: Any, c: Any, x: Any, out: Any) -> Any:
        return out[1], _bend(m, c, cv_of(m, n, c), x, out, square, sign)

    def derivatives_of_cv(m: Any, c: Any, cv: Any, x: Any, out: Any) -> Any:
        return out[1], _bend(m, c, cv, x, out, square, sign)

    given = f"{doc}, for a given characteristic value."
    return (
        scipy_functions(name, "m n c x", f"{doc}.", x=derivatives),
        scipy_functions(f"{name}_cv", "m n c cv x", given, x=derivatives_of_cv),
    )


_SPHEROIDAL = "The {} spheroidal {} function and its derivative"

pro_ang1, pro_ang1_cv = _spheroidal(
    *("pro_ang1", pro_cv, _SPHEROIDAL.format("prolate", "angular")), square=1, sign=1
)
pro_rad1, pro_rad1_cv = _spheroidal(
    *("pro_rad1", pro_cv, _SPHEROIDAL.format("prolate", "first radial")), square=1, sign=1
)
pro_rad2, pro_rad2_cv = _spheroidal(
    *("pro_rad2", pro_cv, _SPHEROIDAL.format("prolate", "second radial")), square=1, sign=1
)
obl_ang1, obl_ang1_cv = _spheroidal(
    *("obl_ang1", obl_cv, _SPHEROIDAL.format("oblate", "angular")), square=-1, sign=1
)
obl_rad1, obl_rad1_cv = _spheroidal(
    *("obl_rad1", obl_cv, _SPHEROIDAL.format("oblate", "first radial")), square=1, sign=-1
)
obl_rad2, obl_rad2_cv = _spheroidal(
    *("obl_rad2", obl_cv, _SPHEROIDAL.format("oblate", "second radial")), square=1, sign=-1
)
