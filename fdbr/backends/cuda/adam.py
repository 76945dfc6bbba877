"""The step of Adam as one kernel."""

from typing import Any

from fdbr.core.array_modules import array_module
from fdbr.core.devices import kernel
from fdbr.core.primitive import implement
from fdbr.ops.moments import adam_step, is_plain_step

__all__: list[str] = []

_KERNEL = (
    "T g, T mu, T nu, T b1, T rest1, T b2, T rest2, T weight1, T weight2, T eps, T eps_root",
    "T new_mu, T new_nu, T change",
    """
    new_mu = b1 * mu + rest1 * g;
    new_nu = b2 * nu + rest2 * g * g;
    change = new_mu / weight1 / (sqrt(new_nu / weight2 + eps_root) + eps);
    """,
    "fdbr_adam",
)


@implement(adam_step, "cuda")
def _adam_step(g: Any, mu: Any, nu: Any, constants: Any, weights: Any, nesterov: bool) -> Any:
    if not is_plain_step(g, mu, nu, constants, weights, nesterov):
        return adam_step.definition(g, mu, nu, constants, weights, nesterov)
    (b1, b2, eps, eps_root), (weight1, weight2, _) = constants, weights
    compiled = kernel(array_module(g, mu, nu), *_KERNEL)
    return compiled(g, mu, nu, b1, 1 - b1, b2, 1 - b2, weight1, weight2, eps, eps_root)
