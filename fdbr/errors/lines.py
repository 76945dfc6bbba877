"""The line of the user's program that runs."""

import sys

__all__ = ["caller"]

_PACKAGES = frozenset({"fdbr", "numpy"})


def caller() -> str:
    """The file and the number of the innermost line that runs outside of fdbr and NumPy."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _package(frame) in _PACKAGES:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _package(frame: object) -> str:
    # Code that is made of source text has no file, but the module's name.
    return str(frame.f_globals.get("__name__", "fdbr")).partition(".")[0]  # type: ignore[attr-defined]
