"""Roots, fixed points, minima and differential equations, with derivatives of the solutions."""

from fdbr.solvers.conjugate_gradients import cg
from fdbr.solvers.finding import Minimum, Solution, fixed_point, minimize, root
from fdbr.solvers.odeint import odeint

__all__ = ["Minimum", "Solution", "cg", "fixed_point", "minimize", "odeint", "root"]
