"""One process with several devices: each computes for a part of the batch."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from fdbr import ops
from fdbr.core import devices as libraries
from fdbr.core.array_modules import device_get, device_put, is_array, is_locked, lock, number_of
from fdbr.core.tracer import Tracer
from fdbr.distributed.communicator import Communicator, run_in_threads
from fdbr.distributed.transports.staged import settle
from fdbr.errors.checks import describe, index, name_of
from fdbr.errors.public import public
from fdbr.pytrees import structure as pytrees
from fdbr.pytrees.dtypes import dtype_kind, is_short

__all__ = ["data_parallel"]

_NAME = "fdbr.distributed.data_parallel"
_RULES = ("mean", "sum", "concatenate", "first")


@public("fdbr.distributed")
def data_parallel(
    f: Callable[..., Any],
    devices: Sequence[Any],
    *,
    in_axes: Any = None,
    out: Any = "mean",
) -> Callable[..., Any]:
    """A function that divides a batch among the devices of this process, and gives the same.

    The parts are as equal as can be; where there are fewer examples than devices, some devices have
    nothing to do. The devices work at the same time, each in a thread, and their results are put
    together on the first one, in their order: so a call gives the same bits each time.

    It is for gradients of means over the examples of a batch, and for whatever else is a mean. What
    is not, such as a step with Adam, is divided by way of a parameter ``comm``.

    Parameters
    ----------
    f
        A pure function such as ``fdbr.value_and_grad(loss)``: of parameters and a batch. If it has
        a parameter ``comm``, it gets the communicator of the devices that take part, by that name.
    devices
        At least one; each is what `fdbr.device_put` takes: ``"cpu"``, or the number of a CUDA
        device. The same may stand there several times.
    in_axes
        For each positional argument, along which axis its examples lie, or `None` if all devices
        get the whole of it; if it is not given, `None` for the first argument and 0 for others.
        Keyword arguments go to all devices whole. A key for random numbers is such an argument,
        with which all parts draw the same; for draws of each example by itself divide keys, as of
        ``fdbr.random.split(key, n)``.
    out
        For each result, how the parts of it make the whole: ``"mean"``, weighted by how many
        examples each has; ``"sum"``; ``"concatenate"``, along the first axis; ``"first"``, if they
        are all the same. One of these, or a tree of them that is a prefix of the result.

    Returns
    -------
    function
        Of the same arguments. Its results lie on the first device. It is differentiable; traced
        values go through the devices one after the other.

    Raises
    ------
    TypeError, ValueError
        If there are no such devices; in a call, if arguments have no such axis, or axes of
        different lengths, and for results that cannot be put together so.

    Notes
    -----
    Where a mean is weighted (by a mask, say), weights that differ between parts are not seen: the
    function may give the sum and the weight with ``out="sum"``. Statistics of a batch, as in batch
    normalisation, are those of each part.

    Parameters that nobody can write to (those that optimizers give) are copied to a device once, as
    long as each call has the same ones; others are copied in each call.

    >>> import fdbr
    >>> import numpy as np
    >>> from fdbr import distributed
    >>> def loss(w, x):
    ...     return ((x @ w) ** 2).mean()
    >>> gradient = distributed.data_parallel(fdbr.grad(loss), ["cpu", "cpu"])
    >>> gradient(np.array([1.0, 2.0]), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    array([2.66666667, 3.33333333])
    """
    places = _places(devices)
    _check_rules(out)
    has_comm = _has_comm(f)
    copies = [_Copies(place) for place in places]

    @functools.wraps(f, updated=())
    def divided(*args: Any, **kwargs: Any) -> Any:
        batch = _Batch.of(f, args, in_axes)
        bounds = batch.bounds(len(places))

        def part(i: int, comm: Communicator | None = None) -> Any:
            with places[i].current():
                whole = copies[i].of([batch.shared, kwargs])
                own = places[i].moved(batch.part(*bounds[i]))
                given = [s if s is not None else o for s, o in zip(whole[0], own, strict=True)]
                result = f(*given, **whole[1], **({} if comm is None else {"comm": comm}))
                places[i].settle()
                return result

        if has_comm:
            for place in places:
                place.settle()
            parts = run_in_threads(lambda comm: part(comm.rank, comm), len(bounds))
        elif len(bounds) == 1 or _is_traced((args, kwargs)):
            parts = [part(i) for i in range(len(bounds))]
        else:
            for place in places:
                place.settle()
            parts = run_in_threads(lambda comm: part(comm.rank), len(bounds))
        with places[0].current():
            return _together(parts, [stop - start for start, stop in bounds], out, places[0])

    return divided


# --- devices ----------------------------------------------------------------------------


@attrs.frozen
class _Place:
    """One of the devices: its number, or `None` for host memory."""

    number: int | None
    xp: Any

    def current(self) -> contextlib.AbstractContextManager[Any]:
        if self.number is None:
            return contextlib.nullcontext()
        device: contextlib.AbstractContextManager[Any] = self.xp.cuda.Device(self.number)
        return device

    def has(self, leaf: Any) -> bool:
        return not isinstance(leaf, Tracer) and is_array(leaf) and number_of(leaf) == self.number

    def moved(self, values: Any) -> Any:
        """A tree on this device; what lies there already stays as it is."""
        return pytrees.map(lambda leaf: leaf if self.has(leaf) else self.put(leaf), values)

    def put(self, leaf: Any) -> Any:
        return device_get(leaf) if self.number is None else device_put(leaf, self.number)

    def settle(self) -> None:
        """Wait for what the device has to do: another thread or device continues with it."""
        if self.number is not None:
            with self.current():
                settle(self.xp.empty((0,)))


def _places(devices: Any) -> list[_Place]:
    if isinstance(devices, str) or not isinstance(devices, Sequence):
        raise TypeError(
            f"{_NAME}: devices must be a sequence of 'cpu' and numbers of GPUs, such as [0, 1], "
            f"not {devices if isinstance(devices, str) else describe(devices)!r}"
        )
    if not devices:
        raise ValueError(f"{_NAME}: devices is empty; give at least one, such as ['cpu']")
    named = [libraries.device_named(d, f"{_NAME}: devices[{i}]") for i, d in enumerate(devices)]
    return [_Place(number, xp) for xp, number in named]


class _Copies:
    """Copies on one device of arrays that nobody can write to, as long as they are given."""

    def __init__(self, place: _Place) -> None:
        self._place = place
        self._known: dict[int, tuple[Any, Any]] = {}

    def of(self, values: Any) -> Any:
        known, kept = self._known, {}

        def moved(leaf: Any) -> Any:
            if self._place.has(leaf) or isinstance(leaf, Tracer) or not is_array(leaf):
                return leaf if not isinstance(leaf, Tracer) else self._place.put(leaf)
            source, copy = known.get(id(leaf), (None, None))
            if source is not leaf:
                copy = self._place.put(leaf)
            if is_locked(leaf):
                kept[id(leaf)] = leaf, copy
            return copy

        there = pytrees.map(moved, values)
        self._known = kept
        return there


# --- arguments --------------------------------------------------------------------------


def _has_comm(f: Any) -> bool:
    try:
        parameter = inspect.signature(f).parameters.get("comm")
    except (TypeError, ValueError):  # it does not say
        return False
    return parameter is not None and parameter.default is inspect.Parameter.empty


def _is_traced(values: Any) -> bool:
    return any(isinstance(leaf, Tracer) for leaf in pytrees.leaves(values))


@attrs.frozen
class _Batch:
    """The positional arguments of a call: which of them are divided, and where."""

    args: tuple[Any, ...]
    axes: tuple[int | None, ...]
    length: int

    @classmethod
    def of(cls, f: Any, args: tuple[Any, ...], in_axes: Any) -> "_Batch":
        if in_axes is None:
            axes: tuple[Any, ...] = (None, *(0 for _ in args[1:]))[: len(args)]
        elif isinstance(in_axes, tuple | list) and len(in_axes) == len(args):
            axes = tuple(axis if axis is None else _index(axis) for axis in in_axes)
        else:
            raise ValueError(
                f"{_NAME}: in_axes must have an axis or None for each of {len(args)} positional "
                f"arguments, got {in_axes!r}"
            )
        lengths = {}
        for i, (arg, axis) in enumerate(zip(args, axes, strict=True)):
            if axis is not None:
                for path, leaf in zip(pytrees.paths(arg), pytrees.leaves(arg), strict=True):
                    where = f"argument {i}{f' at {path}' if path else ''}"
                    lengths[where] = _length(leaf, axis, where)
        if not lengths:
            raise ValueError(
                f"{_NAME}: no argument of {name_of(f)} has examples to divide; it was called with "
                f"{len(args)} positional arguments and in_axes={in_axes!r}"
            )
        if len(set(lengths.values())) > 1:
            said = ", ".join(f"{n} in {where}" for where, n in list(lengths.items())[:6])
            raise ValueError(
                f"{_NAME}: arguments have different numbers of examples: {said}; give what is not "
                "divided, such as a key, by keyword, or in_axes"
            )
        return cls(args, axes, next(iter(lengths.values())))

    @property
    def shared(self) -> list[Any]:
        """The arguments that are not divided, and `None` for others."""
        pairs = zip(self.args, self.axes, strict=True)
        return [arg if axis is None else None for arg, axis in pairs]

    def part(self, start: int, stop: int) -> list[Any]:
        """The examples of a part, and `None` for what is not divided."""

        def cut(axis: int, leaf: Any) -> Any:
            return leaf[(slice(None),) * axis + (slice(start, stop),)]

        return [
            None if axis is None else pytrees.map(functools.partial(cut, axis), arg)
            for arg, axis in zip(self.args, self.axes, strict=True)
        ]

    def bounds(self, devices: int) -> list[tuple[int, int]]:
        """First and last example of each part; no part is empty, unless all there is is."""
        count = max(1, min(devices, self.length))
        least, more = divmod(self.length, count)
        stops = [least * (i + 1) + min(i + 1, more) for i in range(count)]
        return list(zip([0, *stops[:-1]], stops, strict=True))


def _index(axis: Any) -> int:
    try:
        number = index(axis)
    except TypeError:
        number = -1
    if number < 0:
        raise ValueError(f"{_NAME}: an axis in in_axes must be None or at least 0, got {axis!r}")
    return number


def _length(leaf: Any, axis: int, where: str) -> int:
    shape = getattr(leaf, "shape", ())
    if len(shape) <= axis:
        raise ValueError(
            f"{_NAME}: {where} is {describe(leaf)}, which has no axis {axis} along which examples "
            "lie; give what is not divided by keyword, or None for it in in_axes"
        )
    return int(shape[axis])


# --- results ----------------------------------------------------------------------------


def _check_rules(out: Any) -> None:
    for rule in pytrees.leaves(out) or [out]:
        if rule not in _RULES:
            raise ValueError(f"{_NAME}: out must consist of {_RULES}, got {rule!r}")


def _together(parts: list[Any], counts: list[int], out: Any, place: _Place) -> Any:
    """The whole result, on a device."""
    structure = pytrees.structure(parts[0])
    for i, other in enumerate(parts[1:], 1):
        if pytrees.structure(other) != structure:
            raise ValueError(
                f"{_NAME}: parts of a batch gave results of different structures: {structure} on "
                f"device 0 of the list, {pytrees.structure(other)} on device {i}"
            )
    try:
        rules = pytrees.broadcast_prefix(out, parts[0])
    except ValueError as error:
        raise ValueError(
            f"{_NAME}: out={out!r} is no prefix of the result, which is {structure}"
        ) from error
    of_parts = [pytrees.leaves(part) for part in parts]
    weights = [count / max(1, sum(counts)) for count in counts]
    leaves = []
    for path, rule, *values in zip(pytrees.paths(parts[0]), rules, *of_parts, strict=True):
        where = f"the result{f' at {path}' if path else ''}"
        _check_result(rule, values[0], where)
        near = [value if rule == "first" else place.moved(value) for value in values]
        leaves.append(_whole(rule, near, weights, place))
    return pytrees.unflatten(structure, leaves)


def _check_result(rule: str, value: Any, where: str) -> None:
    kind = _kind(value)
    if rule == "mean" and kind not in "fc":
        also = "'sum', " if kind in "iu" else ""
        raise TypeError(
            f"{_NAME}: {where} is {describe(value)}, which has no mean; with out= give {also}"
            "'concatenate' or 'first' for it"
        )
    if rule == "sum" and kind not in "fciu":
        raise TypeError(
            f"{_NAME}: {where} is {describe(value)}, which has no sum; with out= give "
            "'concatenate' or 'first' for it, or count them in f"
        )
    if rule == "concatenate" and not getattr(value, "shape", ()):
        raise ValueError(
            f"{_NAME}: {where} is {describe(value)}, which has no axis along which the parts of "
            "it can be put together; with out= give 'mean' or 'sum' for it"
        )


_KINDS = {bool: "b", int: "i", float: "f", complex: "c"}


def _kind(value: Any) -> str:
    """NumPy's letter for the kind of an array, or of a number of Python's."""
    return dtype_kind(value.dtype) if hasattr(value, "dtype") else _KINDS.get(type(value), "O")


def _whole(rule: str, values: list[Any], weights: list[float], place: _Place) -> Any:
    if rule == "first" or len(values) == 1:
        return place.moved(values[0])
    if rule == "concatenate":
        return ops.concat(values, axis=0)
    dtype = getattr(values[0], "dtype", None)
    wide = dtype is not None and is_short(dtype)
    total: Any = None
    for value, weight in zip(values, weights, strict=True):
        term = ops.astype(value, "float32") if wide else value
        term = term * weight if rule == "mean" else term
        total = term if total is None else total + term
    total = ops.astype(total, dtype) if wide else total
    return total if isinstance(total, Tracer) else lock(total)
