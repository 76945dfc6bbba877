"""Optimizers out of a rule for one array."""

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from fdbr import ops, tree
from fdbr.core.array_modules import is_array, keep, lock, where_it_lies
from fdbr.core.tracer import Tracer
from fdbr.core.util.pickling import public_factory
from fdbr.errors.public import public
from fdbr.ops.dtypes import is_short
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.short_repr import brief
from fdbr.train.optim.base import EmptyState, Optimizer
from fdbr.train.optim.fitting import Parameters, check_params, check_state
from fdbr.tree import frozen

__all__ = ["LeafwiseState", "across", "filled", "leafwise", "zeros"]


@public("fdbr.train.optim")
@frozen
class LeafwiseState:
    """The state of a rule that names no class of its own.

    Attributes
    ----------
    count
        The number of updates made.
    leaves
        A tree of the parameters' shape, with the tuple that the rule keeps at each leaf; `None`
        for what is not trained.
    """

    count: int
    leaves: Any


def zeros(leaf: Any, dtype: Any = None) -> Any:
    """Zeros like a parameter, in its own dtype or another one."""
    if isinstance(leaf, float):
        return 0.0
    made = ops.zeros_like(leaf, dtype=dtype)
    # What is computed of an array without axes is a scalar, and so is this: one kind, one trace.
    return made[()] if type(made) is np.ndarray and made.shape == () else made


def filled(leaf: Any, value: Any) -> Any:
    """A number everywhere, like a parameter and in its dtype.

    Of 16 bits and a number of Python's, ml_dtypes' arrays make one of 32.
    """
    made = zeros(leaf) + value
    return ops.astype(made, leaf.dtype) if hasattr(leaf, "dtype") else made


