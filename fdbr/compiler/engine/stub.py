"""Call stubs: one generated function per trace that checks a call and runs the trace's program.

A stub does what `Jitted` does for arbitrary arguments, specialised for one signature: it flattens
the arguments and checks their avals, checks that the captured variables have not changed, runs the
program, and builds the result.
"""

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr import tree
from fdbr.compiler.capture.paths import Scope, children, exact, held_weakly, is_leaf, one_level
from fdbr.compiler.capture.signature import is_moving
from fdbr.compiler.capture.watch.constants import first_changed
from fdbr.compiler.engine.compiled_trace import CompiledTrace
from fdbr.compiler.engine.donation import Donation, holds
from fdbr.compiler.engine.outputs import published
from fdbr.compiler.ir.blocks import ALONE
from fdbr.compiler.ir.interpreter import GuardFailure
from fdbr.compiler.ir.program import Fused, Program, Small, Variable, is_variable
from fdbr.core.array_modules import is_array, protect
from fdbr.errors.checks import is_interrupt, recoverable
from fdbr.pytrees.classes import fields_of
from fdbr.pytrees.flatten_cache import forget
from fdbr.pytrees.locking import SMALL, record_locked

__all__ = ["NEVER", "NO_FIT", "CallStub", "call_stub_of"]

CallStub = Callable[[tuple[Any, ...], dict[str, Any]], Any]
"""From positional and keyword arguments to the result, or to a `GuardFailure`.

`NO_FIT` is returned if the call has another signature; another `GuardFailure` names the guard that
failed.
"""

_FEW = 8  # inputs that are compared one by one; a generator is shorter code for more

NO_FIT = GuardFailure(-1, None)


