"""Notes on errors of NumPy and SciPy, which say what to write instead.

If a traced value is assigned to an element of an array, NumPy asks it for a number, and replaces
the error of fdbr by its own.  And the error for a read-only array does not say why it is read-only.
Tracebacks show the notes at their end.
"""

import traceback
from collections.abc import Callable, Iterator

from fdbr.errors.checks import is_refusal, refusal

__all__ = ["advise", "advisers"]

advisers: list[Callable[[Exception], str | None]] = []
"""Functions of an error that return the note to add, or `None`."""

_LOCKED = (
    "fdbr: arrays that it hands out are never written to. Write B = ops.at(B)[key].set(x) for "
    "B[key] = x, and B = ops.at(B)[key].add(x) for +=; or begin with a copy, B = B.copy(), where "
    "only plain numbers are assigned"
)

_FLAT = (
    "fdbr: a traced value is assigned to no element of an array. Write "
    "B = ops.at(ops.reshape(B, -1))[i].set(x) for B.flat[i] = x"
)


def advise(error: Exception, refused: Exception | None = None) -> Exception:
    """Add a note that says what to write instead, and return the error to raise.

    The error to raise is another one if a library has replaced the error of a traced value.
    ``refused`` is the last error of a traced value in this run, which the library may have
    discarded.
    """
    meant = _hidden(error) or refused
    if meant is not None and not is_refusal(error) and _hides_errors(error):
        return refusal(type(meant)(*meant.args))  # a new error, which has no traceback to share
    if hasattr(error, "__notes__") or not isinstance(
        error, TypeError | ValueError | AttributeError
    ):
        return error
    text = str(error)
    for adviser in advisers:
        note = adviser(error)
        if note is not None:
            error.add_note(note)
            return error
    if isinstance(error, ValueError) and text.endswith(("is read-only", "are read-only")):
        error.add_note(_LOCKED)
    if text.startswith("Error setting single item"):
        error.add_note(_FLAT)
    cause = error.__cause__ or error.__context__
    if cause is not None and _is_ours(cause) and not _is_ours(error):
        error.add_note(str(cause))
    return error


def _hidden(error: BaseException) -> Exception | None:
    """Return the error of a traced value from which another error follows."""
    seen: list[BaseException | None] = [None, error]  # errors may follow from each other
    while (cause := seen[-1].__cause__ or seen[-1].__context__) not in seen:  # type: ignore[union-attr]
        if isinstance(cause, Exception) and is_refusal(cause):
            return cause
        seen.append(cause)
    return None


def _hides_errors(error: Exception) -> bool:
    """Whether an error comes from SciPy, which replaces the errors of callbacks by its own.

    Functions of C that ignore the error of a callback, and call it again, end in any error.
    """
    in_scipy = any(name.startswith("scipy.") for name in _modules_of(error))
    return in_scipy or isinstance(error, SystemError)


def _is_ours(error: BaseException) -> bool:
    """Whether fdbr raised an error; the traceback of a named error has no frames of fdbr."""
    *_, last = "", *_modules_of(error)
    return str(error).startswith("fdbr.") or last.startswith("fdbr.")


def _modules_of(error: BaseException) -> Iterator[str]:
    """Yield the names of the modules that an error passes through, the innermost last."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        yield str(frame.f_globals.get("__name__"))
