"""The conditional random field over a linear chain of labels."""

from typing import Any, Self

import numpy as np

from fdbr import ops
from fdbr.errors.checks import describe, integer
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.layer import Layer
from fdbr.tree import frozen

__all__ = ["CRF1d"]


@public("fdbr.nn")
@frozen
class CRF1d(Layer):
    """A linear-chain CRF: its loss is `fdbr.ops.crf1d`, its prediction `argmax`.

    Attributes
    ----------
    cost
        The score of a label (row) before another one (column), shape ``(labels, labels)``: the name
        is Chainer's, and larger scores are more probable.

    >>> import fdbr, numpy as np
    >>> layer = fdbr.nn.CRF1d.init(fdbr.random.key(0), 2)
    >>> scores = np.array([[[2.0, 0.0]], [[0.0, 1.0]]], "f4")  # two positions of one sequence
    >>> layer(scores, np.array([[0], [1]]))
    np.float32(0.44018984)
    >>> layer.argmax(scores)[1].tolist()
    [[0], [1]]
    """

    cost: Any

    @classmethod
    def init(
        cls,
        key: Any,
        num_labels: int,
        *,
        cost_init: initializers.Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        num_labels
            The number of labels.
        cost_init
            ``init(key, shape, dtype)``; by default zeros.
        dtype
            The dtype of the parameters.
        """
        count = integer("fdbr.nn.CRF1d.init", "num_labels", num_labels, least=1)
        return cls((cost_init or initializers.zeros())(key, (count, count), dtype))

    def __call__(
        self,
        scores: Any,
        labels: Any,
        *,
        lengths: Any = None,
        transpose: bool = False,
        reduction: str = "mean",
    ) -> Any:
        """Return the negative log likelihood of labels.

        Parameters
        ----------
        scores, labels
            As for `fdbr.ops.crf1d`: by position; or, with ``transpose``, a list of sequences in any
            order, arrays ``(length, labels)`` and ``(length,)``.
        lengths
            The lengths of sequences in an array.
        transpose
            Whether scores and labels are lists of sequences.
        reduction
            ``"mean"``, ``"sum"`` or ``"none"``.
        """
        if transpose:
            scores, lengths = _together(scores)
            labels, _ = _together(labels)
        return ops.crf1d(self.cost, scores, labels, lengths, reduction=reduction)

    def argmax(self, scores: Any, *, lengths: Any = None, transpose: bool = False) -> Any:
        """Return the most probable labels: `fdbr.ops.argmax_crf1d`.

        Parameters
        ----------
        scores, lengths
            As in a call.
        transpose
            Whether scores are a list of sequences, and labels are returned as one.

        Returns
        -------
        tuple
            The scores of the sequences, and their labels.
        """
        if not transpose:
            return ops.argmax_crf1d(self.cost, scores, lengths)
        padded, lengths = _together(scores)
        value, labels = ops.argmax_crf1d(self.cost, padded, lengths)
        return value, [labels[:n, i] for i, n in enumerate(lengths.tolist())]


def _together(sequences: Any) -> tuple[Any, Any]:
    """Stack sequences along the second axis, padded with zeros; returns them and their lengths."""
    parts = [ops.asarray(part) for part in sequences]
    if not parts or not all(part.ndim and part.shape[0] for part in parts):
        given = ", ".join(map(describe, parts)) or "none"
        raise ValueError(
            placed(f"fdbr.nn.CRF1d: a list of sequences must hold some, none empty; got {given}")
        )
    lengths = np.array([part.shape[0] for part in parts])
    rows = [
        ops.pad(part, ((0, int(max(lengths)) - part.shape[0]), *((0, 0),) * (part.ndim - 1)))
        for part in parts
    ]
    return ops.stack(rows, axis=1), lengths
