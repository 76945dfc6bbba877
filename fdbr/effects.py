"""Whether what is computed has its effects: printing, callbacks, messages to other processes."""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

__all__ = [
    "before_effect",
    "effects_are_had",
    "noting_effects",
    "refusing_effects",
    "without_effects",
]

_silent: ContextVar[bool] = ContextVar("silent", default=False)


@contextlib.contextmanager
def without_effects() -> Iterator[None]:
    """Have no effects, in a run that another one of the same follows."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


def effects_are_had() -> bool:
    """Whether effects are to be had in what is computed at present."""
    return not _silent.get()


_refusal: ContextVar[Callable[[], None] | None] = ContextVar("refusal", default=None)


@contextlib.contextmanager
def refusing_effects(refuse: Callable[[], None]) -> Iterator[None]:
    """Have a function called, which raises, where an effect is about to be had or recorded."""
    token = _refusal.set(refuse)
    try:
        yield
    finally:
        _refusal.reset(token)


@contextlib.contextmanager
def noting_effects() -> Iterator[list[None]]:
    """Note effects that are had: the list that is given has an entry for each so far."""
    refuse = _refusal.get()
    had: list[None] = []

    def note() -> None:
        if refuse is not None:
            refuse()
        if effects_are_had():
            had.append(None)

    with refusing_effects(note):
        yield had


def before_effect() -> None:
    """To be called before an effect is had or recorded."""
    refuse = _refusal.get()
    if refuse is not None:
        refuse()
