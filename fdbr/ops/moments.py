"""The step of Adam for one array, which back ends may compute in fewer passes over memory."""

from typing import Any

from fdbr.core.routine import Routine
from fdbr.ops.elementwise.arithmetic import sqrt
from fdbr.ops.elementwise.complex_parts import imag, real
from fdbr.pytrees.dtypes import dtype_kind

__all__ = ["adam_step", "is_plain_step", "square"]


def square(g: Any) -> Any:
    """Return the square of real elements, the squared absolute value of complex ones."""
    if hasattr(g, "dtype") and dtype_kind(g.dtype) == "c":
        parts = real(g), imag(g)
        return parts[0] * parts[0] + parts[1] * parts[1]
    return g * g


@Routine
def adam_step(g: Any, mu: Any, nu: Any, constants: Any, weights: Any, nesterov: bool) -> Any:
    """Compute the next means of the gradient and of its square, and the update.

    ``constants`` are the decays of both means, and what is added to the root and under it;
    ``weights`` are the sums of weights of both means, and of the first one a step ahead.
    """
    b1, b2, eps, eps_root = constants
    weight1, weight2, ahead = weights
    mu = b1 * mu + (1 - b1) * g
    nu = b2 * nu + (1 - b2) * square(g)
    ratio = b1 / ahead * mu + (1 - b1) / weight1 * g if nesterov else mu / weight1
    return mu, nu, ratio / (sqrt(nu / weight2 + eps_root) + eps)


def is_plain_step(g: Any, mu: Any, nu: Any, constants: Any, weights: Any, nesterov: bool) -> bool:
    """Whether a step is of real arrays of one dtype, by Python numbers, without Nesterov's term."""
    floats = all(type(value) is float for value in (*constants, *weights[:2]))
    return floats and not nesterov and g.dtype == mu.dtype == nu.dtype and g.dtype.kind == "f"
