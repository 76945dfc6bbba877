"""`vmap`: functions of one example applied to batches, with Python control flow."""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import is_array, lock, on_device, protect, several, to_numpy
from fdbr.core.effects import refusing_effects
from fdbr.core.ownership import publish, release
from fdbr.core.primitive import Primitive
from fdbr.core.tracer import Trace, Tracer, run, stop_gradient
from fdbr.core.util.pickling import made_of
from fdbr.errors.checks import describe, index, integer, name_of, recoverable
from fdbr.errors.public import public
from fdbr.pytrees import structure as tree
from fdbr.pytrees.short_repr import brief
from fdbr.transforms import harvest
from fdbr.transforms.vmap_divergence import SubBatch, join, summarize_truths, take_examples

__all__ = [
    "BatchTrace",
    "BatchTracer",
    "Disagreement",
    "batches",
    "on_batch",
    "take_examples",
    "vectorised",
    "vmap",
]

P = ParamSpec("P")
R = TypeVar("R")

_MOST_GUARDS = 100_000  # of a run on an empty batch, whose guards are all false: it may never end


class Disagreement(BaseException):
    """Raised by a guard whose outcomes differ between the examples of a batch.

    The `vmap` that runs the batch catches it, divides the batch, and runs the function on each
    sub-batch.  It is not an `Exception`, so that transformed code does not catch it.
    """

    def __init__(self, trace: "BatchTrace") -> None:
        super().__init__("examples of a batch disagree")
        self.trace = trace


Within = tuple["BatchTrace", SubBatch]
"""A run of a batch, and the sub-batch of it that another run computes."""

batches: ContextVar[tuple["BatchTrace", ...]] = ContextVar("batches", default=())
"""The batches whose functions run in this context, the outermost first."""


class BatchTracer(Tracer):
    """A batch of values, along the first axis of ``value``; its shape is that of one example."""

    __slots__ = ()

    def __init__(self, trace: "BatchTrace", value: Any) -> None:
        self._trace = trace
        self.value = value

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return tuple(self.value.shape[1:])

    @property
    def ndim(self) -> int:
        """The number of axes of one example."""
        return len(self.value.shape) - 1

    @property
    def size(self) -> int:
        """The number of elements of one example."""
        size = 1
        for n in self.value.shape[1:]:
            size *= n
        return size


