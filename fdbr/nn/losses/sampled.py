"""Losses over many classes that each compare an example with a few of them."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module
from fdbr.errors.checks import integer
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.layer import Layer
from fdbr.nn.losses.sampling import WalkerAlias
from fdbr.nn.losses.trees import tree_paths
from fdbr.tree import buffer, frozen, static

__all__ = ["BinaryHierarchicalSoftmax", "BlackOut", "NegativeSampling"]

Counts = Sequence[float] | Any


@public("fdbr.nn")
class _Sampled(Layer):
    """The base class of losses against randomly drawn classes."""

    __slots__ = ()

    weight: Any
    sampler: Any
    sample_size: int

    @classmethod
    def _made(cls, key: Any, sizes: Any, counts: Any, weight_init: Any, dtype: Any) -> Self:
        where = f"fdbr.nn.{cls.__name__}.init"
        in_features, sample_size = sizes
        size = integer(where, "in_features", in_features, least=1)
        count = integer(where, "sample_size", sample_size, least=1)
        sampler = WalkerAlias.init(counts)
        weight = weight_init(key, (sampler.threshold.shape[0], size), dtype)
        return cls(weight, sampler, count)  # type: ignore[call-arg]

    def _drawn(self, x: Any, key: Any, samples: Any) -> Any:
        if samples is not None:
            return samples
        if key is None:
            raise TypeError(
                placed(
                    f"fdbr.nn.{type(self).__name__}: key must be a key, from which classes are "
                    "drawn, or samples be given"
                )
            )
        return self.sampler.sample(key, (x.shape[0], self.sample_size))

    def train(self, *inputs: Any, **options: Any) -> tuple[Any, Self]:
        """Return the loss, as a call with the same key, and the layer itself."""
        return self(*inputs, **options), self


@public("fdbr.nn")
@frozen
class NegativeSampling(_Sampled):
    """The negative sampling loss of word2vec: each example's label against randomly drawn classes.

    See `fdbr.ops.negative_sampling`.

    Attributes
    ----------
    weight
        A row for each class, shape ``(classes, in_features)``.
    sampler
        A `WalkerAlias` of the classes.
    sample_size
        How many classes are drawn for each example.

    >>> import fdbr, numpy as np
    >>> key = fdbr.random.key(0)
    >>> layer = fdbr.nn.NegativeSampling.init(key, 3, [5, 2, 1, 1], 2)
    >>> layer(np.ones((2, 3), "f4"), np.array([0, 3]), key=key)  # 2 * 3 * log(2)
    np.float32(4.158883)
    """

    weight: Any
    sampler: WalkerAlias = buffer()
    sample_size: int = static()

    @classmethod
    def init(
        cls,
        key: Any,
        in_features: int,
        counts: Counts,
        sample_size: int,
        *,
        power: float = 0.75,
        weight_init: initializers.Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        in_features
            The length of the examples' vectors.
        counts
            The number of occurrences of each class, shape ``(classes,)``.
        sample_size
            How many classes are drawn for each example.
        power
            Classes are drawn in proportion to this power of their counts.
        weight_init
            ``init(key, shape, dtype)``; by default zeros.
        dtype
            The dtype of the parameters.
        """
        raised = np.asarray(counts, dtype=np.float64) ** float(power)
        init = weight_init or initializers.zeros()
        return cls._made(key, (in_features, sample_size), raised, init, dtype)

    def __call__(
        self,
        x: Any,
        labels: Any,
        *,
        key: Any = None,
        samples: Any = None,
        reduction: str = "sum",
    ) -> Any:
        """Return the loss of vectors ``(batch, in_features)`` with labels ``(batch,)``.

        Parameters
        ----------
        x, labels
            Vectors, and integers; examples with the label -1 are ignored.
        key
            A random key for drawing classes.
        samples
            The drawn classes, if they are drawn elsewhere, shape ``(batch, count)``.
        reduction
            ``"sum"``, ``"mean"`` or ``"none"``.
        """
        samples = self._drawn(x, key, samples)
        return ops.negative_sampling(x, labels, self.weight, samples, reduction=reduction)


