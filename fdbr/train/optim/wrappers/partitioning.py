"""Different transformations for different parts of a tree, some of which may be frozen."""

from collections.abc import Hashable, Mapping
from typing import Any

from fdbr import tree
from fdbr.core.util.pickling import public_factory
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.pytrees.short_repr import brief
from fdbr.train.optim.base import Optimizer
from fdbr.train.optim.fitting import check_state
from fdbr.train.optim.masking import check_inner, labels_of, mask_of, masked, merged, part_of
from fdbr.train.optim.transforms.stateless import set_to_zero
from fdbr.tree import frozen

__all__ = ["PartitionState", "freeze", "multi_transform", "partition", "selective_transform"]


@public("fdbr.train.optim")
@frozen
class PartitionState:
    """The state of `partition`.

    Attributes
    ----------
    inner_states
        By its label, the state of each transformation, of its part of the parameters.
    """

    inner_states: dict[Any, Any]


@public_factory("fdbr.train.optim")
def partition(transforms: Mapping[Hashable, Optimizer], param_labels: Any) -> Optimizer:
    """Different optimizers or transformations for different parts of the parameters.

    Parameters
    ----------
    transforms
        By a label, each transformation.  It is given the trees with `None` in the place of what is
        not its part, and keeps nothing for that.
    param_labels
        Which label each leaf has: a tree of labels of the parameters' structure, or one that
        stands for whole branches (a prefix of it), or a function from the parameters to such a
        tree, such as `path_labels` returns.

    Returns
    -------
    Optimizer
        Its state is a `PartitionState`.

    Raises
    ------
    TypeError
        If ``transforms`` is no mapping to optimizers.
    ValueError
        By ``init`` and ``update``, if the labels do not fit the parameters, or one has no
        transformation.

    >>> from fdbr.train import optim
    >>> parts = {"fast": optim.sgd(1.0), "slow": optim.sgd(0.1)}
    >>> optimizer = optim.partition(parts, {"head": "fast", "body": "slow"})
    >>> params = {"head": [1.0, 2.0], "body": 3.0}
    >>> optimizer.update({"head": [1.0, 1.0], "body": 1.0}, optimizer.init(params), params)[0]
    {'head': [-1.0, -1.0], 'body': -0.1}
    """
    if not isinstance(transforms, Mapping) or not transforms:
        raise TypeError(
            "fdbr.train.optim.partition: transforms must be a dict from labels to optimizers, not "
            f"{describe(transforms)}"
        )
    for inner in transforms.values():
        check_inner("partition", inner)

    def masks(params: Any) -> dict[Any, Any]:
        labels = labels_of("partition", "tree of labels", param_labels, params)
        for path, label in zip(tree.paths(params), labels, strict=True):
            if not isinstance(label, Hashable) or label not in transforms:
                raise ValueError(
                    f"fdbr.train.optim.partition: {path or 'the leaf'} has the label "
                    f"{brief(label)}, for which there is no transformation; "
                    f"there are {list(transforms)}"
                )
        shape = tree.structure(params)
        return {
            label: tree.unflatten(shape, [own == label for own in labels]) for label in transforms
        }

    def init(params: Any) -> PartitionState:
        found = masks(params)
        return PartitionState(
            {label: own.init(part_of(params, found[label])) for label, own in transforms.items()}
        )

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state("partition", state, PartitionState)
        if state.inner_states.keys() != transforms.keys():
            raise ValueError(
                f"fdbr.train.optim.partition: the state is of {list(state.inner_states)}, the "
                f"optimizer of {list(transforms)}; make one with optimizer.init(params)"
            )
        updates, states = grads, {}
        for label, mask in masks(grads if params is None else params).items():
            own = None if params is None else part_of(params, mask)
            part, states[label] = transforms[label].update(
                part_of(grads, mask), state.inner_states[label], own, **extra
            )
            updates = merged(mask, part, updates)
        return updates, PartitionState(states)

    return Optimizer(init, update)


@public_factory("fdbr.train.optim")
def multi_transform(transforms: Mapping[Hashable, Optimizer], param_labels: Any) -> Optimizer:
    """Another name of `partition`, which Optax has, too.

    Parameters
    ----------
    transforms, param_labels
        Those of `partition`.

    Returns
    -------
    Optimizer

    Raises
    ------
    TypeError, ValueError
        Those of `partition`.

    >>> from fdbr.train import optim
    >>> optimizer = optim.multi_transform({1: optim.scale(-1.0)}, [1, 1])
    >>> optimizer.update([2.0, 3.0], optimizer.init([0.0, 0.0]))[0]
    [-2.0, -3.0]
    """
    return partition(transforms, param_labels)


@public_factory("fdbr.train.optim")
def freeze(mask: Any) -> Optimizer:
    """Updates of zero for parameters that are to stay as they are.

    It belongs at the end of a chain; `selective_transform` keeps no state for them, either.

    Parameters
    ----------
    mask
        Which parameters stay, as for `masked`: ``freeze("body.*")``, ``freeze(path_mask(f))``.

    Raises
    ------
    TypeError, ValueError
        Those of `masked`.

    >>> from fdbr.train import optim
    >>> optimizer = optim.chain(optim.sgd(0.1), optim.freeze("body.*"))
    >>> params = {"head": 1.0, "body": [2.0, 3.0]}
    >>> optimizer.update({"head": 1.0, "body": [1.0, 1.0]}, optimizer.init(params), params)[0]
    {'head': -0.1, 'body': [0.0, 0.0]}
    """
    return masked(set_to_zero(), mask)


@public_factory("fdbr.train.optim")
def selective_transform(optimizer: Optimizer, *, freeze_mask: Any) -> Optimizer:
    """An optimizer of some parameters, while the others stay as they are.

    Parameters
    ----------
    optimizer
        It is given the trees with `None` in the place of what stays, and keeps nothing for that.
    freeze_mask
        Which parameters stay, as for `masked`.

    Raises
    ------
    TypeError, ValueError
        Those of `masked`.

    >>> from fdbr.train import optim
    >>> optimizer = optim.selective_transform(optim.sgd(0.1, 0.9), freeze_mask="body.*")
    >>> optimizer.init({"head": 1.0, "body": [2.0, 3.0]}).inner_states["train"][0]
    TraceState(trace={'head': 0.0, 'body': [None, None]})
    """
    check_inner("selective_transform", optimizer)

    def labels(params: Any) -> Any:
        mask = mask_of("selective_transform", freeze_mask, params)
        return tree.map(lambda stays: "freeze" if stays else "train", mask)

    return partition({"freeze": set_to_zero(), "train": optimizer}, labels)
