"""fdbr: functional define-by-run.  Gradients of pure functions over frozen parameters."""

import sys

import fdbr.flow
import fdbr.interop  # noqa: F401  # gives traced values their operators and methods
from fdbr import (
    allocation,
    backend,
    boundary,
    debug,
    distributed,
    distributions,
    nn,
    ops,
    random,
    testing,
    train,
    tree,
)
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
from fdbr.nn import initializers
from fdbr.ops.indexing.writing import Place, at
from fdbr.signatures import typed
from fdbr.solvers import Minimum, Solution, fixed_point, minimize, odeint, root
from fdbr.transforms import grad, stop_gradient, value_and_grad, vjp
from fdbr.tree import buffer, frozen, static

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

for module in (
    sys.modules[__name__],
    backend,
    debug,
    distributed,
    distributions,
    initializers,
    nn,
    ops,
    ops.fft,
    ops.linalg,
    random,
    testing,
    train,
    train.augment,
    train.optim,
    tree,
):
    arrays = module in (ops, ops.fft, ops.linalg, tree)  # which check their operands themselves
    boundary.guard(module, module.__name__, checked=not arrays)
for kind in initializers.made:
    boundary.guard_methods(kind, "fdbr.nn.initializers", "__call__")
boundary.guard_methods(at, "fdbr.ops.at", "__getitem__")
boundary.guard_methods(Place, "fdbr.ops.at", "get", "set", "add")
del arrays, kind, module