@public_factory("fdbr.train.optim")
def leafwise(
    name: str,
    update: Callable[..., tuple[Any, Any]],
    init: Callable[..., Any] | None = None,
    *,
    state: Any = None,
    numbers: Callable[..., Any] | None = None,
    needs_params: bool = False,
    fits: str = "dtype",
) -> Optimizer:
    """An optimizer, or a gradient transformation, from its rule for one array.

    The rest is done here: trees; leaves without a gradient (and `fdbr.buffer` fields), which stay
    as they are; checks that gradients and state fit the parameters; results that are read-only;
    arrays of 16 bits, for which the rule computes in float32; the count of updates, which is a
    number of Python, so that a jitted step is traced once and not once for each count.

    Parameters
    ----------
    name
        The name of the function that makes it, for messages.
    update
        ``update(g, own, p, t) -> (change, own)``: ``g`` is the gradient of one leaf, ``own`` the
        tuple of what the rule keeps for it, ``p`` the parameter (or `None` if ``update`` was not
        given any) and ``t`` the number of updates, this one included, or what ``numbers`` makes
        of it.  It must be pure; under transformations, all of these are traced.
    init
        ``init(p) -> own``, a tuple of arrays (or of trees of arrays); by default nothing is kept.
    state
        The class of the state: a frozen class or `NamedTuple` with the field ``count`` (or
        without), and one field for each item of ``own``, in that order.  By default it is
        `LeafwiseState`, or `EmptyState` if nothing is kept.
    numbers
        ``numbers(t)``: a number, or a tuple of them, that all leaves share (a bias correction, a
        rate), worked out once a step.  Arrays of no axes are taken in the dtype of each leaf.
    needs_params
        Whether the rule cannot do without ``p``.
    fits
        Whether each item of ``own`` has the ``"dtype"`` and shape of its parameter, its
        ``"shape"`` alone, or ``"any"`` shape and dtype; that is checked.

    Raises
    ------
    TypeError
        If an argument is not as above; by ``update``, if ``needs_params`` and there are none.
    ValueError
        By ``update``, if gradients or state do not fit the parameters.

    >>> import numpy as np
    >>> from fdbr.train import optim
    >>> def signed_momentum(decay):
    ...     def init(p):
    ...         return (np.zeros_like(p),)
    ...
    ...     def update(g, own, p, t):
    ...         m = decay * own[0] + (1 - decay) * g
    ...         return np.sign(m), (m,)
    ...
    ...     return optim.leafwise("signed_momentum", update, init)
    >>> optimizer = optim.chain(signed_momentum(0.9), optim.scale_by_learning_rate(0.1))
    >>> params = {"w": np.ones(2), "steps": 3}
    >>> grads = {"w": np.array([2.0, -1.0]), "steps": None}
    >>> updates, state = optimizer.update(grads, optimizer.init(params), params)
    >>> updates
    {'w': array([-0.1,  0.1]), 'steps': None}
    """
    if fits not in ("dtype", "shape", "any"):
        raise ValueError(
            f"fdbr.train.optim.leafwise: fits must be 'dtype', 'shape' or 'any', not {fits!r}"
        )
    nothing = init is None and numbers is None and state is None
    layout = _Layout.of(EmptyState if nothing else state or LeafwiseState)
    make = init or (lambda leaf: ())

    def start(params: Any) -> Any:
        parameters = Parameters(name, params)
        trained = parameters.beside("parameters", tree.trainable(params))
        owns = [
            None if leaf is None else tuple(_handed_out(part) for part in make(leaf))
            for leaf in trained
        ]
        state = layout.pack(0, parameters, owns)
        try:
            layout.unpack(state, parameters, trained, fits)
        except ValueError as error:
            raise ValueError(
                f"fdbr.train.optim.leafwise: fits={fits!r} says that init returns a tuple of such "
                f"arrays; choose another if it does not. {error}"
            ) from error
        return state

    def step(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state(name, state, layout.kind)
        if needs_params:
            check_params(name, params)
        parameters = Parameters(name, params, grads)
        gs = parameters.gradients(grads)
        owns = layout.unpack(state, parameters, gs, fits)
        count = state.count + 1 if layout.counted else None
        t = count if numbers is None else numbers(count)
        changes: list[Any] = []
        for index, g in enumerate(gs):
            change = None
            if g is not None:
                p = None if params is None else parameters.leaves[index]
                change, owns[index] = _stepped(g, owns[index], p, t, update, fits == "shape")
            changes.append(change)
        return parameters.unflatten(changes), layout.pack(count, parameters, owns)

    return Optimizer(start, step)


def across(
    name: str,
    update: Callable[..., tuple[Any, Any]],
    grads: Any,
    params: Any,
    *trees: Any,
    numbers: Any = None,
) -> tuple[Any, ...]:
    """A rule for one leaf, on trees: the changes, and what it makes of each of the other trees.

    ``update(g, own, p, numbers) -> (change, own)`` has the leaves of ``trees`` in ``own``.  Where
    there is no gradient, `None` is all that comes out.
    """
    parameters = Parameters(name, params, grads)
    gs = parameters.gradients(grads)
    beside = [parameters.beside("state", one) for one in trees]
    found: list[Any] = []
    for index, g in enumerate(gs):
        if g is None:
            found.append((None,) * (1 + len(trees)))
            continue
        own = tuple(leaves[index] for leaves in beside)
        p = None if params is None else parameters.leaves[index]
        change, new = _stepped(g, own, p, numbers, update, False)
        found.append((change, *new))
    columns = zip(*found, strict=True) if found else [()] * (1 + len(trees))
    return tuple(parameters.unflatten(list(column)) for column in columns)


@attrs.frozen
class _Layout:
    """The places in a state of the count, and of what a rule keeps for each leaf."""

    kind: Any
    counted: bool
    fields: tuple[str, ...]

    @classmethod
    def of(cls, kind: Any) -> "_Layout":
        """The layout of a class of states."""
        try:
            fields = kind._fields if hasattr(kind, "_fields") else attrs.fields_dict(kind)
        except (TypeError, attrs.exceptions.NotAnAttrsClassError):
            raise TypeError(
                "fdbr.train.optim.leafwise: state must be a frozen class (@fdbr.frozen) or a "
                f"NamedTuple, got {kind!r}"
            ) from None
        return cls(kind, "count" in fields, tuple(f for f in fields if f != "count"))

    def pack(self, count: Any, parameters: Parameters, owns: list[Any]) -> Any:
        """A state; ``owns`` has for each leaf a tuple, or `None`."""
        trees = [owns]
        if self.kind is not LeafwiseState:
            trees = [
                [None if own is None else own[i] for own in owns] for i in range(len(self.fields))
            ]
        values = dict(zip(self.fields, map(parameters.unflatten, trees), strict=True))
        if self.counted:
            values["count"] = count
        return self.kind(**values)

    def unpack(self, state: Any, parameters: Parameters, gs: list[Any], fits: str) -> list[Any]:
        """The tuples that a state has for the leaves, `None` for what is not trained."""
        if not self.fields:
            return [()] * len(gs)
        trees = [parameters.state(f, getattr(state, f), gs, fits) for f in self.fields]
        if self.kind is LeafwiseState:
            return trees[0]
        return [
            None if all(part is None for part in parts) else parts
            for parts in zip(*trees, strict=True)
        ]


@where_it_lies
def _stepped(
    g: Any, own: Any, p: Any, t: Any, update: Callable[..., Any], converted: bool
) -> tuple[Any, Any]:
    """The change of one leaf, and what is kept for it, in their dtypes and read-only.

    If it is ``converted``, what is kept is of another dtype than the gradient.
    """
    wide = is_short(g)
    if wide:
        given = _wide(g), tuple(tree.map(_wide, part) for part in own), _wide(p)
    else:
        given = g, own, p
    if converted:
        given = given[0], tuple(_like(part, given[0]) for part in given[1]), given[2]
    change, new = update(*given, _beside(t, g, wide))
    if type(new) is not tuple or len(new) != len(own):
        raise TypeError(
            "fdbr.train.optim.leafwise: update must return (change, own), and own must be a tuple "
            f"of {len(own)}, as init returns it; got {brief(new)}"
        )
    new = tuple(
        _handed_out(_like(part, old), g, p)
        if is_array(part)
        else tree.map(lambda x, y: _handed_out(_like(x, y), g, p), part, old)
        for part, old in zip(new, own, strict=True)
    )
    change = _like(change, g)
    return change if change is g else _handed_out(change, p), new


def _handed_out(value: Any, *given: Any) -> Any:
    """A value that nobody can write to: a copy of what the caller owns."""
    if type(value) is tuple or type(value) is list:
        return type(value)(_handed_out(part, *given) for part in value)
    base = getattr(value, "base", None)
    if any(value is one or (base is not None and base is one) for one in given):
        return keep(value)
    return lock(value)


def _like(value: Any, old: Any) -> Any:
    """A value in the dtype of another, if both are arrays."""
    dtype = getattr(old, "dtype", None)
    if type(old) is float and type(value) in (np.float64, np.ndarray):
        return float(value)  # a number stays one
    if dtype is None or getattr(value, "dtype", dtype) == dtype:
        return value
    return ops.astype(value, dtype)


def _wide(x: Any) -> Any:
    return ops.astype(x, "float32") if is_short(x) else x


def _beside(number: Any, g: Any, wide: bool) -> Any:
    """A number, or a tuple of them, in the dtype of an array: Python's stay what they are."""
    if type(number) is float or type(number) is int:
        return number
    if type(number) is tuple:
        return tuple(_beside(one, g, wide) for one in number)
    value = number
    while isinstance(value, Tracer):
        value = value.value
    if not is_array(value) or not hasattr(g, "dtype") or dtype_kind(value.dtype) not in "fc":
        return number
    if issubclass(type(number), np.generic | np.ndarray) and dtype_kind(value.dtype) == "f":
        return float(number)
    dtype = np.dtype("float32") if wide else g.dtype
    if dtype_kind(dtype) == "c" and dtype_kind(value.dtype) == "f":
        dtype = np.finfo(dtype).dtype
    return number if value.dtype == dtype else ops.astype(number, dtype)
