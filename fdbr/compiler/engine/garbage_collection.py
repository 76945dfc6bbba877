"""Python's collector of garbage, while a program is built.

It begins anew after some hundred new objects, and looks at those of a program again and again, none
of which is garbage: half of the time that a capture took, and the passes.
"""

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["collecting_seldom"]

_MANY = 100_000  # new objects


@contextlib.contextmanager
def collecting_seldom() -> Iterator[None]:
    """Have garbage be looked for after many new objects only, as long as the block lasts."""
    few, *older = gc.get_threshold()
    if not 0 < few < _MANY:  # 0: it is never looked for
        yield
        return
    gc.set_threshold(_MANY, *older)
    try:
        yield
    finally:
        gc.set_threshold(few, *older)
