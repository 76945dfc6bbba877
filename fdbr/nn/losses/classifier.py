"""A predictor with its loss and its metrics."""

from collections.abc import Callable, Mapping
from typing import Any, Self

from fdbr import ops, tree
from fdbr.errors.public import public
from fdbr.nn.layer import Layer
from fdbr.tree import frozen, static

__all__ = ["Classifier"]

Metrics = Mapping[str, Callable[..., Any]]


@public("fdbr.nn")
@frozen
class Classifier(Layer):
    """A predictor with its loss and its metrics.

    ``value, metrics = model(x, labels)`` fits `fdbr.value_and_grad` with ``has_aux``.

    Parameters
    ----------
    predictor
        A layer or a function.
    loss
        ``loss(outputs, labels)``.
    metrics
        Functions ``(outputs, labels)`` by name; by default ``accuracy``.  ``{}`` for none.

    Raises
    ------
    TypeError
        If one of them cannot be called.

    >>> import fdbr, numpy as np
    >>> from fdbr import nn
    >>> model = nn.Classifier(nn.Linear.init(fdbr.random.key(0), 4, 3))
    >>> x, labels = np.ones((5, 4), "f4"), np.zeros(5, int)
    >>> def loss(model, x, labels):
    ...     return model(x, labels)
    >>> (value, metrics), grads = fdbr.value_and_grad(loss, has_aux=True)(model, x, labels)
    >>> list(metrics), grads.predictor.weight.shape
    (['accuracy'], (3, 4))
    """

    predictor: Any
    loss: Callable[..., Any] = static()
    metrics: tuple[tuple[str, Callable[..., Any]], ...] = static()

    def __init__(
        self,
        predictor: Callable[..., Any],
        loss: Callable[..., Any] = ops.softmax_cross_entropy,
        metrics: Metrics | None = None,
    ) -> None:
        found = {"accuracy": ops.accuracy} if metrics is None else dict(metrics)
        for name, function in (("predictor", predictor), ("loss", loss), *found.items()):
            if not callable(function):
                raise TypeError(
                    f"fdbr.nn.Classifier: {name} is a {type(function).__name__}, which cannot be "
                    "called"
                )
        self.__attrs_init__(predictor, loss, tuple(found.items()))  # type: ignore[attr-defined]

    def __call__(self, *inputs: Any) -> tuple[Any, dict[str, Any]]:
        """Return the loss and the metrics; the last input are the labels, the others the
        predictor's.
        """
        return self._judged(self.predictor(*inputs[:-1]), inputs[-1])

    def train(self, *inputs: Any, key: Any = None) -> tuple[Any, Self]:
        """Return the loss and the metrics in training, and the successor.

        Parameters
        ----------
        inputs
            The predictor's inputs, and the labels.
        key
            A random key for the predictor, if it needs one.

        Returns
        -------
        tuple
            ``((loss, metrics), successor)``.
        """
        if not hasattr(self.predictor, "train"):
            return self(*inputs), self
        outputs, predictor = self.predictor.train(*inputs[:-1], key=key)
        return self._judged(outputs, inputs[-1]), tree.replace(self, predictor=predictor)

    def _judged(self, outputs: Any, labels: Any) -> tuple[Any, dict[str, Any]]:
        return self.loss(outputs, labels), {
            name: metric(outputs, labels) for name, metric in self.metrics
        }
