"""A jitted function in reverse mode: on the tape it is one entry, whose rule is a program."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fdbr import tree
from fdbr.compiler.capture.signature import sign, unflatten_arguments
from fdbr.compiler.engine.budget import UNLIMITED
from fdbr.compiler.engine.cache import Cache, failure_of, is_meant
from fdbr.compiler.engine.compiled_trace import CompiledTrace
from fdbr.compiler.engine.outputs import published
from fdbr.compiler.engine.partition import Partition
from fdbr.compiler.engine.specializations import EARLY, Specialization
from fdbr.compiler.engine.tiers import Code
from fdbr.compiler.ir.program import Kind, Program
from fdbr.core.array_modules import protect
from fdbr.core.collective_log import refusing_meetings
from fdbr.core.effects import without_effects
from fdbr.core.ownership import retain_from
from fdbr.core.tape import ReverseTracer
from fdbr.core.tracer import Tracer, ended, escaped
from fdbr.transforms.vjp import vjp

__all__ = ["Differentiated", "Form"]


class Form:
    """Build the result out of the outputs of a forward program.

    Attributes
    ----------
    partition
        The two passes.
    structure
        The structure of the result.
    code
        What runs the backward program.
    """

    __slots__ = ("code", "partition", "structure")

    def __init__(self, partition: Partition, structure: Any, code: Code) -> None:
        self.partition = partition
        self.structure = structure
        self.code = code


class Differentiated:
    """One call of a jitted function with values that a transformation in reverse mode traces.

    Parameters
    ----------
    cache, compiler
        Those of the jitted function.
    leaves, structure
        The arguments.
    waits
        Whether it is compiled before it runs.

    Attributes
    ----------
    entry
        The captured programs for such arguments, if there may be some.
    """

    def __init__(
        self,
        cache: Cache,
        compiler: Callable[..., Code],
        leaves: list[Any],
        structure: Any,
        waits: bool,
    ) -> None:
        self.cache = cache
        self.waits = waits
        self.entry: Specialization | None = None
        self.compiler = compiler
        self.structure = structure
        self.mine = tuple(issubclass(type(leaf), Tracer) for leaf in leaves)
        self.tracers = [leaf for leaf, mine in zip(leaves, self.mine, strict=True) if mine]
        self.trace: Any = self.tracers[0]._trace
        self.leaves = leaves

    def result(self) -> Any:
        """The result; `NotImplemented` where the function itself is to be called.

        That is where other transformations are at work.
        """
        trace = self.trace
        for tracer in self.tracers:
            if type(tracer) is not ReverseTracer or tracer._trace is not trace:
                return NotImplemented
            if isinstance(tracer.value, Tracer):
                return NotImplemented
        if ended(trace):
            raise escaped(trace, "fdbr.jit")
        values = self.values = [self._kept(leaf) for leaf in self.leaves]
        kinds = (self.mine, *sign(self.structure, values)[0])
        self.entry = entry = self.cache.entry((None, *kinds), values, self.structure)
        used = entry.wanted
        if used is not None:
            entry = self.cache.entry((used, *kinds), values, self.structure)
            entry.budget = self.entry.budget
        if not self.waits and entry.runs_eagerly():
            return NotImplemented
        start = time.perf_counter()
        moving = [self._kept(value) for value in entry.moving_leaves(values)]
        outs, compiled, why = entry.replay(moving, self.cache.bound)
        if compiled is None and why:
            budget = self.entry.budget
            if not (self.waits or budget.steps_to_capture()):
                entry.skip(EARLY)
                return NotImplemented
            compiled = self._capture(entry, used, why)
            moving = [self._kept(value) for value in entry.moving_leaves(values)]
            try:
                outs = compiled and compiled.code.run_or_step(*moving)
            except Exception as error:  # a kernel may round otherwise; or the function raises it
                entry.skip(f"a replay raised {type(error).__name__}")
                return NotImplemented
            finally:
                entry.captured(time.perf_counter() - start)
        elif compiled is not None:
            entry.replayed(compiled, time.perf_counter() - start)
        return NotImplemented if compiled is None else self._traced(outs, compiled.form)

    def _kept(self, leaf: Any) -> Any:
        """The value of a leaf, kept as it is until the backward pass."""
        kind = type(leaf)
        if issubclass(kind, ReverseTracer):
            leaf.value = retain_from(self.trace, leaf.value)
            return leaf.value
        return protect(leaf) if issubclass(kind, np.ndarray) else leaf

    def _capture(self, entry: Specialization, used: Any, why: str) -> CompiledTrace | None:
        structure: Any = None

        def flat(leaves: list[Any]) -> list[Any]:
            nonlocal structure
            found, structure = tree.flatten(self.cache.call_checked(leaves, self.structure))
            return found

        flat.__qualname__ = self.cache.name
        partition = Partition(flat, self.mine, used)
        with (
            without_effects(),
            refusing_meetings(),
        ):  # the program runs next, or the function itself
            try:
                captured = self.cache.capture(
                    entry,
                    lambda traced: partition.capture(entry.filled(self.values, traced)),
                    self.values,
                    self.structure,
                    UNLIMITED,  # a run that is cut off would have to be made once more
                )
            except Exception as error:
                if is_meant(error):
                    raise
                entry.waste(failure_of(error))
                entry.skip(entry.obstacle)
                return None
        if captured is None:
            return None
        found, captures = captured
        if found.cut or (found.obstacle and _has_tracers(found.program)):
            return None
        programs = partition.divide(found.program)
        if programs is None:
            entry.give_up("its backward pass has guards")
            entry.skip(entry.obstacle)
            return None
        found.program = programs[0]
        compiler = partial(Code, waits=False) if found.obstacle else self.compiler
        form = Form(partition, structure, compiler(programs[1]))
        code = compiler(programs[0], alone=False)
        compiled = CompiledTrace(found, code, captures, form, why)
        if not found.obstacle:  # else it is for this call alone: what the run did is done
            entry.add(compiled)
        return compiled

    def _traced(self, outs: tuple[Any, ...], form: Form) -> Any:
        """The result, with what depends on the traced values traced."""
        own = form.partition.own
        values, residuals = outs[: len(own)], outs[len(own) :]
        results = published(values, self.values)
        if form.partition.gradient_indices:
            parents = [self.tracers[i].node for i in form.partition.gradient_indices]
            pull = self._pull(form, residuals)
            mine = tuple(value for value, yes in zip(values, own, strict=True) if yes)
            traced = iter(self.trace.joint(f"jit({self.cache.name})", mine, parents, pull))
            results = [
                next(traced) if yes else result for result, yes in zip(results, own, strict=True)
            ]
        return tree.unflatten(form.structure, results)

    def _pull(self, form: Form, residuals: tuple[Any, ...]) -> Callable[[list[Any]], list[Any]]:
        """The rule of the call: from the cotangents of results to those of parents."""
        self.leaves = self.tracers = []  # the tape refers to parents by itself
        partition, entry = form.partition, self.entry
        assert entry is not None

        def pull(cotangents: list[Any]) -> list[Any]:
            pairs = list(zip(cotangents, partition.seeds, strict=True))
            if any((ct is None) is not (kind is None) for ct, kind in pairs):
                # The next call captures a backward pass for the cotangents that there ever were.
                wanted = entry.wanted or (False,) * len(pairs)
                entry.wanted = tuple(
                    ct is not None or old for ct, old in zip(cotangents, wanted, strict=True)
                )
            if any(
                ct is not None and (kind is None or isinstance(ct, Tracer)) for ct, kind in pairs
            ):
                return self._pulled(partition, cotangents)
            seeds = [_seed(ct, kind) for ct, kind in pairs if kind is not None]
            try:
                return list(form.code.run(*residuals, *seeds))
            except Exception:  # the function itself raises it better
                return self._pulled(partition, cotangents)

        return pull

    def _pulled(self, partition: Partition, cotangents: list[Any]) -> list[Any]:
        """The cotangents of parents by the function itself."""

        def flat(*primals: Any) -> list[Any]:
            given = iter(primals)
            leaves = [
                next(given) if mine else value
                for value, mine in zip(self.values, self.mine, strict=True)
            ]
            args, kwargs = unflatten_arguments(self.structure, leaves)
            outs = tree.leaves(self.cache.f(*args, **kwargs))
            return [out for out, own in zip(outs, partition.own, strict=True) if own]

        flat.__qualname__ = self.cache.name
        primals = [value for value, mine in zip(self.values, self.mine, strict=True) if mine]
        slopes = vjp(flat, *primals)[1](cotangents)
        return [slopes[i] for i in partition.gradient_indices]


def _has_tracers(program: Program) -> bool:
    """Whether a program uses traced values as constants."""
    operands = [o for step in program.steps for o in getattr(step, "operands", ())]
    return any(isinstance(operand, Tracer) for operand in (*operands, *program.outputs))


def _seed(cotangent: Any, kind: Kind) -> Any:
    """A cotangent as the program takes it."""
    if cotangent is None:
        return kind.xp.zeros(kind.shape, kind.dtype) if kind.is_array else kind.dtype.type(0)
    if kind.is_array or not isinstance(cotangent, np.ndarray):
        return cotangent
    return cotangent[()]
