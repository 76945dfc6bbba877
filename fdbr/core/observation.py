"""The hook by which a debugger observes what the engine does.

The engine asks it where an operation is applied to arrays, where a trace begins, and where a
backward pass, a custom function or a jitted one is run.  While nothing observes, the hook is empty
and costs one test.  It is the same for all threads: a `Watch` asks the context in which it is
called whether that is observed, and does nothing if it is not.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

__all__ = ["Watch", "hook", "install"]


class Watch(Protocol):
    """The functions that the engine calls while some context is observed."""

    def seen(self, primitive: Any) -> Any:
        """Return the primitive to apply to arrays: itself, or one that tells the observers."""

    def began(self, trace: Any) -> None:
        """Have a trace that begins note more, if its context is observed."""

    def backward(self, roots: Any, until: int, cotangents: Any) -> Any:
        """Run a backward pass; `NotImplemented` if its context is not observed."""

    def custom(self, name: str, leaves: Sequence[Any], call: Callable[[], Any]) -> Any:
        """Run a function with a derivative rule of its own."""

    def jitted(self, jitted: Any, args: Any, kwargs: Any) -> Any:
        """Run a jitted function; `NotImplemented` if its context is not observed."""


class Hook:
    """The watch that is installed, `None` while nothing observes."""

    __slots__ = ("watch",)

    watch: Watch | None

    def __init__(self) -> None:
        self.watch = None


hook = Hook()


def install(watch: Watch | None) -> None:
    """Have the engine call a watch from now on; `None` takes it out."""
    hook.watch = watch
