"""Which line of the user's program something comes from."""

import functools
import linecache
import os
import sys
from types import FrameType

import attrs
import numpy as np
import optree

import fdbr
from fdbr.errors.public import public

__all__ = ["Source", "user_source"]

# Frames of these packages are not the user's, nor is code that they make when they run.
_PACKAGES = tuple(
    os.path.dirname(os.path.abspath(str(module.__file__))) + os.sep for module in (fdbr, np, optree)
)
_GENERATED = ("<attrs generated", "<__array_function__")


@public("fdbr.debug")
@attrs.frozen
class Source:
    """A line of a program.

    Attributes
    ----------
    file, line, function
        Where it is.
    """

    file: str
    line: int
    function: str

    @property
    def text(self) -> str:
        """The line itself; empty where the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line} in {self.function}"


def user_source() -> Source | None:
    """The innermost line that runs now outside of fdbr and NumPy."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        # Code that fdbr makes of source text has no file, and no module or one of fdbr.
        module = str(frame.f_globals.get("__name__", "fdbr"))
        if _is_users(code.co_filename) and (
            code.co_filename != "<string>" or module.partition(".")[0] != "fdbr"
        ):
            return _source(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return None


@functools.cache
def _is_users(file: str) -> bool:
    if file.startswith("<"):
        return not file.startswith(_GENERATED)
    return not os.path.abspath(file).startswith(_PACKAGES)


@functools.lru_cache(1 << 14)
def _source(file: str, line: int, function: str) -> Source:
    return Source(file, line, function)
