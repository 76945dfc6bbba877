"""States of optimizers that are carried over to a model that has changed."""

from typing import Any

import optree

from fdbr import ops, tree
from fdbr.core.array_modules import lock
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.pytrees.classes import NAMESPACE
from fdbr.pytrees.structure import paths_of
from fdbr.train.optim.base import Optimizer
from fdbr.tree import frozen, static

__all__ = ["Migration", "migrate", "migration"]


@public("fdbr.train.optim")
@frozen
class Migration:
    """The leaves of parameters that have changed, by their paths.

    Attributes
    ----------
    kept
        Those with the path, the shape and the dtype that they had.
    new
        Those with a path that is new.
    changed
        Those with the path, but another shape or dtype than they had.
    dropped
        Those that are no more there.
    """

    kept: tuple[str, ...] = static()
    new: tuple[str, ...] = static()
    changed: tuple[str, ...] = static()
    dropped: tuple[str, ...] = static()

    def __str__(self) -> str:
        lists = {"kept": self.kept, "new": self.new, "changed": self.changed, "gone": self.dropped}
        return "; ".join(f"{len(v)} {k}: {', '.join(v)}" for k, v in lists.items() if v)


@public("fdbr.train.optim")
def migration(old_params: Any, new_params: Any) -> Migration:
    """The leaves for which `migrate` keeps states, and those for which it does not.

    Parameters
    ----------
    old_params, new_params
        Trees of parameters.

    Returns
    -------
    Migration

    >>> from fdbr.train import optim
    >>> print(optim.migration({"w": 1.0, "b": 0.0}, {"w": 1.0, "c": 0.0}))
    1 kept: ['w']; 1 new: ['c']; 1 gone: ['b']
    """
    old, new = _by_path(old_params), _by_path(new_params)
    kept = [path for path in new if path in old and _alike(old[path], new[path])]
    return Migration(
        tuple(kept),
        tuple(path for path in new if path not in old),
        tuple(path for path in new if path in old and path not in kept),
        tuple(path for path in old if path not in new),
    )


def _by_path(params: Any) -> dict[str, Any]:
    return dict(zip(tree.paths(params), tree.leaves(params), strict=True))


def _alike(old: Any, new: Any) -> bool:
    return all(
        getattr(old, name, None) == getattr(new, name, None) for name in ("shape", "dtype")
    ) and (hasattr(old, "dtype") or type(old) is type(new))


@public("fdbr.train.optim")
def migrate(
    state: Any, old_params: Any, new_params: Any, optimizer: Optimizer | None = None
) -> Any:
    """The state of an optimizer for a model that has grown or changed.

    Of leaves that have the path, the shape and the dtype that they had, the state is kept, and so
    are counts and other numbers; of others it begins anew.  `migration` tells which is which.

    Parameters
    ----------
    state
        A state of the old parameters.
    old_params, new_params
        The parameters before and after.
    optimizer
        The optimizer, whose ``init(new_params)`` says how states begin.  Without it they begin with
        zeros, as those of momentum, Adam and most others do.

    Returns
    -------
    tree
        A state of the new parameters.

    Raises
    ------
    ValueError
        If there is no optimizer, and a state that begins anew has not the shape of its parameter;
        or if the optimizer is another than that of the state.

    >>> import numpy as np
    >>> from fdbr.train import optim
    >>> old, new = {"a": np.ones(2)}, {"a": np.ones(2), "b": np.ones(1)}
    >>> state = optim.TraceState({"a": np.full(2, 7.0)})
    >>> optim.migrate(state, old, new)
    TraceState(trace={'a': array([7., 7.]), 'b': array([0.])})
    """
    shapes = tree.structure(old_params), tree.structure(new_params)
    if any(shape.is_leaf() for shape in shapes):
        if shapes[0] == shapes[1] and _alike(old_params, new_params):
            return state
        raise ValueError(
            "fdbr.train.optim.migrate: parameters that are one array have no paths by which they "
            "agree; make a new state with optimizer.init(new_params)"
        )
    fresh = None if optimizer is None else optimizer.init(new_params)
    return _Carrier(old_params, new_params).carried(state, fresh, optimizer is not None)


