"""Wrappers that compute a layer's weight: by its norm, its spectrum, its statistics.

`plain` returns the wrapped layer with its current weight.
"""

from typing import TYPE_CHECKING, Any, ClassVar, Self

from fdbr import ops, random, tree
from fdbr.core.array_modules import lock
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.nn.convolution.layers import ConvTranspose
from fdbr.nn.layer import Layer
from fdbr.ops.dtypes import is_short, rounded_like
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.transforms.vjp import stop_gradient
from fdbr.tree import buffer, frozen, static

__all__ = ["SpectralNorm", "WeightNorm", "WeightStandardization"]


@public("fdbr.nn")
@frozen
class _Reparametrized(Layer):
    """A wrapper that computes one of the arrays of its layer."""

    layer: Any

    if TYPE_CHECKING:  # subclasses declare the field, after their trained fields

        @property
        def name(self) -> str:
            """The field of the weight."""

    def plain(self) -> Any:
        """Return the wrapped layer with the computed weight."""
        return tree.replace(self.layer, **{self.name: self._weight()})

    def __call__(self, *inputs: Any) -> Any:
        """Return the output of the layer with the computed weight."""
        return self.plain()(*inputs)

    def _weight(self) -> Any:
        raise NotImplementedError

    def _trained(self, plain: Any, inputs: Any, key: Any) -> tuple[Any, Any]:
        """Return the output in training, and the layer's successor with its trained weight."""
        if not hasattr(plain, "train"):
            return plain(*inputs), self.layer
        out, successor = plain.train(*inputs, key=key)
        kept = {self.name: getattr(self.layer, self.name)}
        return out, tree.replace(successor, **kept)

    def train(self, *inputs: Any, key: Any = None) -> tuple[Any, Self]:
        """Return the output in training, and the successor."""
        out, layer = self._trained(self.plain(), inputs, key)
        return out, tree.replace(self, layer=layer)


def _array_of(where: str, layer: Any, name: str, least: int) -> Any:
    """Return the array that a wrapper computes; raises if the layer has none of that name."""
    weight: Any = getattr(layer, name, None)
    if getattr(weight, "ndim", -1) < least or dtype_kind(weight.dtype) != "f":
        raise ValueError(
            f"{where}: {type(layer).__name__}.{name} must be a floating array of at least {least} "
            f"axes, got {describe(weight)}; give the name of such a field"
        )
    return weight


# --- by its norm --------------------------------------------------------------------


@public("fdbr.nn")
@frozen
class WeightNorm(_Reparametrized):
    """A layer whose weight is ``magnitude * v / norm(v)``, with ``v`` and magnitude trained.

    Salimans & Kingma, *Weight normalization*, NIPS 2016; PyTorch's parametrization.

    Attributes
    ----------
    layer
        The layer; its weight is ``v``.
    magnitude
        The norms, with length 1 along the axes over which they are taken.
    name
        The field of the weight.
    axis
        The axis along which each index has its own norm; `None` for one norm of the whole weight.

    >>> import fdbr
    >>> from fdbr import nn
    >>> linear = nn.Linear.init(fdbr.random.key(0), 3, 2)
    >>> layer = nn.WeightNorm.init(None, linear)
    >>> layer.magnitude.shape
    (2, 1)
    >>> bool(abs(layer.plain().weight - linear.weight).max() < 1e-6)
    True
    """

    magnitude: Any
    name: str = static(default="weight")
    axis: int | None = static(default=0)

    @classmethod
    def init(cls, key: Any, layer: Any, *, name: str = "weight", axis: int | None = 0) -> Self:
        """Return a wrapper whose weight at first equals the layer's.

        Parameters
        ----------
        key
            A random key, which is not used and may be `None`.
        layer
            A layer.
        name
            The field of the weight.
        axis
            The axis along which each index has its own norm; `None` for one norm.

        Raises
        ------
        ValueError
            If the layer has no such array, or the array no such axis.
        """
        where = "fdbr.nn.WeightNorm.init"
        weight = _array_of(where, layer, name, 1)
        if axis is not None and not -weight.ndim <= axis < weight.ndim:
            raise ValueError(f"{where}: axis {axis} is none of {name} {describe(weight)}")
        axis = None if axis is None else axis % weight.ndim
        return cls(layer, lock(_norms(weight, axis)), name, axis)

    def torch_names(self) -> dict[str, Any]:
        """Return PyTorch's names of the arrays, of parametrizations and of older versions."""
        part = f"parametrizations.{self.name}"
        return {
            "layer": "",
            f"layer.{self.name}": (f"{part}.original1", f"~{self.name}_v"),
            "magnitude": (f"{part}.original0", f"~{self.name}_g"),
        }

    def _weight(self) -> Any:
        v = getattr(self.layer, self.name)
        return v * (self.magnitude / _norms(v, self.axis))