class BatchTrace(Trace):
    """One run of a function under `vmap`.

    Attributes
    ----------
    size
        The number of examples.
    max_paths
        How many paths through the function the whole batch may take.
    part
        The sub-batch that this run computes.
    entire
        Whether it is the whole batch.
    together
        The name of a collective that the run has called; empty if there was none.
    within
        The run of which this run computes a sub-batch, and which one: values of that run that the
        function has captured become values of this run.  `None` for an independent batch.
    """

    __slots__ = ("entire", "guards_left", "max_paths", "part", "size", "together", "within")

    def __init__(self, transformation: str, function: Any, part: SubBatch, max_paths: int) -> None:
        super().__init__(transformation, function)
        self.part = part
        self.size = len(part.chosen)
        self.max_paths = max_paths
        self.guards_left = _MOST_GUARDS
        self.entire = True
        self.together = ""
        self.within: Within | None = None

    def outer(self) -> "list[BatchTrace]":
        """Return this run and those that it is within, whose values it accepts."""
        return [self] if self.within is None else [self, *self.within[0].outer()]

    def own(self, value: Any) -> Any:
        """Convert a value of the run that this one is within to a value of this one."""
        if self.within is None or type(value) is not BatchTracer or value._trace is self:
            return value
        outer, part = self.within
        value = outer.own(value)
        if value._trace is not outer:
            return value
        examples, size = part.examples(value.value, outer.size), len(part.chosen)
        return BatchTracer(self, self.part.examples(examples, size))

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if self.within is not None:
            args = tuple(map(self.own, args))
        batched = [type(arg) is BatchTracer and arg._trace is self for arg in args]
        values = [arg.value if own else arg for arg, own in zip(args, batched, strict=True)]
        if primitive.batch is None:
            raise TypeError(f"fdbr.ops.{primitive.name} has no rule for vmap")
        if several:
            with on_device(*values, mixed=True):
                out = primitive.batch(primitive.apply, values, batched, self.size, params)
        else:
            out = primitive.batch(primitive.apply, values, batched, self.size, params)
        if type(out) is tuple:
            return tuple(BatchTracer(self, part) for part in out)
        return BatchTracer(self, out)

    def transform(self, primitive: Any, operands: Sequence[Any], params: dict[str, Any]) -> Any:
        if primitive.batch is None:
            raise primitive.missing(self)
        outs, batched = primitive.batch(self, *self.unwrap(operands), **params)
        return tuple(
            BatchTracer(self, out) if one else publish(self, out)
            for out, one in zip(outs, batched, strict=True)
        )

    def unwrap(self, operands: Sequence[Any]) -> tuple[list[Any], list[bool]]:
        return super().unwrap([self.own(leaf) for leaf in operands])

    def lower(self, tracer: Tracer) -> Any:
        below = stop_gradient(tracer.value)
        return tracer if below is tracer.value else BatchTracer(self, below)

    def whole(self, tracer: Tracer) -> Any:
        return tracer.value

    def decide(self, tracer: Tracer, kind: Any) -> Any:
        if not self.size:
            return self.default(kind)
        for inner in reversed(batches.get()):
            if inner.within is not None and inner is not self:
                own = inner.own(tracer)
                if own._trace is inner:  # it divides its examples; this batch has ended
                    return inner.decide(own, kind)
        if kind is summarize_truths:  # the guard of an inner batch
            return int(ops.astype(ops.any(tracer), int) + ops.astype(ops.all(tracer), int))
        values = stop_gradient(tracer.value)
        if self.part.is_captured(values):
            outcomes = self.part.outcomes(ops.reshape(values, (self.size,)), kind)
            if len(outcomes) > 1:
                raise Disagreement(self)
            if outcomes:
                return outcomes[0]
            if self.part.needs_examples:
                raise Disagreement(self)
        outcomes = _outcomes(values, self.size, kind)
        if self.part.agrees(outcomes, kind):
            self.part.record(outcomes[0], kind)
            return outcomes[0]
        raise Disagreement(self)

    def refuse_effect(self) -> None:
        """Divide the batch by examples: a copy that fills a mask would repeat a side effect."""
        self.part.needs_examples = True
        raise Disagreement(self)

    def meets(self, name: str) -> None:
        """Note that the run calls a collective, once for all examples."""
        self.together = name
        if not self.entire:
            raise self.dividing()

    def dividing(self) -> RuntimeError:
        """Return the error for a batch that would be divided around a collective."""
        return RuntimeError(
            f"{self.together}: the examples of a batch of fdbr.vmap take different ways through "
            f"the control flow of {self.origin[1]}, so it would be run for parts of the batch one "
            "by one, and this as often; all processes do it once, for the whole batch: write what "
            "differs with ops.where, or do this outside of vmap"
        )

    def default(self, kind: type) -> Any:
        """Return the outcome of a guard on an empty batch: false, or zero."""
        self.guards_left -= 1
        if self.guards_left < 0:
            raise RuntimeError(
                f"fdbr.vmap: {self.origin[1]} does not come to an end on a batch of size 0, where "
                "every condition counts as false"
            )
        return kind()


def _outcomes(values: Any, size: int, kind: Any) -> list[Any]:
    """Return the outcome of a guard for each example, which is a single number."""
    values = ops.reshape(values, (size,))
    if isinstance(values, Tracer):
        each = values._trace.each(values, kind)
    else:
        each = to_numpy(values)
        if kind is bool:
            return each.astype(bool).tolist()  # at once
    return [kind(value) for value in each]


