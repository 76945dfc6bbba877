"""`vjp`, `grad`, `value_and_grad` and `stop_gradient`."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, ParamSpec

import numpy as np

from fdbr.core import tracer
from fdbr.core.array_modules import array_module, is_locked, owner
from fdbr.core.devices import is_host
from fdbr.core.tape import Awaited, Node, ReverseTrace, ReverseTracer, backward, ends
from fdbr.core.tracer import Tracer, run
from fdbr.core.util.pickling import made_of
from fdbr.errors.checks import describe, integers
from fdbr.errors.public import public
from fdbr.pytrees import structure as tree
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.short_repr import brief
from fdbr.transforms.argnums import (
    Inputs,
    lower,
    nothing_to_differentiate,
    pair,
    trace_arguments,
    wants_zeros,
)
from fdbr.transforms.cotangent_avals import CotangentAval, check_cotangent

__all__ = ["Pullback", "grad", "stop_gradient", "value_and_grad", "vjp", "with_gradient"]

Function = Callable[..., Any]
P = ParamSpec("P")


@public("fdbr")
def stop_gradient(values: Any) -> Any:
    """Return the same values as constants, through which no derivative flows.

    Parameters
    ----------
    values
        A tree.  Its traced values are freed of every trace that differentiates; without another
        transformation they become plain, read-only arrays.

    >>> import fdbr
    >>> fdbr.grad(lambda x: x * fdbr.stop_gradient(x))(3.0)
    np.float64(3.0)
    """
    if isinstance(values, Tracer):
        return _stopped(values)
    return tree.map(_stopped, values)


def _stopped(value: Any) -> Any:
    found = tracer.stop_gradient(value)
    if isinstance(value, Tracer) and not isinstance(found, Tracer):
        value._base = "shown by what fdbr.stop_gradient gave"  # both have the same memory
    return found


# --- gradients ----------------------------------------------------------------------


@public("fdbr")
def value_and_grad(
    f: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    unused: Literal["zeros", "none"] = "zeros",
) -> Callable[P, tuple[Any, Any]]:
    """Return a function that computes the value of ``f`` and its gradient.

    Parameters
    ----------
    f
        A pure function whose result is a real floating scalar; with ``has_aux`` a pair of it
        and a tree of further results.
    argnums
        Which positional arguments to differentiate.  Each is a tree; leaves that are not
        floating or complex, or lie in a `buffer` field, are constants.
    has_aux
        Whether ``f`` returns further results, which are not differentiated.
    unused
        The gradient of a leaf that the value does not depend on in this run: ``"zeros"``, or
        ``"none"`` for `None`.  Optimizers leave leaves with the gradient `None` unchanged; with
        zeros, Adam's moments would continue to move them.

    Returns
    -------
    function
        It returns ``(value, gradient)``, or ``((value, aux), gradient)``.  The gradient has the
        structure of the argument, and its leaves have the shapes and dtypes of the argument's; it
        is `None` for constant leaves.  It is a tuple of gradients if ``argnums`` is a sequence.

    Raises
    ------
    TypeError
        If the result of ``f`` is not a real floating scalar, or an argument has no leaf to
        differentiate.
    ValueError
        If ``unused`` is neither ``"zeros"`` nor ``"none"``.

    >>> import fdbr
    >>> fdbr.value_and_grad(lambda x: x**3)(2.0)
    (8.0, np.float64(12.0))
    >>> fdbr.value_and_grad(lambda p: p["a"] ** 2, unused="none")({"a": 3.0, "b": 1.0})
    (9.0, {'a': np.float64(6.0), 'b': None})
    """
    return with_gradient(f, argnums, has_aux, unused, "value_and_grad")


@public("fdbr")
def grad(
    f: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    unused: Literal["zeros", "none"] = "zeros",
) -> Callable[P, Any]:
    """Return a function that computes the gradient of ``f``; see `value_and_grad`.

    With ``has_aux`` it returns ``(gradient, aux)``.

    >>> import fdbr, numpy as np
    >>> fdbr.grad(lambda x: np.sum(np.tanh(x)))(np.zeros(2))
    array([1., 1.])
    >>> fdbr.grad(fdbr.grad(lambda x: x**3))(2.0)
    np.float64(12.0)
    """
    return with_gradient(f, argnums, has_aux, unused, "grad")


def with_gradient(
    f: Function,
    argnums: int | Sequence[int],
    has_aux: bool,
    unused: str,
    name: str,
    gradients_of: Callable[[list[tuple[Node, Any]], list[Inputs]], list[Any]] | None = None,
) -> Function:
    """Implement `value_and_grad` and `grad`, as ``name`` says.

    ``gradients_of(roots, inputs)`` replaces the usual backward pass and returns the gradients.
    """
    argnums = integers(f"fdbr.{name}", "argnums", argnums)
    single = isinstance(argnums, int)
    zeros = wants_zeros(name, unused)
    with_value = name == "value_and_grad"

    @made_of(f, with_gradient, argnums, has_aux, unused, name, gradients_of)
    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        trace = ReverseTrace(name, f)
        inputs, traced = trace_arguments(trace, args, argnums)
        out = run(trace, f, *traced, **kwargs)
        del traced  # the backward pass frees what it has visited
        aux = None
        if has_aux:
            out, aux = pair(out, trace)
            aux = tree.map(functools.partial(lower, trace), aux)
        value = lower(trace, out)
        _check_scalar(value, trace)
        roots: list[tuple[Node, Any]] = []
        if value is not out:
            roots.append((out.node, _one(value)))
        if trace.awaited:
            roots += ends(trace.awaited)
            trace.awaited = None
        del out
        if gradients_of is not None:
            found = gradients_of(roots, inputs)
            gradient = found[0] if single else tuple(found)
        else:
            cotangents = backward(roots)
            if single:
                gradient = inputs[0].gradient(cotangents, zeros=zeros)
            else:
                gradient = tuple([one.gradient(cotangents, zeros=zeros) for one in inputs])
        if with_value:
            return ((value, aux), gradient) if has_aux else (value, gradient)
        return (gradient, aux) if has_aux else gradient

    return value_and_gradient


def _check_scalar(value: Any, trace: ReverseTrace) -> None:
    if type(value) is float or (
        getattr(value, "shape", None) == () and dtype_kind(value.dtype) == "f"
    ):
        return
    if isinstance(value, tuple):
        advice = "for a pair (loss, metrics) say has_aux=True"
    elif getattr(value, "shape", ()) != ():
        advice = "reduce it with ops.sum or ops.mean, or use fdbr.vjp"
    else:
        advice = "return a real floating scalar, or use fdbr.vjp"
    raise TypeError(
        f"fdbr.{trace.origin[0]}: {trace.origin[1]} must return a real floating scalar, but it "
        f"returned {describe(value)}; {advice}"
    )


def _one(value: Any) -> Any:
    while isinstance(value, Tracer):
        value = value.value
    xp = array_module(value)
    if is_host(xp):
        return np.float64(1.0) if type(value) is float else value.dtype.type(1)
    return xp.ones((), dtype=value.dtype)


# --- vjp ----------------------------------------------------------------------------


class Pullback:
    """The gradient closure of one run of a function: it maps cotangents of outputs to inputs.

    It keeps the arrays that the rules on the tape need.  It can be called any number of times, from
    any thread, and always returns the same result for the same cotangent.
    """

    __slots__ = ("_awaited", "_ends", "_inputs", "_name", "_structure", "_zeros")

    def __init__(
        self,
        name: str,
        inputs: list[Inputs],
        ends: list[tuple[Node | None, CotangentAval]],
        structure: tree.Structure | None,
        zeros: bool,
        awaited: Sequence[Awaited] | None = None,
    ) -> None:
        self._name = name
        self._inputs = inputs
        self._ends = ends  # for each output leaf its tape entry, if any, and its aval
        self._structure = structure  # None: the output is a leaf
        self._zeros = zeros
        self._awaited = awaited  # entries that every backward pass visits

    def __call__(self, cotangent: Any, /) -> tuple[Any, ...]:
        """Return the cotangents of the primals, one for each.

        Parameters
        ----------
        cotangent
            A tree of the output's structure.  Each leaf has the shape and dtype of the output's
            leaf, or is `None` for zero; for a scalar it may be a Python number.
        """
        seeds = self._leaves(cotangent)
        roots = []
        theirs = set()
        for i, (node, aval) in enumerate(self._ends):
            seed = seeds[i]
            if type(seed) is not np.ndarray or seed.shape != aval.shape or seed.dtype != aval.dtype:
                seed = seeds[i] = check_cotangent(
                    seed, aval, _LeafName(self._name, self._structure, i)
                )
            if node is not None and seed is not None:
                roots.append((node, seed))
                if not is_locked(seed):
                    theirs.add(id(owner(seed)))
        if self._awaited:
            roots += ends(self._awaited)
        cotangents = backward(roots)
        return tuple([one.gradient(cotangents, theirs, self._zeros) for one in self._inputs])

    def _leaves(self, cotangent: Any) -> list[Any]:
        if self._structure is None:
            return [cotangent]
        try:
            return self._structure.flatten_up_to(cotangent)
        except ValueError as error:
            raise ValueError(
                f"fdbr.vjp: the cotangent must have the structure of the output of {self._name}, "
                f"{brief(self._structure)}, not {brief(tree.structure(cotangent))}"
            ) from error

    def __repr__(self) -> str:
        return f"<pullback of {self._name}>"


class _LeafName:
    """The name of an output leaf's cotangent in messages, computed only if a message needs it."""

    __slots__ = ("_name", "_number", "_structure")

    def __init__(self, name: str, structure: tree.Structure | None, number: int) -> None:
        self._name = name
        self._structure = structure
        self._number = number

    def __str__(self) -> str:
        path = "" if self._structure is None else tree.paths_of(self._structure)[self._number]
        return f"fdbr.vjp: the cotangent of {self._name}{path and ' at ' + path}"