def _norms(weight: Any, axis: int | None) -> Any:
    if axis is None:
        return ops.linalg.vector_norm(weight)
    others = tuple(i for i in range(weight.ndim) if i != axis)
    return ops.linalg.vector_norm(weight, axis=others, keepdims=True) if others else ops.abs(weight)


# --- by its spectrum ----------------------------------------------------------------


@public("fdbr.nn")
@frozen
class SpectralNorm(_Reparametrized):
    """A layer whose weight is divided by its largest singular value.

    The singular value is ``u @ W @ v``, with vectors that `train` improves by power iteration and
    stores in the successor.  Miyato, Kataoka, Koyama & Yoshida, *Spectral normalization for
    generative adversarial networks*, ICLR 2018; PyTorch's parametrization.

    Attributes
    ----------
    layer
        The layer.
    u, v
        The singular vectors.
    gamma
        A trained factor of the weight, or `None`.
    name
        The field of the weight.
    axis
        The axis of the outputs: the weight is a matrix with its rows along that.
    n_power_iterations, eps, factor
        The settings.

    >>> import fdbr
    >>> import numpy as np
    >>> from fdbr import nn
    >>> key = fdbr.random.key(0)
    >>> layer = nn.SpectralNorm.init(key, nn.Linear.init(key, 5, 4))
    >>> for _ in range(20):
    ...     y, layer = layer.train(np.ones((1, 5), np.float32))
    >>> round(float(np.linalg.norm(layer.plain().weight, 2)), 4)
    1.0
    """

    u: Any = buffer()
    v: Any = buffer()
    gamma: Any = None
    name: str = static(default="weight")
    axis: int = static(default=0)
    n_power_iterations: int = static(default=1)
    eps: float = static(default=1e-12)
    factor: float = static(default=1.0)

    def torch_names(self) -> dict[str, Any]:
        """Return PyTorch's names of the arrays, of parametrizations and of older versions."""
        part = f"parametrizations.{self.name}"
        return {
            "layer": "",
            f"layer.{self.name}": (f"{part}.original", f"~{self.name}_orig"),
            "u": (f"{part}.0._u", f"~{self.name}_u"),
            "v": (f"{part}.0._v", f"~{self.name}_v"),
        }

    def chainer_names(self) -> dict[str, Any]:
        """Return the names in Chainer's link hook, which stores only one of the vectors."""
        name = {"weight": "W"}.get(self.name, self.name)
        return {"layer": "", "u": f"{name}_u", "v": None}

    @classmethod
    def init(
        cls,
        key: Any,
        layer: Any,
        *,
        name: str = "weight",
        n_power_iterations: int = 1,
        eps: float = 1e-12,
        axis: int | None = None,
        factor: float = 1.0,
        use_gamma: bool = False,
    ) -> Self:
        """Return a wrapper whose vectors come from 15 power iterations.

        Parameters
        ----------
        key
            A random key for the initial vectors.
        layer
            A layer.
        name
            The field of the weight.
        n_power_iterations
            The number of power iterations in a training step.
        eps
            A lower bound of norms (Chainer's default is 1e-6).
        axis
            The axis of the outputs: by default 1 of a transposed convolution, and 0 of others.
        factor
            A divisor of the singular value, as in Chainer.
        use_gamma
            Whether the weight has a trained factor, as in Chainer: at first the largest singular
            value.

        Raises
        ------
        TypeError, ValueError
            If the layer has no such array of two axes or more, or ``n_power_iterations`` is not a
            positive integer.
        """
        where = "fdbr.nn.SpectralNorm.init"
        weight = _array_of(where, layer, name, 2)
        iterations = integer(where, "n_power_iterations", n_power_iterations, least=1)
        if axis is None:
            axis = 1 if isinstance(layer, ConvTranspose) else 0
        if not -weight.ndim <= axis < weight.ndim:
            raise ValueError(f"{where}: axis {axis} is none of {name} {describe(weight)}")
        matrix = _rows(weight, axis)
        first, second = random.split(key)
        u = ops.normalize(random.normal(first, matrix.shape[:1], matrix.dtype), axis=0, eps=eps)
        v = ops.normalize(random.normal(second, matrix.shape[1:], matrix.dtype), axis=0, eps=eps)
        u, v = _improved(matrix, u, v, 15, eps)
        gamma = lock(_largest_singular(matrix).reshape(())) if use_gamma else None
        axis %= weight.ndim
        return cls(
            layer, lock(u), lock(v), gamma, name, axis, iterations, float(eps), float(factor)
        )

    def _weight(self) -> Any:
        weight = getattr(self.layer, self.name)
        sigma = ops.vecdot(self.u, ops.matmul(_rows(weight, self.axis), self.v))
        scaled = weight * (self.factor / sigma)
        return rounded_like(scaled if self.gamma is None else scaled * self.gamma, weight)

    def train(self, *inputs: Any, key: Any = None) -> tuple[Any, Self]:
        """Return the output in training, and the successor with improved vectors."""
        matrix = stop_gradient(_rows(getattr(self.layer, self.name), self.axis))
        u, v = _improved(matrix, self.u, self.v, self.n_power_iterations, self.eps)
        better = tree.replace(self, u=u, v=v)
        out, layer = self._trained(better.plain(), inputs, key)
        return out, tree.replace(better, layer=layer)


