"""Cases of normalisation."""

import numpy as np

from fdbr import nn, tree
from nn.layer_cases import case, numbers


def made(kind, *sizes, **settings):
    """A layer whose parameters and statistics are neither 0 nor 1."""

    def make(dtype):
        layer = kind.init(None, *sizes, dtype=dtype, **settings)
        return tree.map(
            lambda leaf: (
                leaf
                if leaf.dtype.kind == "i"
                else np.abs(numbers(leaf.shape, dtype, seed=leaf.size)) + leaf / 2
            ),
            layer,
        )

    return make


case("BatchNorm", made(nn.BatchNorm, 2), [(3, 2)])
case("BatchNorm of its input", made(nn.BatchNorm, 2, track_running_stats=False), [(3, 2, 2)])
case(
    "BatchNorm over the last axis",
    made(nn.BatchNorm, 2, affine=False, axis=-1, momentum=None),
    [(2, 2, 2)],
)
case("BatchNorm without bias", made(nn.BatchNorm, 2, bias=False), [(2, 2, 1, 2)])
case("BatchNorm with a bias alone", made(nn.BatchNorm, 2, weight=False), [(2, 2, 1, 2)])
case(
    "BatchNorm with a bias alone in training",
    made(nn.BatchNorm, 2, weight=False),
    [(3, 2, 1)],
    call=lambda layer, x: layer.train(x)[0],
)
case(
    "BatchNorm in training",
    made(nn.BatchNorm, 2),
    [(3, 2, 1)],
    call=lambda layer, x: layer.train(x)[0],
)
case("LayerNorm", made(nn.LayerNorm, 3), [(2, 3)])
case("LayerNorm of two axes", made(nn.LayerNorm, (2, 2), bias=False), [(2, 2)])
case("RMSNorm", made(nn.RMSNorm, 3), [(2, 3)])
case("GroupNorm", made(nn.GroupNorm, 2, 4), [(1, 4, 2)])
case("InstanceNorm", made(nn.InstanceNorm, 2), [(1, 2, 3)])
case(
    "InstanceNorm with statistics",
    made(nn.InstanceNorm, 2, affine=True, track_running_stats=True),
    [(2, 2, 2)],
)
case("BatchRenorm", made(nn.BatchRenorm, 2), [(3, 2)])
case(
    "BatchRenorm in training",
    # At its limits, for no derivative is taken of the correction.
    made(nn.BatchRenorm, 2, r_max=1.0, d_max=0.0, bias=False),
    [(3, 2, 1)],
    call=lambda layer, x: layer.train(x)[0],
)
case(
    "BatchRenorm with a bias alone in training",
    made(nn.BatchRenorm, 2, r_max=1.0, d_max=0.0, weight=False),
    [(3, 2, 1)],
    call=lambda layer, x: layer.train(x)[0],
)
case("DecorrelatedBatchNorm", made(nn.DecorrelatedBatchNorm, 4, groups=2), [(2, 4)])
case(
    "DecorrelatedBatchNorm in training",
    made(nn.DecorrelatedBatchNorm, 2, groups=1, eps=0.1, momentum=None),
    [(2, 2, 2)],
    call=lambda layer, x: layer.train(x)[0],
)
