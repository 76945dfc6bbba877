"""Transformations of functions: short compositions of the engine's parts."""

import functools
from collections.abc import Callable, Sequence, Set
from typing import Any, Literal, ParamSpec

import numpy as np

from fdbr import core, tree
from fdbr.backend import (
    array_module,
    copy_of,
    is_locked,
    lock,
    module_of,
    number_of,
    owner,
    several,
)
from fdbr.core import Trace, Tracer, dispatch, ended, escaped, registry, run
from fdbr.floats import dtype_kind, is_added
from fdbr.libraries import there
from fdbr.messages import describe, integers
from fdbr.ownership import release
from fdbr.reverse import Node, ReverseTrace, ReverseTracer, backward

__all__ = ["Pullback", "grad", "stop_gradient", "value_and_grad", "vjp"]

Function = Callable[..., Any]
P = ParamSpec("P")

_YES: tuple[bool, ...] = (True,)


def stop_gradient(values: Any) -> Any:
    """The same values, as constants: derivatives do not pass.

    Parameters
    ----------
    values
        A tree; traced values in it lose every trace that differentiates, and become plain
        (read-only) arrays where no other transformation is at work.

    >>> import fdbr
    >>> fdbr.grad(lambda x: x * fdbr.stop_gradient(x))(3.0)
    np.float64(3.0)
    """
    if isinstance(values, Tracer):
        return core.stop_gradient(values)
    return tree.map(core.stop_gradient, values)


# --- the inputs of a transformation -------------------------------------------------


class Kind:
    """What a leaf's gradient must be like: an array, a scalar or a number, and of which dtype."""

    __slots__ = ("_number", "dtype", "shape", "type", "xp")

    type: Any
    xp: Any

    def __init__(self, leaf: Any) -> None:
        if type(leaf) is np.ndarray:  # the usual case
            self.shape, self.type, self.dtype = leaf.shape, np.ndarray, leaf.dtype
            self.xp, self._number = np, None
            return
        self.shape = getattr(leaf, "shape", ())
        while isinstance(leaf, Tracer):
            leaf = leaf.value
        self.type = type(leaf)
        self.dtype = getattr(leaf, "dtype", None) or np.dtype(self.type)
        self.xp = module_of(type(leaf), leaf) or np
        self._number = number_of(leaf) if several else None

    def maker(self) -> Any:
        """The array module on the leaf's device; where a pullback runs, another may be current."""
        return self.xp if self._number is None else there(self.xp, self._number)

    def _like(self, cotangent: Any) -> Any:
        """A traced cotangent without dimensions, with a scalar or an array of the leaf's type."""
        value = cotangent
        while isinstance(value, Tracer):
            value = value.value
        if isinstance(value, np.ndarray | np.generic) and value.ndim == 0:  # else it is a batch
            if self.type is np.ndarray and isinstance(value, np.generic):
                return dispatch(registry["astype_inexact"], (cotangent,), {"to": self.dtype})
            if self.type is not np.ndarray and type(value) is np.ndarray:
                return cotangent[()]
        return cotangent

    def _rounded(self, cotangent: Any) -> Any:
        """A cotangent in the leaf's dtype.

        Beside dtypes that are none of NumPy's own Python's floats are not weak, and rules made
        float32 of it.
        """
        if not is_added(self.dtype) or cotangent.dtype == self.dtype:
            return cotangent
        return dispatch(registry["astype_inexact"], (cotangent,), {"to": self.dtype})

    def finish(self, cotangent: Any, seeds: Set[int]) -> Any:
        """An input's cotangent as it is handed out: read-only, and nobody else's memory.

        ``seeds`` are the identities of what owns the cotangents that somebody else gave.
        """
        if cotangent is None:
            cotangent = self.maker().zeros(self.shape, dtype=self.dtype)
        elif isinstance(cotangent, Tracer):
            return self._rounded(cotangent if self.shape else self._like(cotangent))
        if self.type is not np.ndarray and self.xp is np:
            return self.dtype.type(cotangent)  # of a number, and of an array's scalar
        if type(cotangent) is not self.type:
            cotangent = self.maker().asarray(cotangent)
        cotangent = self._rounded(cotangent)
        if not _is_ours(cotangent, seeds):
            cotangent = copy_of(cotangent)
        return lock(cotangent)


_SPACIOUS = 4  # how many times its own memory an array that is handed out may keep


def _is_ours(cotangent: Any, seeds: Set[int]) -> bool:
    """Whether a cotangent can be handed out: nobody else writes to it, and it keeps little more.

    So it may be a view, as the gradient of a transposed or repeated array is.
    """
    whole = owner(cotangent)
    if whole is cotangent:
        return not seeds or id(whole) not in seeds
    if type(whole) is not np.ndarray or id(whole) in seeds:
        return False
    return bool(whole.nbytes <= _SPACIOUS * cotangent.nbytes)