def _rows(weight: Any, axis: int) -> Any:
    """Return the weight as a matrix, with its rows along an axis."""
    moved = ops.moveaxis(weight, axis, 0) if axis else weight
    return moved if moved.ndim == 2 else ops.reshape(moved, (moved.shape[0], -1))


def _improved(matrix: Any, u: Any, v: Any, iterations: int, eps: float) -> tuple[Any, Any]:
    """Improve the vectors by power iterations, which update ``u`` first as in PyTorch."""
    for _ in range(iterations):
        u = ops.normalize(ops.matmul(matrix, v), axis=0, eps=eps)
        v = ops.normalize(ops.matmul(u, matrix), axis=0, eps=eps)
    return rounded_like(u, matrix), rounded_like(v, matrix)


def _largest_singular(matrix: Any) -> Any:
    """Return the largest singular value, computed in float32 for 16-bit dtypes."""
    wide = ops.astype(matrix, ops.float32) if is_short(matrix) else matrix
    return rounded_like(ops.linalg.svdvals(wide)[0:1], matrix)


# --- by its statistics --------------------------------------------------------------


@public("fdbr.nn")
@frozen
class WeightStandardization(_Reparametrized):
    """A layer whose weight has mean 0 and variance 1 for each output.

    Qiao, Wang, Liu, Shen & Yuille, *Weight standardization*, arXiv:1903.10520.

    Attributes
    ----------
    layer
        The layer.
    name
        The field of the weight, whose first axis is that of the outputs.
    eps
        A small number that is added to the variances.

    >>> import fdbr
    >>> from fdbr import nn
    >>> layer = nn.WeightStandardization.init(None, nn.Linear.init(fdbr.random.key(0), 3, 2))
    >>> bool(abs(layer.plain().weight.mean(axis=1)).max() < 1e-6)
    True
    """

    name: str = static(default="weight")
    eps: float = static(default=1e-5)

    torch_names: ClassVar = {"layer": ""}
    chainer_names: ClassVar = {"layer": ""}

    @classmethod
    def init(cls, key: Any, layer: Any, *, name: str = "weight", eps: float = 1e-5) -> Self:
        """Return a wrapper of a layer.

        Parameters
        ----------
        key
            A random key, which is not used and may be `None`.
        layer
            A layer.
        name
            The field of the weight.
        eps
            A small number that is added to the variances.

        Raises
        ------
        ValueError
            If the layer has no such array of two axes or more.
        """
        _array_of("fdbr.nn.WeightStandardization.init", layer, name, 2)
        return cls(layer, name, float(eps))

    def _weight(self) -> Any:
        weight = getattr(self.layer, self.name)
        return ops.standardize(weight, axis=tuple(range(1, weight.ndim)), eps=self.eps)
