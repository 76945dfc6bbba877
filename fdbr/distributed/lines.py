"""The line of a program that calls a public function."""

import os
import sys

__all__ = ["caller"]

_HERE = os.path.dirname(os.path.dirname(__file__)) + os.sep


def caller() -> str:
    """The file and the number of the line that called: the first one outside of fdbr."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