@public("fdbr.nn")
@frozen
class BlackOut(_Sampled):
    """The BlackOut loss: the label against classes drawn at random, in one softmax.

    See `fdbr.ops.black_out`.

    Attributes
    ----------
    weight
        A row for each class, shape ``(classes, in_features)``.
    sampler
        A `WalkerAlias` of the classes.
    sample_size
        How many classes are drawn for each example.

    >>> import fdbr, numpy as np
    >>> key = fdbr.random.key(0)
    >>> layer = fdbr.nn.BlackOut.init(key, 3, [5, 2, 1, 1], 2)
    >>> layer(np.ones((2, 3), "f4"), np.array([0, 3]), key=key).dtype
    dtype('float32')
    """

    weight: Any
    sampler: WalkerAlias = buffer()
    sample_size: int = static()

    @classmethod
    def init(
        cls,
        key: Any,
        in_features: int,
        counts: Counts,
        sample_size: int,
        *,
        weight_init: initializers.Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        in_features
            The length of the examples' vectors.
        counts
            The number of occurrences of each class, shape ``(classes,)``: classes are drawn in
            proportion.
        sample_size
            How many classes are drawn for each example.
        weight_init
            ``init(key, shape, dtype)``; by default LeCun's normal distribution.
        dtype
            The dtype of the parameters.
        """
        init = weight_init or initializers.lecun_normal()
        return cls._made(key, (in_features, sample_size), counts, init, dtype)

    def __call__(
        self,
        x: Any,
        labels: Any,
        *,
        key: Any = None,
        samples: Any = None,
        reduction: str = "mean",
    ) -> Any:
        """Return the loss of vectors ``(batch, in_features)`` with labels ``(batch,)``.

        Parameters
        ----------
        x, labels
            Vectors, and integers.
        key
            A random key for drawing classes.
        samples
            The drawn classes, if they are drawn elsewhere, shape ``(batch, count)``.
        reduction
            ``"mean"``, ``"sum"`` or ``"none"``.
        """
        samples = self._drawn(x, key, samples)
        return ops.black_out(x, labels, self.weight, samples, reduction=reduction)


@public("fdbr.nn")
@frozen
class BinaryHierarchicalSoftmax(Layer):
    """Hierarchical softmax over the leaves of a binary tree, with a binary decision at each node.

    Each example uses as many rows of the weight as its label's leaf is deep.  See
    `fdbr.ops.binary_hierarchical_softmax`, and `huffman_tree` for a tree.

    Attributes
    ----------
    weight
        A row for each inner node, shape ``(nodes, in_features)``.
    paths, signs
        The nodes on the path to each leaf and the branches taken: see `tree_paths`.

    >>> import fdbr, numpy as np
    >>> tree = fdbr.nn.huffman_tree([8, 5, 6, 4])
    >>> layer = fdbr.nn.BinaryHierarchicalSoftmax.init(fdbr.random.key(0), 3, tree)
    >>> layer.weight.shape, layer(np.zeros((1, 3), "f4"), np.array([2]))
    ((3, 3), np.float32(1.3862944))
    """

    weight: Any
    paths: Any = buffer()
    signs: Any = buffer()

    @classmethod
    def init(
        cls,
        key: Any,
        in_features: int,
        tree: Any,
        *,
        weight_init: initializers.Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        in_features
            The length of the examples' vectors.
        tree
            Nested pairs, whose leaves are the classes from 0 on, each once: ``((0, 1), 2)``.
        weight_init
            ``init(key, shape, dtype)``; by default uniform on [-1, 1), as in Chainer.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If the size is not a positive integer, or a leaf of the tree is missing.
        """
        size = integer(
            "fdbr.nn.BinaryHierarchicalSoftmax.init", "in_features", in_features, least=1
        )
        paths, signs = tree_paths(tree)
        init = weight_init or initializers.uniform(1.0)
        weight = init(key, (paths.shape[0] - 1, size), dtype)
        xp = array_module(weight)
        return cls(weight, xp.asarray(paths), xp.asarray(signs))

    def __call__(self, x: Any, labels: Any, *, reduction: str = "sum") -> Any:
        """Return the loss of vectors ``(batch, in_features)`` with labels ``(batch,)``.

        Parameters
        ----------
        x, labels
            Vectors, and integers.
        reduction
            ``"sum"``, ``"mean"`` or ``"none"``.
        """
        return ops.binary_hierarchical_softmax(
            x, labels, self.weight, self.paths, self.signs, reduction=reduction
        )
