"""Low-rank adaptation: a frozen model, and small trained matrices beside its weights."""

from collections.abc import Callable
from typing import Any, Self

from fdbr import ops, random, tree
from fdbr.core.array_modules import lock
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.attention.multi_head import MultiHeadAttention
from fdbr.nn.dropout import needed_key
from fdbr.nn.layer import Layer
from fdbr.nn.linear import Linear
from fdbr.nn.parts import changed, inside
from fdbr.ops.dtypes import rounded_like
from fdbr.ops.nn.noise.dropout import check_rate
from fdbr.tree import buffer, frozen, static

__all__ = ["LoRA", "lora", "merge_lora"]

_PROJECTIONS = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")


@frozen
class LowRank:
    """A matrix that is added to a weight: ``scale * lora_B @ lora_A``.

    Attributes
    ----------
    lora_A, lora_B
        Shapes ``(rank, in)`` and ``(out, rank)``.
    scale
        ``alpha / rank``.
    """

    lora_A: Any
    lora_B: Any
    scale: float = static()

    def product(self) -> Any:
        """Return the matrix that is added."""
        return rounded_like((self.lora_B @ self.lora_A) * self.scale, self.lora_B, self.lora_A)


@frozen
class _AdaptedLinear(Linear):
    """A linear layer with the two low-rank matrices added."""

    adapter: LowRank
    dropout: float = static(default=0.0)

    def __call__(self, x: Any) -> Any:
        return Linear.__call__(self, x) + self._beside(x)

    def train(self, x: Any, *, key: Any = None) -> tuple[Any, Self]:
        less = x
        if self.dropout:
            less = ops.dropout(x, self.dropout, key=needed_key("LoRA", key))
        return Linear.__call__(self, x) + self._beside(less), self

    def _beside(self, x: Any) -> Any:
        inside = ops.linear(x, self.adapter.lora_A)
        out = ops.linear(inside, self.adapter.lora_B)
        return rounded_like(out * self.adapter.scale, out)


