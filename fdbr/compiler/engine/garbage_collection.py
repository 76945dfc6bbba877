"""Python's cyclic garbage collector while a program is built.

By default it starts after some hundred new objects.  While a program grows it would scan all its
objects again and again, though none is garbage; that took half of the time of captures and passes.
"""

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["collecting_seldom"]

_MANY = 100_000  # new objects between two collections


@contextlib.contextmanager
def collecting_seldom() -> Iterator[None]:
    """Collect garbage only after many new objects, while the block lasts."""
    few, *older = gc.get_threshold()
    if not 0 < few < _MANY:  # 0: the user has switched collection off
        yield
        return
    gc.set_threshold(_MANY, *older)
    try:
        yield
    finally:
        gc.set_threshold(few, *older)
