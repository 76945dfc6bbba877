"""The arguments and results of functions that are differentiated in reverse mode."""

from collections.abc import Sequence, Set
from typing import Any

import numpy as np

from fdbr.core.ownership import release
from fdbr.core.tape import ReverseTrace, ReverseTracer
from fdbr.core.tracer import Trace
from fdbr.errors.checks import describe
from fdbr.pytrees import structure as tree
from fdbr.pytrees.locking import record_locked
from fdbr.transforms.cotangent_avals import CotangentAval

__all__ = [
    "Inputs",
    "lower",
    "nothing_to_differentiate",
    "pair",
    "positions",
    "trace_arguments",
    "wants_zeros",
]

_YES: tuple[bool, ...] = (True,)


class Inputs:
    """One differentiated argument: its leaves, some of them traced, and its structure."""

    __slots__ = ("inputs", "some", "structure", "traced")

    some: bool  # whether there is a leaf to differentiate
    # The numbers of tape entries, and the avals of gradients; `None` for constants.
    inputs: list[tuple[int, CotangentAval] | None]
    traced: list[Any]

    def __init__(self, trace: ReverseTrace, argument: Any) -> None:
        self.structure: Any = None
        if type(argument) is np.ndarray and argument.dtype.kind in "fc":  # the usual case
            tracer = trace.input(argument)
            self.inputs = [(tracer.node[0], CotangentAval(argument))]
            self.traced = [tracer]
            self.some = True
            return
        if type(argument) is float or type(argument) is np.ndarray:
            leaves, outside = [argument], _YES
        else:
            leaves, self.structure = tree.flatten(argument)
            outside = tree.outside_buffers(self.structure)
        inputs: list[Any] = []
        traced: list[Any] = []
        self.some = False
        for leaf, choose in zip(leaves, outside):  # noqa: B905 (one of each for every leaf)
            if choose and tree.is_inexact(leaf):
                self.some = True
                tracer = trace.input(leaf)
                inputs.append((tracer.node[0], CotangentAval(leaf)))
                traced.append(tracer)
            else:
                inputs.append(None)
                traced.append(leaf)
        self.inputs, self.traced = inputs, traced

    def argument(self) -> Any:
        """Return the traced argument for the function, and drop the reference to it."""
        traced, self.traced = self.traced, []
        return traced[0] if self.structure is None else tree.unflatten(self.structure, traced)

    def gradient(
        self, cotangents: dict[int, Any], seeds: Set[int] = frozenset(), zeros: bool = True
    ) -> Any:
        """Return the argument's gradient from the cotangents by tape entry.

        ``seeds`` are the identities of the arrays that own the memory of the user's cotangents.
        The gradient of a leaf without a cotangent is zeros, or `None` without ``zeros``.
        """
        found: list[Any] = []
        for entry in self.inputs:
            if entry is None:
                found.append(None)
                continue
            number, aval = entry
            gradient = cotangents.get(number)
            if (
                type(gradient) is np.ndarray
                and gradient.base is None
                and gradient.dtype is aval.dtype
                and aval.type is np.ndarray
                and not (seeds and id(gradient) in seeds)
            ):
                gradient.setflags(write=False)  # the most common case: a new array
                record_locked(gradient)
            elif gradient is not None or zeros:
                gradient = aval.finish(gradient, seeds)
            found.append(gradient)
        return self.gradient_of(found)

    def gradient_of(self, leaves: list[Any]) -> Any:
        """Build the argument's gradient from those of its leaves."""
        return leaves[0] if self.structure is None else tree.unflatten(self.structure, leaves)


_SHOWN = 8  # leaves that a message names


def nothing_to_differentiate(trace: Trace, argument: Any, lack: str, advice: str) -> TypeError:
    """Return the error for an argument, or a tuple of them, without a leaf to differentiate."""
    leaves = tree.leaves(argument)
    found = [
        f"{name or 'the argument itself'}: {describe(leaf)}"
        for name, leaf in zip(tree.paths(argument)[:_SHOWN], leaves[:_SHOWN], strict=True)
    ]
    if len(leaves) > _SHOWN:
        found.append(f"and {len(leaves) - _SHOWN} more")
    return TypeError(
        f"fdbr.{trace.origin[0]}: {lack} to differentiate: leaves must be floating or complex and "
        f"outside buffers, and there is {', '.join(found) or 'no leaf at all'}. {advice}"
    )


def lower(trace: ReverseTrace, leaf: Any) -> Any:
    """Take the trace off a leaf of the output."""
    if type(leaf) is ReverseTracer and leaf._trace is trace:
        return release(trace, leaf.value)
    return trace.admit(leaf)


def positions(argnums: int | Sequence[int], count: int, origin: tuple[str, str]) -> tuple[int, ...]:
    """Return the positions that ``argnums`` chooses among ``count`` arguments."""
    if type(argnums) is int and 0 <= argnums < count:
        return (argnums,)
    given = (argnums,) if isinstance(argnums, int) else argnums
    if any(isinstance(n, bool) for n in given):
        raise TypeError(f"fdbr.{origin[0]}: argnums must be integers, not {argnums}")
    if not all(-count <= n < count for n in given):
        raise TypeError(
            f"fdbr.{origin[0]}: argnums={argnums} but {origin[1]} was called with "
            f"{count} positional argument{'s' * (count != 1)}, and arguments given by keyword are "
            "not differentiated"
        )
    chosen = tuple(n % count for n in given)
    if len(set(chosen)) < len(chosen):
        raise TypeError(f"fdbr.{origin[0]}: argnums={argnums} names an argument twice")
    return chosen


def trace_arguments(
    trace: ReverseTrace, args: Sequence[Any], argnums: int | Sequence[int]
) -> tuple[list[Inputs], list[Any]]:
    """Return the differentiated arguments, and all arguments for the function."""
    traced = list(args)
    inputs = []
    for position in positions(argnums, len(args), trace.origin):
        one = Inputs(trace, args[position])
        if not one.some:
            raise nothing_to_differentiate(
                trace,
                args[position],
                f"argument {position} of {trace.origin[1]} has no leaf",
                "Convert it with ops.astype(x, float), or differentiate another argument with "
                "argnums.",
            )
        traced[position] = one.argument()
        inputs.append(one)
    return inputs, traced


def wants_zeros(name: str, unused: str) -> bool:
    """Whether the gradient of unused leaves is zeros rather than `None`."""
    if unused not in ("zeros", "none"):
        raise ValueError(f"fdbr.{name}: unused must be 'zeros' or 'none', not {unused!r}")
    return unused == "zeros"


def pair(out: Any, trace: Trace) -> tuple[Any, Any]:
    """Return the pair ``(value, aux)`` that a function has returned, or raise an error."""
    if not isinstance(out, tuple) or len(out) != 2:
        raise TypeError(
            f"fdbr.{trace.origin[0]}: with has_aux=True {trace.origin[1]} must return a pair "
            f"(value, aux), not {describe(out)}"
        )
    return out
