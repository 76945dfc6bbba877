"""Functions whose derivative the user states."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, cast

from fdbr.core.observation import hook
from fdbr.core.tracer import innermost
from fdbr.errors.checks import describe, integers, named_as
from fdbr.errors.public import public
from fdbr.pytrees import structure as tree
from fdbr.pytrees.dtypes import dtype_kind, is_added
from fdbr.pytrees.short_repr import brief
from fdbr.transforms.cotangent_avals import CotangentAval, check_cotangent
from fdbr.transforms.custom_call import Call, apply, zero_like

__all__ = ["custom_jvp", "custom_vjp"]

Function = Callable[..., Any]
Leaves = tuple[Any, ...]


@public("fdbr")
class _Custom:
    """The common base of both kinds: a function of trees, with static arguments."""

    def __init__(self, f: Function, nondiff_argnums: int | Sequence[int] = ()) -> None:
        name = f"fdbr.{type(self).__name__}"
        self.f = f
        numbers = integers(name, "nondiff_argnums", nondiff_argnums)
        self.nondiff_argnums = (numbers,) if isinstance(numbers, int) else numbers
        self.__name__ = getattr(f, "__name__", type(f).__name__)
        named_as(f)(self)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(cast(Any, self), instance)

    def _prepared(self, args: Leaves, kwargs: dict[str, Any]) -> "_Run":
        if kwargs or any(n >= len(args) for n in self.nondiff_argnums):
            bound = inspect.signature(self.f).bind(*args, **kwargs)
            bound.apply_defaults()
            if bound.kwargs:
                raise TypeError(
                    f"fdbr.{type(self).__name__}: {self.__name__} has keyword-only arguments "
                    f"{sorted(bound.kwargs)}; its rules take arguments by position"
                )
            args = bound.args
        return _Run(self, args)

    def _without_rule(self, advice: str) -> TypeError:
        return TypeError(
            f"fdbr.{type(self).__name__}: {self.__name__} has no rule; give one with "
            f"{self.__name__}.{advice}"
        )


@public("fdbr")
class custom_vjp(_Custom):
    """A function with a reverse rule of its own.

    Use it as a decorator, and give the rule with `defvjp`; or all at once,
    ``custom_vjp(f, fwd=fwd, bwd=bwd)``.

    Parameters
    ----------
    f
        A function of trees, which returns a tree.
    nondiff_argnums
        Positions of static arguments, which may be anything and are not differentiated.
    fwd
        ``fwd(*args) -> (f(*args), residuals)``: the value, and a tree that ``bwd`` needs.
    bwd
        ``bwd(*static, residuals, cotangent) -> cotangents``: a tuple with a tree for each
        argument that is not static, of its structure, shapes and dtypes; `None` is zero.  The
        cotangent is a tree like the value, with `None` for leaves that are not floating.

    A rule that has a keyword-only parameter ``wanted`` is told which cotangents somebody asks
    for: a tuple with a tree for each argument that is not static, of truth values.  For the others
    it may return `None`, and save its work; ``fwd`` may leave out residuals for them.

    Raises
    ------
    TypeError, ValueError
        If a rule is missing when it is needed, or returns what does not fit; or if one of the
        functions uses a value that is being differentiated and is no argument.

    Notes
    -----
    All transformations compose over it: under `vmap` all three functions are vectorised, and
    forward mode uses the transpose of ``bwd``, which must be linear in the cotangent.

    >>> import fdbr, numpy as np
    >>> @fdbr.custom_vjp
    ... def clip_gradient(x):
    ...     return x
    >>> _ = clip_gradient.defvjp(
    ...     lambda x: (x, None), lambda _, ct: (np.clip(ct, -1.0, 1.0),)
    ... )
    >>> fdbr.grad(lambda x: 10.0 * clip_gradient(x))(2.0)
    np.float64(1.0)

    A rule that computes what is asked for and nothing else:

    >>> @fdbr.custom_vjp
    ... def product(a, b):
    ...     return a @ b
    >>> def backward(kept, ct, *, wanted):
    ...     a, b = kept
    ...     return (ct @ b.T if wanted[0] else None, a.T @ ct if wanted[1] else None)
    >>> _ = product.defvjp(lambda a, b: (a @ b, (a, b)), backward)
    >>> fdbr.grad(lambda b: product(np.eye(2), b).sum())(np.ones((2, 2)))
    array([[1., 1.],
           [1., 1.]])
    """

    def __init__(
        self,
        f: Function,
        nondiff_argnums: int | Sequence[int] = (),
        *,
        fwd: Function | None = None,
        bwd: Function | None = None,
    ) -> None:
        super().__init__(f, nondiff_argnums)
        self.fwd, self.bwd = fwd, bwd

    def defvjp(self, fwd: Function, bwd: Function) -> "custom_vjp":
        """State the rule: see the class."""
        self.fwd, self.bwd = fwd, bwd
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        run = self._prepared(args, kwargs)
        if innermost(run.leaves) is None:
            return self.f(*run.args)
        if self.fwd is None or self.bwd is None:
            raise self._without_rule("defvjp(fwd, bwd)")
        fwd, bwd = self.fwd, self.bwd

        knowing = _takes(fwd, "wanted"), _takes(bwd, "wanted")

        def forward(wanted: Any, *leaves: Any) -> tuple[Any, Any]:
            result = fwd(*run.restored(leaves), **run.flags("wanted", wanted, knowing[0]))
            if not isinstance(result, tuple) or len(result) != 2:
                raise TypeError(
                    f"fdbr.custom_vjp: fwd of {self.__name__} must return a pair (value, "
                    f"residuals), not {describe(result)}"
                )
            return run.flattened(result[0]), result[1]

        def backward(wanted: Any, residuals: Any, cotangents: Any) -> list[Any]:
            more = run.flags("wanted", wanted, knowing[1])
            given = bwd(*run.fixed, residuals, run.rebuilt(cotangents), **more)
            return run.checked_cotangents(given)

        call = Call(f"custom_vjp({self.__name__})", run.value)
        call.fwd, call.bwd, call.form = forward, backward, run
        call.function, call.rules = self, (fwd, bwd)
        return run.rebuilt(_applied(call, run.leaves))


@public("fdbr")
class custom_jvp(_Custom):
    """A function with a forward rule of its own.

    Use it as a decorator, and give the rule with `defjvp`; or all at once,
    ``custom_jvp(f, jvp=rule)``.

    Parameters
    ----------
    f
        A function of trees, which returns a tree.
    nondiff_argnums
        Positions of static arguments, which may be anything and are not differentiated.
    jvp
        ``jvp(*static, primals, tangents) -> (value, tangent)``, where primals and tangents are
        tuples of the arguments that are not static; it must be linear in the tangents.  These
        are zeros where there is none, and `None` for leaves that are not floating.  A rule that
        has a keyword-only parameter ``moving`` is told where there is one: a tuple with a tree of
        truth values for each argument.

    Raises
    ------
    TypeError, ValueError
        As for `custom_vjp`.

    Notes
    -----
    All transformations compose over it; reverse mode transposes the rule.

    >>> import fdbr, numpy as np
    >>> @fdbr.custom_jvp
    ... def log1pexp(x):
    ...     return np.logaddexp(0.0, x)
    >>> _ = log1pexp.defjvp(
    ...     lambda primals, tangents: (log1pexp(*primals), tangents[0] / (1 + np.exp(-primals[0])))
    ... )
    >>> fdbr.grad(log1pexp)(100.0)
    np.float64(1.0)
    """

    def __init__(
        self,
        f: Function,
        nondiff_argnums: int | Sequence[int] = (),
        *,
        jvp: Function | None = None,
    ) -> None:
        super().__init__(f, nondiff_argnums)
        self.jvp = jvp

    def defjvp(self, jvp: Function) -> "custom_jvp":
        """State the rule: see the class."""
        self.jvp = jvp
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        run = self._prepared(args, kwargs)
        if innermost(run.leaves) is None:
            return self.f(*run.args)
        if self.jvp is None:
            raise self._without_rule("defjvp(jvp)")
        jvp = self.jvp

        knowing = _takes(jvp, "moving")

        def rule(moving: Any, leaves: Any, tangents: Any) -> tuple[Any, Any]:
            given = run.differentiated(leaves), run.differentiated(tangents)
            result = jvp(*run.fixed, *given, **run.flags("moving", moving, knowing))
            if not isinstance(result, tuple) or len(result) != 2:
                raise TypeError(
                    f"fdbr.custom_jvp: the rule of {self.__name__} must return a pair (value, "
                    f"tangent), not {describe(result)}"
                )
            return run.flattened(result[0]), run.checked_tangents(*result)

        call = Call(f"custom_jvp({self.__name__})", run.value)
        call.rule, call.form = rule, run
        call.function, call.rules = self, (jvp,)
        return run.rebuilt(_applied(call, run.leaves))


class _Run:
    """One call of a custom function: its arguments as leaves, and the way back."""

    def __init__(self, custom: _Custom, args: Leaves) -> None:
        count = len(args)
        if not all(-count <= n < count for n in custom.nondiff_argnums):
            raise TypeError(
                f"fdbr.{type(custom).__name__}: {custom.__name__} has the static arguments "
                f"nondiff_argnums={custom.nondiff_argnums}, but was called with {count} arguments"
            )
        places = {n % count for n in custom.nondiff_argnums}
        self.custom = custom
        self.args = args
        self.places = [i for i in range(count) if i not in places]
        self.fixed = tuple(args[i] for i in sorted(places))
        self.leaves, self.structure = tree.flatten(tuple(args[i] for i in self.places))
        self.result: Any = None  # the structure of the result, once it is known

    def differentiated(self, leaves: Any) -> Leaves:
        """The arguments that are not static, of these leaves."""
        return tree.unflatten(self.structure, leaves)

    def restored(self, leaves: Any) -> Leaves:
        """All arguments."""
        args = list(self.args)
        for place, value in zip(self.places, self.differentiated(leaves), strict=True):
            args[place] = value
        return tuple(args)

    def flags(self, name: str, chosen: Any, knowing: bool) -> dict[str, Any]:
        """The keyword by which a rule is told for which leaves it is there, if it takes it."""
        return {name: self.differentiated(list(chosen))} if knowing else {}

    def value(self, *leaves: Any) -> Leaves:
        """The function itself, on leaves."""
        return self.flattened(self.custom.f(*self.restored(leaves)))

    def flattened(self, result: Any) -> Leaves:
        """The leaves of a result, whose structure is noted."""
        leaves, self.result = tree.flatten(result)
        return tuple(leaves)

    def rebuilt(self, leaves: Any) -> Any:
        """The tree of the result's structure."""
        return tree.unflatten(self.result, leaves)

    def checked_cotangents(self, given: Any) -> list[Any]:
        """Check the result of ``bwd``, leaf by leaf."""
        name = f"fdbr.custom_vjp: bwd of {self.custom.__name__}"
        if not isinstance(given, tuple | list) or len(given) != len(self.places):
            raise TypeError(
                f"{name} must return a tuple of {len(self.places)} cotangents, one for each "
                f"argument that is not static, not {_kind(given)}"
            )
        arguments = self.differentiated(self.leaves)
        found: list[Any] = []
        for place, ct, argument in zip(self.places, given, arguments, strict=True):
            where = f"{name}: the cotangent of argument {place}"
            found += _fitted_tree(ct, argument, where)
        return found

    def checked_tangents(self, value: Any, tangent: Any) -> list[Any]:
        """Check the tangent that ``jvp`` returned, leaf by leaf."""
        where = f"fdbr.custom_jvp: the tangent that the rule of {self.custom.__name__} returned"
        found = _fitted_tree(tangent, value, where)
        return [
            zero_like(leaf) if t is None else t
            for t, leaf in zip(found, tree.leaves(value), strict=True)
        ]