def NEVER(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Fit no call; the initial call stub."""
    return NO_FIT


def call_stub_of(
    compiled: CompiledTrace,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    ordered: bool,
    donation: Donation,
) -> CallStub:
    """Generate the call stub for calls that fit a captured program.

    Parameters
    ----------
    compiled
        The captured program.
    args, kwargs
        The arguments of one such call.
    ordered
        Whether the function can observe the order of its keyword arguments.
    donation
        The arguments that are donated.
    """
    writer = _Writer()
    writer.refuse(f"len(args) != {len(args)} or len(kwargs) != {len(kwargs)}")
    if ordered and len(kwargs) > 1:
        writer.refuse(f"(*kwargs,) != {tuple(kwargs)!r}")
    try:
        for i, arg in enumerate(args):
            writer.take(arg, f"args[{i}]", i in donation.argnums)
        for name in sorted(kwargs):
            writer.take(kwargs[name], f"kwargs.get({name!r}, no_fit)")
        for input in compiled.captures.inputs:
            writer.take(input.get(), f"{writer.scope.name(input.get)}()")
    except _UnknownNodeError:
        return NEVER
    writer.check_captures(compiled)
    outs = writer.run(compiled, donation)
    writer.publish(compiled.code.program, outs)
    result = tree.unflatten(compiled.form, [_Mark(name) for name in outs])
    writer.lines.append(f"return {writer.rebuilt(result)}")
    return writer.compiled_stub()


class _UnknownNodeError(Exception):
    """The tree has a node of a type that this module cannot take apart."""


class _Mark:
    """A leaf of a result: the name of the local variable that holds its value."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Writer:
    """Collects the lines of the generated function, and the objects they refer to.

    Attributes
    ----------
    moving
        The local names of the leaves that may differ from call to call.
    held
        For each donated leaf, the text around a value in the statement that replaces it.
    nodes
        The local names of frozen objects in donated arguments.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.scope = Scope(
            __name__=__name__,  # `warnings` and `pickle` read the module of a function from it
            GuardFailure=GuardFailure,
            exact=exact,
            is_interrupt=is_interrupt,
            recoverable=recoverable,
            ndarray=np.ndarray,
            no_fit=NO_FIT,
            protect=protect,
            published=published,
        )
        self.moving: list[str] = []
        self.held: dict[str, tuple[str, str]] = {}
        self.nodes: list[str] = []
        self._count = 0

    def compiled_stub(self) -> CallStub:
        """Compile the lines and return the function."""
        body = "\n ".join(self.lines)
        exec(f"def stub(args, kwargs):\n {body}\n", self.scope)
        stub: CallStub = self.scope.pop("stub")
        stub.source = body  # type: ignore[attr-defined]
        return stub

    def refuse(self, condition: str) -> None:
        """Emit a return of `NO_FIT` if a condition is true."""
        self.lines.append(f"if {condition}: return no_fit")

    def local(self, text: str) -> str:
        """Bind an expression to a new local variable, and return its name."""
        self._count += 1
        self.lines.append(f"v{self._count} = {text}")
        return f"v{self._count}"

    def take(self, value: Any, text: str, donated: bool = False) -> None:
        """Emit the checks that an argument, or a part of one, has the same aval as ``value``.

        They agree with `signature`.  Leaves and nodes of ``donated`` arguments are recorded.
        """
        name, kind = self.local(text), type(value)
        if value is None:
            self.refuse(f"{name} is not None")
        elif is_leaf(value):
            self._take_leaf(value, name)
        elif (fields := fields_of(kind)) is not None:
            self.refuse(f"type({name}) is not {self.scope.name(kind)}")
            for field in fields[1]:
                self._take_static(getattr(value, field), f"{name}.{field}")
        elif kind is tuple or kind is list:
            self.refuse(f"type({name}) is not {kind.__name__} or len({name}) != {len(value)}")
        elif kind is dict and all(type(key) is str for key in value):
            self.refuse(f"type({name}) is not dict or (*{name},) != {tuple(value)!r}")
        else:
            raise _UnknownNodeError
        if value is not None and not is_leaf(value):
            for path, child in children(value, name, self.scope):
                self.take(child, path, donated)
                if donated and holds(value, child):
                    self.held[self.moving[-1]] = self._put(fields is not None, path)
            if donated and fields is not None:
                self.nodes.append(name)

    @staticmethod
    def _put(is_field: bool, path: str) -> tuple[str, str]:
        """Return the text before and after a value in the statement that assigns it to a slot."""
        node, _, field = path.rpartition(".")
        return (f"put({node}, {field!r}, ", ")") if is_field else (f"{path} = ", "")

    def _take_leaf(self, leaf: Any, name: str) -> None:
        kind = self.scope.name(type(leaf))
        if not is_moving(leaf):
            self._take_static(leaf, name)
            return
        self.moving.append(name)
        if type(leaf) is np.ndarray:
            dtype = self.scope.name(leaf.dtype)
            self.refuse(
                f"type({name}) is not ndarray or {name}.dtype is not {dtype} "
                f"or {name}.shape != {leaf.shape!r}"
            )
        elif not is_array(leaf):
            self.refuse(f"type({name}) is not {kind}")
        else:
            shape, dtype = self.scope.name(leaf.shape), self.scope.name(leaf.dtype)
            self.refuse(
                f"type({name}) is not {kind} or {name}.dtype != {dtype} or {name}.shape != {shape}"
            )

    def _take_static(self, value: Any, text: str) -> None:
        if (reference := held_weakly(value)) is not None:
            self.refuse(f"{text} is None or {text} is not {self.scope.name(reference)}()")
            return
        same = self.scope.name(exact(value))
        self.refuse(f"{text} is not {self.scope.name(value)} and exact({text}) != {same}")

    def check_captures(self, compiled: CompiledTrace) -> None:
        """Emit the checks that the captured variables have not changed."""
        captures = compiled.captures
        conditions = captures.changes(self.scope)
        if captures.identity:
            given = "".join(f"{name}, " for name in self.moving)
            conditions.append(f"{self.scope.name(captures.has_twice)}(({given}))")
        if compiled.shared:
            self.scope["first_changed"] = first_changed
            shared = self.scope.name(compiled.shared)
            conditions.append(f"first_changed({shared}) is not None")
        if conditions:
            self.lines += [
                "try:",
                *(f" if {condition}: return no_fit" for condition in conditions),
                # An empty closure cell raises it, and so may the handler of a signal.
                "except recoverable(): return no_fit",
            ]

    def run(self, compiled: CompiledTrace, donation: Donation) -> list[str]:
        """Emit the run of the program; return the names of the outputs."""
        outs = [f"o{i}" for i in range(len(compiled.program.outputs))]
        left = "".join(f"{out}, " for out in outs) or "none"
        run, counter = self.scope.name(compiled.code.run), self.scope.name(compiled.counter)
        if self.held:
            self._run_donated(f"{left} = {run}", compiled.code.program, donation)
        else:
            self.lines += [
                f"try: {left} = {run}({', '.join(self.moving)})",
                "except GuardFailure as failure: return failure",
                "except recoverable(): return no_fit",  # the function itself raises a better error
            ]
        self.lines.append(f"{counter}[0] += 1")
        return outs

    def _run_donated(self, run: str, program: Program, donation: Donation) -> None:
        """Emit the run with donated buffers reused in place; shared ones are copied."""
        self.scope.update(forget=forget, put=object.__setattr__, refs=sys.getrefcount)
        placeholder = self.scope.name(donation.placeholder)
        back = [name.join(put) for name, put in self.held.items()]
        tried = [f"forget({node})" for node in self.nodes]
        tried += [placeholder.join(put) for put in self.held.values()]
        given = list(self.moving)
        for i in map(program.inputs.index, program.overwritten):
            name, given[i] = given[i], f"g{i}"
            sole = f"refs({name}) == {ALONE} and {name}.base is None and {name}.flags.owndata"
            tried.append(f"g{i} = {name} if {sole} else {name}.copy()")
        given += ["begun"] * bool(program.overwritten)
        self.lines += [
            "begun = []",
            "try:",
            *(" " + line for line in [*tried, f"{run}({', '.join(given)})"]),
            "except BaseException as error:",
            " if begun: raise",  # an input has been overwritten, so it cannot be restored
            *(" " + statement for statement in back),
            " if type(error) is GuardFailure: return error",
            " if isinstance(error, Exception) and not is_interrupt(error): return no_fit",
            " raise",
        ]

    def publish(self, program: Program, outs: Sequence[str]) -> None:
        """Emit what `published` does, without the checks known to be unnecessary."""
        kernels = [step for step in program.steps if isinstance(step, Fused | Small)]
        new = {out for step in kernels for out in step.outs}
        self.lines.append(f"given = ({''.join(f'{name}, ' for name in self.moving)})")
        for out, output in zip(outs, program.outputs, strict=True):
            anyhow = f"{out}, = published(({out},), given)"
            if not is_variable(output):
                if is_array(output) and not isinstance(output, np.generic):
                    self.lines.append(anyhow)
            elif output.kind.type is not np.ndarray:
                kind = self.scope.name(output.kind.type)
                self.lines.append(f"if type({out}) is not {kind}: {anyhow}")
            elif output in program.inputs:
                self.lines.append(f"if {out}.base is not None or {out}.flags.writeable: {anyhow}")
            else:
                given = "" if output in new else self._is_given(out, output, program)
                self.lines.append(f"if {out}.base is not None{given}: {anyhow}")
                self.lines.append(f"else: {out}.setflags(False)")
                if math.prod(output.kind.shape) * output.kind.dtype.itemsize > SMALL:
                    self.lines[-1] += f"; {self.scope.name(record_locked)}({out})"

    def _is_given(self, out: str, output: Variable, program: Program) -> str:
        """Return a condition that is true if an output is one of the arguments."""
        pairs = zip(self.moving, program.inputs, strict=True)
        like = [name for name, variable in pairs if variable.kind == output.kind]
        if len(like) > _FEW:
            return f" or any({out} is one for one in given)"
        return "".join(f" or {out} is {name}" for name in like)

    def rebuilt(self, value: Any) -> str:
        """Return an expression that rebuilds a tree whose leaves are `_Mark` objects."""
        if value is None:
            return "None"
        if type(value) is _Mark:
            return value.name
        if type(value) is dict:
            pairs = [f"{self.scope.name(key)}: {self.rebuilt(part)}" for key, part in value.items()]
            return self.local(f"{{{', '.join(pairs)}}}")
        found, rest, _, make = one_level(value)
        parts = "".join(f"{self.rebuilt(part)}, " for part in found)
        if type(value) is tuple:
            return self.local(f"({parts})")
        if type(value) is list:
            return self.local(f"[{parts}]")
        return self.local(f"{self.scope.name(make)}({self.scope.name(rest)}, ({parts}))")