@public("fdbr")
def vmap(
    f: Callable[P, R],
    in_axes: int | tuple[Any, ...] | list[Any] | dict[Any, Any] | None = 0,
    out_axes: Any = 0,
    *,
    axis_size: int | None = None,
    max_paths: int = 1000,
) -> Callable[P, R]:
    """Return a function that applies ``f`` to all examples of a batch at once.

    Where the examples disagree about Python control flow in ``f`` (``if``, ``while``, ``int(x)``),
    `vmap` divides the batch, runs ``f`` again on each sub-batch, and joins the results.  Because
    functions are pure, this changes only the time that it takes: a batch takes at most as many
    paths through ``f`` as it has examples.

    Parameters
    ----------
    f
        A pure function of trees, which returns a tree.
    in_axes
        The axis of the examples in each argument: an integer, `None` for an argument that all
        examples share, or a tuple with one entry for each argument.  An entry may be a tree of
        these that is a prefix of the argument.  In keyword arguments the axis is 0.
    out_axes
        The axis of the examples in the results: an integer, `None` for results that depend on no
        example, or a tree of these that is a prefix of the result.  Python numbers among the
        results are weak: they take the dtype of the other examples' results.
    axis_size
        The size of the batch, if no argument has it.
    max_paths
        How many paths through ``f`` a call may take.

    Returns
    -------
    function
        The vectorised function.

    Raises
    ------
    TypeError, ValueError
        If ``in_axes`` or ``out_axes`` do not fit, or batch sizes differ; the message names
        argument and path.
    RuntimeError
        If the examples take more than ``max_paths`` paths.

    >>> import fdbr, numpy as np
    >>> fdbr.vmap(np.dot)(np.ones((2, 3)), np.arange(6.0).reshape(2, 3))
    array([ 3., 12.])
    >>> def collatz(n):
    ...     steps = 0
    ...     while n > 1:
    ...         n = n // 2 if n % 2 == 0 else 3 * n + 1
    ...         steps += 1
    ...     return steps
    >>> fdbr.vmap(collatz)(np.array([1, 2, 3, 4]))
    array([0, 1, 7, 2])
    """
    size = None if axis_size is None else integer("fdbr.vmap", "axis_size", axis_size, least=0)
    bound = integer("fdbr.vmap", "max_paths", max_paths, least=1)

    return vectorised(f, in_axes, out_axes, size, bound)


def vectorised(
    f: Callable[P, R],
    in_axes: Any,
    out_axes: Any,
    size: int | None,
    max_paths: int,
    marks_axis: int | None = 0,
    within: "Within | None" = None,
) -> Callable[P, R]:
    """Apply `vmap`, with the examples of what ``f`` marks along an axis, or along none.

    ``within`` is the run of which the batch is a sub-batch, and which one, if there is such a run.
    """

    @made_of(f, vectorised, in_axes, out_axes, size, max_paths, marks_axis, within)
    def over_batch(*args: Any, **kwargs: Any) -> Any:
        if not harvest.are_collected():
            return _Batch(f, args, kwargs, in_axes, size).run(out_axes, max_paths, within)

        def batch(f: Any) -> Any:
            whole = _Batch(f, args, kwargs, in_axes, size)
            return whole.run((out_axes, marks_axis), max_paths, within)

        return harvest.through(batch, f, parts="fdbr.vmap")

    made: Callable[P, R] = over_batch
    return made


