"""Parts of a tree of parameters, by masks, paths or predicates, and transformations of a part."""

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import optree

from fdbr import tree
from fdbr.core.util.pickling import public_factory
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.pytrees.classes import NAMESPACE
from fdbr.pytrees.structure import broadcast_prefix, paths_of
from fdbr.train.optim.base import Optimizer
from fdbr.train.optim.fitting import check_state
from fdbr.tree import frozen

__all__ = ["MaskedState", "labels_of", "mask_of", "masked", "path_labels", "path_mask"]


@public("fdbr.train.optim")
@frozen
class MaskedState:
    """The state of `masked`.

    Attributes
    ----------
    inner_state
        That of the transformation, of the part of the parameters that it is given.
    """

    inner_state: Any


@public_factory("fdbr.train.optim")
def masked(inner: Optimizer, mask: Any) -> Optimizer:
    """A transformation of some of the gradients; the others are handed on as they are.

    Parameters
    ----------
    inner
        An optimizer or transformation.  It is given the trees with `None` in the place of what is
        not its part, and keeps nothing for that.
    mask
        Which leaves are its part: a tree of truth values of the parameters' structure, or one
        that stands for whole branches (a prefix of it); a function from the parameters to such a
        tree; or a pattern of paths, or a list of them, as for `path_mask`.

    Returns
    -------
    Optimizer
        Its state is a `MaskedState`.

    Raises
    ------
    TypeError
        If ``inner`` is no `Optimizer`; by ``init`` and ``update``, if the mask holds something
        else than truth values.
    ValueError
        By ``init`` and ``update``, if the mask does not fit the parameters, or a pattern fits no
        path.

    >>> from fdbr.train import optim
    >>> only_w = optim.masked(optim.scale(-1.0), {"w": True, "b": False})
    >>> params = {"w": 2.0, "b": 3.0}
    >>> only_w.update({"w": 1.0, "b": 1.0}, only_w.init(params), params)[0]
    {'w': -1.0, 'b': 1.0}
    """
    check_inner("masked", inner)

    def init(params: Any) -> MaskedState:
        return MaskedState(inner.init(part_of(params, mask_of("masked", mask, params))))

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state("masked", state, MaskedState)
        chosen = mask_of("masked", mask, grads if params is None else params)
        own = None if params is None else part_of(params, chosen)
        updates, inner_state = inner.update(part_of(grads, chosen), state.inner_state, own, **extra)
        return merged(chosen, updates, grads), MaskedState(inner_state)

    return Optimizer(init, update)


def check_inner(function: str, inner: Any) -> None:
    """Raise unless what is wrapped is an optimizer."""
    if not callable(getattr(inner, "init", None)) or not callable(getattr(inner, "update", None)):
        raise TypeError(
            f"fdbr.train.optim.{function}: it takes an Optimizer, what optim.adam(…), "
            f"optim.scale(…) and so on return, not {describe(inner)}"
        )


# --- masks --------------------------------------------------------------------------


@public_factory("fdbr.train.optim")
def path_mask(
    *patterns: str | Callable[[str, Any], bool], inverted: bool = False
) -> Callable[[Any], Any]:
    """A mask of the leaves whose paths fit.

    Parameters
    ----------
    patterns
        Texts, or predicates ``f(path, leaf)``.  A text fits a path as `fdbr.tree.paths` writes it,
        or the path of a branch with all leaves in it; ``*`` stands for anything, ``?`` for one
        character.  ``head.w`` fits ``['head']['w']``, and ``layers.0`` fits ``layers[0]``, too.
    inverted
        Whether the leaves are meant that fit none of them.

    Returns
    -------
    function
        From parameters to a tree of truth values, for `masked`, `freeze` and so on.

    Raises
    ------
    TypeError
        If there is no pattern, or one is no text or function.
    ValueError
        By the function, if a text fits no leaf.

    >>> from fdbr.train import optim
    >>> params = {"head": {"w": 1.0, "b": 2.0}, "body": [3.0, 4.0]}
    >>> optim.path_mask("head.w", "body[1]")(params)
    {'head': {'w': True, 'b': False}, 'body': [False, True]}
    >>> optim.path_mask(lambda path, leaf: leaf > 2.5)(params)
    {'head': {'w': False, 'b': False}, 'body': [True, True]}
    """
    if not patterns or not all(isinstance(p, str) or callable(p) for p in patterns):
        raise TypeError(
            "fdbr.train.optim.path_mask: give patterns of paths, such as 'head.*', or predicates "
            f"f(path, leaf), not {', '.join(map(describe, patterns)) or 'nothing'}"
        )

    def mask(params: Any) -> Any:
        leaves, shape = tree.flatten(params)
        paths = paths_of(shape)
        found = [False] * len(leaves)
        for pattern in patterns:
            fits = [_fits(pattern, path, leaf) for path, leaf in zip(paths, leaves, strict=True)]
            if isinstance(pattern, str) and not any(fits):
                raise ValueError(
                    f"fdbr.train.optim.path_mask: no leaf has a path that fits {pattern!r}; there "
                    f"are {', '.join(paths[:20]) or 'none'}{', …' * (len(paths) > 20)}"
                )
            found = [a or b for a, b in zip(found, fits, strict=True)]
        return tree.unflatten(shape, [value is not inverted for value in found])

    return mask


