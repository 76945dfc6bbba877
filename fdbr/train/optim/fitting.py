"""Checks that trees fit the parameters they belong to."""

from typing import Any

import optree

from fdbr import ops, tree
from fdbr.errors.checks import describe
from fdbr.pytrees.classes import NAMESPACE
from fdbr.pytrees.dtypes import dtype_kind

__all__ = ["Parameters", "check_params", "check_state", "in_dtypes_of"]

_advice = {
    "gradients": "Give update the gradients of the very tree that it is given as params.",
    "state": "Make a new state for these parameters with optimizer.init(params).",
    "updates": "Give apply_updates the updates that were made for these parameters.",
}


_TRAINED = (
    "Convert the parameter, for example with ops.asarray(p, dtype=float), and make a new state of "
    "it with optimizer.init(params)"
)


class Parameters:
    """Parameters, flattened once, and the trees that go with them.

    Where there are none (`None`), gradients stand for them.

    Attributes
    ----------
    function
        Who asks, for messages.
    leaves
        The parameters' leaves.
    """

    __slots__ = ("function", "leaves", "shape", "tree")

    def __init__(self, function: str, params: Any, grads: Any = None) -> None:
        self.function = function
        self.tree = grads if params is None else params
        if params is None:  # a state may have something where there is no gradient
            self.leaves, self.shape = optree.tree_flatten(
                grads, none_is_leaf=True, namespace=NAMESPACE
            )
        else:
            self.leaves, self.shape = tree.flatten(params)

    def gradients(self, grads: Any) -> list[Any]:
        """The leaves of gradients; `None` where there is none.

        They are converted to the dtypes of the parameters.  Without parameters, integers are
        converted to float64, as NumPy divides them.

        Raises
        ------
        ValueError
            If structure or a shape is not that of the parameters, a gradient is complex and its
            parameter is not, or a parameter is neither floating nor complex.
        """
        found = self.beside("gradients", grads)
        for index, (leaf, grad) in enumerate(zip(self.leaves, found, strict=True)):
            if grad is None:
                continue
            if isinstance(leaf, int) or _is_whole(grad) or not _fits(leaf, grad):
                found[index] = self._converted(index, leaf, grad)
        return found

    def _converted(self, index: int, leaf: Any, grad: Any) -> Any:
        """A gradient in the dtype of its parameter, or an error."""
        if leaf is grad:  # there are no parameters
            self.leaves[index] = ops.astype(grad, float) if hasattr(grad, "dtype") else float(grad)
            return self.leaves[index]
        if _is_whole(leaf):
            path = tree.paths_of(self.shape)[index] or "the root"
            raise ValueError(
                f"fdbr.train.optim.{self.function}: the parameter at {path} is {describe(leaf)}, "
                f"and has a gradient {describe(grad)}: only floating and complex parameters are "
                f"trained. {_TRAINED}, or give None as its gradient."
            )
        dtype = getattr(leaf, "dtype", None)
        if not _fits(leaf, grad, "shape"):
            raise self.misfit("gradients", index, grad)
        if dtype is None or not hasattr(grad, "dtype"):
            return float(grad) if _is_whole(grad) else grad
        kinds = dtype_kind(dtype), dtype_kind(grad.dtype)
        if kinds[0] not in "fc" or kinds[1] not in "biufc" or kinds == ("f", "c"):
            raise self.misfit("gradients", index, grad)
        return ops.astype(grad, dtype)

    def state(self, name: str, values: Any, grads: list[Any], fits: str = "dtype") -> list[Any]:
        """The leaves of one tree of an optimizer state, which has one for each gradient.

        They have the ``"dtype"`` and shape of their parameters, the ``"shape"``, or ``"any"``.

        Raises
        ------
        ValueError
            If structure, a shape or a dtype is not that of the parameters.
        """
        found = self.beside("state", values, name)
        for index, (leaf, value) in enumerate(zip(self.leaves, found, strict=True)):
            if grads[index] is None:
                continue
            parts = value if type(value) is tuple else (value,)
            if leaf is grads[index] and fits == "dtype":  # there are no parameters to compare with
                fits = "shape"
            if value is None or (fits != "any" and not all(_fits(leaf, v, fits) for v in parts)):
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
        if what == "state" and value is None:
            return ValueError(
                f"fdbr.train.optim.{self.function}: the parameter at {path} has a gradient, but "
                f"the state{name and f' ({name})'} has nothing for it: the state was made of a "
                f"parameter that is not trained, such as an integer. {_TRAINED}."
            )
        advice = _advice[what]
        if what == "updates" and _is_whole(self.leaves[index]):
            advice = f"Only floating and complex parameters are trained. {_TRAINED}, or give None."
        return ValueError(
            f"fdbr.train.optim.{self.function}: the {what}{name and f' ({name})'} must fit the "
            f"parameters, but at {path} there is {describe(value)} for a parameter "
            f"{describe(self.leaves[index])}. {advice}"
        )

    def unflatten(self, leaves: list[Any]) -> Any:
        """The tree of the parameters' structure with other leaves."""
        if self.shape.none_is_leaf:
            return optree.tree_unflatten(self.shape, leaves)
        return tree.unflatten(self.shape, leaves)


def in_dtypes_of(function: str, params: Any, grads: Any) -> Any:
    """A tree of gradients in the dtypes of the parameters; see `Parameters.gradients`."""
    parameters = Parameters(function, params, grads)
    return parameters.unflatten(parameters.gradients(grads))


def check_state(function: str, state: Any, kind: type) -> None:
    """Raise unless an optimizer state is of its transformation's kind."""
    if not isinstance(state, kind):
        raise ValueError(
            f"fdbr.train.optim.{function}: the state must be {kind.__name__}, got "
            f"{type(state).__name__}. {_advice['state']}"
        )


def check_params(function: str, params: Any) -> None:
    """Raise if there are no parameters, for a rule that needs them."""
    if params is None:
        raise TypeError(
            f"fdbr.train.optim.{function}: it needs the parameters; call "
            "update(grads, state, params)"
        )


def _fits(leaf: Any, value: Any, fits: str = "dtype") -> bool:
    try:
        dtype = value.dtype
        alike = fits == "shape" or dtype is leaf.dtype or bool(dtype == leaf.dtype)
        return alike and value.shape == leaf.shape
    except AttributeError:  # one of them is a Python number, which goes with any dtype
        return _is_number(leaf) and _is_number(value)


def _is_whole(value: Any) -> bool:
    """Whether a value is an integer or a truth value, or an array of them."""
    dtype = getattr(value, "dtype", None)
    return isinstance(value, int) if dtype is None else dtype.kind in "iub"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | complex) or getattr(value, "shape", None) == ()
