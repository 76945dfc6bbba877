"""Forward mode: traced values that carry their tangents."""

from collections.abc import Callable, Sequence
from typing import Any

from fdbr.core.array_modules import on_device, several
from fdbr.core.observation import hook
from fdbr.core.ownership import publish, release
from fdbr.core.primitive import Primitive, dispatch
from fdbr.core.tracer import Trace, Tracer, run
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.declare.unbroadcast import zeros_of
from fdbr.pytrees import structure as tree
from fdbr.pytrees.short_repr import brief
from fdbr.transforms.argnums import pair
from fdbr.transforms.cotangent_avals import CotangentAval, check_cotangent

__all__ = ["ForwardTrace", "ForwardTracer", "check_sequences", "check_tangent", "jvp"]


class ForwardTracer(Tracer):
    """A value and its tangent of the same shape and dtype."""

    __slots__ = ("tangent",)

    tangent: Any

    def __init__(self, trace: "ForwardTrace", value: Any, tangent: Any) -> None:
        self._trace = trace
        self.value = value
        self.tangent = tangent


class ForwardTrace(Trace):
    """One run of a function under `jvp`."""

    __slots__ = ()

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        mine = [type(arg) is ForwardTracer and arg._trace is self for arg in args]
        values = tuple(arg.value if own else arg for arg, own in zip(args, mine, strict=True))
        tangents = tuple(arg.tangent if own else None for arg, own in zip(args, mine, strict=True))
        out = dispatch(primitive, values, params)
        if primitive.forward is None:
            return publish(self, out)
        if (watch := hook.watch) is not None:
            primitive = watch.seen(primitive)
        forward: Any = primitive.forward
        if several:
            with on_device(*out if type(out) is tuple else (out,), mixed=True):
                tangent = forward(values, tangents, out, params)
        else:
            tangent = forward(values, tangents, out, params)
        if type(out) is tuple:
            return tuple(map(self.output, out, tangent or [None] * len(out)))
        return self.output(out, tangent)

    def transform(self, primitive: Any, operands: Sequence[Any], params: dict[str, Any]) -> Any:
        if primitive.forward is None:
            raise primitive.missing(self)
        values, mine = self.unwrap(operands)
        tangents = [leaf.tangent if own else None for leaf, own in zip(operands, mine, strict=True)]
        outs, of_outs = primitive.forward(self, values, tangents, **params)
        return tuple(map(self.output, outs, of_outs))

    def output(self, value: Any, tangent: Any) -> Any:
        """Return a value with its tangent; a value without one needs no tracing."""
        return publish(self, value) if tangent is None else ForwardTracer(self, value, tangent)

    def lower(self, tracer: Tracer) -> Any:
        return publish(self, tracer.value)


@public("fdbr")
def jvp(
    f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: bool = False
) -> Any:
    """Return the value of a function and its derivative along tangents, a Jacobian-vector product.

    Parameters
    ----------
    f
        A pure function of trees, which returns a tree; with ``has_aux`` a pair of that and a
        tree of further results, which are not differentiated.
    primals
        The arguments, a sequence.
    tangents
        A tangent for each argument: a tree of its structure, whose leaves have the shapes and
        dtypes of the argument's.  `None` means zero, and is needed for leaves that are not
        differentiated.

    Returns
    -------
    out
        What ``f`` returned.
    tangent
        A tree of the structure of ``out``; `None` at leaves that are not floating or complex.
    aux
        The further results, with ``has_aux``.

    Raises
    ------
    TypeError, ValueError
        If the tangents do not fit the primals; the message names argument and path.

    >>> import fdbr, numpy as np
    >>> fdbr.jvp(np.sin, (np.array(0.0),), (np.array(2.0),))
    (np.float64(0.0), np.float64(2.0))
    """
    check_sequences("jvp", primals, tangents)
    trace = ForwardTrace("jvp", f)
    args = [
        _dual(trace, primal, tangent, i)
        for i, (primal, tangent) in enumerate(zip(primals, tangents, strict=True))
    ]
    out = run(trace, f, *args)
    aux = None
    if has_aux:
        out, aux = pair(out, trace)
        aux = tree.map(lambda leaf: _parts(trace, leaf)[0], aux)
    leaves, structure = tree.flatten(out)
    parts = [_parts(trace, leaf) for leaf in leaves]
    value = tree.unflatten(structure, [value for value, _ in parts])
    tangent = tree.unflatten(structure, [_or_zero(*part) for part in parts])
    return (value, tangent, aux) if has_aux else (value, tangent)


def check_sequences(name: str, primals: Any, tangents: Any) -> None:
    """Raise an error unless primals and tangents are sequences of one length."""
    if not isinstance(primals, tuple | list) or not isinstance(tangents, tuple | list):
        raise TypeError(
            f"fdbr.{name}: primals and tangents must be tuples or lists, one entry an argument"
        )
    if len(primals) != len(tangents):
        raise ValueError(f"fdbr.{name}: {len(primals)} primals but {len(tangents)} tangents")


def _dual(trace: ForwardTrace, primal: Any, tangent: Any, number: int) -> Any:
    """Return an argument whose leaves carry their tangents."""
    if tangent is None:
        return primal
    leaves, structure = tree.flatten(primal)
    given = check_tangent(
        trace.origin, structure, [CotangentAval(leaf) for leaf in leaves], tangent, number
    )
    traced = []
    for leaf, tangent_leaf in zip(leaves, given, strict=True):
        if tangent_leaf is not None:
            trace.borrow(leaf)
            trace.borrow(tangent_leaf)
            leaf = ForwardTracer(trace, leaf, tangent_leaf)
            leaf._base = trace
        traced.append(leaf)
    return tree.unflatten(structure, traced)


def check_tangent(
    origin: tuple[str, str],
    structure: tree.Structure,
    avals: list[CotangentAval],
    tangent: Any,
    number: int,
) -> list[Any]:
    """Return the leaves of an argument's tangent, or raise an error if it does not fit.

    ``origin`` names the transformation and the function, ``number`` is the argument's position.
    """
    if tangent is None:
        return [None] * len(avals)
    argument = f"argument {number}"
    try:
        found = structure.flatten_up_to(tangent)
    except ValueError as error:
        raise ValueError(
            f"fdbr.{origin[0]}: the tangent of {argument} of {origin[1]} must have the structure "
            f"of the primal, {brief(structure)}, not {brief(tree.structure(tangent))}"
        ) from error
    outside = tree.outside_buffers(structure)
    paths = tree.paths_of(structure)
    checked = []
    for aval, given, differentiable, path in zip(avals, found, outside, paths, strict=True):
        name = f"{argument}{path and ' at ' + path} of {origin[1]}"
        if given is not None and not (differentiable and tree.is_inexact(aval)):
            raise TypeError(
                f"fdbr.{origin[0]}: {name} is {describe(aval)} and not differentiated (it must be "
                "floating or complex and outside buffers); its tangent must be None"
            )
        checked.append(check_cotangent(given, aval, f"fdbr.{origin[0]}: the tangent of {name}"))
    return checked


def _parts(trace: ForwardTrace, leaf: Any) -> tuple[Any, Any]:
    if type(leaf) is ForwardTracer and leaf._trace is trace:
        return release(trace, leaf.value), release(trace, leaf.tangent)
    return trace.admit(leaf), None


def _or_zero(value: Any, tangent: Any) -> Any:
    if tangent is not None or not tree.is_inexact(value):
        return tangent
    return 0.0 if not hasattr(value, "dtype") else zeros_of(value)
