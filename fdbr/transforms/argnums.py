"""The arguments and results of functions that are differentiated in reverse mode."""

from collections.abc import Sequence, Set
from typing import Any

import numpy as np

from fdbr import tree
from fdbr.core.ownership import release
from fdbr.core.tape import ReverseTrace, ReverseTracer
from fdbr.core.tracer import Trace
from fdbr.errors.checks import describe
from fdbr.pytrees.locking import record_locked
from fdbr.transforms.cotangent_avals import Kind

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
    inputs: list[tuple[int, Kind] | None]  # nodes' numbers, and what gradients must be like
    traced: list[Any]

    def __init__(self, trace: ReverseTrace, argument: Any) -> None:
        self.structure: Any = None
        if type(argument) is np.ndarray and argument.dtype.kind in "fc":  # the usual case
            tracer = trace.input(argument)
            self.inputs = [(tracer.node[0], Kind(argument))]
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
                inputs.append((tracer.node[0], Kind(leaf)))
                traced.append(tracer)
            else:
                inputs.append(None)
                traced.append(leaf)
        self.inputs, self.traced = inputs, traced

    def argument(self) -> Any:
        """The argument to call the function with; it is given away."""
        traced, self.traced = self.traced, []
        return traced[0] if self.structure is None else tree.unflatten(self.structure, traced)

    def gradient(
        self, cotangents: dict[int, Any], seeds: Set[int] = frozenset(), zeros: bool = True
    ) -> Any:
        """The argument's gradient out of the cotangents of inputs, by node number.

        ``seeds`` are the identities of what owns the cotangents that somebody else gave.  Leaves
        without a cotangent have zeros, or else `None`.
        """
        found: list[Any] = []
        for one in self.inputs:
            if one is None:
                found.append(None)
                continue
            number, kind = one
            slope = cotangents.get(number)
            if (
                type(slope) is np.ndarray
                and slope.base is None
                and slope.dtype is kind.dtype
                and kind.type is np.ndarray
                and not (seeds and id(slope) in seeds)
            ):
                slope.setflags(write=False)  # the usual case: an array of its own
                record_locked(slope)
            elif slope is not None or zeros:
                slope = kind.finish(slope, seeds)
            found.append(slope)
        return self.gradient_of(found)

    def gradient_of(self, leaves: list[Any]) -> Any:
        """The argument's gradient of its leaves."""
        return leaves[0] if self.structure is None else tree.unflatten(self.structure, leaves)


_SHOWN = 8  # leaves that a message names


def nothing_to_differentiate(trace: Trace, argument: Any, lack: str, advice: str) -> TypeError:
    """The error for an argument, or a tuple of them, without a leaf to differentiate."""
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
    """The arguments that ``argnums`` chooses among ``count``, each once."""
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
    """The differentiated arguments, and all arguments to call the function with."""
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
    """Whether leaves that are not used have a gradient of zeros."""
    if unused not in ("zeros", "none"):
        raise ValueError(f"fdbr.{name}: unused must be 'zeros' or 'none', not {unused!r}")
    return unused == "zeros"


def pair(out: Any, trace: Trace) -> tuple[Any, Any]:
    """The result of a function with further results, or an error that says what it must be."""
    if not isinstance(out, tuple) or len(out) != 2:
        raise TypeError(
            f"fdbr.{trace.origin[0]}: with has_aux=True {trace.origin[1]} must return a pair "
            f"(value, aux), not {describe(out)}"
        )
    return out
