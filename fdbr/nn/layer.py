"""The base class of layers."""

import html
from typing import TYPE_CHECKING, Any, Self

from fdbr.errors.public import public
from fdbr.nn.printing import drawn

__all__ = ["Layer"]


@public("fdbr.nn")
class Layer:
    """The base of layers: it supplies `train` to those that do in training what they do else.

    A layer is a frozen class with ``__call__``.  One that draws random numbers in training,
    or updates its own state, has its own `train`.  `print` shows a layer as a tree.

    >>> import fdbr
    >>> @fdbr.frozen
    ... class Scale(fdbr.nn.Layer):
    ...     factor: float
    ...     def __call__(self, x):
    ...         return self.factor * x
    >>> Scale(2.0).train(3.0)
    (6.0, Scale(factor=2.0))
    """

    __slots__ = ()

    if TYPE_CHECKING:  # a layer has its own, of whatever inputs and settings

        def __call__(self, *inputs: Any, **options: Any) -> Any:
            """The output for an input."""

    def train(self, *inputs: Any, **options: Any) -> tuple[Any, Self]:
        """The output in training, and the layer's successor.

        Parameters
        ----------
        inputs, options
            What ``__call__`` takes, and ``key``: a key, for layers that draw random numbers; the
            others ignore it.

        Returns
        -------
        tuple
            ``(self(*inputs, **options), self)``, unless the layer says otherwise.
        """
        options.pop("key", None)
        return self(*inputs, **options), self

    def __str__(self) -> str:
        return drawn(self)

    def _repr_html_(self) -> str:
        """The tree as a notebook shows it."""
        return f"<pre>{html.escape(str(self))}</pre>"
