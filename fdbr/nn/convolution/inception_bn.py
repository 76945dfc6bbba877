"""The block of GoogLeNet with batch normalisation."""

from typing import Any, Self

import numpy as np

from fdbr import ops, random
from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.composite import Composite
from fdbr.nn.convolution.layers import Conv
from fdbr.nn.normalization.batches import BatchNorm
from fdbr.tree import frozen, static

__all__ = ["InceptionBN"]


@public("fdbr.nn")
@frozen
class InceptionBN(Composite):
    """Convolutions of 1, 3 and twice 3 pixels and a pooling, each normalised, side by side.

    Each convolution is followed by `BatchNorm` and ``relu``.  Ioffe & Szegedy, *Batch
    normalization*, ICML 2015.  Names are Chainer's.

    Attributes
    ----------
    proj3, conv3, proj33, conv33a, conv33b, conv1, poolp
        `Conv` without bias; ``conv1`` is `None` without a path of one pixel, ``poolp`` is `None`
        where the pooling has no projection.
    proj3n, conv3n, proj33n, conv33an, conv33bn, conv1n, poolpn
        `BatchNorm`, one for each of them.
    pooltype
        ``"max"`` or ``"avg"``; the mean counts the zeros around the input.
    stride
        The stride of the last convolution of each path, and of the pooling.

    >>> import fdbr
    >>> layer = fdbr.nn.InceptionBN.init(fdbr.random.key(0), 8, 0, 4, 6, 4, 6, "max", stride=2)
    >>> y, layer = layer.train(fdbr.random.normal(fdbr.random.key(1), (2, 8, 7, 7), "float32"))
    >>> y.shape
    (2, 20, 4, 4)
    """

    proj3: Conv
    conv3: Conv
    proj33: Conv
    conv33a: Conv
    conv33b: Conv
    proj3n: BatchNorm
    conv3n: BatchNorm
    proj33n: BatchNorm
    conv33an: BatchNorm
    conv33bn: BatchNorm
    conv1: Conv | None = None
    conv1n: BatchNorm | None = None
    poolp: Conv | None = None
    poolpn: BatchNorm | None = None
    pooltype: str = static(default="max")
    stride: int = static(default=1)

    @classmethod
    def init(
        cls,
        key: Any,
        in_channels: int,
        out1: int,
        proj3: int,
        out3: int,
        proj33: int,
        out33: int,
        pooltype: str,
        proj_pool: int | None = None,
        stride: int = 1,
        *,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        weight_init: initializers.Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a block with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        in_channels
            The number of channels of the input.
        out1, out3, out33
            How many channels of the output come from the path of one pixel (0: there is none),
            of three, and of twice three.
        proj3, proj33
            The numbers of input channels of the convolutions of three pixels.
        pooltype
            ``"max"`` or ``"avg"``.
        proj_pool
            How many channels come from the pooling; by default as many as the input has,
            without a convolution.
        stride
            The step of the last convolution of each path; 1 with a path of one pixel.
        eps, momentum
            The settings of `BatchNorm` (Chainer's ``eps`` is 2e-5).
        weight_init
            ``init(key, shape, dtype)``, as for `Conv.init`.
        dtype
            The dtype of parameters and statistics.

        Raises
        ------
        TypeError, ValueError
            If a number of channels is not a positive integer, there is no such pooling, or a path
            of one pixel is combined with a stride.
        """
        where = "fdbr.nn.InceptionBN.init"
        stride = integer(where, "stride", stride, least=1)
        if pooltype not in ("max", "avg"):
            raise ValueError(f"{where}: pooltype must be 'max' or 'avg', got {pooltype!r}")
        if integer(where, "out1", out1, least=0) and (stride != 1 or proj_pool is None):
            raise ValueError(
                f"{where}: a path of one pixel (out1={out1}) needs stride 1 and a projection of "
                f"the pooling, got stride={stride}, proj_pool={proj_pool}; else out1 must be 0"
            )
        settings: dict[str, Any] = {"bias": False, "weight_init": weight_init, "dtype": dtype}
        norm: dict[str, Any] = {"eps": eps, "momentum": momentum, "dtype": dtype}
        three: dict[str, Any] = {"padding": 1, **settings}
        keys = random.split(key, 7)
        parts: dict[str, Any] = {
            "proj3": Conv.init(keys[0], in_channels, proj3, 1, **settings),
            "conv3": Conv.init(keys[1], proj3, out3, 3, stride=stride, **three),
            "proj33": Conv.init(keys[2], in_channels, proj33, 1, **settings),
            "conv33a": Conv.init(keys[3], proj33, out33, 3, **three),
            "conv33b": Conv.init(keys[4], out33, out33, 3, stride=stride, **three),
        }
        if out1:
            parts["conv1"] = Conv.init(keys[5], in_channels, out1, 1, **settings)
        if proj_pool is not None:
            parts["poolp"] = Conv.init(keys[6], in_channels, proj_pool, 1, **settings)
        parts |= {
            f"{name}n": BatchNorm.init(None, layer.weight.shape[0], **norm)
            for name, layer in list(parts.items())
        }
        return cls(**parts, pooltype=pooltype, stride=stride)

    def _forward(self, of: Any, x: Any) -> Any:
        x = ops.asarray(x)
        outs = []
        if self.conv1 is not None:
            outs.append(ops.relu(of.conv1n(of.conv1(x))))
        path = ops.relu(of.proj3n(of.proj3(x)))
        outs.append(ops.relu(of.conv3n(of.conv3(path))))
        path = ops.relu(of.proj33n(of.proj33(x)))
        path = ops.relu(of.conv33an(of.conv33a(path)))
        outs.append(ops.relu(of.conv33bn(of.conv33b(path))))
        pool = ops.max_pool if self.pooltype == "max" else ops.avg_pool
        pooled = pool(x, (3, 3), stride=self.stride, padding=1)
        if self.poolp is not None:
            pooled = ops.relu(of.poolpn(of.poolp(pooled)))
        return ops.concat([*outs, pooled], axis=1)
