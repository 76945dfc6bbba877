"""fdbr: functional define-by-run.  Gradients of pure functions over frozen parameters."""

import importlib
import typing

import fdbr.flow
import fdbr.interop  # noqa: F401  # gives traced values their operators and methods
from fdbr import allocation, backend, boundary, ops, random, tree
from fdbr.backend import device_get, device_put
from fdbr.batching import vmap
from fdbr.checkpointing import checkpoint
from fdbr.compiler import DonatedError, ImpureError, disable_jit, jit
from fdbr.core import EscapedTracerError
from fdbr.custom import custom_jvp, custom_vjp
from fdbr.forward import jvp
from fdbr.jacobians import hessian, hvp, jacfwd, jacrev, linearize
from fdbr.loops import fori_loop, scan, while_loop
from fdbr.marks import harvest, mark
from fdbr.ops.indexing.writing import Place, at
from fdbr.signatures import typed
from fdbr.solvers import Minimum, Solution, fixed_point, minimize, odeint, root
from fdbr.transforms import grad, stop_gradient, value_and_grad, vjp
from fdbr.tree import buffer, frozen, static

if typing.TYPE_CHECKING:
    from fdbr import debug, distributed, distributions, nn, testing, train

__all__ = [
    "DonatedError",
    "EscapedTracerError",
    "ImpureError",
    "Minimum",
    "Solution",
    "backend",
    "buffer",
    "checkpoint",
    "custom_jvp",
    "custom_vjp",
    "debug",
    "device_get",
    "device_put",
    "distributed",
    "distributions",
    "fixed_point",
    "fori_loop",
    "frozen",
    "grad",
    "harvest",
    "hessian",
    "hvp",
    "jacfwd",
    "jacrev",
    "disable_jit",
    "jit",
    "jvp",
    "linearize",
    "mark",
    "minimize",
    "nn",
    "odeint",
    "ops",
    "random",
    "root",
    "scan",
    "static",
    "stop_gradient",
    "testing",
    "train",
    "tree",
    "typed",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
]
__dir__ = __all__.copy  # `dir` shows the public names alone

__version__ = "0.1.0"

allocation.keep_freed_memory()

boundary.guard("fdbr")
boundary.guard("fdbr.backend")
for name in ("fdbr.ops", "fdbr.ops.fft", "fdbr.ops.linalg", "fdbr.tree"):
    boundary.guard(name, checked=False)  # they check their operands themselves
boundary.guard_methods(at, "fdbr.ops.at", "__getitem__")
boundary.guard_methods(Place, "fdbr.ops.at", "get", "set", "add")
del name


def __getattr__(name: str) -> typing.Any:
    """A part that is loaded when it is first asked for, which saves half of the time."""
    if name in ("debug", "distributed", "distributions", "nn", "testing", "train"):
        return importlib.import_module(f"fdbr.{name}")
    raise AttributeError(f"module 'fdbr' has no attribute {name!r}")
