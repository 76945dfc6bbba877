"""Mixture of experts: each token is computed by a few of many layers."""

import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from fdbr import ops, random, tree
from fdbr.core.array_modules import array_module
from fdbr.errors.checks import describe, integer
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.nn.attention.blocks import GatedMLP
from fdbr.nn.layer import Layer
from fdbr.nn.linear import Linear
from fdbr.ops.dtypes import is_traced
from fdbr.transforms.vjp import stop_gradient
from fdbr.tree import frozen, static

__all__ = ["MixtureOfExperts"]


@public("fdbr.nn")
@frozen
class MixtureOfExperts(Layer):
    """The weighted sum of the outputs of ``k`` experts, which a router chooses for each token.

    Shazeer et al., *Outrageously large neural networks*, ICLR 2017; Fedus et al., *Switch
    transformers*, JMLR 2022.  Without a capacity, each expert computes only the tokens routed to
    it; where the routing is traced (`fdbr.jit`, `fdbr.vmap`), each expert computes all tokens.
    With a capacity, all shapes are fixed: each expert has a number of slots, which tokens fill in
    order, first choices first; a token that finds no free slot skips that expert.

    Attributes
    ----------
    router
        `Linear`, from features to experts.
    experts
        Layers with as many output features as input features.
    k
        The number of experts for each token.
    capacity_factor
        The number of slots of an expert, as a multiple of ``k * tokens / experts``; `None` for no
        limit.
    normalize
        Whether the weights of a token's experts add up to 1.

    >>> import fdbr
    >>> layer = fdbr.nn.MixtureOfExperts.init(fdbr.random.key(0), 8, 16, 4, k=2)
    >>> x = fdbr.random.normal(fdbr.random.key(1), (3, 5, 8), "float32")
    >>> y, losses = layer(x, need_losses=True)
    >>> y.shape, sorted(losses)
    ((3, 5, 8), ['load_balancing', 'router_z'])
    """

    router: Linear
    experts: tuple[Any, ...]
    k: int = static(default=2)
    capacity_factor: float | None = static(default=None)
    normalize: bool = static(default=True)

    @classmethod
    def init(
        cls,
        key: Any,
        features: int,
        hidden_features: int,
        num_experts: int,
        *,
        k: int = 2,
        capacity_factor: float | None = None,
        normalize: bool = True,
        expert: Callable[[Any], Any] | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        features, hidden_features
            The widths of the input and output, and inside an expert.
        num_experts
            The number of experts.
        k
            The number of experts for each token.
        capacity_factor
            A positive number, or `None`.
        normalize
            Whether the weights of a token's experts add up to 1.
        expert
            A function from a key to an expert; by default it makes a `GatedMLP`.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a size is not a positive integer, ``k`` is larger than ``num_experts``, or the factor
            is not positive.
        """
        where = "fdbr.nn.MixtureOfExperts.init"
        count = integer(where, "num_experts", num_experts, least=1)
        few = integer(where, "k", k, least=1)
        if few > count:
            raise ValueError(f"{where}: k={few} experts a token, but there are {count}")
        if capacity_factor is not None and not 0 < capacity_factor < math.inf:
            raise ValueError(
                f"{where}: capacity_factor must be a positive number or None, got "
                f"{capacity_factor!r}"
            )
        first, *keys = random.split(key, count + 1)
        make = expert or (lambda own: GatedMLP.init(own, features, hidden_features, dtype=dtype))
        return cls(
            Linear.init(first, features, count, bias=False, dtype=dtype),
            tuple(make(own) for own in keys),
            few,
            None if capacity_factor is None else float(capacity_factor),
            bool(normalize),
        )

    def __call__(self, x: Any, *, need_losses: bool = False) -> Any:
        """Return the weighted sums, of the shape of ``x``.

        Parameters
        ----------
        x
            Shape ``(..., features)``: each vector is a token.
        need_losses
            Whether the losses of the router are returned, too.

        Returns
        -------
        array or tuple
            The sums; with ``need_losses`` a tuple of them and a dict: ``"load_balancing"``, the
            number of experts times the sum over experts of share of choices times mean probability,
            which is 1 for uniform routing; and ``"router_z"``, the mean square of the logarithm of
            the sum of the exponentials of the router's outputs.

        Raises
        ------
        ValueError
            If ``x`` has another last length.
        """
        return self._mixed(x, need_losses, [lambda x, e=e: e(x) for e in self.experts])

    def train(self, x: Any, *, key: Any = None, need_losses: bool = False) -> tuple[Any, Self]:
        """Return the output in training, and a layer of the experts' successors.

        Parameters
        ----------
        x, need_losses
            As in a call.
        key
            A random key, which is split among the experts; `None` if no expert draws random
            numbers.
        """
        count = len(self.experts)
        keys = [None] * count if key is None else random.split(key, count)
        successors = list(self.experts)

        def run(i: int) -> Callable[[Any], Any]:
            def train(x: Any) -> Any:
                out, successors[i] = self.experts[i].train(x, key=keys[i])
                return out

            return train

        out = self._mixed(x, need_losses, [run(i) for i in range(count)])
        return out, tree.replace(self, experts=tuple(successors))

    def _mixed(self, x: Any, need_losses: bool, experts: list[Any]) -> Any:
        width, shape = self.router.weight.shape[1], getattr(x, "shape", ())
        if not shape or shape[-1] != width:
            raise ValueError(
                placed(
                    f"fdbr.nn.MixtureOfExperts: x must have shape (..., {width}), got {describe(x)}"
                )
            )
        tokens = ops.reshape(x, (-1, width) if 0 not in shape else (math.prod(shape[:-1]), width))
        logits = self.router(tokens)
        shares = ops.softmax(logits)
        weights, chosen = ops.top_k(shares, self.k)
        if self.normalize:
            weights = weights / weights.sum(axis=-1, keepdims=True)
        chosen = stop_gradient(chosen)
        if self.capacity_factor is not None:
            out = self._with_capacity(tokens, weights, chosen, experts)
        elif is_traced(chosen):
            out = _of_all(tokens, weights, chosen, experts)
        else:
            out = _of_own(tokens, weights, chosen, experts)
        out = ops.reshape(out, shape)
        if not need_losses:
            return out
        return out, _losses(logits, shares, chosen)

    def _with_capacity(self, tokens: Any, weights: Any, chosen: Any, experts: list[Any]) -> Any:
        """Compute a fixed number of slots by each expert; some slots may be empty."""
        count, number = len(tokens), len(experts)
        factor = self.capacity_factor or 1.0
        slots = min(count, max(1, math.ceil(factor * self.k * count / number)))
        first = ops.reshape(chosen.mT, (-1,))  # all first choices, then all second ones
        mine = ops.one_hot(first, number, dtype="int64")
        order = ops.take_along_axis(ops.cumulative_sum(mine, axis=0), first[:, None], axis=1) - 1
        order = ops.reshape(order, (-1,))
        slot = ops.where(order < slots, first * slots + order, number * slots)
        xp = array_module(tokens)
        who = xp.arange(self.k * count) % max(count, 1)
        taken = ops.at(ops.full((number * slots + 1,), count, dtype="int64"))[slot].set(who)
        zero = ops.zeros_like(tokens[:1]) if count else tokens
        rows = ops.embed(ops.concat([tokens, zero]), taken[:-1])
        parts = [experts[i](rows[i * slots : (i + 1) * slots]) for i in range(number)]
        given = ops.embed(ops.concat([*parts, zero]), ops.reshape(slot, (self.k, count)))
        return (weights.mT[..., None] * given).sum(axis=0)


def _of_own(tokens: Any, weights: Any, chosen: Any, experts: list[Any]) -> Any:
    """Compute by each expert only the tokens routed to it."""
    parts, order = [], []
    xp = array_module(chosen)
    for i, expert in enumerate(experts):
        rows, ranks = xp.nonzero(chosen == i)
        if rows.size:
            parts.append(expert(ops.embed(tokens, rows)) * weights[rows, ranks][:, None])
            order.append(rows * chosen.shape[1] + ranks)
    if not parts:
        return tokens
    back = xp.argsort(xp.concatenate(order))
    given = ops.embed(ops.concat(parts), back)
    return ops.reshape(given, (*chosen.shape, -1)).sum(axis=1)


def _of_all(tokens: Any, weights: Any, chosen: Any, experts: list[Any]) -> Any:
    """Compute all tokens by each expert; the router's weights discard the ones not chosen."""
    parts = []
    for i, expert in enumerate(experts):
        share = (weights * (chosen == i)).sum(axis=-1, keepdims=True)
        parts.append(expert(tokens) * share)
    return sum(parts[1:], parts[0])


def _losses(logits: Any, shares: Any, chosen: Any) -> dict[str, Any]:
    number = logits.shape[-1]
    often = ops.one_hot(chosen, number, dtype=shares.dtype).mean(axis=(0, 1))
    z = ops.logsumexp(logits, axis=-1)
    return {
        "load_balancing": number * (often * shares.mean(axis=0)).sum(),
        "router_z": (z * z).mean(),
    }