@public("fdbr")
def vjp(
    f: Function,
    /,
    *primals: Any,
    has_aux: bool = False,
    unused: Literal["zeros", "none"] = "zeros",
) -> Any:
    """Return the value of a function and its pullback, which multiplies cotangents by its Jacobian.

    Parameters
    ----------
    f
        A pure function of trees, which returns a tree; with ``has_aux`` a pair of that and a
        tree of further results, which are not differentiated.
    primals
        The arguments.  Leaves that are not floating or complex, or lie in a `buffer` field,
        are constants, with `None` for their cotangent.
    unused
        The cotangent of leaves that the output does not depend on: ``"zeros"``, or ``"none"`` for
        `None`.

    Returns
    -------
    out
        What ``f`` returned.
    pullback
        A function from a cotangent of ``out`` to a tuple of cotangents of ``primals``.
    aux
        The further results, with ``has_aux``.

    Raises
    ------
    TypeError
        If no argument has a leaf to differentiate.

    >>> import fdbr, numpy as np
    >>> out, pullback = fdbr.vjp(np.sin, np.array([0.0, np.pi]))
    >>> pullback(np.array([1.0, 2.0]))
    (array([ 1., -2.]),)
    """
    zeros = unused == "zeros" or wants_zeros("vjp", unused)
    trace = ReverseTrace("vjp", f)
    inputs = [Inputs(trace, primal) for primal in primals]
    if primals and not any(one.some for one in inputs):
        raise nothing_to_differentiate(
            trace,
            primals,
            f"no argument of {trace.origin[1]} has a leaf",
            "Convert one with ops.astype(x, float).",
        )
    out = run(trace, f, *[one.argument() for one in inputs])
    aux = None
    if has_aux:
        out, aux = pair(out, trace)
        aux = tree.map(functools.partial(lower, trace), aux)
    if type(out) is ReverseTracer:
        leaves, structure = [out], None
    else:
        leaves, structure = tree.flatten(out)
    outs, nodes = [], []
    for leaf in leaves:
        value = lower(trace, leaf)
        outs.append(value)
        nodes.append((None if value is leaf else leaf.node, CotangentAval(value)))
    pullback = Pullback(trace.origin[1], inputs, nodes, structure, zeros, trace.awaited)
    value = outs[0] if structure is None else tree.unflatten(structure, outs)
    return (value, pullback, aux) if has_aux else (value, pullback)
