"""The call that the errors of public functions and operations leave through."""

import functools
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
    parameters: Sequence[inspect.Parameter],
    statement: str,
    explain: Callable[[Exception, dict[str, Any]], Exception],
    names: dict[str, Any],
) -> Any:
    """Define a function that runs a statement, and raises ``explain(error, arguments)`` on errors.

    The statement is source text, which reads the parameters and ``names``.

    The function is generated because a call with ``*args`` takes twice the time.  Tracebacks do not
    show the function.  It removes its frame from the error's traceback, and a bare ``raise`` adds
    no frame.  Errors of signal handlers keep all frames (see `is_interrupt`).
    """
    heads = []
    for p in parameters:
        default = p.empty if p.default is p.empty else _Word(f"default_{p.name}")
        heads.append(p.replace(annotation=p.empty, default=default))
    arguments = ", ".join(f"{p.name!r}: {p.name}" for p in parameters)
    source = (
        f"def call{inspect.Signature(heads)}:\n"
        " try:\n"
        f"  {statement}\n"
        " except BaseException as error_:\n"
        f"  try: raise leave_(error_, {{{arguments}}})\n"
        "  except BaseException as raised_:\n"
        "   raised_.__traceback__ = raised_.__traceback__.tb_next\n"
        "   raise\n"
    )
    scope = {f"default_{p.name}": p.default for p in parameters} | names
    scope |= {"leave_": functools.partial(_leave, explain), "__name__": __name__}
    exec(source, scope)
    return scope["call"]


def _leave(explain: Callable[..., Exception], error: BaseException, given: Any) -> BaseException:
    """Return the error to raise for an error that the statement of a boundary has raised."""
    if is_interrupt(error):
        return error
    error.__traceback__ = error.__traceback__.tb_next  # type: ignore[union-attr]
    return explain(error, given) if isinstance(error, Exception) else error