class _Batch:
    """The arguments of one call, with their examples moved to the first axis."""

    def __init__(self, f: Any, args: Any, kwargs: Any, in_axes: Any, size: int | None) -> None:
        self.f = f
        self.name = name_of(f)
        if isinstance(in_axes, list):
            in_axes = tuple(in_axes)
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):
            raise ValueError(
                f"fdbr.vmap: in_axes={in_axes} has {len(in_axes)} entries, but {self.name} was "
                f"called with {len(args)} positional arguments"
            )
        each = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
        self.leaves, self.structure = tree.flatten((args, kwargs))
        axes = [
            _prefix(axis, arg, f"in_axes of argument {i} of {self.name}")
            for i, (axis, arg) in enumerate(zip(each, args, strict=True))
        ]
        flat = [axis for some in axes for axis in some] + [0] * len(tree.leaves(kwargs))
        paths = tree.paths_of(self.structure)
        sizes: dict[int, str] = {} if size is None else {size: "axis_size"}
        self.batched = [axis is not None for axis in flat]
        for i, (leaf, axis, path) in enumerate(zip(self.leaves, flat, paths, strict=True)):
            if axis is not None:
                self.leaves[i] = self._first(leaf, axis, path)
                sizes.setdefault(self.leaves[i].shape[0], path)
        if len(sizes) > 1:
            found = ", ".join(f"{n} of {_argument(path)}" for n, path in sizes.items())
            raise ValueError(f"fdbr.vmap: the batch sizes of {self.name} differ: {found}")
        if not sizes:
            raise ValueError(
                f"fdbr.vmap: no argument of {self.name} has an axis to map over; give in_axes, or "
                "axis_size"
            )
        self.size = next(iter(sizes))

    def _first(self, leaf: Any, axis: int, path: str) -> Any:
        shape = leaf.shape if isinstance(leaf, Tracer) or is_array(leaf) else ()
        if not -len(shape) <= axis < len(shape):
            by_position = path.startswith("[0]")
            advice = "give an axis that it has, or None" if by_position else "pass it by position"
            raise ValueError(
                f"fdbr.vmap: in_axes is {axis} for {_argument(path)} of {self.name}, which is "
                f"{describe(leaf)}; {advice}"
            )
        return ops.moveaxis(leaf, axis, 0) if axis % len(shape) else leaf

    def run(self, out_axes: Any, max_paths: int, within: "Within | None" = None) -> Any:
        """Return the results of all examples."""
        done: list[tuple[SubBatch, Any]] = []
        waiting = [SubBatch(np.arange(self.size))]
        structure = None
        while waiting:
            part = waiting.pop()
            trace = BatchTrace("vmap", self.f, part, max_paths)
            trace.entire = part.mask is None and len(part.chosen) == self.size
            trace.within = within
            try:
                out = self._run_part(trace)
            except Disagreement as disagreement:
                if disagreement.trace is not trace:
                    raise
            except recoverable():
                if not part.is_divided:
                    raise
            # Also if no exception arrives: the function may have caught it.
            if part.is_divided:
                if trace.together:
                    raise trace.dividing()
                waiting += part.children or ()
                if not part.is_worthwhile([*waiting, *(one for one, _ in done)]):
                    waiting = [one for one in waiting if one.root is not part.root]
                    done = [one for one in done if one[0].root is not part.root]
                    waiting += part.root.split_by_examples(_outcomes)
                if len(waiting) + len(done) > max_paths:
                    raise RuntimeError(
                        f"fdbr.vmap: the examples of {self.name} take more than {max_paths} paths "
                        "through its control flow; write it with ops.where, or raise max_paths"
                    ) from None
                continue
            leaves, own = tree.flatten(out)
            leaves = [trace.own(leaf) for leaf in leaves]
            if structure is not None and own != structure:
                raise ValueError(
                    f"fdbr.vmap: {self.name} returns trees of different structure for different "
                    f"examples: {structure} and {own}"
                )
            structure = own
            done.append((part, [(_mine(trace, leaf), _value(trace, leaf)) for leaf in leaves]))
        assert structure is not None
        return self._assemble(done, structure, out_axes)

    def _run_part(self, trace: BatchTrace) -> Any:
        leaves = list(self.leaves)
        for i, own in enumerate(self.batched):
            if own:
                leaves[i] = trace.part.examples(leaves[i], self.size)
                trace.borrow(leaves[i])
                leaves[i] = BatchTracer(trace, leaves[i])
                leaves[i]._base = trace
        args, kwargs = tree.unflatten(self.structure, leaves)
        token = batches.set((*batches.get(), trace))
        try:
            if trace.part.mask is None:
                return run(trace, self.f, *args, **kwargs)
            with refusing_effects(trace.refuse_effect):
                return run(trace, self.f, *args, **kwargs)
        finally:
            batches.reset(token)

    def _assemble(self, parts: Any, structure: Any, out_axes: Any) -> Any:
        axes = _prefix(
            out_axes,
            tree.unflatten(structure, [v for _, v in parts[0][1]]),
            f"out_axes of {self.name}",
        )
        out = []
        for i, (axis, path) in enumerate(zip(axes, tree.paths_of(structure), strict=True)):
            values = [(part, *leaves[i]) for part, leaves in parts]
            out.append(self._joined(values, axis, path))
        return tree.unflatten(structure, out)

    def _joined(self, values: Any, axis: Any, path: str) -> Any:
        if axis is None:
            first = values[0][2]
            if any(own for _, own, _ in values) or not all(_same(first, v) for _, _, v in values):
                raise ValueError(
                    f"fdbr.vmap: out_axes is None for the result{path and ' at ' + path} of "
                    f"{self.name}, which differs between examples"
                )
            return first
        for _, _, value in values:
            if not is_array(value) and not isinstance(value, int | float | complex):
                raise TypeError(
                    f"fdbr.vmap: the result{path and ' at ' + path} of {self.name} is "
                    f"{describe(value)} and no array; say out_axes=None for it, or do not return it"
                )
        dtype = ops.result_type(*(value for _, _, value in values))
        whole = [
            (part, value if own else _repeated(value, len(part.chosen), dtype))
            for part, own, value in values
        ]
        shapes = {value.shape[1:] for _, value in whole}
        if len(shapes) > 1:
            raise ValueError(
                f"fdbr.vmap: {self.name} returns shapes {sorted(shapes)} for different examples"
                f"{path and ' at ' + path}; results must have one shape to be put together"
            )
        out = join(whole)
        if not -out.ndim <= axis < out.ndim:
            raise ValueError(
                f"fdbr.vmap: out_axes is {axis} for the result{path and ' at ' + path} of "
                f"{self.name}, which has {out.ndim} axes with the batch"
            )
        out = ops.moveaxis(out, 0, axis) if axis else out
        return out if isinstance(out, Tracer) else lock(out)


