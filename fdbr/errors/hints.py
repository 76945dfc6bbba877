"""Notes on NumPy's errors about assignments, which say what to write instead.

If a traced value is assigned to an element of an array, NumPy asks it for a number, and replaces
the error of fdbr by its own.  And the error for a read-only array does not say why it is read-only.
Tracebacks show the notes at their end.
"""

from collections.abc import Callable

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


def advise(error: Exception) -> None:
    """Add a note with what to write instead, if the error is one of NumPy's about assignments."""
    if hasattr(error, "__notes__"):
        return
    text = str(error)
    for adviser in advisers:
        note = adviser(error)
        if note is not None:
            error.add_note(note)
            return
    if isinstance(error, ValueError) and text.endswith(("is read-only", "are read-only")):
        error.add_note(_LOCKED)
    if text.startswith("Error setting single item"):
        error.add_note(_FLAT)
    hidden = error.__cause__ or error.__context__
    if hidden is not None and _is_ours(hidden) and not _is_ours(error):
        error.add_note(str(hidden))


def _is_ours(error: BaseException) -> bool:
    """Whether fdbr raised an error; the traceback of a named error has no frames of fdbr."""
    if str(error).startswith("fdbr."):
        return True
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    return step is not None and str(step.tb_frame.f_globals.get("__name__")).startswith("fdbr.")