class _Inputs:
    """One differentiated argument: its leaves, some of them traced, and its structure."""

    __slots__ = ("inputs", "structure", "traced")

    inputs: list[tuple[int, Kind] | None]  # nodes' numbers, and what gradients must be like
    traced: list[Any]

    def __init__(self, trace: ReverseTrace, argument: Any, position: int) -> None:
        self.structure: Any = None
        if type(argument) is np.ndarray and argument.dtype.kind in "fc":  # the usual case
            tracer = trace.input(argument)
            self.inputs = [(tracer.node[0], Kind(argument))]
            self.traced = [tracer]
            return
        if type(argument) is float or type(argument) is np.ndarray:
            leaves, outside = [argument], _YES
        else:
            leaves, self.structure = tree.flatten(argument)
            outside = tree.outside_buffers(self.structure)
        inputs: list[Any] = []
        traced: list[Any] = []
        some = False
        for leaf, choose in zip(leaves, outside):  # noqa: B905 (one of each for every leaf)
            if choose and tree.is_inexact(leaf):
                some = True
                tracer = trace.input(leaf)
                inputs.append((tracer.node[0], Kind(leaf)))
                traced.append(tracer)
            else:
                inputs.append(None)
                traced.append(leaf)
        if not some:
            raise TypeError(_nothing_to_differentiate(trace, argument, position))
        self.inputs, self.traced = inputs, traced

    def argument(self) -> Any:
        """The argument to call the function with; it is given away."""
        traced, self.traced = self.traced, []
        return traced[0] if self.structure is None else tree.unflatten(self.structure, traced)

    def gradient(
        self, cotangents: dict[int, Any], seeds: Set[int] = frozenset(), zeros: bool = True
    ) -> Any:
        """The argument's gradient out of the cotangents of inputs, by node number.

        ``seeds`` are the identities of what owns the cotangents that somebody else gave.  Leaves
        without a cotangent have zeros, or else `None`.
        """
        found: list[Any] = []
        for one in self.inputs:
            if one is None:
                found.append(None)
                continue
            number, kind = one
            slope = cotangents.get(number)
            if (
                type(slope) is np.ndarray
                and slope.base is None
                and slope.dtype is kind.dtype
                and kind.type is np.ndarray
                and not (seeds and id(slope) in seeds)
            ):
                slope.setflags(write=False)  # the usual case: an array of its own
            elif slope is not None or zeros:
                slope = kind.finish(slope, seeds)
            found.append(slope)
        return found[0] if self.structure is None else tree.unflatten(self.structure, found)


def _nothing_to_differentiate(trace: ReverseTrace, argument: Any, position: int) -> str:
    found = ", ".join(
        f"{name or 'the argument itself'}: {describe(leaf)}"
        for name, leaf in zip(tree.paths(argument), tree.leaves(argument), strict=True)
    )
    return (
        f"fdbr.{trace.origin[0]}: argument {position} of {trace.origin[1]} has no leaf to "
        "differentiate: leaves must be floating or complex and outside buffers, and there is "
        f"{found or 'no leaf at all'}. "
        "Convert it with ops.astype(x, float), or differentiate another argument with argnums."
    )


def _lower(trace: ReverseTrace, leaf: Any) -> Any:
    """What a leaf of the output is outside the transformation."""
    if type(leaf) is ReverseTracer and leaf._trace is trace:
        return release(trace, leaf.value)
    return trace.admit(leaf)


def positions(argnums: int | Sequence[int], count: int, origin: tuple[str, str]) -> tuple[int, ...]:
    """The arguments that ``argnums`` chooses among ``count``, each once."""
    if type(argnums) is int and 0 <= argnums < count:
        return (argnums,)
    given = (argnums,) if isinstance(argnums, int) else argnums
    if not all(-count <= n < count for n in given):
        raise TypeError(
            f"fdbr.{origin[0]}: argnums={argnums} but {origin[1]} was called with "
            f"{count} positional argument{'s' * (count != 1)}, and arguments given by keyword are "
            "not differentiated"
        )
    chosen = tuple(n % count for n in given)
    if len(set(chosen)) < len(chosen):
        raise TypeError(f"fdbr.{origin[0]}: argnums={argnums} names an argument twice")
    return chosen


def _trace_arguments(
    trace: ReverseTrace, args: Sequence[Any], argnums: int | Sequence[int]
) -> tuple[list[_Inputs], list[Any]]:
    """The differentiated arguments, and all arguments to call the function with."""
    traced = list(args)
    inputs = []
    for position in positions(argnums, len(args), trace.origin):
        one = _Inputs(trace, args[position], position)
        traced[position] = one.argument()
        inputs.append(one)
    return inputs, traced


