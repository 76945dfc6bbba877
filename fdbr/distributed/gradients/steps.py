"""Averages in the background, as a program does them: three steps, each of which may be captured.

A round begins with the weight of this rank, its buckets begin as they are ready, and at the end
each is waited for.  Whether a rank captures a program, runs one or calls the function itself, what
it asks of the others is the same.
"""

import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr.compiler.capture.tracers import CaptureTrace
from fdbr.core.array_modules import array_module, copy_of, lock
from fdbr.core.collective_log import met, note_collective
from fdbr.core.effects import before_effect, effects_are_had
from fdbr.core.primitive import Facts, Primitive
from fdbr.core.tracer import Trace, running
from fdbr.distributed.gradients.averaging import Averaging
from fdbr.distributed.gradients.rounds import Round
from fdbr.distributed.primitives import RecordedError

__all__ = ["begin_bucket", "begin_round", "programs_around", "wait_for"]

Around = Sequence[Trace]

_count = itertools.count(1)
_held: dict[int, Any] = {}
"""Rounds and buckets that are under way, by the numbers by which programs know them."""
_latest: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""The numbers of the last rounds, by the transports of their communicators."""
_lock = threading.Lock()


def programs_around() -> Sequence[CaptureTrace] | None:
    """The programs that are being captured; `None` within any other transformation."""
    around = running.get()
    programs = [trace for trace in around if isinstance(trace, CaptureTrace)]
    return programs if len(programs) == len(around) else None


def begin_round(around: Around, how: Averaging, weight: Any) -> Any:
    """Begin with the averages of one step: its number.

    Parameters
    ----------
    around
        The programs that are being captured.
    how
        How.
    weight
        How many examples this rank has; `None` for equal shares.
    """
    given = () if weight is None else (weight,)
    return _noted(around, _ROUND, given, {"how": how})[0]


def begin_bucket(around: Around, number: Any, leaves: Sequence[Any]) -> Any:
    """Begin with a bucket of a round: its number."""
    return _noted(around, _BUCKET, (number, *leaves), {})[0]


def wait_for(around: Around, number: Any, leaves: Sequence[Any]) -> Sequence[Any]:
    """The averages of a bucket of leaves like these."""
    kinds = tuple((*_kind(leaf), array_module(leaf)) for leaf in leaves)
    return _noted(around, _WAIT, (number,), {"kinds": kinds})


def _noted(
    around: Around, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]
) -> Sequence[Any]:
    """Do a step, and have the programs that are being captured do it."""
    if not around:
        did: Sequence[Any] = _DONE[primitive.name](*args, **params)
        return did
    top: Any = around[-1]
    outs = _noted(around[:-1], primitive, tuple(top.unwrap(args)[0]), params)
    noted: Sequence[Any] = top.noted(primitive, args, params, tuple(outs))
    return noted


def _kept(value: Any) -> Any:
    with _lock:
        number = next(_count)
        _held[number] = value
    return np.int64(number)


def _taken(number: Any) -> Any:
    with _lock:
        return _held.pop(int(number))


def _round(*weight: Any, how: Averaging) -> Sequence[Any]:
    before_effect()
    note_collective()
    if not effects_are_had():
        return (np.int64(0),)
    given = weight[0] if weight else None

    def begin() -> Any:
        number = _kept(Round(how, given))
        with _lock:  # whoever begins with this one has begun with all buckets of the last
            _held.pop(_latest.get(how.comm.transport, 0), None)
            _latest[how.comm.transport] = int(number)
        return number

    return (met(f"the averages of {how.name}", begin),)


def _bucket(number: Any, *arrays: Any) -> Sequence[Any]:
    before_effect()
    note_collective()
    if not effects_are_had():
        return (np.int64(0),)
    kinds = [(shape, str(dtype)) for shape, dtype in map(_kind, arrays)]
    return (met(f"an average of {kinds}", lambda: _kept(_held[int(number)].begin(arrays))),)


def _wait(number: Any, *, kinds: Any) -> Sequence[Any]:
    before_effect()
    note_collective()
    if not effects_are_had():
        made = [xp.zeros(shape, dtype) for shape, dtype, xp in kinds]
        return [lock(array) if array.shape else array[()] for array in made]
    said = [(shape, str(dtype)) for shape, dtype, _ in kinds]
    found: Sequence[Any] = met(f"the wait for {said}", lambda: _taken(number).result())
    return found


def _kind(leaf: Any) -> tuple[tuple[int, ...], Any]:
    """Shape and dtype of an array, or of a number."""
    if hasattr(leaf, "dtype"):
        return tuple(leaf.shape), np.dtype(leaf.dtype)
    return (), np.result_type(leaf)


def _value(do: Callable[..., Sequence[Any]]) -> Callable[..., tuple[Any, ...]]:
    """The value of a step of a program."""

    def value(xp: Any, *args: Any, **params: Any) -> tuple[Any, ...]:
        if running.get():
            raise RecordedError("fdbr.distributed: a step is to be recorded")
        return tuple(do(*map(_own, args), **params))

    return value


def _own(value: Any) -> Any:
    """An operand as it stays: the memory of a program's is used again by its next steps."""
    return copy_of(value) if getattr(value, "shape", ()) else value


_DONE: dict[str, Callable[..., Sequence[Any]]] = {
    "begin_averages": _round,
    "begin_average": _bucket,
    "wait_for_average": _wait,
}
_ROUND, _BUCKET, _WAIT = (
    Primitive(name, "effect", _value(do), None, None, None, Facts(effect=True, collective=True))
    for name, do in _DONE.items()
)
