"""Batches of examples in the place of one, and control flow on which they disagree."""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

import numpy as np

from fdbr import ops, tree
from fdbr.core.array_modules import is_array, lock, on_device, protect, several, to_numpy
from fdbr.core.effects import refusing_effects
from fdbr.core.ownership import release
from fdbr.core.primitive import Primitive
from fdbr.core.tracer import Trace, Tracer, run, stop_gradient
from fdbr.errors.checks import describe, index, integer, name_of, named_as
from fdbr.pytrees.short_repr import brief
from fdbr.transforms import harvest
from fdbr.transforms.vmap_divergence import Part, joined, spread, take_examples

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

_PATIENCE = 100_000  # questions that an empty batch answers; a loop may never end on its answers


class Disagreement(BaseException):
    """Python control flow asked for one answer where the examples of a batch differ.

    It travels from the question to the `vmap` that runs the batch, which divides it and runs
    the function on each part.  It is no error, hence no `Exception`: code that is transformed
    must not catch it.
    """

    def __init__(self, trace: "BatchTrace") -> None:
        super().__init__("examples of a batch disagree")
        self.trace = trace


Within = tuple["BatchTrace", Part]
"""A run of a batch, and the part of it that another run computes."""

batches: ContextVar[tuple["BatchTrace", ...]] = ContextVar("batches", default=())
"""The batches whose functions run here, the outermost first."""


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
        How many paths the batch may take that these examples are part of.
    part
        What these examples are of the whole batch.
    entire
        Whether they are all of it.
    together
        The name of something that was done together with other processes; empty if nothing was.
    within
        The run whose examples these are, and which of them: values of it that the function
        captured are values of this run.  `None` for a batch of its own.
    """

    __slots__ = ("entire", "max_paths", "part", "patience", "size", "together", "within")

    def __init__(self, transformation: str, function: Any, part: Part, max_paths: int) -> None:
        super().__init__(transformation, function)
        self.part = part
        self.size = len(part.chosen)
        self.max_paths = max_paths
        self.patience = _PATIENCE
        self.entire = True
        self.together = ""
        self.within: Within | None = None

    def outer(self) -> "list[BatchTrace]":
        """All runs whose values are values of this one, which is the first."""
        return [self] if self.within is None else [self, *self.within[0].outer()]

    def own(self, value: Any) -> Any:
        """A value of the run that this one is within as a value of this one."""
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
                if own._trace is inner:  # which divides its examples, and this batch has ended
                    return inner.decide(own, kind)
        if kind is spread:  # a batch within asks it
            return int(ops.astype(ops.any(tracer), int) + ops.astype(ops.all(tracer), int))
        values = stop_gradient(tracer.value)
        if self.part.asks(values):
            answers = self.part.ask(ops.reshape(values, (self.size,)), kind)
            if len(answers) > 1:
                raise Disagreement(self)
            if answers:
                return answers[0]
            if self.part.unfit:
                raise Disagreement(self)
        answers = _answers(values, self.size, kind)
        if self.part.agrees(answers, kind):
            self.part.note(answers[0], kind)
            return answers[0]
        raise Disagreement(self)

    def refuse_effect(self) -> None:
        """Have the batch divided so that no example stands in for another, whose effect it had."""
        self.part.unfit = True
        raise Disagreement(self)

    def meets(self, name: str) -> None:
        """Note that something is done together with other processes, once for all examples."""
        self.together = name
        if not self.entire:
            raise self.dividing()

    def dividing(self) -> RuntimeError:
        """The error for a batch that would be divided around what is done once for all of it."""
        return RuntimeError(
            f"{self.together}: the examples of a batch of fdbr.vmap take different ways through "
            f"the control flow of {self.origin[1]}, so it would be run for parts of the batch one "
            "by one, and this as often; all processes do it once, for the whole batch: write what "
            "differs with ops.where, or do this outside of vmap"
        )

    def default(self, kind: type) -> Any:
        """The answer of an empty batch: false, or zero."""
        self.patience -= 1
        if self.patience < 0:
            raise RuntimeError(
                f"fdbr.vmap: {self.origin[1]} does not come to an end on a batch of size 0, where "
                "every condition counts as false"
            )
        return kind()


def _answers(values: Any, size: int, kind: Any) -> list[Any]:
    """The answers of a batch of single numbers."""
    values = ops.reshape(values, (size,))
    if isinstance(values, Tracer):
        each = values._trace.each(values, kind)
    else:
        each = to_numpy(values)
        if kind is bool:
            return each.astype(bool).tolist()  # at once
    return [kind(value) for value in each]


def vmap(
    f: Callable[P, R],
    in_axes: int | tuple[Any, ...] | list[Any] | dict[Any, Any] | None = 0,
    out_axes: Any = 0,
    *,
    axis_size: int | None = None,
    max_paths: int = 1000,
) -> Callable[P, R]:
    """A function that applies ``f`` to all examples of a batch at once.

    Where Python control flow in ``f`` (``if``, ``while``, ``int(x)``) asks for a decision on
    which the examples disagree, the batch is divided by the answers, ``f`` is run again on each
    part, and the results are put together.  Functions are pure, so this changes nothing but the
    time it takes: a batch takes at most as many paths as it has examples.

    Parameters
    ----------
    f
        A pure function of trees, which returns a tree.
    in_axes
        Along which axis the examples of each argument lie: an integer, `None` for an argument
        that all examples share, or a tuple of these, one entry an argument; each entry may be a
        tree of them that is a prefix of the argument.  Keyword arguments lie along axis 0.
    out_axes
        Where the batch goes in the results: an integer, `None` for results on which the
        examples agree because no example entered them, or a tree that is a prefix of the result.
        Python numbers among the results are weak: they take the dtype of the other examples'.
    axis_size
        The size of the batch, where no argument tells.
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
    if not callable(f):
        raise TypeError(f"fdbr.vmap: f must be a function, not {describe(f)}")
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
    """`vmap`, which has the batch along an axis of what `f` marks, or in none of it.

    ``within`` is the run whose examples the batch consists of, and which of them, if there is one.
    """

    @named_as(f)
    def vectorised(*args: Any, **kwargs: Any) -> Any:
        if not harvest.are_collected():
            return _Batch(f, args, kwargs, in_axes, size).run(out_axes, max_paths, within)

        def batch(f: Any) -> Any:
            whole = _Batch(f, args, kwargs, in_axes, size)
            return whole.run((out_axes, marks_axis), max_paths, within)

        return harvest.through(batch, f, parts="fdbr.vmap")

    return vectorised


