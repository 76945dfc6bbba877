"""Roots, fixed points, minima and differential equations, with derivatives of the solutions."""

from fdbr.ops import linalg
from fdbr.solvers.conjugate_gradients import cg
from fdbr.solvers.finding import Minimum, Solution, fixed_point, minimize, root
from fdbr.solvers.odeint import odeint

__all__ = ["Minimum", "Solution", "fixed_point", "minimize", "odeint", "root"]

# A solver needs the transformations, which stand above the operations among which it is looked for.
linalg.cg = cg
if "cg" not in linalg.__all__:
    linalg.__all__.append("cg")