def _applied(call: Call, leaves: Sequence[Any]) -> Any:
    """Apply a function that has a rule of its own, and tell a debugger of it."""
    if (watch := hook.watch) is None:
        return apply(call, leaves)
    return watch.custom(call.name, leaves, functools.partial(apply, call, leaves))


def _fitted_tree(given: Any, like: Any, where: str) -> list[Any]:
    """The leaves of a tree that must be in the form of another; `None` is zero."""
    leaves, structure = tree.flatten(like)
    if given is None:
        return [None] * len(leaves)
    try:
        found = structure.flatten_up_to(given)
    except ValueError as error:
        raise ValueError(
            f"{where} must have the structure {brief(structure)}, not "
            f"{brief(tree.structure(given))}"
        ) from error
    checked = []
    for ct, leaf, path in zip(found, leaves, tree.paths_of(structure), strict=True):
        fits = ct is None or tree.is_inexact(leaf)
        name = f"{where}{path and ' at ' + path}"
        if not fits:
            raise TypeError(f"{name} must be None, for there is {describe(leaf)}")
        checked.append(check_cotangent(_rounded(ct, leaf), CotangentAval(leaf), name))
    return checked


def _rounded(ct: Any, leaf: Any) -> Any:
    """A cotangent in the dtype of a leaf, if beside that Python's floats are not weak."""
    dtype = getattr(leaf, "dtype", None)
    if is_added(dtype) and hasattr(ct, "dtype") and dtype_kind(ct.dtype) == "f":
        return ct.astype(dtype)
    return ct


def _takes(rule: Function, name: str) -> bool:
    """Whether a rule has a keyword-only parameter of a name."""
    try:
        parameter = inspect.signature(rule).parameters.get(name)
    except (TypeError, ValueError):  # it does not say
        return False
    return parameter is not None and parameter.kind is parameter.KEYWORD_ONLY


def _kind(value: Any) -> str:
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else describe(value)