# --- gradients ----------------------------------------------------------------------


def value_and_grad(
    f: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    unused: Literal["zeros", "none"] = "zeros",
) -> Callable[P, tuple[Any, Any]]:
    """A function that gives the value of ``f`` and its gradient.

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
        What is the gradient of a leaf on which the value of this run does not depend:
        ``"zeros"``, or ``"none"`` for `None`, by which optimizers pass: with zeros, the moments
        of Adam go on moving it.

    Returns
    -------
    function
        ``(value, gradient)``, or ``((value, aux), gradient)``.  The gradient has the
        structure of the argument, and each leaf its shape and dtype; it is `None` for leaves
        that are constants.  It is a tuple of gradients if ``argnums`` is a sequence.

    Raises
    ------
    TypeError
        When the result of ``f`` is no real floating scalar, or an argument has no leaf to
        differentiate.
    ValueError
        If ``unused`` is neither of the two.

    >>> import fdbr
    >>> fdbr.value_and_grad(lambda x: x**3)(2.0)
    (8.0, np.float64(12.0))
    >>> fdbr.value_and_grad(lambda p: p["a"] ** 2, unused="none")({"a": 3.0, "b": 1.0})
    (9.0, {'a': np.float64(6.0), 'b': None})
    """
    return _with_gradient(f, argnums, has_aux, unused, "value_and_grad")


def grad(
    f: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    unused: Literal["zeros", "none"] = "zeros",
) -> Callable[P, Any]:
    """A function that gives the gradient of ``f``; see `value_and_grad`.

    With ``has_aux`` it gives ``(gradient, aux)``.

    >>> import fdbr, numpy as np
    >>> fdbr.grad(lambda x: np.sum(np.tanh(x)))(np.zeros(2))
    array([1., 1.])
    >>> fdbr.grad(fdbr.grad(lambda x: x**3))(2.0)
    np.float64(12.0)
    """
    return _with_gradient(f, argnums, has_aux, unused, "grad")


def wants_zeros(name: str, unused: str) -> bool:
    """Whether leaves that are not used have a gradient of zeros."""
    if unused not in ("zeros", "none"):
        raise ValueError(f"fdbr.{name}: unused must be 'zeros' or 'none', not {unused!r}")
    return unused == "zeros"


def _with_gradient(
    f: Function, argnums: int | Sequence[int], has_aux: bool, unused: str, name: str
) -> Function:
    if not callable(f):
        raise TypeError(f"fdbr.{name}: f must be a function, not {describe(f)}")

    argnums = integers(f"fdbr.{name}", "argnums", argnums)
    single = isinstance(argnums, int)
    zeros = wants_zeros(name, unused)
    with_value = name == "value_and_grad"

    @functools.wraps(f, updated=())
    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        trace = ReverseTrace(name, f)
        inputs, traced = _trace_arguments(trace, args, argnums)
        out = run(trace, f, *traced, **kwargs)
        del traced  # what backward has visited is to be freed
        aux = None
        if has_aux:
            out, aux = pair(out, trace)
            aux = tree.map(functools.partial(_lower, trace), aux)
        value = _lower(trace, out)
        _check_scalar(value, trace)
        roots: list[tuple[Node, Any]] = []
        if value is not out:
            roots.append((out.node, _one(value)))
        del out
        cotangents = backward(roots)
        if single:
            slope = inputs[0].gradient(cotangents, zeros=zeros)
        else:
            slope = tuple([one.gradient(cotangents, zeros=zeros) for one in inputs])
        if with_value:
            return ((value, aux), slope) if has_aux else (value, slope)
        return (slope, aux) if has_aux else slope

    return value_and_gradient


def pair(out: Any, trace: Trace) -> tuple[Any, Any]:
    if not isinstance(out, tuple) or len(out) != 2:
        raise TypeError(
            f"fdbr.{trace.origin[0]}: with has_aux=True {trace.origin[1]} must return a pair "
            f"(value, aux), not {describe(out)}"
        )
    return out


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
    if xp is np:
        return np.float64(1.0) if type(value) is float else value.dtype.type(1)
    return xp.ones((), dtype=value.dtype)


# --- vjp ----------------------------------------------------------------------------


