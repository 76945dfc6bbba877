"""Jacobians, Hessians and their products with vectors, out of `vjp`, `jvp` and `vmap`."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, ParamSpec

from fdbr import ops
from fdbr.core.array_modules import array_module
from fdbr.core.util.pickling import made_of
from fdbr.errors.checks import describe, integers, name_of
from fdbr.errors.public import public
from fdbr.ops.dtypes import is_complex
from fdbr.pytrees import structure as tree
from fdbr.transforms.argnums import positions, wants_zeros
from fdbr.transforms.cotangent_avals import CotangentAval
from fdbr.transforms.jvp import check_sequences, check_tangent, jvp
from fdbr.transforms.vjp import grad, vjp
from fdbr.transforms.vmap import vectorised, vmap

__all__ = ["hessian", "hvp", "jacfwd", "jacrev", "linearize"]

P = ParamSpec("P")

Function = Callable[..., Any]


@public("fdbr")
def linearize(f: Function, /, *primals: Any) -> tuple[Any, Function]:
    """Return the value of a function, and its derivative there as a linear function of tangents.

    ``f`` runs once.  The linear function is the transpose of the pullback, so each call costs about
    two backward passes.

    Parameters
    ----------
    f
        A pure function of trees, which returns a tree.
    primals
        The arguments at which to linearise.

    Returns
    -------
    out
        What ``f`` returned.
    linear
        ``linear(*tangents)`` returns the tangent of ``out`` for a tangent of each primal, in the
        form that `jvp` takes.

    Raises
    ------
    TypeError
        If the arguments or the result have no leaf to differentiate.

    >>> import fdbr
    >>> out, linear = fdbr.linearize(lambda x: x**3, 2.0)
    >>> out, linear(1.0), linear(0.5)
    (8.0, np.float64(12.0), np.float64(6.0))
    """
    out, pullback = vjp(f, *primals)
    zeros, structure = tree.flatten(tree.map(_zeros, _inexact(out)))
    if not zeros:
        raise TypeError(
            f"fdbr.linearize: {name_of(f)} returns nothing that is floating or complex, but "
            f"{describe(out)}"
        )
    _, transpose = vjp(lambda cotangents: pullback(tree.unflatten(structure, cotangents)), zeros)
    origin = ("linearize", name_of(f))
    shapes = [
        (tree.structure(p), [CotangentAval(leaf) for leaf in tree.leaves(p)]) for p in primals
    ]

    def linear(*tangents: Any) -> Any:
        if len(tangents) != len(shapes):
            raise TypeError(
                f"fdbr.linearize: {origin[1]} has {len(shapes)} arguments, but there are "
                f"{len(tangents)} tangents"
            )
        given = tuple(
            tree.unflatten(shape, check_tangent(origin, shape, avals, tangent, i))
            for i, ((shape, avals), tangent) in enumerate(zip(shapes, tangents, strict=True))
        )
        return tree.unflatten(structure, transpose(given)[0])

    return out, linear


def _inexact(out: Any) -> Any:
    """Replace every leaf that has no derivative by `None`."""
    return tree.map(lambda leaf: leaf if tree.is_inexact(leaf) else None, out)


def _zeros(leaf: Any) -> Any:
    return ops.zeros_like(leaf) if hasattr(leaf, "dtype") else 0.0


@public("fdbr")
def hvp(f: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """Return the Hessian of a function times a vector, the forward derivative of the gradient.

    It costs as much as a few gradients, and never forms the Hessian.

    Parameters
    ----------
    f
        A pure function whose result is a real floating scalar.
    primals, tangents
        The arguments and a tangent for each, as for `jvp`.

    Returns
    -------
    tree
        A tree of the argument's structure; with several arguments a tuple of such trees, which has
        `None` for an argument that has no leaf to differentiate.

    >>> import fdbr, numpy as np
    >>> fdbr.hvp(lambda x: (x**3).sum(), (np.array([1.0, 2.0]),), (np.array([1.0, 1.0]),))
    array([ 6., 12.])
    """
    check_sequences("hvp", primals, tangents)
    places = [i for i, primal in enumerate(primals) if tree.leaves(tree.trainable(primal))]
    _check(places, f, "hvp", "argument", None)
    product: list[Any] = [None] * len(primals)
    for i, part in zip(places, jvp(grad(f, places), primals, tangents)[1], strict=True):
        product[i] = part
    return tuple(product) if len(primals) > 1 else product[0]


@public("fdbr")
def jacfwd(
    f: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[P, Any]:
    """Return a function that computes the Jacobian of ``f`` by forward mode.

    All columns are computed at once by `vmap`.  The work grows with the number of inputs, so it
    suits functions of few inputs.

    Parameters
    ----------
    f
        A pure function of trees, which returns a tree; with ``has_aux`` a pair of that and a
        tree of further results.
    argnums
        Which positional arguments to differentiate.
    has_aux
        Whether ``f`` returns further results; the function then returns ``(jacobian, aux)``.
    holomorphic
        Whether ``f`` is complex-differentiable; complex arguments need it, and with it all
        arguments (for `jacrev`, the results too) must be complex.

    Returns
    -------
    function
        The Jacobian: a tree of the structure of the result, with a tree of the structure of the
        argument at each leaf.  Its leaves have the shape ``(*result.shape, *argument.shape)``, or
        are `None` where either is not differentiated.  If ``argnums`` is a sequence, each leaf of
        the result has a tuple of such trees.

    Raises
    ------
    TypeError
        If an argument is complex and ``holomorphic`` is false, or if there is no leaf to
        differentiate.

    >>> import fdbr, numpy as np
    >>> fdbr.jacfwd(lambda x: x**2)(np.array([1.0, 2.0]))
    array([[2., 0.],
           [0., 4.]])
    """
    argnums = integers("fdbr.jacfwd", "argnums", argnums)

    @made_of(f, jacfwd, argnums, has_aux, holomorphic)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        chosen, inner = _in_arguments("jacfwd", f, args, kwargs, argnums)
        leaves, structure = tree.flatten(tree.trainable(chosen))
        _check(leaves, f, "jacfwd", "argument", holomorphic)
        basis = tree.unflatten(structure, _basis(leaves))
        seen = {}

        def push(tangent: Any) -> Any:
            out, slope, *aux = jvp(inner, (chosen,), (tangent,), has_aux=has_aux)
            seen["out"], seen["aux"] = out, aux
            return slope

        columns = vectorised(push, 0, -1, None, 1000, marks_axis=None)(basis)
        _check(tree.leaves(columns), f, "jacfwd", "result", None)
        jacobian = tree.map(
            lambda column: tree.unflatten(structure, _split(column, leaves, -1)), columns
        )
        jacobian = _as_arguments(jacobian, columns, argnums)
        return (jacobian, seen["aux"][0]) if has_aux else jacobian

    return jacobian


@public("fdbr")
def jacrev(
    f: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    *,
    unused: Literal["zeros", "none"] = "zeros",
) -> Function:
    """Return a function that computes the Jacobian of ``f`` by reverse mode.

    All rows are computed at once by `vmap`.  The work grows with the number of outputs, so it suits
    functions of few outputs.  Parameters, result and errors are those of `jacfwd`.  With
    ``unused="none"``, the Jacobian by leaves that no result depends on is `None`; see
    `value_and_grad`.

    >>> import fdbr, numpy as np
    >>> fdbr.jacrev(lambda x: x[0] * x)(np.array([1.0, 2.0]))
    array([[2., 0.],
           [2., 1.]])
    """
    argnums = integers("fdbr.jacrev", "argnums", argnums)
    wants_zeros("jacrev", unused)

    @made_of(f, jacrev, argnums, has_aux, holomorphic, unused=unused)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        chosen, inner = _in_arguments("jacrev", f, args, kwargs, argnums)
        _check(tree.leaves(tree.trainable(chosen)), f, "jacrev", "argument", holomorphic)
        out, pullback, *aux = vjp(inner, chosen, has_aux=has_aux, unused=unused)
        leaves, structure = tree.flatten(_inexact(out))
        _check(leaves, f, "jacrev", "result", holomorphic)
        (rows,) = vmap(pullback)(tree.unflatten(structure, _basis(leaves)))
        found, inside = tree.flatten(rows)
        split = [_split(row, leaves, 0) for row in found]
        parts = [[part[i] for part in split] for i in range(len(leaves))]
        jacobian = tree.unflatten(structure, [tree.unflatten(inside, part) for part in parts])
        jacobian = _as_arguments(jacobian, tree.unflatten(structure, leaves), argnums)
        return (jacobian, aux[0]) if has_aux else jacobian

    return jacobian


@public("fdbr")
def hessian(
    f: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[P, Any]:
    """Return a function that computes the Hessian of ``f``, ``jacfwd(jacrev(f))``.

    Parameters and errors are those of `jacfwd`.

    >>> import fdbr, numpy as np
    >>> fdbr.hessian(lambda x: x[0] * x[1] ** 2)(np.array([1.0, 2.0]))
    array([[0., 4.],
           [4., 2.]])
    """
    derivatives = jacrev(f, argnums, has_aux, holomorphic)
    return jacfwd(derivatives, argnums, has_aux, holomorphic)


# --- arguments, bases and blocks ----------------------------------------------------


def _in_arguments(
    name: str, f: Function, args: Any, kwargs: Any, argnums: int | Sequence[int]
) -> tuple[tuple[Any, ...], Function]:
    """Return the chosen arguments, and ``f`` as a function of them alone."""
    places = positions(argnums, len(args), (name, name_of(f)))

    def inner(chosen: tuple[Any, ...]) -> Any:
        full = list(args)
        for place, value in zip(places, chosen, strict=True):
            full[place] = value
        return f(*full, **kwargs)

    inner.__qualname__ = name_of(f)
    return tuple(args[place] for place in places), inner


def _as_arguments(jacobian: Any, outer: Any, argnums: int | Sequence[int]) -> Any:
    """Unpack the tuples of arguments in the blocks if ``argnums`` is a single integer."""
    if not isinstance(argnums, int):
        return jacobian
    shape = tree.structure(outer)
    return tree.unflatten(shape, [block[0] for block in shape.flatten_up_to(jacobian)])


def _check(leaves: list[Any], f: Function, name: str, what: str, holomorphic: bool | None) -> None:
    """Raise an error if there is no leaf to differentiate, or if a leaf must (not) be complex."""
    if not leaves:
        raise TypeError(
            f"fdbr.{name}: the {what} of {name_of(f)} has no leaf to differentiate; leaves must be "
            "floating, and outside buffers"
        )
    for leaf in leaves:
        if holomorphic is None or is_complex(leaf) is holomorphic:
            continue
        if holomorphic:
            raise TypeError(
                f"fdbr.{name}: the {what} of {name_of(f)} has a real leaf, {describe(leaf)}, but "
                "holomorphic=True is for functions from complex to complex arrays"
            )
        raise TypeError(
            f"fdbr.{name}: the {what} of {name_of(f)} has a complex leaf, {describe(leaf)}; "
            "say holomorphic=True if the function is complex-differentiable, or differentiate "
            "it as a function of real and imaginary parts"
        )


def _basis(leaves: list[Any]) -> list[Any]:
    """Return, for each leaf, its parts of all standard basis vectors."""
    total = sum(_size(leaf) for leaf in leaves)
    start = 0
    parts = []
    for leaf in leaves:
        xp, size = array_module(leaf), _size(leaf)
        dtype = getattr(leaf, "dtype", None) or type(leaf)
        rows = xp.eye(total, size, -start, dtype=dtype)
        parts.append(rows.reshape((total, *getattr(leaf, "shape", ()))))
        start += size
    return parts


def _split(block: Any, leaves: list[Any], axis: int) -> list[Any]:
    """Split a block along the axis of basis vectors into one part for each leaf, in its shape."""
    start = 0
    parts = []
    for leaf in leaves:
        stop = start + _size(leaf)
        shape = tuple(getattr(leaf, "shape", ()))
        if axis == 0:
            part = block[start:stop]
            parts.append(ops.reshape(part, (*shape, *block.shape[1:])))
        else:
            part = block[..., start:stop]
            parts.append(ops.reshape(part, (*block.shape[:-1], *shape)))
        start = stop
    return parts


def _size(leaf: Any) -> int:
    return int(getattr(leaf, "size", 1))
