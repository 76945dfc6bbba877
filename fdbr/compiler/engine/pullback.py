"""A jitted function in reverse mode: one entry on the tape, whose vjp rule is a program.

The call is a higher-order primitive with a reverse rule alone.  Under other transformations, and
where no program is to be captured, it is declined, and the function itself is called.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr import tree
from fdbr.compiler.capture.signature import sign, unflatten_arguments
from fdbr.compiler.engine.compile import Code
from fdbr.compiler.engine.compiled_trace import CompiledTrace
from fdbr.compiler.engine.garbage_collection import collecting_seldom
from fdbr.compiler.engine.lookup import Cache, failure_of, is_meant
from fdbr.compiler.engine.outputs import published
from fdbr.compiler.engine.partition import Partition
from fdbr.compiler.engine.specialization import Specialization
from fdbr.compiler.ir.program import Kind, Program
from fdbr.core.array_modules import protect
from fdbr.core.collective_log import refusing_collectives
from fdbr.core.effects import without_effects
from fdbr.core.higher_order import HigherOrder
from fdbr.core.ownership import retain_from
from fdbr.core.tape import ReverseTracer
from fdbr.core.tracer import Trace, Tracer
from fdbr.errors.checks import recoverable
from fdbr.transforms.vjp import vjp

__all__ = ["DeclinedError", "Differentiated", "Form"]


class DeclinedError(Exception):
    """The function itself is to be called, on traced values."""


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
    """One call of a jitted function with traced values.

    Parameters
    ----------
    cache, compiler
        Those of the jitted function.
    leaves, structure
        The arguments.

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
    ) -> None:
        self.cache = cache
        self.entry: Specialization | None = None
        self.form: Any = None
        self.compiler = compiler
        self.structure = structure
        self.leaves = leaves
        self.mine: tuple[bool, ...] = ()
        self.values: list[Any] = []
        self.results: list[Any] = []  # those that depend on no traced value

    def result(self) -> Any:
        """The result.

        Raises
        ------
        DeclinedError
            If the function itself is to be called.
        """
        leaves = _JITTED.apply(*self.leaves, call=self)
        if self.results:
            traced, constants = iter(leaves), iter(self.results)
            leaves = [next(traced if yes else constants) for yes in self.form.partition.own]
            self.results = []  # which the tape would keep alive
        return tree.unflatten(self.form.structure, leaves)

    def reverse(self, trace: Any, values: list[Any], mine: list[bool]) -> Any:
        """The results that depend on traced values, and their vjp rule."""
        for value in values:
            if issubclass(type(value), Tracer):  # of another transformation
                raise DeclinedError
        self.mine = tuple(mine)
        values = self.values = [_kept(trace, leaf) for leaf in self.leaves]
        kinds = (self.mine, *sign(self.structure, values)[0])
        self.entry = entry = self.cache.entry((None, *kinds), values, self.structure)
        used = entry.wanted
        if used is not None:
            entry = self.cache.entry((used, *kinds), values, self.structure)
        moving = [_kept(trace, value) for value in entry.moving_leaves(values)]
        outs, compiled, why = entry.replay(moving, self.cache.bound)
        if compiled is None and why:
            compiled = self._capture(entry, used, why)
            moving = [_kept(trace, value) for value in entry.moving_leaves(values)]
            try:
                outs = compiled and compiled.code.run_or_step(*moving)
            except recoverable() as error:  # a kernel rounds otherwise, or the function raises it
                entry.skip(f"a replay raised {type(error).__name__}")
                raise DeclinedError from error
        if compiled is None:
            raise DeclinedError
        form = self.form = compiled.form
        own = form.partition.own
        results, residuals = published(outs[: len(own)], self.values), outs[len(own) :]
        self.results = [result for result, yes in zip(results, own, strict=True) if not yes]
        if not form.partition.gradient_indices:
            return [result for result, yes in zip(results, own, strict=True) if yes], None
        traced = [out for out, yes in zip(outs, own, strict=False) if yes]
        return traced, self._vjp(form, residuals)

    def _capture(self, entry: Specialization, used: Any, why: str) -> CompiledTrace | None:
        structure: Any = None

        def flat(leaves: list[Any]) -> list[Any]:
            nonlocal structure
            found, structure = tree.flatten(self.cache.call_checked(leaves, self.structure))
            return found

        flat.__qualname__ = self.cache.name
        partition = Partition(flat, self.mine, used)
        # The program runs next, or the function itself.
        with without_effects(), refusing_collectives(), collecting_seldom():
            try:
                captured = self.cache.capture(
                    entry,
                    lambda traced: partition.capture(entry.filled(self.values, traced)),
                    self.values,
                    self.structure,
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
        interpreted = sys.maxsize if found.obstacle else 0  # it is for this call only
        form = Form(partition, structure, self.compiler(programs[1], interpreted=interpreted))
        code = self.compiler(programs[0], interpreted=interpreted)
        compiled = CompiledTrace(found, code, captures, form, why)
        if not found.obstacle:
            entry.add(compiled)
        return compiled

    def _vjp(self, form: Form, residuals: tuple[Any, ...]) -> Callable[[list[Any]], list[Any]]:
        """The vjp rule of the call: from the cotangents of results to those of traced leaves."""
        self.leaves = []  # the tape refers to parents by itself
        partition, entry = form.partition, self.entry
        assert entry is not None

        def vjp_of_call(cotangents: list[Any]) -> list[Any]:
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
                return self._vjp_of_function(partition, cotangents)
            seeds = [_seed(ct, kind) for ct, kind in pairs if kind is not None]
            try:
                return self._spread(partition, form.code.run_or_step(*residuals, *seeds))
            except recoverable():  # the function itself raises it better
                return self._vjp_of_function(partition, cotangents)

        return vjp_of_call

    def _spread(self, partition: Partition, found: Sequence[Any]) -> list[Any]:
        """The cotangents of all traced leaves, of which only some have one."""
        if len(partition.gradient_indices) == sum(self.mine):
            return list(found)
        full: list[Any] = [None] * sum(self.mine)
        for i, cotangent in zip(partition.gradient_indices, found, strict=True):
            full[i] = cotangent
        return full

    def _vjp_of_function(self, partition: Partition, cotangents: list[Any]) -> list[Any]:
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
        return list(vjp(flat, *primals)[1](cotangents))


def _kept(trace: Any, leaf: Any) -> Any:
    """The value of a leaf, kept as it is until the backward pass."""
    kind = type(leaf)
    if issubclass(kind, ReverseTracer):
        leaf.value = retain_from(trace, leaf.value)
        return leaf.value
    return protect(leaf) if issubclass(kind, np.ndarray) else leaf


class _JittedCall(HigherOrder):
    """The primitive of all calls; its operands are the leaves of the arguments."""

    __slots__ = ()

    def title(self, params: dict[str, Any]) -> str:
        return f"jit({params['call'].cache.name})"

    def missing(self, trace: Trace) -> BaseException:
        return DeclinedError()


def _refuse(*_: Any, **__: Any) -> Any:
    raise DeclinedError


_JITTED = _JittedCall(
    "jit",
    _refuse,
    reverse=lambda trace, values, mine, call: call.reverse(trace, values, mine),
    capture=_refuse,
)


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
