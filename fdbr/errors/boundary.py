"""The call that the errors of public functions and operations leave through."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from fdbr.errors.checks import is_interrupt

__all__ = ["boundary"]


class _Word(str):
    """Text whose representation is the text itself, as the default in a printed signature."""

    __slots__ = ()
    __repr__ = str.__str__


def boundary(
    function: Any,
    parameters: Sequence[inspect.Parameter],
    statement: str,
    explain: Callable[[Exception, dict[str, Any]], Exception],
    names: dict[str, Any],
) -> Any:
    """Define a function that runs a statement, and raises ``explain(error, arguments)`` on errors.

    The function is generated because a call with ``*args`` takes twice the time.  Tracebacks do not
    show it: a bare ``raise`` continues with the traceback of the error, from which the frame of the
    function is removed.  Errors of signal handlers keep all frames (see `is_interrupt`).

    Parameters
    ----------
    function
        The new function gets its globals: doctest looks for functions by their globals.
    statement
        Source text.  It reads the parameters and ``names``.
    """
    heads = [
        p.replace(
            annotation=p.empty,
            default=p.empty if p.default is p.empty else _Word(f"default_{p.name}"),
        )
        for p in parameters
    ]
    names = {f"default_{p.name}": p.default for p in parameters} | names
    names |= {"explain_": explain, "leave_": _leave}
    given = ", ".join(f"{p.name!r}: {p.name}" for p in parameters)
    source = (
        f"def make({', '.join(names)}):\n"
        f" def call{inspect.Signature(heads)}:\n"
        "  try:\n"
        f"   {statement}\n"
        "  except BaseException as error_:\n"
        f"   try: raise leave_(error_, explain_, {{{given}}})\n"
        "   except BaseException as raised_:\n"
        "    raised_.__traceback__ = raised_.__traceback__.tb_next\n"
        "    raise\n"
        " return call\n"
    )
    scope: dict[str, Any] = {}
    exec(source, function.__globals__, scope)
    return scope["make"](**names)


def _leave(error: BaseException, explain: Callable[..., Exception], given: Any) -> BaseException:
    """Return the error to raise for an error that the statement of a boundary has raised."""
    if is_interrupt(error):
        return error
    error.__traceback__ = error.__traceback__.tb_next  # type: ignore[union-attr]
    return explain(error, given) if isinstance(error, Exception) else error
