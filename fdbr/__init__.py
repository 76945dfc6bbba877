"""fdbr: functional define-by-run.  Gradients of pure functions over frozen parameters."""

from fdbr import backend, ops, random, tree
from fdbr.backend import device_get, device_put
from fdbr.core import EscapedTracerError
from fdbr.transforms import grad, stop_gradient, value_and_grad, vjp
from fdbr.tree import buffer, frozen, static

__all__ = [
    "EscapedTracerError",
    "backend",
    "buffer",
    "device_get",
    "device_put",
    "frozen",
    "grad",
    "ops",
    "random",
    "static",
    "stop_gradient",
    "tree",
    "value_and_grad",
    "vjp",
]

__version__ = "0.1.0"
