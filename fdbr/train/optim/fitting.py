"""Checks that trees fit the parameters they belong to."""

from typing import Any

from fdbr import tree
from fdbr.messages import describe

__all__ = ["Parameters", "check_state"]

_advice = {
    "gradients": "Give update the gradients of the very tree that it is given as params.",
    "state": "Make a new state for these parameters with optimizer.init(params).",
    "updates": "Give apply_updates the updates that were made for these parameters.",
}


class Parameters:
    """Parameters, flattened once, and the trees that go with them.

    Attributes
    ----------
    function
        Who asks, for messages.
    leaves
        The parameters' leaves.
    """

    __slots__ = ("function", "leaves", "shape", "tree")

    def __init__(self, function: str, params: Any) -> None:
        self.function = function
        self.tree = params
        self.leaves, self.shape = tree.flatten(params)

    def gradients(self, grads: Any) -> list[Any]:
        """The leaves of gradients; `None` where there is none.

        Raises
        ------
        ValueError
            If structure, a shape or a dtype is not that of the parameters.
        """
        found = self.beside("gradients", grads)
        for index, (leaf, grad) in enumerate(zip(self.leaves, found, strict=True)):
            if grad is not None and not _fits(leaf, grad):
                raise self.misfit("gradients", index, grad)
        return found

    def state(self, name: str, values: Any, grads: list[Any]) -> list[Any]:
        """The leaves of one tree of an optimizer state, which has one for each gradient.

        Raises
        ------
        ValueError
            If structure, a shape or a dtype is not that of the parameters.
        """
        found = self.beside("state", values, name)
        for index, (leaf, value) in enumerate(zip(self.leaves, found, strict=True)):
            if value is None and grads[index] is None:
                continue
            if value is None or not _fits(leaf, value):
                raise self.misfit("state", index, value, name)
        return found

    def beside(self, what: str, values: Any, name: str = "") -> list[Any]:
        """The leaves of a tree of the parameters' structure."""
        try:
            return tree.flatten_up_to(self.shape, values)
        except ValueError as error:
            ours, theirs = tree.paths(self.tree), tree.paths(values)
            extra = [path for path in theirs if path not in ours]
            missing = [path for path in ours if path not in theirs]
            where = f"at {extra[0]} they have none" if extra else ""
            where = where or (f"they have one at {missing[0]}" if missing else str(error))
            raise ValueError(
                f"fdbr.train.optim.{self.function}: the {what}{name and f' ({name})'} must have "
                f"the structure of the parameters, but {where}. {_advice[what]}"
            ) from error

    def misfit(self, what: str, index: int, value: Any, name: str = "") -> ValueError:
        """The error for a leaf that does not fit its parameter."""
        path = tree.paths_of(self.shape)[index] or "the root"
        return ValueError(
            f"fdbr.train.optim.{self.function}: the {what}{name and f' ({name})'} must fit the "
            f"parameters, but at {path} there is {describe(value)} for a parameter "
            f"{describe(self.leaves[index])}. {_advice[what]}"
        )

    def unflatten(self, leaves: list[Any]) -> Any:
        """The tree of the parameters' structure with other leaves."""
        return tree.unflatten(self.shape, leaves)


def check_state(function: str, state: Any, kind: type) -> None:
    """Raise unless an optimizer state is of its transformation's kind."""
    if not isinstance(state, kind):
        raise ValueError(
            f"fdbr.train.optim.{function}: the state must be {kind.__name__}, got "
            f"{type(state).__name__}. {_advice['state']}"
        )


def _fits(leaf: Any, value: Any) -> bool:
    try:
        dtype = value.dtype
        return value.shape == leaf.shape and (dtype is leaf.dtype or bool(dtype == leaf.dtype))
    except AttributeError:  # one of them is a Python number, which goes with any dtype
        return _is_number(leaf) and _is_number(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | complex) or getattr(value, "shape", None) == ()
