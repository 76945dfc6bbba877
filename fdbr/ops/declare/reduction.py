"""Declare reductions by a function of one element and a function that combines two."""

import functools
import inspect
import math
import warnings
from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module, is_array
from fdbr.core.primitive import dispatch, registry
from fdbr.core.tracer import Tracer, plain
from fdbr.errors.checks import describe, name_of, number_types, refuse_other_kinds
from fdbr.ops.axes import normalize_axes
from fdbr.ops.declare.expression_of import apply_reduction, keeps_dtype, recognize_reductions
from fdbr.ops.declare.rules import Function
from fdbr.ops.declare.user_reductions import Combine, States, reduce, spread
from fdbr.pytrees.dtypes import dtype_kind, is_short

__all__ = ["reduction"]

_KEYWORDS = {"axis": None, "keepdims": False, "where": None}
"""The keywords of every reduction, with their defaults."""


def reduction(
    map: Function | None = None,
    *,
    combine: Function,
    identity: Any = None,
    finish: Function | None = None,
) -> Any:
    """Declare a reduction that maps every element, combines them along axes, and finishes.

    It is a decorator of ``map``, or a function of it.  The functions are written with operators
    and the functions of `fdbr.ops` or NumPy, and act elementwise on arrays of any shape.
    Derivatives of any order, batching and compiled code follow from them.

    Parameters
    ----------
    map
        ``map(*operands, **keywords)`` returns the state of each element: an array, or a tuple of
        arrays.  The operands are broadcast against each other; parts of the state may be numbers.
    combine
        ``combine(a, b)`` combines two states, arrays or tuples as ``map`` returns them, into one.
        It must be associative and commutative, and keep shapes and dtypes.
    identity
        The identity of ``combine``, the result for no elements: a number, or a function from the
        dtype to one; a tuple of these if the state is a tuple.  Without it, empty axes and
        ``where=`` are errors.
    finish
        ``finish(*state)`` returns the result from the combined state.  It may have further
        parameters by name: ``count``, the number of elements, and the keywords of ``map``.

    Returns
    -------
    function
        ``reduce(*operands, axis=None, keepdims=False, where=None, **keywords)``, with the name
        and docstring of ``map``.  ``axis`` is an integer, a tuple of them, or `None` for all;
        ``where`` is a boolean array, whose false elements are left out.

    Raises
    ------
    TypeError
        If an argument is not a function, or ``map`` has a parameter ``axis``, ``keepdims`` or
        ``where``.  When called: if a function returns something else than it should.
    ValueError
        When called: if shapes do not fit, or an identity is needed and missing.

    Notes
    -----
    The state has the dtypes that ``map`` returns, and the result those that ``finish`` returns;
    but 16-bit operands are computed in float32, and the result is rounded once.

    Elements are combined in pairs, in about ``log2(count)`` steps.  A ``combine`` that adds,
    multiplies, or takes the larger or smaller element is recognized and computed by `sum`,
    `prod`, `max` or `min`, with their derivatives.  Otherwise the derivative is that of the
    pairwise steps.

    >>> import fdbr, numpy as np
    >>> from fdbr import ops
    >>> from fdbr.ops.declare import reduction
    >>> @reduction(combine=ops.add, identity=0, finish=lambda total, p: total ** (1 / p))
    ... def p_norm(x, *, p):
    ...     return ops.abs(x) ** p
    >>> p_norm(np.array([[3.0, 4.0], [6.0, 8.0]]), p=2, axis=1)
    array([ 5., 10.])
    >>> fdbr.grad(lambda x: p_norm(x, p=2))(np.array([3.0, 4.0]))
    array([0.6, 0.8])

    A state may have two parts: the largest score, and the value beside it.

    >>> def better(a, b):
    ...     return tuple(ops.where(a[0] >= b[0], x, y) for x, y in zip(a, b))
    >>> @reduction(combine=better)
    ... def best(score, value):
    ...     return score, value
    >>> best(np.array([1.0, 3.0, 2.0]), np.array([10, 20, 30]))
    (np.float64(3.0), np.int64(20))
    """
    for name, function in (("combine", combine), ("finish", finish or combine)):
        if not callable(function):
            raise TypeError(
                f"fdbr.ops.declare.reduction: {name} must be a function, not {describe(function)}"
            )
    _check_identity(identity)
    if map is None:
        return functools.partial(reduction, combine=combine, identity=identity, finish=finish)
    if not callable(map):
        raise TypeError(f"fdbr.ops.declare.reduction: map must be a function, not {describe(map)}")
    taken = [p.name for p in _parameters(map) if p.name in _KEYWORDS]
    if taken:
        raise TypeError(
            f"fdbr.ops.declare.reduction: {name_of(map)} has a parameter {taken[0]!r}, which is "
            "one of the reduction itself; call it otherwise"
        )
    declared = _Reduction(map, combine, identity, finish)

    @functools.wraps(map)
    def reduced(
        *operands: Any, axis: Any = None, keepdims: bool = False, where: Any = None, **params: Any
    ) -> Any:
        return declared.of(operands, axis, keepdims, where, params)

    reduced.declared = declared  # type: ignore[attr-defined]
    reduced.__signature__ = _signature(map)  # type: ignore[attr-defined]
    return reduced


