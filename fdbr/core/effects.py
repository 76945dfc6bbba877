"""Side effects of a run (printing, callbacks, collectives), and how a trial run suppresses them."""

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


class Silence:
    """A trial run without side effects.

    Attributes
    ----------
    suppressed
        Whether the run has reached a side effect.
    """

    suppressed = False


_silence: ContextVar[Silence | None] = ContextVar("silence", default=None)


@contextlib.contextmanager
def without_effects() -> Iterator[Silence]:
    """Suppress side effects in a trial run that will be repeated."""
    silence = Silence()
    token = _silence.set(silence)
    try:
        yield silence
    finally:
        _silence.reset(token)


def effects_are_had() -> bool:
    """Whether the side effect that the caller has reached takes place; a trial run notes it."""
    silence = _silence.get()
    if silence is not None:
        silence.suppressed = True
    return silence is None


class Callbacks:
    """The callbacks that a run has called, so that a repetition does not call them again.

    In the block of this context a function runs, and may run once more from its beginning.
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
        """Note that the function runs once more from its beginning."""
        self._passed = 0

    def is_due(self) -> bool:
        """Whether the callback that the run has reached was not called before."""
        self._passed += 1
        if self._passed <= self._made:
            return False
        self._made = self._passed
        return self._around is None or self._around.is_due()


_callbacks: ContextVar[Callbacks | None] = ContextVar("callbacks", default=None)


def callback_is_due() -> bool:
    """Whether to call a callback now; the answer yes counts as the call."""
    if not effects_are_had():
        return False
    callbacks = _callbacks.get()
    return callbacks is None or callbacks.is_due()


_refusal: ContextVar[Callable[[], None] | None] = ContextVar("refusal", default=None)


@contextlib.contextmanager
def refusing_effects(refuse: Callable[[], None]) -> Iterator[None]:
    """Call a function, which raises an error, before any side effect in this block."""
    token = _refusal.set(refuse)
    try:
        yield
    finally:
        _refusal.reset(token)


def before_effect() -> None:
    """Check, before a side effect or its capture, that `refusing_effects` does not forbid it."""
    refuse = _refusal.get()
    if refuse is not None:
        refuse()