@public_factory("fdbr.train.optim")
def path_labels(labels: dict[str, Any], default: Any = None) -> Callable[[Any], Any]:
    """Labels of leaves by patterns of their paths, for `partition`.

    Parameters
    ----------
    labels
        For each pattern of paths, as for `path_mask`, a label.  The first that fits counts.
    default
        The label of leaves that fit none.

    Returns
    -------
    function
        From parameters to a tree of labels.

    Raises
    ------
    TypeError
        If ``labels`` is no dict of texts.
    ValueError
        By the function, if a pattern fits no leaf, or a leaf fits none and there is no default.

    >>> from fdbr.train import optim
    >>> optim.path_labels({"head": "fast"}, "slow")({"head": [1.0, 2.0], "body": 3.0})
    {'head': ['fast', 'fast'], 'body': 'slow'}
    """
    if not isinstance(labels, dict) or not all(isinstance(pattern, str) for pattern in labels):
        raise TypeError(
            "fdbr.train.optim.path_labels: labels must be a dict from patterns of paths to labels, "
            f"as in {{'head.*': 'fast'}}, not {describe(labels)}"
        )

    def labelled(params: Any) -> Any:
        shape = tree.structure(params)
        found = [default] * shape.num_leaves
        for pattern, label in reversed(labels.items()):
            fits = tree.leaves(path_mask(pattern)(params))
            found = [label if fit else old for fit, old in zip(fits, found, strict=True)]
        for path, label in zip(tree.paths(params), found, strict=True):
            if label is None:
                raise ValueError(
                    f"fdbr.train.optim.path_labels: {path or 'the leaf'} fits no pattern of "
                    f"{list(labels)}; give a default label"
                )
        return tree.unflatten(shape, found)

    return labelled


def _fits(pattern: Any, path: str, leaf: Any) -> bool:
    if not isinstance(pattern, str):
        return bool(pattern(path, leaf))
    return any(_expression(pattern).fullmatch(form) for form in _forms(path))


@functools.lru_cache(maxsize=256)
def _expression(pattern: str) -> re.Pattern[str]:
    """A pattern as an expression that fits a path, or the beginning of one up to a branch."""
    parts = {"*": ".*", "?": "."}
    text = "".join(parts.get(character, re.escape(character)) for character in pattern)
    return re.compile(rf"{text}(?:[.\[].*)?", re.DOTALL)


def _forms(path: str) -> tuple[str, str, str]:
    """A path, and with dots in the place of the brackets of keys, and of numbers, too."""
    keys = re.sub(r"\[(['\"])(.*?)\1\]", r".\2", path)
    return path, keys.removeprefix("."), re.sub(r"\[(\d+)\]", r".\1", keys).removeprefix(".")


def mask_of(function: str, mask: Any, params: Any) -> Any:
    """A mask as a tree of truth values of the parameters' structure."""
    if isinstance(mask, str):
        mask = path_mask(mask)
    elif isinstance(mask, list | tuple) and mask and all(isinstance(m, str) for m in mask):
        mask = path_mask(*mask)
    found = labels_of(function, "mask", mask, params)
    for path, value in zip(tree.paths(params), found, strict=True):
        if not isinstance(value, bool | np.bool_):
            raise TypeError(
                f"fdbr.train.optim.{function}: the mask must hold truth values, but at "
                f"{path or 'the root'} it has {describe(value)}"
            )
    return tree.unflatten(tree.structure(params), [bool(value) for value in found])


def labels_of(function: str, what: str, labels: Any, params: Any) -> list[Any]:
    """The label of each leaf, from a tree of labels, a prefix of one, or a function."""
    if callable(labels):
        labels = labels(params)
    try:
        return broadcast_prefix(labels, params)
    except ValueError as error:
        raise ValueError(
            f"fdbr.train.optim.{function}: the {what} must be a tree of the parameters' structure, "
            f"or a prefix of it: {error}"
        ) from error


def part_of(values: Any, mask: Any) -> Any:
    """A tree with `None` where a mask is false; of a leaf that it leaves out, the empty tree.

    That is ``()``, because `None` would say that there are no parameters.
    """
    leaves, shape = optree.tree_flatten(values, none_is_leaf=True, namespace=NAMESPACE)
    chosen = _spread(mask, shape)
    if optree.treespec_is_leaf(shape) and chosen == [False]:
        return ()
    kept = [leaf if keep else None for leaf, keep in zip(leaves, chosen, strict=True)]
    return optree.tree_unflatten(shape, kept)


def merged(mask: Any, chosen: Any, others: Any) -> Any:
    """The leaves of one tree where a mask is true, and those of another where it is not."""
    theirs, shape = optree.tree_flatten(others, none_is_leaf=True, namespace=NAMESPACE)
    ours = shape.flatten_up_to(chosen)
    rows = zip(_spread(mask, shape), ours, theirs, strict=True)
    return optree.tree_unflatten(shape, [a if keep else b for keep, a, b in rows])


def _spread(mask: Any, shape: Any) -> list[Any]:
    """The values of a mask for each leaf of a structure; of what it has nothing for, `None`."""
    values, own = optree.tree_flatten(mask, none_is_leaf=True, namespace=NAMESPACE)
    return values if own == shape else shape.flatten_up_to(mask)
