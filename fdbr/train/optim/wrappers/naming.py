"""Chains whose parts have names."""

from typing import Any

from fdbr.core.util.pickling import public_factory
from fdbr.train.optim.base import Optimizer
from fdbr.train.optim.masking import check_inner

__all__ = ["named_chain"]


@public_factory("fdbr.train.optim")
def named_chain(*transforms: tuple[str, Optimizer]) -> Optimizer:
    """Gradient transformations one after the other, whose states have names.

    Parameters
    ----------
    transforms
        Pairs of a name and a transformation.

    Returns
    -------
    Optimizer
        Its state is a dict by the names.

    Raises
    ------
    TypeError
        If a part is no such pair.
    ValueError
        If two have one name; by ``update``, if the state has other names.

    >>> from fdbr.train import optim
    >>> optimizer = optim.named_chain(("clip", optim.clip(1.0)), ("sgd", optim.sgd(0.1)))
    >>> optimizer.init(0.0)
    {'clip': EmptyState(), 'sgd': (EmptyState(), EmptyState())}
    """
    for part in transforms:
        if not isinstance(part, tuple) or len(part) != 2 or not isinstance(part[0], str):
            raise TypeError(
                "fdbr.train.optim.named_chain: give pairs of a name and an optimizer, as in "
                f"('sgd', optim.sgd(0.1)), not {part!r}"
            )
        check_inner("named_chain", part[1])
    names = [name for name, _ in transforms]
    if len(set(names)) < len(names):
        raise ValueError(f"fdbr.train.optim.named_chain: two parts have one name: {names}")

    def init(params: Any) -> dict[str, Any]:
        return {name: part.init(params) for name, part in transforms}

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        if not isinstance(state, dict) or set(state) != set(names):
            raise ValueError(
                f"fdbr.train.optim.named_chain: the state must be a dict of the states of {names}; "
                "make one with optimizer.init(params)"
            )
        states = {}
        for name, part in transforms:
            grads, states[name] = part.update(grads, state[name], params, **extra)
        return grads, states

    return Optimizer(init, update)