class _Batch:
    """The arguments of one call, with their examples along the first axis."""

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
        """The results of all examples."""
        done: list[tuple[Part, Any]] = []
        waiting = [Part(np.arange(self.size))]
        structure = None
        while waiting:
            part = waiting.pop()
            trace = BatchTrace("vmap", self.f, part, max_paths)
            trace.entire = part.mask is None and len(part.chosen) == self.size
            trace.within = within
            try:
                out = self._run_part(trace)
            except Disagreement as question:
                if question.trace is not trace:
                    raise
            except Exception:
                if not part.is_divided:
                    raise
            # Here even if nothing was raised: the function may have caught the question.
            if part.is_divided:
                if trace.together:
                    raise trace.dividing()
                waiting += part.parts or ()
                if not part.pays([*waiting, *(one for one, _ in done)]):
                    waiting = [one for one in waiting if one.root is not part.root]
                    done = [one for one in done if one[0].root is not part.root]
                    waiting += part.root.divided_anew(_answers)
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
        out = joined(whole)
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
    """The results of a function of leaves, and which of them are batches.

    ``own`` tells which leaves are batches, along their first axis.  The function takes no decision
    on which examples could disagree.
    """
    trace = BatchTrace("vmap", f, Part(range(size), fixed=True), 1)
    pairs = zip(leaves, own, strict=True)
    token = batches.set((*batches.get(), trace))
    try:
        outs = run(trace, f, [BatchTracer(trace, leaf) if mine else leaf for leaf, mine in pairs])
    finally:
        batches.reset(token)
    mine = [_mine(trace, out) for out in outs]
    return [out.value if one else out for out, one in zip(outs, mine, strict=True)], mine


def _prefix(axes: Any, values: Any, where: str) -> list[Any]:
    """The axis of each leaf of ``values``, of axes that are a prefix of their tree."""
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
    """An argument's place, from a path in the pair of positional and keyword arguments."""
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
    """Whether two parts of a batch gave the same unbatched result, as far as values tell.

    Of traced values it is a decision, which a capture records.
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
    """Repeat a value for each example; nobody can write to it."""
    value = ops.asarray(value, dtype=dtype)
    if not isinstance(value, Tracer):
        value = protect(value)
    return ops.broadcast_to(value, (count, *value.shape))