class Pullback:
    """The gradient closure of one run of a function: cotangents of outputs to inputs.

    It holds what the rules on the tape need and can be called any number of times, from any
    thread, with the same answer.
    """

    __slots__ = ("_ends", "_inputs", "_name", "_structure", "_zeros")

    def __init__(
        self,
        name: str,
        inputs: list[_Inputs],
        ends: list[tuple[Node | None, Kind]],
        structure: tree.Structure | None,
        zeros: bool,
    ) -> None:
        self._name = name
        self._inputs = inputs
        self._ends = ends  # of each leaf of the output its node, if it has one, and its kind
        self._structure = structure  # None: the output is a leaf
        self._zeros = zeros

    def __call__(self, cotangent: Any, /) -> tuple[Any, ...]:
        """The cotangents of the primals, one a primal.

        Parameters
        ----------
        cotangent
            A tree of the output's structure: each leaf of the shape and dtype of the output's
            (a Python number will do for a scalar), or `None`, which counts as zero.
        """
        seeds = self._leaves(cotangent)
        roots = []
        theirs = set()
        for i, (node, kind) in enumerate(self._ends):
            seed = seeds[i]
            if type(seed) is not np.ndarray or seed.shape != kind.shape or seed.dtype != kind.dtype:
                seed = seeds[i] = fitted(seed, kind, _Place(self._name, self._structure, i))
            if node is not None and seed is not None:
                roots.append((node, seed))
                if not is_locked(seed):
                    theirs.add(id(owner(seed)))
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
                f"{self._structure}, not {tree.structure(cotangent)}"
            ) from error

    def __repr__(self) -> str:
        return f"<pullback of {self._name}>"


class _Place:
    """What messages call the cotangent of a leaf of the output, found out if there is one."""

    __slots__ = ("_name", "_number", "_structure")

    def __init__(self, name: str, structure: tree.Structure | None, number: int) -> None:
        self._name = name
        self._structure = structure
        self._number = number

    def __str__(self) -> str:
        path = "" if self._structure is None else tree.paths_of(self._structure)[self._number]
        return f"fdbr.vjp: the cotangent of {self._name}{path and ' at ' + path}"


def fitted(ct: Any, kind: Kind, where: object) -> Any:
    """A cotangent as backward takes it, or an error, which says ``where``, if it does not fit."""
    if ct is None:
        return None
    if isinstance(ct, Tracer) and ended(ct._trace):
        raise escaped(ct._trace, str(where))
    shape, dtype = kind.shape, kind.dtype
    if type(ct) in (int, float, complex) and shape == () and dtype_kind(dtype) in "fc":
        if type(ct) is complex and dtype_kind(dtype) == "f":
            raise TypeError(f"{where} must have dtype {dtype}, not {describe(ct)}")
        return kind.maker().asarray(ct, dtype=dtype)[()]
    if not hasattr(ct, "dtype") or ct.dtype != dtype:
        raise TypeError(f"{where} must have dtype {dtype}, not {describe(ct)}")
    if ct.shape != shape:
        raise ValueError(f"{where} must have shape {shape}, not {describe(ct)}")
    return ct


def vjp(
    f: Function,
    /,
    *primals: Any,
    has_aux: bool = False,
    unused: Literal["zeros", "none"] = "zeros",
) -> Any:
    """The value of a function and its pullback: the product of cotangents with its Jacobian.

    Parameters
    ----------
    f
        A pure function of trees, which returns a tree; with ``has_aux`` a pair of that and a
        tree of further results, which are not differentiated.
    primals
        The arguments.  Leaves that are not floating or complex, or lie in a `buffer` field,
        are constants, with `None` for their cotangent.
    unused
        What the pullback gives for leaves that did not enter what it has cotangents of:
        ``"zeros"``, or ``"none"`` for `None`.

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
        If an argument has no leaf to differentiate.

    >>> import fdbr, numpy as np
    >>> out, pullback = fdbr.vjp(np.sin, np.array([0.0, np.pi]))
    >>> pullback(np.array([1.0, 2.0]))
    (array([ 1., -2.]),)
    """
    if not callable(f):
        raise TypeError(f"fdbr.vjp: f must be a function, not {describe(f)}")
    zeros = unused == "zeros" or wants_zeros("vjp", unused)
    trace = ReverseTrace("vjp", f)
    inputs = [_Inputs(trace, primal, i) for i, primal in enumerate(primals)]
    out = run(trace, f, *[one.argument() for one in inputs])
    aux = None
    if has_aux:
        out, aux = pair(out, trace)
        aux = tree.map(functools.partial(_lower, trace), aux)
    if type(out) is ReverseTracer:
        leaves, structure = [out], None
    else:
        leaves, structure = tree.flatten(out)
    outs, ends = [], []
    for leaf in leaves:
        value = _lower(trace, leaf)
        outs.append(value)
        ends.append((None if value is leaf else leaf.node, Kind(value)))
    pullback = Pullback(trace.origin[1], inputs, ends, structure, zeros)
    value = outs[0] if structure is None else tree.unflatten(structure, outs)
    return (value, pullback, aux) if has_aux else (value, pullback)
