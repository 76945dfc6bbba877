"""Whether what is computed has its effects: printing, callbacks, messages to other processes."""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

__all__ = [
    "Callbacks",
    "before_effect",
    "callback_is_due",
    "effects_are_had",
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


class Callbacks:
    """The callbacks that a run has made, which a run of the same after it does not make again.

    It is a context: in its block a function is run, and perhaps once more from its beginning.
    """

    __slots__ = ("_around", "_made", "_passed", "_token")

    def __init__(self) -> None:
        self._made = self._passed = 0
        self._around: Callbacks | None = None

    def __enter__(self) -> "Callbacks":
        self._around = _callbacks.get()
        self._token = _callbacks.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        _callbacks.reset(self._token)

    def begin_anew(self) -> None:
        """Note that the next run is one of the same."""
        self._passed = 0

    def is_due(self) -> bool:
        """Whether the callback that a run has come to has not been made yet."""
        self._passed += 1
        if self._passed <= self._made:
            return False
        self._made = self._passed
        return self._around is None or self._around.is_due()


_callbacks: ContextVar[Callbacks | None] = ContextVar("callbacks", default=None)


def callback_is_due() -> bool:
    """Whether a callback is to be made now; it counts as made then."""
    if _silent.get():
        return False
    callbacks = _callbacks.get()
    return callbacks is None or callbacks.is_due()


_refusal: ContextVar[Callable[[], None] | None] = ContextVar("refusal", default=None)


@contextlib.contextmanager
def refusing_effects(refuse: Callable[[], None]) -> Iterator[None]:
    """Have a function called, which raises, where an effect is about to be had or recorded."""
    token = _refusal.set(refuse)
    try:
        yield
    finally:
        _refusal.reset(token)


def before_effect() -> None:
    """To be called before an effect is had or recorded."""
    refuse = _refusal.get()
    if refuse is not None:
        refuse()
