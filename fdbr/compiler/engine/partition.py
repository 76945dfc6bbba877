"""Capture a function with its pullback, and divide the capture into two programs."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr.compiler.capture.tracers import CaptureTracer
from fdbr.compiler.ir.program import Guard, Kind, Program, Variable, kind_of
from fdbr.core.array_modules import array_module
from fdbr.core.devices import is_host
from fdbr.core.tape import ReverseTrace, ReverseTracer, backward
from fdbr.core.tracer import Tracer, run

__all__ = ["Partition"]


class Partition:
    """The forward and the backward pass of a function of leaves.

    The forward program returns the function's results and the residuals of the backward pass; the
    backward program takes the residuals and the cotangents of results.

    Parameters
    ----------
    f
        A function from a list of leaves to the list of leaves of its result.
    mine
        Which leaves are differentiated.
    used
        Which of the results that depend on these have a cotangent; `None` if all have.

    Attributes
    ----------
    own
        Which results depend on the differentiated leaves.
    seeds
        The avals of the cotangents of those results; `None` for a result without cotangent.
    gradient_indices
        The indices of the differentiated leaves that have a gradient.
    """

    def __init__(
        self, f: Callable[[list[Any]], list[Any]], mine: Sequence[bool], used: Any = None
    ) -> None:
        self._f: Any = f
        self._mine = mine
        self._used = used
        self._mark = 0  # the index of the first step of the backward pass
        self._seeds: list[Variable] = []
        self.seeds: list[Kind | None] = []
        self.own: list[bool] = []
        self.gradient_indices: list[int] = []

    def capture(self, leaves: list[Any]) -> list[Any]:
        """Run both passes on captured leaves; return the results and the gradients of leaves."""
        self.seeds, self._seeds = [], []  # a capture may be repeated
        capture = next(leaf for leaf in leaves if isinstance(leaf, CaptureTracer))._trace
        trace = ReverseTrace("jit", self._f)
        leaves = [
            trace.input(leaf) if mine else leaf
            for leaf, mine in zip(leaves, self._mine, strict=True)
        ]
        inputs = [leaf.node[0] for leaf, mine in zip(leaves, self._mine, strict=True) if mine]
        outs = run(trace, self._f, leaves)
        self.own = [type(out) is ReverseTracer and out._trace is trace for out in outs]
        mine = [out for out, own in zip(outs, self.own, strict=True) if own]
        self._mark = len(capture.steps)
        roots = []
        for out, used in zip(mine, self._used or (True,) * len(mine), strict=True):
            if not used:
                self.seeds.append(None)
                continue
            seed = _example(out)
            tracer = CaptureTracer(capture, seed, Variable(kind_of(seed)))
            self.seeds.append(tracer.variable.kind)
            self._seeds.append(tracer.variable)
            roots.append((out.node, tracer))
        assert not trace.awaited  # functions with pending cotangents are captured elsewhere
        with np.errstate(all="ignore"):  # the example cotangents are not the user's
            gradients = backward(roots)
        self.gradient_indices = [i for i, number in enumerate(inputs) if number in gradients]
        values = [out.value if own else out for out, own in zip(outs, self.own, strict=True)]
        return values + [gradients[inputs[i]] for i in self.gradient_indices]

    def divide(self, program: Program) -> tuple[Program, Program] | None:
        """Return the two programs; `None` if there are guards in the backward pass."""
        before, after = program.steps[: self._mark], program.steps[self._mark :]
        if any(isinstance(step, Guard) for step in after):
            return None
        count = len(self.own)
        results, gradients = program.outputs[:count], program.outputs[count:]
        made = {*self._seeds, *(out for step in after for out in step.outs)}
        read = [variable for step in after for variable in step.reads]
        read += [gradient for gradient in gradients if type(gradient) is Variable]
        crossing = tuple(dict.fromkeys(variable for variable in read if variable not in made))
        forward = Program(program.name, program.inputs, before, (*results, *crossing))
        name = f"pullback of {program.name}"
        self._f = None  # it refers to the arguments of this call, and to the owner of this object
        return forward, Program(name, (*crossing, *self._seeds), after, gradients)


def _example(out: Any) -> Any:
    """Return an example cotangent of an output, to capture the backward pass with."""
    while isinstance(out, Tracer):
        out = out.value
    xp = array_module(out)
    shape = getattr(out, "shape", ())
    dtype = getattr(out, "dtype", None) or np.dtype(type(out))
    return dtype.type(1) if is_host(xp) and not shape else xp.ones(shape, dtype=dtype)
