"""`jit`, and what it may be given."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, overload

import numpy as np

from fdbr.compiler.engine.function import Jitted
from fdbr.compiler.engine.tiers import Code
from fdbr.errors.checks import describe, integer, integers
from fdbr.errors.public import public

__all__ = ["jit"]

P = ParamSpec("P")
R = TypeVar("R")

_WHEN = "when it pays", "now"
_LATER: Any = object()  # stands for the function that a decorator with options will be given


@overload
def jit(
    f: Callable[P, R],
    *,
    donate_argnums: int | Sequence[int] = (),
    max_traces: int = 64,
    reproducible: bool = False,
    compile: str = "when it pays",
) -> Jitted[P, R]: ...


@overload
def jit(
    *,
    donate_argnums: int | Sequence[int] = (),
    max_traces: int = 64,
    reproducible: bool = False,
    compile: str = "when it pays",
) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...


@public("fdbr")
def jit(
    f: Any = _LATER,
    *,
    donate_argnums: int | Sequence[int] = (),
    max_traces: int = 64,
    reproducible: bool = False,
    compile: str = "when it pays",
) -> Any:
    """A function that traces ``f``, and replays the trace faster.

    A run of ``f`` is written down as a flat program, with every transformation inside it; the
    program is optimised, and later calls with arguments of the same kinds replay it.  Python
    control flow stays what it is: for each question that ``f`` asks a value (``if``, ``while``,
    ``int(x)``, ``float(x)``) there is a guard, which asks it again in each replay; where the answer
    is another one, another trace is run, or a new one is made.

    Parameters
    ----------
    f
        A pure function of trees; without it, `jit` is a decorator with options.  Arrays and
        numbers in its arguments may differ from call to call; all other leaves, as strings and
        truth values, are static, and so are shapes and dtypes: for each there is a trace of
        its own.
    donate_argnums
        The positions of arguments that the caller gives up, as the state in
        ``state, loss = step(state, batch)``.  New values are written over NumPy arrays in their
        frozen objects, dicts and lists, where nobody else refers to these arrays.  Afterwards
        each array that was there is gone from the argument, overwritten or not, and what stands
        in its place raises a `DonatedError` on use.  Arrays that are arguments themselves, or
        items of a tuple, stay as they are.  Under a transformation nothing is given up.
    max_traces
        How many traces there may be for arguments of the same kinds: past it, calls that
        none fits run ``f`` itself.  And for how many kinds there are traces: past it, those
        that were used least recently are dropped.

    reproducible
        Whether all calls give the same bits for the same arguments, in every process.  Then the
        first call waits until everything is compiled; a call that cannot be traced runs ``f``
        itself, always.  Without it no call waits, and the first 128 of them together take a
        tenth longer than ``f`` at most (what is beyond half a second, and later calls: half as
        long again): ``f`` runs as it is, until a tenth of what that took pays for a trace; a
        trace is replayed step by step, until it pays for the passes; and its kernels are taken
        up one by one as they come from a process in the background.  So the last bits of results
        depend on when a call is made.
    compile
        ``"now"``, to trace and compile in the first call with arguments of a kind, which waits for
        it: for a function that is known to be called often, and for measuring how fast it gets.
        Nothing is promised of the last bits.

    Returns
    -------
    Jitted
        A function of the same arguments; ``compile(*args)`` compiles ahead, and waits.  Print
        ``programs()[0]`` to read what is replayed, and ``report()`` to read what was traced and
        why.

    Raises
    ------
    ImpureError
        If ``f`` draws random numbers without a key, binds a variable around it anew, or keeps a
        traced value in a list or dict; or if an array that it uses and is no argument has changed.
    TypeError
        If ``f`` is no function or returns a generator, a static leaf cannot be hashed, or
        ``donate_argnums`` are no integers; by the call, if there are no arguments there.
    ValueError
        If ``donate_argnums`` are negative or not different, ``max_traces`` is less than 1, or
        ``compile`` is neither ``"when it pays"`` nor ``"now"``.

    >>> import fdbr, numpy as np
    >>> @fdbr.jit(reproducible=True)
    ... def f(x):
    ...     return x * 2 if x > 0 else -x
    >>> f(1.5), f(-1.0), f(2.5)
    (3.0, 1.0, 5.0)
    >>> print(f.report())  # doctest: +ELLIPSIS
    f: 2 traces
    1. for float, the first call with arguments of these kinds
       3 steps, 3 after the passes, replayed 1 time
       passes took ... s; 0 bytes of results and constants
       guards: True
    2. for float, guard 0 was False for the first time
       3 steps, 3 after the passes, replayed 0 times
       passes took ... s; 0 bytes of results and constants
       guards: False
    """
    if f is _LATER:
        return functools.partial(
            jit,
            donate_argnums=donate_argnums,
            max_traces=max_traces,
            reproducible=reproducible,
            compile=compile,
        )
    if not callable(f):
        raise TypeError(f"fdbr.jit: f must be a function, not {describe(f)}")
    bound = integer("fdbr.jit", "max_traces", max_traces, least=1)
    argnums = integers("fdbr.jit", "donate_argnums", donate_argnums)
    given = (argnums,) if isinstance(argnums, int) else argnums
    if min(given, default=0) < 0 or len(set(given)) < len(given):
        raise ValueError(
            "fdbr.jit: donate_argnums must be different positions, counted from 0, got "
            f"{donate_argnums}"
        )
    if not isinstance(reproducible, bool | np.bool_):
        raise TypeError(
            f"fdbr.jit: reproducible must be True or False, not {describe(reproducible)}"
        )
    if compile not in _WHEN:
        raise ValueError(
            f"fdbr.jit: compile must be {' or '.join(map(repr, _WHEN))}, not {compile!r}"
        )
    waits, now = bool(reproducible), compile == "now"
    return Jitted(f, functools.partial(Code, waits=waits or now), bound, given, waits, now)
