"""The base class of layers."""

import html
from typing import TYPE_CHECKING, Any, Self

from fdbr.errors.public import public
from fdbr.nn.printing import drawn

__all__ = ["Layer"]


@public("fdbr.nn")
class Layer:
    """The base class of layers; its `train` is for layers that compute the same in training.

    A layer is a frozen class with ``__call__``.  Layers that draw random numbers in training, or
    update their own state, define their own `train`.  `print` shows a layer as a tree.

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

    if TYPE_CHECKING:  # subclasses define it with any inputs and options

        def __call__(self, *inputs: Any, **options: Any) -> Any:
            """Return the output for an input."""

    def train(self, *inputs: Any, **options: Any) -> tuple[Any, Self]:
        """Return the output in training, and the layer's successor.

        Parameters
        ----------
        inputs, options
            The arguments of ``__call__``, and ``key``: a random key for layers that draw random
            numbers; others ignore it.

        Returns
        -------
        tuple
            By default ``(self(*inputs, **options), self)``.
        """
        options.pop("key", None)
        return self(*inputs, **options), self

    def __str__(self) -> str:
        return drawn(self)

    def _repr_html_(self) -> str:
        """Return the tree as a notebook shows it."""
        return f"<pre>{html.escape(str(self))}</pre>"