@public("fdbr.nn")
@frozen
class LoRA(Layer):
    """A model whose own arrays are not trained, with matrices of low rank beside its weights.

    Hu et al., *LoRA: low-rank adaptation of large language models*, ICLR 2022.  `lora` makes one,
    and `merge_lora` a plain model of it.  It is called like the model, and has the model's
    attributes.

    Attributes
    ----------
    base
        The model; it is a buffer.
    adapters
        The two matrices ``lora_A`` and ``lora_B``, by the path of their weight.
    dropout
        The dropout rate of the inputs of ``lora_A`` in training.
    """

    base: Any = buffer()
    adapters: dict[str, LowRank]
    dropout: float = static(default=0.0)

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Return the output of the adapted model."""
        return self._adapted()(*inputs, **options)

    def train(self, *inputs: Any, key: Any = None, **options: Any) -> tuple[Any, Self]:
        """Return the output of the adapted model in training, and the successor.

        Parameters
        ----------
        inputs, options
            Those of the model.
        key
            A random key, if the model or the adaptation has dropout.
        """
        out, successor = self._adapted().train(*inputs, key=key, **options)
        plain = dict(zip(tree.paths(self.base), tree.leaves(self.base), strict=True))

        def restored(path: str, value: Any) -> Any:
            if isinstance(value, _AdaptedLinear):
                return Linear(value.weight, value.bias)
            return plain[path] if path in self.adapters else None

        return out, tree.replace(self, base=changed(successor, restored))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._adapted(), name)

    def _adapted(self) -> Any:
        """Return the model with the matrices inserted."""

        def adapted(path: str, value: Any) -> Any:
            if type(value) is Linear and inside(path, "weight") in self.adapters:
                adapter = self.adapters[inside(path, "weight")]
                return _AdaptedLinear(value.weight, value.bias, adapter, self.dropout)
            if path in self.adapters:
                return value + self.adapters[path].product()
            return None

        return changed(self.base, adapted)


@public("fdbr.nn")
def lora(
    model: Any,
    key: Any,
    rank: int,
    *,
    alpha: float | None = None,
    where: Callable[[str], bool] | None = None,
    dropout: float = 0.0,
) -> LoRA:
    """Return a model in which only low-rank matrices beside its weights are trained.

    Hu et al., *LoRA: low-rank adaptation of large language models*, ICLR 2022.  Its initial outputs
    equal the model's, as one of the two matrices is zero.

    Parameters
    ----------
    model
        A layer, or a frozen class of the user's.
    key
        A random key.
    rank
        The rank of the matrix that is added to a weight.
    alpha
        The added matrix is multiplied by ``alpha / rank``; equal to ``rank`` by default.
    where
        ``where(path)`` tells whether the weight at a path of `tree.paths` is adapted; any matrix
        can be.  By default these are the weights of all `Linear` layers, the projections of
        `MultiHeadAttention`, and the weights that a layer's class names in ``projections``, as
        `models.Conv1D` of GPT-2 does.
    dropout
        The dropout rate of the inputs of the added layers in training, in [0, 1).

    Returns
    -------
    LoRA
        A model that is called like ``model``.

    Raises
    ------
    TypeError, ValueError
        If ``rank`` is not a positive integer, or no weight is chosen.

    >>> import fdbr
    >>> from fdbr import nn, tree
    >>> model = nn.Sequential(nn.Linear.init(fdbr.random.key(0), 8, 8), abs)
    >>> adapted = nn.lora(model, fdbr.random.key(1), 2)
    >>> tree.size(tree.trainable(adapted)), tree.size(tree.trainable(model))
    (32, 72)
    """
    name = "fdbr.nn.lora"
    rank = integer(name, "rank", rank, least=1)
    rate = check_rate(name, dropout)
    scale = (rank if alpha is None else float(alpha)) / rank
    usual: set[str] = set()
    if where is None:
        changed(model, lambda path, value: usual.update(_usual(path, value)))
    leaves = dict(zip(tree.paths(model), tree.leaves(model), strict=True))
    matrices = {path: leaf for path, leaf in leaves.items() if getattr(leaf, "ndim", 0) == 2}
    chosen = [path for path in matrices if (path in usual if where is None else where(path))]
    if not chosen:
        raise ValueError(
            f"{name}: no weight of {type(model).__name__} is chosen"
            + (", give where" if where is None else " by where")
            + f"; its matrices are {', '.join(matrices) or 'none'}"
        )
    keys = random.split(key, len(chosen))
    adapters = {
        path: _fresh(own, matrices[path], rank, scale)
        for own, path in zip(keys, chosen, strict=True)
    }
    return LoRA(model, adapters, rate)


@public("fdbr.nn")
def merge_lora(model: Any) -> Any:
    """Merge the trained matrices of an adapted model into its weights.

    Parameters
    ----------
    model
        The result of `lora`, or a tree that holds such models.

    Returns
    -------
    tree
        A tree with the structure of the original model.

    Raises
    ------
    TypeError
        If no part of it is adapted.

    >>> import fdbr
    >>> from fdbr import nn
    >>> model = nn.Linear.init(fdbr.random.key(0), 3, 2)
    >>> adapted = nn.lora(model, fdbr.random.key(1), 1)
    >>> bool((nn.merge_lora(adapted).weight == model.weight).all())
    True
    """
    found = []

    def merged(path: str, value: Any) -> Any:
        if not isinstance(value, LoRA):
            return None
        found.append(path)

        def added(path: str, leaf: Any) -> Any:
            if path not in value.adapters:
                return None
            return lock(ops.astype(leaf + value.adapters[path].product(), leaf.dtype))

        return changed(value.base, added)

    plain = changed(model, merged)
    if not found:
        raise TypeError(
            f"fdbr.nn.merge_lora: nothing in {describe(model)} was adapted by fdbr.nn.lora"
        )
    return plain


def _usual(path: str, value: Any) -> list[str]:
    """Return the weights of a layer that are adapted by default."""
    if isinstance(value, Linear):
        return [inside(path, "weight")]
    if isinstance(value, MultiHeadAttention):
        return [inside(path, name) for name in _PROJECTIONS if getattr(value, name) is not None]
    return [inside(path, name) for name in getattr(type(value), "projections", ())]


def _fresh(key: Any, weight: Any, rank: int, scale: float) -> LowRank:
    rows, columns = weight.shape
    bound = initializers.uniform(columns**-0.5)
    first = bound(key, (rank, columns), weight.dtype)
    return LowRank(first, initializers.zeros()(key, (rows, rank), weight.dtype), scale)
