"""A call that fits a captured program, as one function made for that program.

It does what `Jitted` does for arguments of any kind, spelled out for those of one kind: it takes
the arguments apart and makes sure that they are of this kind, and that all around the function is
as it was; it runs the program, and puts the result together.
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
from fdbr.pytrees.classes import fields_of
from fdbr.pytrees.flatten_cache import forget
from fdbr.pytrees.locking import SMALL, record_locked

__all__ = ["NEVER", "NO_FIT", "CallStub", "call_stub_of"]

CallStub = Callable[[tuple[Any, ...], dict[str, Any]], Any]
"""From positional and keyword arguments to the result, or to a `GuardFailure`.

The `GuardFailure` tells which guard did not hold; none, if it is `NO_FIT`.
"""

_FEW = 8

NO_FIT = GuardFailure(-1, None)


def NEVER(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The call stub that fits no call."""
    return NO_FIT


def call_stub_of(
    compiled: CompiledTrace,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    ordered: bool,
    donation: Donation,
) -> CallStub:
    """Write the call stub for calls that a captured program fits.

    Parameters
    ----------
    compiled
        The captured program.
    args, kwargs
        The arguments of one such call.
    ordered
        Whether it counts in which order keywords are given.
    donation
        What is given up.
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
        for place in compiled.captures.inputs:
            writer.take(place.get(), f"{writer.scope.name(place.get)}()")
    except _UnknownNodeError:
        return NEVER
    writer.look_around(compiled)
    outs = writer.run(compiled, donation)
    writer.publish(compiled.code.running, outs)
    result = tree.unflatten(compiled.form, [_Mark(name) for name in outs])
    writer.lines.append(f"return {writer.again(result)}")
    return writer.made()


class _UnknownNodeError(Exception):
    """A tree has a node of which is not known what it is made of."""


class _Mark:
    """A leaf of a result: the name of the variable that is to be put there."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Writer:
    """The lines of the function, and what they refer to.

    Attributes
    ----------
    moving
        The names of the leaves that may differ from call to call.
    held
        For those that are given up, what puts something in their place.
    nodes
        The frozen objects in what is given up.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.scope = Scope(
            __name__=__name__,  # for those who ask what module the function is of
            GuardFailure=GuardFailure,
            exact=exact,
            ndarray=np.ndarray,
            no_fit=NO_FIT,
            protect=protect,
            published=published,
        )
        self.moving: list[str] = []
        self.held: dict[str, tuple[str, str]] = {}
        self.nodes: list[str] = []
        self._count = 0

    def made(self) -> CallStub:
        """The function."""
        body = "\n ".join(self.lines)
        exec(f"def stub(args, kwargs):\n {body}\n", self.scope)
        stub: CallStub = self.scope.pop("stub")
        stub.source = body  # type: ignore[attr-defined]
        return stub

    def refuse(self, condition: str) -> None:
        """Write that the call does not fit if a condition is true."""
        self.lines.append(f"if {condition}: return no_fit")

    def local(self, text: str) -> str:
        """A new local variable, which an expression's value is bound to."""
        self._count += 1
        self.lines.append(f"v{self._count} = {text}")
        return f"v{self._count}"

    def take(self, value: Any, text: str, donated: bool = False) -> None:
        """Write what makes sure that an argument, or a part of one, is of the kind of another.

        That is another way to say what `signature` says.  What is ``donated`` is noted.
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
        """The text before and after a value in the statement that puts it in a part's place."""
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

    def look_around(self, compiled: CompiledTrace) -> None:
        """Write what makes sure that all is as it was around the function."""
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
                "except ValueError: return no_fit",  # of a cell that is empty now
            ]

    def run(self, compiled: CompiledTrace, donation: Donation) -> list[str]:
        """Write the run; the names of what comes out."""
        outs = [f"o{i}" for i in range(len(compiled.program.outputs))]
        left = "".join(f"{out}, " for out in outs) or "none"
        run, counter = self.scope.name(compiled.run), self.scope.name(compiled.counter)
        if self.held:
            self._run_on_given(f"{left} = {run}", compiled.code.running, donation)
        else:
            self.lines += [
                f"try: {left} = {run}({', '.join(self.moving)})",
                "except GuardFailure as failure: return failure",
                "except Exception: return no_fit",  # the function itself raises it better
            ]
        self.lines.append(f"{counter}[0] += 1")
        return outs

    def _run_on_given(self, run: str, program: Program, donation: Donation) -> None:
        """Write a run that may write over what is given up; of what others see, over a copy."""
        self.scope.update(forget=forget, put=object.__setattr__, refs=sys.getrefcount)
        instead = self.scope.name(donation.instead)
        back = [name.join(put) for name, put in self.held.items()]
        tried = [f"forget({node})" for node in self.nodes]
        tried += [instead.join(put) for put in self.held.values()]
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
            " if begun: raise",  # there is nothing to go back to
            *(" " + statement for statement in back),
            " if type(error) is GuardFailure: return error",
            " if isinstance(error, Exception): return no_fit",
            " raise",
        ]

    def publish(self, program: Program, outs: Sequence[str]) -> None:
        """Write what `published` would do, as far as it is known which outputs are new arrays."""
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
        """The condition that an output is an argument itself."""
        pairs = zip(self.moving, program.inputs, strict=True)
        like = [name for name, variable in pairs if variable.kind == output.kind]
        if len(like) > _FEW:
            return f" or any({out} is one for one in given)"
        return "".join(f" or {out} is {name}" for name in like)

    def again(self, value: Any) -> str:
        """An expression that makes a tree whose leaves are marks."""
        if value is None:
            return "None"
        if type(value) is _Mark:
            return value.name
        if type(value) is dict:
            pairs = [f"{self.scope.name(key)}: {self.again(part)}" for key, part in value.items()]
            return self.local(f"{{{', '.join(pairs)}}}")
        found, rest, _, make = one_level(value)
        parts = "".join(f"{self.again(part)}, " for part in found)
        if type(value) is tuple:
            return self.local(f"({parts})")
        if type(value) is list:
            return self.local(f"[{parts}]")
        return self.local(f"{self.scope.name(make)}({self.scope.name(rest)}, ({parts}))")
