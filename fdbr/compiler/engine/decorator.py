"""`jit`, and the checks of its options."""

import functools
import importlib
import os
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, overload

from fdbr.compiler.engine.compile import Code
from fdbr.compiler.engine.jitted import Jitted
from fdbr.errors.checks import describe, integer, integers
from fdbr.errors.public import public

__all__ = ["jit"]

P = ParamSpec("P")
R = TypeVar("R")

_LATER: Any = object()  # the default of `f`, in a decorator with options


@overload
def jit(
    f: Callable[P, R],
    *,
    donate_argnums: int | Sequence[int] = (),
    max_traces: int = 64,
    check: int | None = None,
) -> Jitted[P, R]: ...


@overload
def jit(
    *,
    donate_argnums: int | Sequence[int] = (),
    max_traces: int = 64,
    check: int | None = None,
) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...


@public("fdbr")
def jit(
    f: Any = _LATER,
    *,
    donate_argnums: int | Sequence[int] = (),
    max_traces: int = 64,
    check: int | None = None,
) -> Any:
    """Return a function that traces ``f`` and replays the trace faster.

    The first call with arguments of a signature (structure, shapes and dtypes) is traced: a run of
    ``f`` is recorded as a flat program, including every transformation inside it.  The call waits
    until the program is compiled, and returns what the compiled code gives.  Later calls replay
    it.  Python control flow works: each time ``f`` reads a value (``if``, ``while``, ``int(x)``,
    ``float(x)``), the trace gets a guard that compares the outcome in each replay.  With another
    outcome another trace is run, or a new one is made.

    The same calls in the same order give the same bits in every process on a machine.  From the
    fourth signature that differs in sizes only, and from the eighth path through the guards, a new
    one runs ``f`` itself in its first call and is traced in its second.  What cannot be traced
    runs as it is, and ``report()`` says why.

    Parameters
    ----------
    f
        A pure function of trees; if it is omitted, `jit` is a decorator with options.  Arrays and
        numbers in its arguments may differ from call to call; all other leaves, such as strings
        and booleans, are static, and so are shapes and dtypes: each combination has a trace of
        its own.
    donate_argnums
        The positions of donated arguments, such as the state in
        ``state, loss = step(state, batch)``.  New values are written into the NumPy arrays in
        their frozen objects, dicts and lists, if nothing else refers to these arrays.  Afterwards
        every array is removed from the argument, overwritten or not, and its replacement raises
        a `DonatedError` on use.  Arrays that are arguments themselves, or items of a tuple, are
        not donated.  Under a transformation nothing is donated.
    max_traces
        The maximal number of traces for arguments of the same avals; beyond it, calls that match
        no trace run ``f`` itself.  It also bounds the number of different signatures; beyond it,
        the least recently used ones are dropped.
    check
        ``n``, to compare the result of every n-th call with what ``f`` itself gives for the same
        arguments, and its cotangents where it is differentiated from outside.  ``f`` runs once
        more in such a call, and what it prints or writes is printed or written once more (the
        callbacks of `fdbr.debug` are not called again); where results differ, it runs some more
        times to find out why.  Calls that ran ``f`` itself, and programs with collectives, are
        not compared, nor are calls inside another jitted function, which is checked itself.
        `None` takes the number in the environment variable ``FDBR_CHECK_JIT``; 0, and the
        variable not set, mean never.

    Returns
    -------
    Jitted
        A function of the same arguments; ``compile(*args)`` compiles ahead of calls.
        Print ``programs()[0]`` to read what is replayed, and ``report()`` to read what was traced
        and why.

    Raises
    ------
    ImpureError
        If ``f`` draws random numbers without a key, rebinds a captured variable, or stores a
        traced value in a list or dict; or if a captured array has changed; or if ``check`` finds
        that ``f`` reads something else than the trace that ran.
    RuntimeError
        If ``check`` finds that compiled code does not give what the traced steps give.
    TypeError
        If ``f`` is not a function or returns a generator, a static leaf is not hashable, or
        ``donate_argnums`` or ``check`` are no integers; by the call, if there are no arguments at
        the donated positions.
    ValueError
        If ``donate_argnums`` are negative or repeated, ``max_traces`` is less than 1, or ``check``
        is negative.

    >>> import fdbr, numpy as np
    >>> @fdbr.jit
    ... def f(x):
    ...     return x * 2 if x > 0 else -x
    >>> f(1.5), f(-1.0), f(2.5)
    (3.0, 1.0, 5.0)
    >>> print(f.report())  # doctest: +ELLIPSIS
    f: 2 traces
    1. for float, the first call with arguments of this signature
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
            check=check,
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
    settings = Code, bound, given
    every = _check_every(check)
    if not every:
        return Jitted(f, *settings)
    # `fdbr.debug` stands above the compiler, and is loaded by its first use.
    sanitizer = importlib.import_module("fdbr.debug.sanitizer")
    return sanitizer.Checked(every, f, *settings)


def _check_every(check: int | None) -> int:
    """Return which calls are compared with the function itself: every n-th one, or none for 0."""
    if check is not None:
        return integer("fdbr.jit", "check", check, least=0)
    text = os.environ.get("FDBR_CHECK_JIT", "0")
    if not text.isdecimal():
        raise ValueError(f"fdbr.jit: FDBR_CHECK_JIT must be a number of calls, got {text!r}")
    return int(text)
