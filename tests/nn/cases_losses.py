"""Cases of layers that are losses."""

import numpy as np

from fdbr import nn, ops
from nn.layer_cases import KEY, case, numbers

LABELS = np.array([1, 0, 2])


def _labelled(*shape):
    return lambda dtype: (numbers(shape, dtype), LABELS)


def _drawn(layer, x, labels):
    return layer(x, labels, key=KEY)


case(
    "Classifier",
    lambda d: nn.Classifier(nn.Linear.init(KEY, 2, 3, dtype=d)),
    _labelled(3, 2),
)
case(
    "Classifier with a loss of its own",
    lambda d: nn.Classifier(nn.Linear.init(KEY, 2, 3, dtype=d), ops.hinge, {}),
    _labelled(3, 2),
)
case(
    "NegativeSampling",
    lambda d: nn.NegativeSampling.init(
        KEY, 2, [4, 2, 1], 2, weight_init=nn.initializers.normal(1.0), dtype=d
    ),
    _labelled(3, 2),
    key=True,
    call=_drawn,
)
case(
    "BlackOut",
    lambda d: nn.BlackOut.init(KEY, 2, [4, 2, 1], 2, dtype=d),
    _labelled(3, 2),
    key=True,
    call=_drawn,
)
case(
    "BinaryHierarchicalSoftmax",
    lambda d: nn.BinaryHierarchicalSoftmax.init(KEY, 2, ((0, 1), 2), dtype=d),
    _labelled(3, 2),
)
case(
    "CRF1d",
    lambda d: nn.CRF1d.init(KEY, 3, cost_init=nn.initializers.normal(1.0), dtype=d),
    lambda d: (numbers((3, 2, 3), d), np.array([[0, 1], [2, 2], [1, 0]])),
)
