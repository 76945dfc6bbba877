"""fdbr: functional define-by-run.  Gradients of pure functions over frozen parameters."""

import sys
import typing

import fdbr.backends
import fdbr.interop  # noqa: F401  # gives traced values their operators and methods
from fdbr import ops, random, tree
from fdbr.core import array_modules as backend
from fdbr.core.array_modules import device_get, device_put
from fdbr.core.tracer import EscapedTracerError
from fdbr.core.util import allocation
from fdbr.errors.names import missing_from
from fdbr.ops.typed import typed
from fdbr.transforms.checkpoint import checkpoint
from fdbr.transforms.custom_rules import custom_jvp, custom_vjp
from fdbr.transforms.harvest import harvest, mark
from fdbr.transforms.jacobians import hessian, hvp, jacfwd, jacrev, linearize
from fdbr.transforms.jvp import jvp
from fdbr.transforms.vjp import grad, stop_gradient, value_and_grad, vjp
from fdbr.transforms.vmap import vmap
from fdbr.tree import buffer, frozen, static

if typing.TYPE_CHECKING:
    from fdbr import debug, distributed, distributions, nn, testing, train, vision
    from fdbr.compiler import DonatedError, ImpureError, disable_jit, jit
    from fdbr.control_flow.scan import fori_loop, scan
    from fdbr.control_flow.while_loop import while_loop
    from fdbr.solvers.finding import Minimum, Solution, fixed_point, minimize, root
    from fdbr.solvers.odeint import odeint

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
    "vision",
    "vjp",
    "vmap",
    "while_loop",
]
__dir__ = __all__.copy  # `dir` shows the public names alone

__version__ = "0.1.0"

allocation.keep_freed_memory()

sys.modules["fdbr.backend"] = backend  # `import fdbr.backend` finds it by its public name


# Their first use loads them, which saves most of the time that `import fdbr` takes.
_LATER = {
    **dict.fromkeys(("DonatedError", "ImpureError", "disable_jit", "jit"), "fdbr.compiler"),
    **dict.fromkeys(("fori_loop", "scan", "while_loop"), "fdbr.control_flow"),
    **dict.fromkeys(("Minimum", "Solution", "fixed_point"), "fdbr.solvers"),
    **dict.fromkeys(("minimize", "odeint", "root"), "fdbr.solvers"),
    **{
        name: f"fdbr.{name}"
        for name in ("debug", "distributed", "distributions", "nn", "testing", "train", "vision")
    },
}
# Type checkers see no `__getattr__`, which would give them every name.
globals().update(__getattr__=missing_from("fdbr", _LATER))