def on_batch(
    f: Callable[[list[Any]], Sequence[Any]], size: int, leaves: Sequence[Any], own: Sequence[bool]
) -> tuple[list[Any], list[bool]]:
    """Return the results of a function of leaves, and which of them are batches.

    ``own`` tells which leaves are batches, along their first axis.  The function has no guard on
    which examples could disagree.
    """
    trace = BatchTrace("vmap", f, SubBatch(range(size), fixed=True), 1)
    pairs = zip(leaves, own, strict=True)
    token = batches.set((*batches.get(), trace))
    try:
        outs = run(trace, f, [BatchTracer(trace, leaf) if mine else leaf for leaf, mine in pairs])
    finally:
        batches.reset(token)
    mine = [_mine(trace, out) for out in outs]
    return [out.value if one else out for out, one in zip(outs, mine, strict=True)], mine


def _prefix(axes: Any, values: Any, where: str) -> list[Any]:
    """Return the axis of each leaf of ``values`` from a prefix tree of axes."""
    if axes is None or type(axes) is int:
        return [axes] * len(tree.leaves(values))
    try:
        spread = tree.broadcast_prefix(axes, values)
    except ValueError as error:
        raise ValueError(
            f"fdbr.vmap: the {where} must be an integer, None, or a tree of these that is a prefix "
            f"of {brief(tree.structure(values))}; it is {brief(axes)}"
        ) from error
    try:
        return [None if axis is None else index(axis) for axis in spread]
    except TypeError:
        raise TypeError(
            f"fdbr.vmap: the {where} must be integers or None, not {brief(axes)}"
        ) from None


def _argument(path: str) -> str:
    """Name an argument by a path in the pair of positional and keyword arguments."""
    if not path.startswith("["):
        return path
    kind, _, rest = path[1:].partition("][")
    name, _, inside = rest.partition("]")
    return f"{'keyword ' * int(kind)}argument {name}{inside and ' at ' + inside}"


def _mine(trace: BatchTrace, leaf: Any) -> bool:
    return type(leaf) is BatchTracer and leaf._trace is trace


def _value(trace: BatchTrace, leaf: Any) -> Any:
    return release(trace, leaf.value) if _mine(trace, leaf) else trace.admit(leaf)


def _same(a: Any, b: Any) -> bool:
    """Whether two sub-batches returned the same unbatched result.

    The comparison of traced values is a guard, which a capture records.
    """
    if a is b:
        return True
    if not hasattr(a, "dtype") or not hasattr(b, "dtype"):
        return type(a) is type(b) and bool(a == b or (a != a and b != b))
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    a, b = stop_gradient(a), stop_gradient(b)
    both_nan = ops.logical_and(ops.not_equal(a, a), ops.not_equal(b, b))
    return bool(ops.all(ops.logical_or(ops.equal(a, b), both_nan)))


def _repeated(value: Any, count: int, dtype: Any) -> Any:
    """Broadcast a value to each example, read-only."""
    value = ops.asarray(value, dtype=dtype)
    if not isinstance(value, Tracer):
        value = protect(value)
    return ops.broadcast_to(value, (count, *value.shape))
