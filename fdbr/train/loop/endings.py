"""Stages that have ended a run, and say so when it is resumed, before a further step is made."""

from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from fdbr.train.loop.reports import Report

__all__ = ["ended", "unless_ended"]

_asked: ContextVar[tuple[tuple[str, Any], ...]] = ContextVar("asked", default=())


def unless_ended(reports: Iterable[Report], name: str, state: Any) -> Iterator[Report]:
    """The same reports: none, if what is kept under a name says that the run is over.

    The run is asked with the first report, before it makes a step.
    """
    stream = iter(reports)
    token = _asked.set((*_asked.get(), (name, state)))
    try:
        first = next(stream, None)
    finally:
        _asked.reset(token)
    if first is None or first.position.kept.get(name) == state:
        return
    yield first
    yield from stream


def ended(kept: Mapping[str, Any]) -> bool:
    """Whether a stage that waits for the first report has ended the run."""
    return any(kept.get(name) == state for name, state in _asked.get())