def _check_identity(identity: Any) -> None:
    for part in identity if type(identity) is tuple else (identity,):
        number = type(part) in number_types or getattr(part, "shape", None) == ()
        if part is not None and not callable(part) and not number:
            raise TypeError(
                "fdbr.ops.declare.reduction: identity must be a number, or a function from a dtype "
                f"to one, or a tuple of these if map returns a tuple; got {describe(part)}"
            )


def _signature(map: Function) -> inspect.Signature | None:
    """Make the signature of a reduction, whose operands are positional only."""
    kinds = inspect.Parameter
    try:
        given = list(inspect.signature(map).parameters.values())
    except (TypeError, ValueError):  # NumPy's functions have no signature
        given = [kinds("operands", kinds.VAR_POSITIONAL)]
    operands = [p for p in given if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    first = [p.replace(kind=p.POSITIONAL_ONLY) for p in operands]
    first += [p for p in given if p.kind is p.VAR_POSITIONAL]
    own = [kinds(name, kinds.KEYWORD_ONLY, default=value) for name, value in _KEYWORDS.items()]
    rest = [p for p in given if p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD)]
    return inspect.Signature([*first, *own, *rest])


class _Reduction:
    """A declared reduction, with the built-in reductions recognized in its functions."""

    def __init__(
        self, map: Function, combine: Function, identity: Any, finish: Function | None
    ) -> None:
        self.name = getattr(map, "__name__", type(map).__name__)
        self.where = f"fdbr.ops.{self.name}"
        self.map, self.identity, self.finish = map, identity, finish
        self.parameters = _parameters(finish)
        self.combine = combine
        self.known: dict[Any, tuple[str, ...] | None] = {}  # by the dtypes of a state

    def of(
        self, operands: tuple[Any, ...], axis: Any, keepdims: bool, where: Any, params: Any
    ) -> Any:
        """Reduce operands."""
        if not operands:
            raise TypeError(f"{self.where}: there is nothing to reduce; give an array")
        arrays = [_array(operand, self.where) for operand in operands]
        dtypes = [x.dtype for x in arrays if dtype_kind(x.dtype) in "fc"]
        short = bool(dtypes) and all(is_short(dtype) for dtype in dtypes)
        arrays = [x.astype("float32") if is_short(x.dtype) else x for x in arrays]
        shape = self._shape(arrays)
        axes = normalize_axes(axis, len(shape), self.name)
        states, several = self._mapped(arrays, shape, params)
        count: Any = math.prod([shape[i] for i in axes])
        if where is not None:
            mask = dispatch(registry["broadcast_to"], (self._mask(where),), {"to": shape})
            states = self._masked(mask, states)
            if self.finish is not None:
                keywords = {"axes": axes, "keepdims": False}
                count = dispatch(registry["count_nonzero"], (mask,), keywords)
        states = self._joined(states, shape, axes)
        if keepdims:
            kept = tuple([1 if i in axes else n for i, n in enumerate(shape)])
            states, count = _reshaped(states, kept), _reshaped((count,), kept)[0]
        out = self._finished(states, several, count, params)
        if not short:
            return out
        to = functools.reduce(np.promote_types, dtypes)
        return tuple([_rounded(x, to) for x in out]) if type(out) is tuple else _rounded(out, to)

    def states(self, operands: tuple[Any, ...], params: Any) -> States:
        """Map operands to states, with every part broadcast to their common shape."""
        arrays = [_array(operand, self.where) for operand in operands]
        shape = self._shape(arrays)
        return tuple([spread(x, shape) for x in self._mapped(arrays, shape, params)[0]])

    def _shape(self, arrays: list[Any]) -> tuple[int, ...]:
        if len(arrays) == 1:
            shape: tuple[int, ...] = arrays[0].shape
            return shape
        try:
            return np.broadcast_shapes(*(x.shape for x in arrays))
        except ValueError:
            given = ", ".join(map(describe, arrays))
            raise ValueError(f"{self.where}: the operands do not broadcast: {given}") from None

    def _mapped(
        self, arrays: list[Any], shape: tuple[int, ...], params: Any
    ) -> tuple[States, bool]:
        """Return the states of all elements, and whether ``map`` returned a tuple."""
        found = self.map(*arrays, **params)
        several = type(found) is tuple
        states = []
        for i, part in enumerate(found if several else (found,)):
            if type(plain(part)) in number_types:
                like = [x.dtype for x in arrays] + [part]
                part = array_module(*arrays).asarray(part, dtype=np.result_type(*like))
            if not is_array(part) and not isinstance(part, Tracer):
                raise TypeError(
                    f"{self.where}: map must return an array or a tuple of arrays, got "
                    f"{describe(part)}"
                )
            if part.shape not in (shape, ()):
                part = self._broadcast(part, shape, f"part {i} of its result" if several else "it")
            states.append(part)
        if not states:
            raise TypeError(f"{self.where}: map returned an empty tuple")
        if all(part.shape != shape for part in states):
            states[0] = self._broadcast(states[0], shape, "it")
        return tuple(states), several

    def _broadcast(self, part: Any, shape: tuple[int, ...], which: str) -> Any:
        try:
            fits = np.broadcast_shapes(part.shape, shape) == shape
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(
                f"{self.where}: map must act on each element of its operands, whose shape is "
                f"{shape}; {which} is {describe(part)}"
            )
        return dispatch(registry["broadcast_to"], (part,), {"to": shape})

    def _mask(self, where: Any) -> Any:
        mask = _array(where, self.where)
        if mask.dtype != bool:
            raise TypeError(f"{self.where}: where must be truth values, got {describe(mask)}")
        return mask

    def _masked(self, mask: Any, states: States) -> States:
        """Replace the states of elements left out by the identity."""
        identities = self.identities(states, "where= leaves elements out, for which")
        return tuple(
            [
                dispatch(registry["where"], (mask, x, e), {})
                for x, e in zip(states, identities, strict=True)
            ]
        )

    def identities(self, states: States, why: str) -> list[Any]:
        """Convert the identity to the dtypes of the states."""
        given = self.identity if type(self.identity) is tuple else (self.identity,)
        if len(given) != len(states) and self.identity is not None:
            raise TypeError(
                f"{self.where}: identity has {len(given)} parts, and the state that map returns "
                f"{len(states)}"
            )
        if any(part is None for part in given):
            raise ValueError(f"{self.where}: {why} there is no identity; declare identity=")
        return [self._as(part, x) for part, x in zip(given, states, strict=True)]

    def _as(self, identity: Any, state: Any) -> Any:
        value = identity(state.dtype) if callable(identity) else identity
        number, dtype = np.asarray(value), state.dtype
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy warns of complex numbers that become real
            own = number.astype(dtype) if number.shape == () else number
        rounded = dtype_kind(number.dtype) in "buif" and dtype_kind(dtype) in "fc"
        if number.shape != () or not (rounded or own == number):
            raise TypeError(
                f"{self.where}: identity {value!r} is no number of dtype {dtype}, which is that of "
                "the state; it may be a function from the dtype to a number"
            )
        return array_module(state).asarray(own)

    def _joined(self, states: States, shape: tuple[int, ...], axes: tuple[int, ...]) -> States:
        if not axes:
            return tuple([spread(x, shape) for x in states])
        if 0 in [shape[i] for i in axes]:
            rest = tuple([n for i, n in enumerate(shape) if i not in axes])
            of = self.identities(states, f"axes {axes} of shape {shape} have no elements, and")
            return tuple([dispatch(registry["broadcast_to"], (e,), {"to": rest}) for e in of])
        dtypes = tuple([x.dtype for x in states])
        if dtypes not in self.known:
            self.known[dtypes] = recognize_reductions(self.combine, dtypes)
        known = self.known[dtypes]
        if known is not None and all(map(keeps_dtype, known, states)):
            whole = [spread(x, shape) for x in states]
            return tuple(
                [apply_reduction(name, x, axes) for name, x in zip(known, whole, strict=True)]
            )
        out = reduce(*states, axes=axes, combine=Combine(self.combine, self.name))
        return out if len(states) > 1 else (out,)

    def _finished(self, states: States, several: bool, count: Any, params: Any) -> Any:
        if self.finish is None:
            return states if several else states[0]
        shape = states[0].shape
        out = self.finish(*states, **self._named(len(states), count, params))
        for part in out if type(out) is tuple else (out,):
            if getattr(part, "shape", ()) != shape:
                raise ValueError(
                    f"{self.where}: finish must act on each element of the joined state, which "
                    f"are {describe(states[0])}; it returned {describe(part)}"
                )
        return out

    def _named(self, given: int, count: Any, params: Any) -> dict[str, Any]:
        """Return the arguments of ``finish`` after the state, by name."""
        known = {"count": count, **params}
        names = {}
        for p in self.parameters[given:]:
            if p.name in known:
                names[p.name] = known[p.name]
            elif p.default is p.empty:
                raise TypeError(
                    f"{self.where}: finish takes {given} arrays, those of the state, and by name "
                    f"{', '.join(known)}; it has a parameter {p.name!r} more"
                )
        return names


def _parameters(finish: Function | None) -> list[inspect.Parameter]:
    """List the parameters that a function takes by name."""
    try:
        given = inspect.signature(finish).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):  # `None`, or a NumPy function without a signature
        return []
    return [p for p in given if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


def _array(value: Any, where: str) -> Any:
    """Convert an operand to an array; traced values stay traced."""
    if type(value) is np.ndarray:
        return value
    refuse_other_kinds(value, where)
    if isinstance(value, Tracer):
        kind = type(plain(value))
        if kind in number_types:
            return dispatch(registry["astype_inexact"], (value,), {"to": np.dtype(kind)})
        return value
    if is_array(value):
        return value
    out = np.asarray(value)
    if out.dtype.kind in "SUO":
        raise TypeError(f"{where}: operands must be arrays or numbers, got {describe(value)}")
    return out


def _reshaped(values: States, to: tuple[int, ...]) -> States:
    return tuple(
        [
            dispatch(registry["reshape"], (x,), {"to": to}) if hasattr(x, "shape") else x
            for x in values
        ]
    )


def _rounded(x: Any, to: Any) -> Any:
    return x.astype(to) if getattr(x, "dtype", None) == "float32" else x