class _Carrier:
    """The old and the new parameters, by their paths."""

    def __init__(self, old_params: Any, new_params: Any) -> None:
        self.old_shape, self.new_shape = tree.structure(old_params), tree.structure(new_params)
        self.old_paths, self.new_paths = paths_of(self.old_shape), paths_of(self.new_shape)
        self.old, self.new = _by_path(old_params), _by_path(new_params)
        self.kept = set(migration(old_params, new_params).kept)
        self.trained = dict(
            zip(
                self.new_paths,
                tree.flatten_up_to(self.new_shape, tree.trainable(new_params)),
                strict=True,
            )
        )

    def carried(self, node: Any, fresh: Any, known: bool) -> Any:
        """A part of the state, for the new parameters."""
        values = self.mirrored(node)
        if values is not None:
            begun = [None] * len(self.new_paths)
            if known:
                begun = self._of_new(fresh)
            return tree.unflatten(self.new_shape, self._leaves(values, begun, known))
        if _is_leaf(node):
            return node
        children, meta, _, unflatten = _opened(node)
        theirs: Any = (None,) * len(children)
        if known:
            theirs, other, _, _ = (None, None, None, None) if _is_leaf(fresh) else _opened(fresh)
            if type(fresh) is not type(node) or len(theirs) != len(children) or other != meta:
                raise ValueError(
                    "fdbr.train.optim.migrate: the state is not one of this optimizer: it has a "
                    f"{type(node).__name__} where optimizer.init(new_params) has "
                    f"{type(fresh).__name__}"
                )
        parts = zip(children, theirs, strict=True)
        return unflatten(meta, tuple(self.carried(a, b, known) for a, b in parts))

    def mirrored(self, node: Any) -> list[Any] | None:
        """The values of a tree for each old parameter, if it has the parameters' structure."""
        try:
            values = self.old_shape.flatten_up_to(node)
        except (ValueError, TypeError):
            return None
        return values if all(map(_is_plain, values)) else None

    def _of_new(self, fresh: Any) -> list[Any]:
        try:
            return list(self.new_shape.flatten_up_to(fresh))
        except (ValueError, TypeError) as error:
            raise ValueError(
                "fdbr.train.optim.migrate: the state is not one of this optimizer, whose own has "
                f"no tree of parameters in the same place: {error}"
            ) from error

    def _leaves(self, values: list[Any], begun: list[Any], known: bool) -> list[Any]:
        ours = dict(zip(self.old_paths, values, strict=True))
        pattern = next(((p, v) for p, v in ours.items() if v is not None), None)
        found = []
        for path, new in zip(self.new_paths, begun, strict=True):
            if path in self.kept:
                found.append(ours[path])
            elif known or pattern is None or self.trained[path] is None:
                found.append(new)
            else:
                found.append(self._zeros(path, *pattern))
        return found

    def _zeros(self, path: str, other: str, value: Any) -> Any:
        """Zeros for a new parameter, like what there is for another one."""
        if isinstance(value, tuple | list):
            return type(value)(self._zeros(path, other, part) for part in value)
        p, q = self.new[path], self.old[other]
        if getattr(value, "shape", ()) != getattr(q, "shape", ()):
            raise ValueError(
                f"fdbr.train.optim.migrate: how the state of {path} begins is not told by that of "
                f"{other}, {describe(value)}; give optimizer="
            )
        if not hasattr(p, "dtype"):
            return 0.0
        dtype = getattr(value, "dtype", None)
        return lock(
            ops.zeros_like(p, dtype=p.dtype if dtype == getattr(q, "dtype", None) else dtype)
        )


def _opened(node: Any) -> Any:
    return optree.tree_flatten_one_level(node, none_is_leaf=True, namespace=NAMESPACE)


def _is_leaf(node: Any) -> bool:
    return node is None or optree.tree_is_leaf(node, none_is_leaf=True, namespace=NAMESPACE)


def _is_plain(value: Any) -> bool:
    """Whether a value is what a rule keeps for one parameter: arrays, or tuples of them."""
    if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
        return all(map(_is_plain, value))
    return _is_leaf(value)
